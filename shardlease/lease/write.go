package lease

import (
	"fmt"
	"log/slog"
	"math"
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
// is nil for what is no record. A record that refers to nothing is its own clone.
func Clone(r Record) Record {
	switch of := r.(type) {
	case Row:
		if of.Parents == nil {
			return r
		}
		of.Parents = slices.Clone(of.Parents)
		return of
	case Seat:
		if of.Wants == nil {
			return r
		}
		of.Wants = slices.Clone(of.Wants)
		return of
	}
	return nil
}

// An Op says on what condition a write is accepted.
type Op uint8

const (
	// OpCreate stores a record where there is none. A tombstone is a record:
	// nothing is ever created over it.
	OpCreate Op = iota + 1

	// OpSwap replaces a record on condition that its write id and its counter
	// are those that were read, and so on condition of everything about it.
	// (The id alone would let pass a row as the maker of a transfer expected
	// it, while the table kept a later checkpoint.) It is the write
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

	// OpDelete removes a seat, on the condition of a swap: an eviction, or a worker giving up its own seat. Lease rows
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
// The transitions of rows and seats make writes. [Write.Check] holds a Write put
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
		return stored.Written() == w.Old.Written() && stored.count() == w.Old.count()
	}
	at, old, next := stored.(Row), w.Old.(Row), w.Next.(Row)
	if next.Accepts(old) && at.OfferedTo != old.OfferedTo {
		return false
	}
	if at.Counter == math.MaxInt64 {
		return false // nothing can be written there any more, and the refusal shows why
	}
	return at.Generation == old.Generation && at.Owner.Incarnation == old.Owner.Incarnation
}

// Accepts reports whether r is what the successor that old was offered to makes
// of it.
func (r Row) Accepts(old Row) bool {
	return old.OfferedTo != "" && old.OfferedTo == r.Owner.Incarnation
}
