package lease

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
)

// A Record is what a table holds under one key: a [Row], a [Seat], a [Target], a [Plan],
// [Wishes], [Ends] or an [Act].
type Record interface {
	Key() Key
	Written() WriteID // the id of the write that made the record what it is
	Validate() error
	String() string
	LogValue() slog.Value
	count() int64
}

// Clone returns a copy of r that shares no memory with it. It returns nil if r is not a
// record, and r itself if r refers to nothing.
func Clone(r Record) Record {
	switch of := r.(type) {
	case Row:
		if of.Parents == nil {
			return r
		}
		of.Parents = slices.Clone(of.Parents)
		return of
	case Seat:
		if of.Wants == nil && of.News == nil {
			return r
		}
		return of.clone()
	case Target:
		return of.clone()
	case Plan:
		return of.clone()
	case Wishes:
		return of.clone()
	case Ends:
		return of.clone()
	case Act:
		return r
	}
	return nil
}

// An Op is the kind of a conditional write; it determines the condition.
type Op uint8

const (
	// OpCreate stores a record where there is none. A tombstone is a record: nothing is ever
	// created over it.
	OpCreate Op = iota + 1

	// OpSwap replaces a record on condition that its write id and its counter are those
	// that were read, and so everything else in it too. (The id alone is not enough: a
	// transfer keeps a later checkpoint of the table, so the row can differ from what the
	// writer of the transfer expected under the same id.) The holder of a record swaps; an
	// operator swaps a row that nobody holds, to free it from quarantine or to
	// remove it, and any row to rewind or to finish it; and a worker swaps such a row to remove it, or to create a removed row
	// again. A worker also swaps a row that nobody holds, or whose owner is dead, to quarantine
	// a shard that has failed too often. A writer has at most one such write under way, so no
	// other write can slip in unnoticed between its read and its write.
	OpSwap

	// OpTransfer takes a lease row from its owner, or from nobody: a worker claims the
	// shard, or an operator releases it by force, quarantines it or adopts its
	// row. Its condition is the generation and the owner that were read, and not the counter,
	// so an owner that commits as fast as it can does not starve it. What such an owner has
	// committed since stays: the transfer keeps the stored checkpoint, and counts on from the
	// stored counter. The write returns the row that resulted, so one step both fences the old
	// generation and reads where the new one starts.
	//
	// A transfer to the successor that an offer names has the offer in its condition as
	// well: a withdrawn offer cannot be accepted.
	OpTransfer

	// OpDelete removes a seat or a target, on the condition of a swap: when a worker evicts
	// another or gives up its own seat, and when the target of a dead worker is no longer
	// needed. An operator deletes wishes that cannot be read. Lease rows are never deleted, because
	// the generations that they issued would be forgotten.
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

// A Write is one conditional write. It is a plain value that can be sent, sent again with the
// same bytes, delayed and delivered late. Its condition makes a second delivery harmless.
//
// The transitions of rows and seats make writes. [Write.Check] refuses a Write that no
// transition could have made.
type Write struct {
	Op   Op
	Old  Record // the record that was read, with which the condition compares; nil for OpCreate
	Next Record // the record that the writer expects to store; nil for OpDelete

	// Spoilt: the stored seat or wishes cannot be read, and of Old only the key and the write id are known.
	// The condition of the deletion then compares the write id alone. An empty one stands for an
	// attribute that is missing or no string.
	Spoilt bool
}

// Key returns the address of the record that the write changes.
func (w Write) Key() Key {
	for _, r := range []Record{w.Next, w.Old} {
		if isValue(r) {
			return r.Key()
		}
	}
	return Key{}
}

// ID returns the id of the write; a deletion has none.
func (w Write) ID() WriteID {
	if !isValue(w.Next) {
		return ""
	}
	return w.Next.Written()
}

// isValue reports whether r is one of the types of record. A pointer to one has the same
// methods and is not a record.
func isValue(r Record) bool {
	switch r.(type) {
	case Row, Seat, Target, Plan, Wishes, Ends, Act:
		return true
	}
	return false
}

// String returns the purpose of the write, such as a heartbeat or the commit of a shard, and its id.
func (w Write) String() string {
	return fmt.Sprintf("%s (%v, write %.64q)", w.purpose(), w.Key(), w.ID())
}

// purpose derives the purpose of the write from its records.
func (w Write) purpose() string {
	key := w.Key()
	if key.Kind != KindLease {
		return purpose(w.Op, key)
	}
	old, _ := w.Old.(Row)
	next, _ := w.Next.(Row)
	what := w.Op.String() // for a write that no transition makes
	switch w.Op {
	case OpCreate:
		what = "creation"
	case OpSwap:
		what = next.swapped(old)
	case OpTransfer:
		what = next.transferred(old)
	}
	return fmt.Sprintf("%s of shard %.64q", what, key.Name)
}

// purpose returns the purpose of a write of any record but a lease row.
func purpose(op Op, key Key) string {
	switch {
	case key.Kind == KindSeat && op == OpSwap:
		return "heartbeat"
	case op == OpDelete:
		return fmt.Sprintf("deletion of the %v", key.Kind)
	case op == OpCreate:
		return fmt.Sprintf("creation of the %v", key.Kind)
	}
	return fmt.Sprintf("%v of the %v", op, key.Kind)
}

// swapped returns the purpose of a swap that replaces old by r.
func (r Row) swapped(old Row) string {
	switch {
	case r.Generation == old.Generation && r.OfferedTo != "" && old.OfferedTo == "":
		return "offer"
	case r.Generation == old.Generation && r.OfferedTo == "" && old.OfferedTo != "":
		return "withdrawal of the offer"
	case r.Generation == old.Generation:
		return "commit"
	case r.Quarantined && !old.Quarantined:
		return "quarantine"
	case r.Removed:
		return "removal"
	case old.Removed:
		return "revival"
	case r.Finished && !old.Finished:
		return "finish"
	case !r.Owner.IsZero():
		return "handover"
	case r.Reserved.For != "":
		return "release for another"
	case !old.Owner.IsZero() && !r.rewound():
		return "release"
	case r.Checkpoint != old.Checkpoint || old.Finished:
		return "rewind"
	}
	return "unquarantine"
}

// transferred returns the purpose of a transfer that replaces old by r.
func (r Row) transferred(old Row) string {
	switch {
	case r.Quarantined && !old.Quarantined:
		return "quarantine"
	case r.Accepts(old):
		return "takeover"
	case !r.Owner.IsZero():
		return "claim"
	case r.Last.Reason == ReasonAdopted:
		return "adoption"
	case r.Reserved.For != "":
		return "reassignment"
	}
	return "forced release"
}

// GoString keeps %#v from printing the user's data.
func (w Write) GoString() string { return w.String() }

// LogValue returns the text of String for structured logs.
func (w Write) LogValue() slog.Value { return slog.StringValue(w.String()) }

// Apply defines what a store does, in one atomic step, with a write that has passed Check. It
// takes the stored record, nil for none, and returns the record that replaces it, nil for
// none, or the refusal.
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

// holdsOn reports whether the condition of the write holds for the stored record.
func (w Write) holdsOn(stored Record) bool {
	if w.Op == OpCreate || stored == nil {
		return w.Op == OpCreate && stored == nil
	}
	if w.Op != OpTransfer {
		return stored.Written() == w.Old.Written() && (w.Spoilt || stored.count() == w.Old.count())
	}
	at, old, next := stored.(Row), w.Old.(Row), w.Next.(Row)
	if next.Accepts(old) && at.OfferedTo != old.OfferedTo {
		return false
	}
	if at.Counter == math.MaxInt64 {
		return false // the counter cannot grow, so nothing can be written any more; the refusal contains the row
	}
	return at.Generation == old.Generation && at.Owner.Incarnation == old.Owner.Incarnation
}

// Accepts reports whether r is the row that results when the successor to which old is offered
// takes the shard over.
func (r Row) Accepts(old Row) bool {
	return old.OfferedTo != "" && old.OfferedTo == r.Owner.Incarnation
}
