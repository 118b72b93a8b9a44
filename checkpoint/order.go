package checkpoint

import (
	"cmp"
	"fmt"
	"strings"
)

// An Order compares two positions of one shard, as cmp.Compare does. It reports
// an [*InvalidError] for a position it cannot read.
//
// An order of the user's own is any function of this form. It must be pure and
// transitive.
type Order func(a, b string) (int, error)

// Decimal orders whole decimal numbers of any length, as Kinesis, DynamoDB
// Streams and Kafka number their records. Leading zeros do not count.
func Decimal(a, b string) (int, error) {
	a, okA := digits(a)
	b, okB := digits(b)
	if !okA || !okB {
		return 0, &InvalidError{Field: "position", Rule: "must be a whole decimal number"}
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)), nil
}

// digits strips leading zeros; a number is nothing but digits, and at least one.
func digits(s string) (string, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return "", false
		}
	}
	return strings.TrimLeft(s, "0"), s != ""
}

// Lexical orders by bytes: file names, timestamps of fixed width.
func Lexical(a, b string) (int, error) { return cmp.Compare(a, b), nil }

// Unordered compares nothing: positions are tokens, and the order of a holder's
// own marks is all there is. It is what a nil Order means.
func Unordered(a, b string) (int, error) { return 0, nil }

// Advance reports whether shard may move from the accepted mark to next: nil,
// or an [*InvalidError], or a [*BackwardsError]. Standing still is an advance:
// the state may have changed.
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

// unreadable says which of the two positions the order cannot read. What the order
// said is dropped: it may hold the position.
func (o Order) unreadable(shard string, next Mark) error {
	field := "position"
	if _, err := o(next.Position, next.Position); err == nil {
		field = "accepted position"
	}
	return fmt.Errorf("shard %q: %w", shard, &InvalidError{Field: field, Rule: "cannot be read by its order"})
}
