package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
)

// A Record is one of the two kinds of row: a [Row] or a [Seat].
type Record interface {
	Key() Key
	Written() WriteID // the write that left it like this
	Validate() error
	String() string
	LogValue() slog.Value
	count() int64
}

// Clone copies what r refers to, so that neither side sees the other's changes; it
// is nil for what is no record.
func Clone(r Record) Record {
	switch r := r.(type) {
	case Row:
		r.Parents = slices.Clone(r.Parents)
		return r
	case Seat:
		r.Wants = slices.Clone(r.Wants)
		return r
	}
	return nil
}

// An Op says on what condition a write is accepted.
type Op uint8

const (
	// OpCreate stores a record where there is none. A tombstone is a record:
	// nothing is ever created over it.
	OpCreate Op = iota + 1

	// OpSwap replaces a record on condition that its write id is the one that
	// was read, and so on condition of everything about it. It is the write
	// of whoever holds the record, and an operator's on a row that nobody
	// holds; with one such write under way at a time, nothing can come between
	// reading and writing unnoticed.
	OpSwap

	// OpTransfer takes a lease row from whoever holds it, or from nobody, and
	// is made by somebody else. Its condition is the generation and the owner as
	// read, not the counter, so an owner that commits as fast as it can does
	// not starve it. What such an owner commits meanwhile is kept: the
	// checkpoint stays as stored, and the counter goes on from the stored
	// one. The write returns the row that resulted, so a new generation's
	// start is read in the same step that fences the old one.
	//
	// A transfer to the successor an offer names has that offer in its
	// condition as well: withdrawn means withdrawn.
	OpTransfer

	// OpDelete removes a seat, on condition that its write id is the one that
	// was read: an eviction, or a worker giving up its own seat. Lease rows
	// are never deleted, or the generations they issued would be forgotten.
	OpDelete
)

func (o Op) String() string {
	switch o {
	case OpCreate:
		return "create"
	case OpSwap:
		return "swap"
	case OpTransfer:
		return "transfer"
	case OpDelete:
		return "delete"
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// A Write is one conditional write, as a plain value: it can be sent, sent
// again with the same bytes, held back and delivered late. Its condition makes
// a second delivery harmless.
//
// The transitions of [Row] and [Seat] make writes. [Write.Check] holds a Write put
// together by hand to what transitions can make.
type Write struct {
	Op   Op
	Old  Record // what was read, and what the condition is about; nil for OpCreate
	Next Record // what the writer expects to leave; nil for OpDelete
}

// Key is the address of the record the write is about.
func (w Write) Key() Key {
	for _, r := range []Record{w.Next, w.Old} {
		if isValue(r) {
			return r.Key()
		}
	}
	return Key{}
}

// ID is the write's id; empty for a deletion.
func (w Write) ID() WriteID {
	if !isValue(w.Next) {
		return ""
	}
	return w.Next.Written()
}

// checked is w, if it passes its check.
func checked(w Write) (Write, error) {
	if err := w.Check(); err != nil {
		return Write{}, err
	}
	return w, nil
}

// isValue reports whether r is a Row or a Seat. A pointer to one has the same
// methods and is neither.
func isValue(r Record) bool {
	switch r.(type) {
	case Row, Seat:
		return true
	}
	return false
}

func (w Write) String() string { return fmt.Sprintf("%v of %v (write %.64q)", w.Op, w.Key(), w.ID()) }

// GoString keeps %#v from printing the user's data.
func (w Write) GoString() string { return w.String() }

// LogValue is String, for structured logs.
func (w Write) LogValue() slog.Value { return slog.StringValue(w.String()) }

// Check reports, as ErrBadWrite, a write that no store may send: values that
// cannot be stored, or a change that no transition makes. Every store calls it
// first, so that what is wrong is wrong before anything has been written.
func (w Write) Check() error {
	bad := func(why error) error { return fmt.Errorf("%v: %w: %w", w, ErrBadWrite, why) }
	if why := w.checkShape(); why != "" {
		return bad(errors.New(why))
	}
	if w.Op == OpDelete {
		if err := w.Old.Key().Validate(); err != nil {
			return bad(err)
		}
		return nil
	}
	if err := w.Next.Validate(); err != nil {
		return bad(err)
	}
	if why := w.checkChange(); why != "" {
		return bad(errors.New(why))
	}
	return nil
}

// checkShape: an operation, and the records it needs, of the kinds it is for.
func (w Write) checkShape() string {
	creates, deletes := w.Op == OpCreate, w.Op == OpDelete
	switch {
	case w.Op < OpCreate || w.Op > OpDelete:
		return "unknown operation"
	case creates != (w.Old == nil):
		return "needs what was read, unless it creates"
	case deletes != (w.Next == nil):
		return "needs what to store, unless it deletes"
	case !creates && !isValue(w.Old) || !deletes && !isValue(w.Next):
		return "a record is a Row or a Seat, not a pointer to one"
	case deletes && w.Old.Key().Kind == KindLease:
		return "lease rows are never deleted"
	}
	return ""
}

// checkChange: what any record's next state has to do with the one before.
func (w Write) checkChange() string {
	row, isRow := w.Next.(Row)
	if w.Op == OpCreate {
		switch {
		case isRow && !row.isNew():
			return "a new row is as Begin makes it"
		case !isRow && w.Next.count() != 0:
			return "a new seat has not beaten yet"
		}
		return ""
	}
	switch {
	case w.Old.Key() != w.Next.Key():
		return "must stay at its key"
	case w.Old.count() == maxInt64 || w.Next.count() != w.Old.count()+1:
		return "must count up by one"
	case w.Next.Written() == w.Old.Written():
		return "must have an id of its own"
	case !isRow && w.Op == OpTransfer:
		return "a seat is not transferred"
	case !isRow:
		return ""
	}
	old := w.Old.(Row)
	if row.Generation == old.Generation && w.Op == OpSwap {
		return row.checkWithin(old)
	}
	return row.checkHands(old, w.Op)
}

// isNew: nobody's, with nothing done, at the generation its clock gives.
func (r Row) isNew() bool {
	plain := Row{
		Group: r.Group, Shard: r.Shard, Parents: r.Parents, WriteID: r.WriteID, Last: r.Last,
		Counter: 1, Generation: FirstGeneration(r.Last.At),
	}
	return r.equal(plain) && r.Last.Reason == Initial
}

func (r Row) equal(other Row) bool {
	if !slices.Equal(r.Parents, other.Parents) {
		return false
	}
	r.Parents, other.Parents = nil, nil
	return reflect.DeepEqual(r, other)
}

// checkWithin holds a write within a generation to what a holder may change: the
// checkpoint, the offer, and how much of the past is remembered.
func (r Row) checkWithin(old Row) string {
	switch {
	case old.Owner.IsZero() || r.Owner != old.Owner || r.standing() != old.standing():
		return "within a generation the owner and the standing stay"
	case r.Last != old.Last || r.Failures != old.Failures || !slices.Equal(r.Parents, old.Parents):
		return "within a generation only the checkpoint and the offer change"
	case !old.Past.starts(r.Past):
		return "the past does not change"
	}
	return r.checkCheckpoint(old)
}

// checkCheckpoint: a holder's checkpoint is of its own generation, and does not
// vanish.
func (r Row) checkCheckpoint(old Row) string {
	is, was := r.Checkpoint, old.Checkpoint
	if is != was && (is.Generation != old.Generation || is.IsZero() && !was.IsZero()) {
		return "a checkpoint is of the generation it is made under"
	}
	return ""
}

// checkHands holds a change of hands to the invariants of [Row].
func (r Row) checkHands(old Row, op Op) string {
	switch {
	case r.Generation <= old.Generation:
		return "a change of hands begins a generation"
	case r.Last.WriteID != r.WriteID:
		return "a new generation is recorded with the write that began it"
	case !old.Past.after(old.Last, r.Generation).starts(r.Past):
		return "the past is what was, and then the last transfer"
	case r.OfferedTo != "":
		return "an offer ends with its generation"
	case op == OpTransfer && (r.Finished != old.Finished || r.Removed != old.Removed || old.Quarantined && !r.Quarantined):
		return "a transfer only sets aside"
	case !r.Owner.IsZero() && (old.Finished || old.Quarantined || old.Removed):
		return "a row that is finished, quarantined or removed is nobody's"
	case !old.Owner.IsZero() && op == OpSwap:
		return r.checkCheckpoint(old)
	}
	return ""
}

// standing is what about a row decides whether anybody may claim it.
func (r Row) standing() [3]bool { return [3]bool{r.Finished, r.Quarantined, r.Removed} }

// Apply is what a store does, in one atomic step, with a write that has passed
// Check. It takes the record as it stands, nil for none, and returns the one
// that takes its place, nil for none, or the refusal. It is the definition;
// the stores translate it.
func (w Write) Apply(stored Record) (Record, error) {
	if !w.holdsOn(stored) {
		return nil, &RefusedError{Op: w.Op, Key: w.Key(), Now: stored}
	}
	if w.Op != OpTransfer {
		return w.Next, nil
	}
	at, next := stored.(Row), w.Next.(Row)
	next.Counter, next.Checkpoint = at.Counter+1, at.Checkpoint
	return next, nil
}

// holdsOn is the condition of each operation.
func (w Write) holdsOn(stored Record) bool {
	if w.Op == OpCreate || stored == nil {
		return w.Op == OpCreate && stored == nil
	}
	if w.Op != OpTransfer {
		return stored.Written() == w.Old.Written()
	}
	at, old, next := stored.(Row), w.Old.(Row), w.Next.(Row)
	if next.Accepts(old) && at.OfferedTo != old.OfferedTo {
		return false
	}
	if at.Counter == maxInt64 {
		return false // nothing can be written there any more, and the refusal shows why
	}
	return at.Generation == old.Generation && at.Owner.Incarnation == old.Owner.Incarnation
}

// Accepts reports whether r is what the successor that old was offered to makes
// of it.
func (r Row) Accepts(old Row) bool {
	return old.OfferedTo != "" && old.OfferedTo == r.Owner.Incarnation
}
