package lease

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/generation"
)

// Check returns an ErrBadWrite for a write that no store may send: its values cannot be
// stored, or no transition makes such a change. Every store calls it first, so that a bad
// write is reported before anything has been written.
//
// Check knows less than the transitions: whether a position moves back depends on its order,
// and whether an owner is dead depends on the seats.
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

// checkShape reports an unknown operation, or a record that is missing or of the wrong kind.
func (w Write) checkShape() string {
	creates, deletes := w.Op == OpCreate, w.Op == OpDelete
	switch {
	case w.Op < OpCreate || w.Op > OpDelete:
		return "unknown operation"
	case creates != (w.Old == nil):
		return "only a create has no record that was read"
	case deletes != (w.Next == nil):
		return "only a delete has no record to store"
	case !creates && !isValue(w.Old) || !deletes && !isValue(w.Next):
		return "a record is a value, not a pointer to one"
	case w.Spoilt && !deletes:
		return "a record that cannot be read is only deleted"
	case deletes && !w.deletable():
		return "only seats and targets are deleted, and seats and wishes that cannot be read"
	}
	return ""
}

// deletable reports whether a record of this kind may be deleted.
func (w Write) deletable() bool {
	switch w.Old.Key().Kind {
	case KindSeat:
		return true
	case KindTarget:
		return !w.Spoilt
	case KindWishes: // an operator replaces readable wishes by an empty list
		return w.Spoilt
	}
	return false
}

// checkChange reports a difference between Old and Next that no transition makes.
func (w Write) checkChange() string {
	if w.Op == OpCreate {
		return checkNew(w.Next)
	}
	switch {
	case w.Old.Key() != w.Next.Key():
		return "the key must not change"
	case w.Next.Written() == w.Old.Written():
		return "the write id must be new"
	case w.Op == OpTransfer && w.Key().Kind != KindLease:
		return "only lease rows are transferred"
	}
	switch next := w.Next.(type) {
	case Row:
		return next.checkRow(w.Old.(Row), w.Op)
	case Seat:
		return next.checkBeat(w.Old.(Seat))
	case Target:
		return next.checkTarget(w.Old.(Target))
	case Plan:
		return next.checkPlan(w.Old.(Plan))
	case Ends:
		return next.checkEnds(w.Old.(Ends))
	}
	return ""
}

// checkNew reports a record that no transition creates.
func checkNew(r Record) string {
	switch r := r.(type) {
	case Row:
		if !r.isNew() {
			return "a new row must be as Begin or BeginHeld makes it"
		}
	case Seat:
		if r.Beat != 0 {
			return "a new seat must not have a heartbeat yet"
		}
	case Plan:
		return r.checkNewPlan()
	case Ends:
		return r.checkEnds(Ends{})
	}
	return ""
}

// checkRow reports a change of a lease row that no transition makes.
func (r Row) checkRow(old Row, op Op) string {
	if !follows(r.Counter, old.Counter) {
		return "the counter must grow by one"
	}
	if r.Generation == old.Generation && op == OpSwap {
		return r.checkWithin(old)
	}
	return r.checkHands(old, op)
}

// follows reports whether a counter grew by one.
func follows(next, old int64) bool { return old < math.MaxInt64 && next == old+1 }

// isNew reports whether r is a row as Begin or BeginHeld makes it: without a checkpoint, at the
// generation of its clock, and without an owner or without parents. A new row with parents has no
// owner, because a worker claims it only after it has seen that the parents are processed.
func (r Row) isNew() bool {
	plain := Row{
		Group: r.Group, Shard: r.Shard, Parents: r.Parents, WriteID: r.WriteID, Last: r.Last,
		Counter: 1, Generation: generation.First(r.Last.At), Owner: r.Owner,
	}
	return r.equal(plain) && (r.Owner.IsZero() || len(r.Parents) == 0) && r.Last.Reason == ReasonInitial && r.Last.WriteID == r.WriteID && generation.ValidClock(r.Last.At) == nil
}

func (r Row) equal(other Row) bool {
	if !slices.Equal(r.Parents, other.Parents) {
		return false
	}
	r.Parents, other.Parents = nil, nil
	return reflect.DeepEqual(r, other)
}

// checkWithin reports a change within a generation of anything except what a holder may
// change: the checkpoint, the offer, and how many old transfers are kept.
func (r Row) checkWithin(old Row) string {
	switch {
	case old.Owner.IsZero() || r.Owner != old.Owner || r.standing() != old.standing():
		return "within a generation the owner and the flags must not change"
	case r.Last != old.Last || r.Failures != old.Failures || !slices.Equal(r.Parents, old.Parents):
		return "within a generation only the checkpoint and the offer may change"
	case !attr.Remembers(old.Past, r.Past):
		return "earlier transfers must not change"
	}
	return r.checkCheckpoint(old)
}

// checkCheckpoint reports a checkpoint of a holder that is not of its own generation or that
// vanishes.
func (r Row) checkCheckpoint(old Row) string {
	is, was := r.Checkpoint, old.Checkpoint
	if is != was && (is.Generation != old.Generation || is.IsZero() && !was.IsZero()) {
		return "a new checkpoint must have the generation of its holder"
	}
	return ""
}

// checkBeat reports a heartbeat that changes anything except what the worker publishes.
func (s Seat) checkBeat(old Seat) string {
	if !follows(s.Beat, old.Beat) {
		return "the counter must grow by one"
	}
	old.Beat, old.WriteID, old.At, old.Says = s.Beat, s.WriteID, s.At, s.Says
	if !reflect.DeepEqual(s, old) {
		return "a heartbeat may only change what the worker publishes"
	}
	return ""
}

// checkHands reports a change of hands that violates the invariants of [Row].
func (r Row) checkHands(old Row, op Op) string {
	switch {
	case r.Generation <= old.Generation:
		return "a change of hands must add to the generation"
	case r.Generation != r.began(old):
		return "the generation must be the next one, or the clock's where generations were lost"
	case r.Last.WriteID != r.WriteID || r.Last.From != old.Owner.Name || r.Last.Task != old.Owner.Task:
		return "the last transfer must name the write that made it and the previous owner"
	case !slices.Equal(r.Parents, old.Parents) && !r.Removed && !old.Removed:
		return "the parents must not change"
	case op == OpSwap && !r.Owner.IsZero() && (old.Owner.IsZero() || r.Owner.Incarnation == old.Owner.Incarnation) && !r.revives(old):
		return "a shard is taken by a transfer, not by a swap"
	case r.Quarantined && !old.Quarantined && (op == OpTransfer) != (r.Last.Reason == ReasonForced):
		return "a command quarantines by a transfer, and failures by a swap"
	case op == OpSwap && !old.Owner.IsZero() && (r.Removed || r.Quarantined) && !r.discards() && !r.setsAside(old):
		return "a holder may only release, hand over or finish a shard, or discard one without a checkpoint"
	case !attr.Remembers(old.Followed(r.Generation), r.Past):
		return "the earlier transfers must be kept, and the previous last transfer added"
	case !r.Reserved.IsZero() && old.Owner.IsZero() && (op != OpTransfer || old.Reserved.IsZero()):
		return "only the owner of a shard, or a command that takes it from its owner or from a reservation, reserves it"
	case r.OfferedTo != "":
		return "an offer ends with its generation"
	case op == OpTransfer && (r.Finished != old.Finished || r.Removed != old.Removed || old.Quarantined && !r.Quarantined):
		return "of the flags, a transfer may only set quarantined"
	case !r.Owner.IsZero() && (old.Finished || old.Quarantined || old.Removed && (op != OpSwap || !r.revives(old))):
		return "a finished, quarantined or removed row must not have an owner"
	case !old.Owner.IsZero() && op == OpSwap && !r.rewound():
		return r.checkCheckpoint(old)
	}
	return ""
}

// rewound reports whether r is a row as an operator's rewind makes it: without an owner, and at the very beginning or at
// a position of the generation that the rewind began.
func (r Row) rewound() bool {
	return r.Owner.IsZero() && r.Last.Reason == ReasonForced && r.Last.Did == didRewind &&
		(r.Checkpoint == checkpoint.Checkpoint{} || r.Checkpoint.Generation == r.Generation)
}

// revives reports whether r is a new row in place of the tombstone old.
func (r Row) revives(old Row) bool {
	return old.Removed && !r.Removed && r.Last.Reason == ReasonInitial
}

// discards reports whether r is the tombstone that a holder leaves when it releases a lease without a
// checkpoint. As in every write of a holder, another check ensures that no checkpoint was lost.
func (r Row) discards() bool {
	none := checkpoint.Checkpoint{}
	return r.Removed && !r.Finished && !r.Quarantined && r.Checkpoint == none
}

// setsAside reports whether r is old, quarantined because it has failed too often. The end of its owner's tenure counts
// as a failure, and the checkpoint stays.
func (r Row) setsAside(old Row) bool {
	return r.Quarantined && !r.Finished && !r.Removed && r.Failures.Last == old.Generation && r.Checkpoint == old.Checkpoint
}

// began returns the generation that a change of hands begins: usually the next one. Where
// generations may have been lost with a tombstone or a table, it is the clock's if that is
// higher.
//
// A claim repeats the reason why the row was free, also ReasonAdopted. So r itself is the result
// of an adoption only if it has no owner.
func (r Row) began(old Row) int64 {
	clock := generation.First(r.Last.At)
	switch {
	case r.Last.Reason == ReasonAdopted && r.Owner.IsZero():
		return max(old.Generation+generation.Lost, clock)
	case r.Last.Reason == ReasonInitial && old.Removed:
		return max(old.Generation+1, clock)
	}
	return old.Generation + 1
}

// standing returns the flags of a row that decide whether anybody may claim it.
func (r Row) standing() [3]bool { return [3]bool{r.Finished, r.Quarantined, r.Removed} }
