package lease

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/rebalance"
)

// An Item is a record as flat attributes. This stored form is a promise of compatibility. A
// value is a string, an int64, a bool, a []byte or a []string (a set), and Decode needs the
// same types. Attributes with the same meaning have the names of the Kinesis Client Library.
// Empty values are absent. docs/table.md lists the attributes.
//
// The attribute "version" grows only when older readers would misread a record. Decode ignores
// attributes that it does not know, and a store leaves them as they are.
type Item map[string]any

// TombstoneAge is how long a tombstone is kept before a store may delete it.
const TombstoneAge = 30 * 24 * time.Hour

// attributes is about how many attributes a record has.
const attributes = 24

// Encode returns the stored form of r.
func Encode(r Record) Item {
	item := make(Item, attributes)
	put := func(name string, value any) {
		if !isEmpty(value) {
			item[name] = value
		}
	}
	key := r.Key()
	put(attr.Group, attr.Partition(key.Group, key.Kind.Listed()))
	put(attr.Key, key.Name)
	put(attr.Version, int64(attr.Format))
	put(attr.WriteID, string(r.Written()))
	switch r := r.(type) {
	case Row:
		r.encode(put)
	case Seat:
		s := r
		s.encode(put)
	case Target:
		r.encode(put)
	case Plan:
		r.encode(put)
	case Wishes:
		r.encode(put)
	case Ends:
		r.encode(put)
	case Act:
		r.encode(put)
	}
	return item
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case int64:
		return v == 0
	case bool:
		return !v
	case []string:
		return len(v) == 0
	case []byte:
		return len(v) == 0
	}
	return false
}

func (r Row) encode(put func(string, any)) {
	put(attr.Counter, r.Counter)
	put(attr.Generation, r.Generation)
	put(attr.Owner, r.Owner.Name)
	put(attr.Incarnation, string(r.Owner.Incarnation))
	put(attr.Task, r.Owner.Task)
	put(attr.LockDelay, (r.Owner.LockDelay + r.Reserved.Delay).Milliseconds()) // a row with an owner has no reservation
	put(attr.Offer, string(r.OfferedTo))
	put(attr.ReservedFor, r.Reserved.For)
	put(attr.Reserved, r.Reserved.Lasts.Milliseconds())
	put(attr.Position, r.Checkpoint.Position)
	put(attr.State, []byte(r.Checkpoint.State))
	put(attr.CheckpointGeneration, r.Checkpoint.Generation)
	put(attr.CheckpointAt, millis(r.Checkpoint.At))
	put(attr.Parents, r.Parents)
	put(attr.Finished, r.Finished)
	put(attr.Quarantined, r.Quarantined)
	put(attr.Removed, r.Removed)
	if r.Removed {
		put(attr.Expires, r.expires().Unix())
	}
	put(attr.Failures, r.Failures.Count)
	put(attr.FailedGeneration, r.Failures.Last)
	put(attr.Errors, r.Failures.Errors)
	put(attr.FailedBy, r.Failures.Workers)
	put(attr.LastError, r.Failures.packedError())
	put(attr.Last, r.Last.pack(r.Owner.Task))
	put(attr.Past, r.Past)
}

// packedError returns the error as a row stores it. Its generation is stored too: an older version leaves the attribute as
// it is when it counts another failure, or none any more.
func (f Failures) packedError() string {
	if f.Error == "" {
		return ""
	}
	return strconv.FormatInt(f.ErrorOf, 10) + " " + f.Error
}

// setError reads what packedError has made. A text that cannot be read is ignored, because only people read it.
func (f *Failures) setError(packed string, generation int64) {
	number, text, _ := strings.Cut(packed, " ")
	if of, err := strconv.ParseInt(number, 10, 64); err == nil && of > 0 && of < generation && text != "" && validText("last error", text, MaxNote) == nil {
		f.Error, f.ErrorOf = text, of
	}
}

// expires returns from when on a store may delete a tombstone. A row that is made after that has a
// generation of the clock, which must be above that of the tombstone. The clock from which the
// generation came may have been ahead of the present one.
func (r Row) expires() time.Time {
	from := r.Last.At
	if issued := generation.Time(r.Generation); issued.After(from) {
		from = issued
	}
	return from.Add(TombstoneAge)
}

// Decode reads the stored form of a record. It ignores attributes that it does not know, and
// returns a [*MalformedError] that names the first attribute that it cannot read.
func Decode(item Item) (Record, error) {
	in := reader{item: item}
	key := in.key()
	if version := in.number(attr.Version); version != attr.Format {
		in.fail(attr.Version, fmt.Sprintf("must be %d, is %d", attr.Format, version))
	}
	var r Record
	switch key.Kind {
	case KindLease:
		r = in.row(key)
	case KindSeat:
		r = in.seat(key)
	case KindTarget:
		r = in.target(key)
	case KindPlan:
		r = in.plan(key)
	case KindWishes:
		r = in.wishes(key)
	case KindEnds:
		r = in.ends(key)
	case KindJournal:
		r = in.act(key)
	}
	if in.err == nil && r != nil {
		in.err = r.Validate()
	}
	if in.err != nil {
		id, _ := item[attr.WriteID].(string)
		owner := ""
		if key.Kind == KindLease {
			owner, _ = item[attr.Owner].(string)
		}
		return nil, &MalformedError{Key: key, WriteID: WriteID(id), Cause: in.err, Owner: owner}
	}
	return r, nil
}

// A reader reads attributes one after the other and keeps the first error.
type reader struct {
	item Item
	err  error
}

func (in *reader) fail(attr, rule string) {
	if in.err == nil {
		in.err = invalid("attribute "+strconv.Quote(attr), rule)
	}
}

// value returns an attribute of type T, or the zero value if the attribute is absent.
func value[T any](in *reader, attr, kind string) T {
	v, ok := in.item[attr].(T)
	if _, present := in.item[attr]; present && !ok {
		in.fail(attr, "must be "+kind)
	}
	return v
}

func (in *reader) text(attr string) string { return value[string](in, attr, "a string") }
func (in *reader) number(attr string) int64 {
	return value[int64](in, attr, "a whole number of 64 bits")
}
func (in *reader) flag(attr string) bool     { return value[bool](in, attr, "a boolean") }
func (in *reader) binary(attr string) []byte { return value[[]byte](in, attr, "binary") }

func (in *reader) set(attr string) []string {
	return slices.Sorted(slices.Values(value[[]string](in, attr, "a set of strings")))
}

func (in *reader) time(attr string) time.Time { return fromMillis(in.number(attr)) }

// duration reads milliseconds. Negative ones are read as one, whatever their number.
func (in *reader) duration(attr string) time.Duration {
	n := in.number(attr)
	if n > rebalance.MaxDuration.Milliseconds() {
		in.fail(attr, "must be at most a day")
	}
	return time.Duration(min(max(n, -1), rebalance.MaxDuration.Milliseconds())) * time.Millisecond
}

func (in *reader) key() Key {
	partition, name := in.text(attr.Group), in.text(attr.Key)
	cut := max(strings.LastIndexByte(partition, '/'), 0)
	for _, kind := range []Kind{KindLease, KindSeat, KindTarget, KindEnds, KindJournal} {
		if group := partition[:cut]; partition == attr.Partition(group, kind) {
			if kind == KindSeat && strings.HasPrefix(name, "!") {
				kind = reserved(name)
			}
			if kind == 0 {
				in.fail(attr.Key, "must be a reserved name that this version knows")
			}
			return Key{Group: group, Kind: kind, Name: name}
		}
	}
	in.fail(attr.Group, "must end in a known kind")
	return Key{Group: partition, Name: name}
}

func (in *reader) owner() Owner {
	return Owner{Name: in.text(attr.Owner), Incarnation: Incarnation(in.text(attr.Incarnation)), Task: in.text(attr.Task)}
}

func (in *reader) row(key Key) Row {
	r := Row{
		Group: key.Group, Shard: key.Name, Parents: in.set(attr.Parents),
		Counter: in.number(attr.Counter), WriteID: WriteID(in.text(attr.WriteID)), Generation: in.number(attr.Generation),
		Owner:     in.owner(),
		OfferedTo: Incarnation(in.text(attr.Offer)),
		Checkpoint: checkpoint.Checkpoint{
			Mark:       checkpoint.Mark{Position: in.text(attr.Position), State: string(in.binary(attr.State))},
			Generation: in.number(attr.CheckpointGeneration), At: in.time(attr.CheckpointAt),
		},
		Finished: in.flag(attr.Finished), Quarantined: in.flag(attr.Quarantined), Removed: in.flag(attr.Removed),
		Failures: Failures{Count: in.number(attr.Failures), Last: in.number(attr.FailedGeneration), Errors: in.number(attr.Errors), Workers: in.text(attr.FailedBy)},
	}
	r.Failures.setError(in.text(attr.LastError), r.Generation)
	if r.Owner.Name != "" { // a version that does not know the attribute leaves it in the row that it releases
		r.Owner.LockDelay = in.duration(attr.LockDelay)
	}
	r.Last = in.last(r.Generation, r.Owner.Task)
	if r.Last.Did == didReassign { // an older version of the library leaves these attributes in a row that it claims
		r.Reserved = Reservation{For: in.text(attr.ReservedFor), Lasts: in.duration(attr.Reserved), Delay: in.duration(attr.LockDelay)}
	} else if r.Last.Did == didRelease {
		r.Reserved = Reservation{Delay: in.duration(attr.LockDelay)}
	}
	r.Past = in.text(attr.Past)
	if _, err := unpack(r.Past, r.Last); err != nil {
		in.fail(attr.Past, err.Error())
	}
	return r
}

// parseWant reads the text of Want.String. The shard is the last word because it may contain
// spaces, and a tab separates the owner from it because both may.
func parseWant(text string) (Want, bool) {
	text, owner, _ := strings.Cut(text, "\t")
	fields := strings.SplitN(text, " ", 6)
	if len(fields) < 6 {
		return Want{}, false
	}
	generation, errGeneration := strconv.ParseInt(fields[0], 10, 64)
	terms, errTerms := parseTerms(fields[1:5])
	w := Want{Shard: fields[5], Generation: generation, Owner: Incarnation(owner), Terms: terms}
	return w, errGeneration == nil && errTerms == nil && w.validate() == nil
}

// parseTerms reads the four words of terms in the text of Want.String. A mode or an after-drain
// that this version does not know was written by a newer one. It is read as eager or force, which
// never makes two handlers run. A stored duration is never "default": a worker does not know the
// configuration of another.
func parseTerms(words []string) (rebalance.Terms, error) {
	mode, drain, after, prepare := words[0], words[1], words[2], words[3]
	if mode != "" && mode != rebalance.Cooperative.String() {
		mode = rebalance.Eager.String()
	}
	if after != "" && after != rebalance.Wait.String() {
		after = rebalance.Force.String()
	}
	var t rebalance.Terms
	err := t.UnmarshalText([]byte(mode + " " + drain + " " + after + " " + prepare))
	if err == nil && (t.Drain == 0 || t.Prepare == 0) { // UnmarshalText reads "default" as 0, and "0s" as a negative number
		err = rebalance.ErrTerms
	}
	return t.Fill(0), err
}
