package lease

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/generation"
)

// Check reports, as ErrBadWrite, a write that no store may send: values that
// cannot be stored, or a change of a kind that no transition makes. Every store
// calls it first, so that what is wrong is wrong before anything has been written.
//
// It cannot know all that the transitions know: whether a position goes back
// depends on its order, and whether an owner is dead on the seats.
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
	case w.Old.count() == math.MaxInt64 || w.Next.count() != w.Old.count()+1:
		return "must count up by one"
	case w.Next.Written() == w.Old.Written():
		return "must have an id of its own"
	case !isRow && w.Op == OpTransfer:
		return "a seat is not transferred"
	case !isRow:
		return w.Next.(Seat).checkBeat(w.Old.(Seat))
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
		Counter: 1, Generation: generation.First(r.Last.At),
	}
	return r.equal(plain) && r.Last.Reason == ReasonInitial && r.Last.WriteID == r.WriteID && generation.ValidClock(r.Last.At) == nil
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
	case !attr.Remembers(old.Past, r.Past):
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

// checkBeat: a seat's beat tells what its worker wants, and nothing else.
func (s Seat) checkBeat(old Seat) string {
	old.Beat, old.WriteID, old.At, old.Says = s.Beat, s.WriteID, s.At, s.Says
	if !reflect.DeepEqual(s, old) {
		return "a seat stays what it was taken as"
	}
	return ""
}

// checkHands holds a change of hands to the invariants of [Row].
func (r Row) checkHands(old Row, op Op) string {
	switch {
	case r.Generation <= old.Generation:
		return "a change of hands begins a generation"
	case r.Generation != r.began(old):
		return "a generation is the next one, or the clock's where generations were lost"
	case r.Last.WriteID != r.WriteID || r.Last.From != old.Owner.Name:
		return "a new generation is recorded with the write that began it, and with who held the row"
	case !slices.Equal(r.Parents, old.Parents) && !r.Removed && !old.Removed:
		return "parents stay"
	case op == OpSwap && !r.Owner.IsZero() && (old.Owner.IsZero() || r.Owner.Incarnation == old.Owner.Incarnation):
		return "a shard is taken by a transfer, not by a swap"
	case op == OpSwap && !old.Owner.IsZero() && (r.Removed || r.Quarantined):
		return "a holder gives a shard up, or finishes it"
	case !attr.Remembers(old.followed(r.Generation), r.Past):
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

// began is the generation a change of hands begins: the next; where some may have
// been lost with a tombstone or a table, the clock's, if that is higher.
//
// A claim repeats why the row was free; so only a row that is nobody's was adopted
// by this very transfer.
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

// standing is what about a row decides whether anybody may claim it.
func (r Row) standing() [3]bool { return [3]bool{r.Finished, r.Quarantined, r.Removed} }
