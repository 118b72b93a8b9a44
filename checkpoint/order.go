package checkpoint

import (
	"cmp"
	"fmt"
	"strings"
)

// An Order compares two positions of one shard like cmp.Compare. It returns an [*InvalidError] for
// a position that it cannot read.
//
// You can write your own. It must be pure and transitive.
type Order func(a, b string) (int, error)

// Decimal orders whole decimal numbers of any length, the form of the record numbers of Kinesis,
// DynamoDB Streams and Kafka. Leading zeros do not count.
func Decimal(a, b string) (int, error) {
	a, okA := digits(a)
	b, okB := digits(b)
	if !okA || !okB {
		return 0, &InvalidError{Field: "position", Rule: "must be a whole decimal number"}
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)), nil
}

// digits returns s without leading zeros, and whether s is at least one digit and nothing else.
func digits(s string) (string, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return "", false
		}
	}
	return strings.TrimLeft(s, "0"), s != ""
}

// Lexical orders positions by their bytes, for example file names and timestamps of fixed width.
func Lexical(a, b string) (int, error) { return cmp.Compare(a, b), nil }

// Unordered treats all positions as equal, for positions that cannot be compared. The table then
// accepts the holder's marks in the order in which it makes them. A nil Order means the same.
func Unordered(a, b string) (int, error) { return 0, nil }

// Advance checks that next is not before the accepted mark of shard. If it is before, Advance
// returns a [*BackwardsError]; if it cannot be stored or read, an [*InvalidError]. The same position
// again is allowed, because the state may have changed.
func (o Order) Advance(shard string, accepted, next Mark) error {
	if err := next.Validate(); err != nil {
		return err
	}
	if o == nil {
		return nil
	}
	from := accepted.Position
	if from == "" {
		from = next.Position // nothing accepted yet; the order must still be able to read next
	}
	order, err := o(from, next.Position)
	if err != nil {
		return o.unreadable(shard, next)
	}
	if order > 0 {
		return &BackwardsError{Shard: shard}
	}
	return nil
}

// unreadable returns an error that names which of the two positions the order cannot read. It drops
// the order's own error, which may contain the position.
func (o Order) unreadable(shard string, next Mark) error {
	field := "position"
	if _, err := o(next.Position, next.Position); err == nil {
		field = "accepted position"
	}
	return fmt.Errorf("shard %q: %w", shard, &InvalidError{Field: field, Rule: "cannot be read by its order"})
}
