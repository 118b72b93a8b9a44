// Package protocol is the life of one lease, as pure functions. Each takes the row
// as last read and returns the write that would move it on, or says why the rules do
// not allow it. Nothing here reads a clock, draws a random number or talks to a store.
//
//	transition     from                     to                  made by
//	Begin          no row                   free                whoever sees the shard
//	Claim          free, or mine            held                a worker
//	Recover        held by the dead         held                a worker
//	Seize          held past its drain      held                the successor
//	Take           held, offered to me      held                the successor
//	Commit         held                     as it was           the holder
//	Progress       held                     as it was           the holder
//	Offer          held                     held, offered       the holder
//	Withdraw       held, offered            held                the holder
//	Yield          held                     held by successor   the holder
//	Release        held                     free                the holder
//	Finish         held                     finished            the holder
//	ForceRelease   held                     free                an operator
//	Quarantine     free, held               quarantined         an operator, a worker
//	Unquarantine   quarantined              free                an operator
//	Rewind         free, quarantined,       free, quarantined   an operator
//	               finished
//	Remove         free, quarantined,       removed             whoever misses the shard
//	               finished
//	Revive         removed                  free                whoever sees it again
//	Adopt          anything                 the same, nobody's  an operator
//
// Invariant: every transition adds to the generation, but Commit, Progress, Offer
// and Withdraw.
//
// A holder's writes are swaps, and so are an operator's on a row nobody holds.
// What takes a shard, from somebody or from nobody, is a transfer. [lease.Op] says what
// these mean; rules.go has what the transitions share. The seats' are in seat.go.
//
// A write is a plain value that carries its own condition. A [lease.Store] makes
// writes and knows nothing else. A [Copy] is what a worker keeps of a row between
// them; the example of this package shows the whole round. [Decide] says what a
// refusal means.
package protocol

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An End says how a holder gives a shard up.
type End struct {
	Reason     lease.Reason
	Note       string          // for people; the row keeps its first lease.MaxNote bytes
	Mark       checkpoint.Mark // the last mark; zero: the stored checkpoint stays
	Progressed bool            // the tenure got somewhere, so earlier failures no longer count
}

// A Command is what an operator or a supervisor says: which generation it saw,
// who it is, and why. A command for another generation is refused, like the
// write of any stale holder.
type Command struct {
	Seen int64
	By   string
	Note string // the row keeps its first lease.MaxNote bytes
}

// A Stamp is the chance and the time of one write. The transitions are pure and
// take both as an argument.
type Stamp struct {
	ID lease.WriteID // crypto/rand.Text makes good ones
	At time.Time     // for people; for the generations of Begin, Revive and Adopt; and for a tombstone's date
}

// Begin creates the row of a shard that has none. Nobody holds it yet.
func Begin(group, shard string, parents []string, by string, s Stamp) (lease.Write, error) {
	next := lease.Row{Group: group, Shard: shard, Parents: sorted(parents), Counter: 1, WriteID: s.ID}
	begin(&next, generation.First(s.At), lease.Owner{}, lease.Transfer{Reason: lease.ReasonInitial, By: by}, s)
	fit(&next)
	if err := generation.ValidClock(s.At); err != nil {
		return lease.Write{}, err
	}
	return checked(lease.Write{Op: lease.OpCreate, Next: next})
}

// Claim takes a row that nobody holds, or one that already names this
// incarnation although it has no tenure of it any more. The record repeats the
// reason why it was free, so that the latest transfer alone says why its owner
// came to hold it.
func Claim(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	const name = "claim"
	if err := claimable(r, name); err != nil {
		return lease.Write{}, err
	}
	reason := r.Last.Reason
	if !r.Owner.IsZero() {
		if r.Owner.Incarnation != by.Incarnation {
			return lease.Write{}, rule(r, name, lease.ErrHeld)
		}
		reason = lease.ReasonReleased
	}
	return handOver(r, lease.OpTransfer, by, lease.Transfer{Reason: reason, By: by.Name}, s, nil)
}

// Recover takes a row whose owner is gone. That it is gone is for the caller
// to prove: in a consistent listing of the seats, begun after this row was
// read, no confirmed seat carries the owner's incarnation. A seat that is there
// and cannot be read is a sign of life.
//
// An offer of the dead owner is cleared, whoever it was made to.
func Recover(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	if err := heldByOther(r, "recovery", by.Incarnation); err != nil {
		return lease.Write{}, err
	}
	return handOver(r, lease.OpTransfer, by, lease.Transfer{Reason: lease.ReasonExpired, By: by.Name}, s, func(next *lease.Row) {
		fail(next, r.Generation, lease.ReasonExpired)
	})
}

// Seize takes a shard whose owner did not wind down in the time that the terms
// of the move allow. The owner may be alive; from here on it is fenced.
func Seize(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	if err := heldByOther(r, "seizure", by.Incarnation); err != nil {
		return lease.Write{}, err
	}
	return handOver(r, lease.OpTransfer, by, lease.Transfer{Reason: lease.ReasonDrainTimeout, By: by.Name}, s, nil)
}

// Take accepts the owner's offer: the cooperative handoff. It starts from the
// checkpoint in the row that the store returns.
func Take(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	const name = "take"
	if err := heldByOther(r, name, by.Incarnation); err != nil {
		return lease.Write{}, err
	}
	if r.OfferedTo != by.Incarnation {
		return lease.Write{}, rule(r, name, ErrNotOffered)
	}
	return handOver(r, lease.OpTransfer, by, lease.Transfer{Reason: lease.ReasonHandoff, By: by.Name}, s, nil)
}

// Commit stores a mark under the holder's generation. Of the holder's writes it
// alone needs one: the others take a zero mark for "nothing new", and leave the
// checkpoint as it is.
func Commit(r lease.Row, h lease.Hold, m checkpoint.Mark, s Stamp) (lease.Write, error) {
	if err := m.Validate(); err != nil {
		return lease.Write{}, err
	}
	return keep(r, "commit", h, m, s, nil)
}

// Progress says that the tenure gets somewhere although it has no mark to show: an
// accepted checkpoint ends the count of attempts, and so does this. The position
// stays.
func Progress(r lease.Row, h lease.Hold, s Stamp) (lease.Write, error) {
	return keep(r, "progress", h, checkpoint.Mark{}, s, func(next *lease.Row) { progress(next, h, s) })
}

// Offer stores the latest mark and names the successor that may take the shard.
// Until it does, the owner keeps the shard and may commit.
func Offer(r lease.Row, h lease.Hold, to lease.Incarnation, m checkpoint.Mark, s Stamp) (lease.Write, error) {
	const name = "offer"
	if to == h.Incarnation {
		return lease.Write{}, rule(r, name, ErrSelf)
	}
	if err := (lease.Key{Group: r.Group, Kind: lease.KindSeat, Name: string(to)}).Validate(); err != nil {
		return lease.Write{}, err
	}
	return keep(r, name, h, m, s, func(next *lease.Row) { next.OfferedTo = to })
}

// Withdraw takes an offer back. A take that arrives later is refused.
func Withdraw(r lease.Row, h lease.Hold, s Stamp) (lease.Write, error) {
	const name = "withdrawal"
	if err := holds(r, name, h); err != nil {
		return lease.Write{}, err
	}
	if r.OfferedTo == "" {
		return lease.Write{}, rule(r, name, ErrNotOffered)
	}
	return keep(r, name, h, checkpoint.Mark{}, s, func(next *lease.Row) { next.OfferedTo = "" })
}

// Yield hands the shard over in one write: the final mark, the successor as
// owner, the next generation. Reason is ReasonHandoff, or ReasonDrainTimeout when the
// handler had to be cut off. A yield to a successor that has died in the
// meantime leaves a row like that of any dead owner.
func Yield(r lease.Row, h lease.Hold, to lease.Owner, e End, s Stamp) (lease.Write, error) {
	const name = "yield"
	if to.Incarnation == h.Incarnation {
		return lease.Write{}, rule(r, name, ErrSelf)
	}
	if e.Reason != lease.ReasonHandoff && e.Reason != lease.ReasonDrainTimeout {
		return lease.Write{}, rule(r, name, ErrReason)
	}
	if err := to.Validate(); err != nil {
		return lease.Write{}, err
	}
	return giveUp(r, name, h, to, e, s, nil)
}

// Release gives the shard back to nobody. Reason is ReasonReleased, ReasonFailed,
// ReasonStalled or ReasonDrainTimeout.
func Release(r lease.Row, h lease.Hold, e End, s Stamp) (lease.Write, error) {
	const name = "release"
	if !slices.Contains([]lease.Reason{lease.ReasonReleased, lease.ReasonFailed, lease.ReasonStalled, lease.ReasonDrainTimeout}, e.Reason) {
		return lease.Write{}, rule(r, name, ErrReason)
	}
	return giveUp(r, name, h, lease.Owner{}, e, s, func(next *lease.Row) {
		if e.Reason == lease.ReasonFailed || e.Reason == lease.ReasonStalled {
			fail(next, h.Generation, e.Reason)
		}
	})
}

// Finish records that the shard has ended and is processed to its end. Nobody
// will claim it again, and its children may start.
func Finish(r lease.Row, h lease.Hold, m checkpoint.Mark, s Stamp) (lease.Write, error) {
	e := End{Reason: lease.ReasonFinished, Mark: m}
	return giveUp(r, "finish", h, lease.Owner{}, e, s, func(next *lease.Row) { next.Finished = true })
}

// ForceRelease takes the shard from whoever holds it and gives it to nobody.
func ForceRelease(r lease.Row, c Command, s Stamp) (lease.Write, error) {
	const name = "force-release"
	if err := seen(r, name, c); err != nil {
		return lease.Write{}, err
	}
	if r.Owner.IsZero() {
		return lease.Write{}, rule(r, name, ErrNotHeld)
	}
	return handOver(r, lease.OpTransfer, lease.Owner{}, c.transfer(lease.ReasonForced), s, nil)
}

// Quarantine sets the shard aside, held or not. Reason says what led to it:
// ReasonFailed, ReasonStalled, ReasonExpired or ReasonForced.
func Quarantine(r lease.Row, c Command, reason lease.Reason, s Stamp) (lease.Write, error) {
	const name = "quarantine"
	if err := seen(r, name, c); err != nil {
		return lease.Write{}, err
	}
	if err := claimable(r, name); err != nil {
		return lease.Write{}, err
	}
	if !slices.Contains([]lease.Reason{lease.ReasonFailed, lease.ReasonStalled, lease.ReasonExpired, lease.ReasonForced}, reason) {
		return lease.Write{}, rule(r, name, ErrReason)
	}
	setAside := func(next *lease.Row) {
		if reason != lease.ReasonForced && !r.Owner.IsZero() {
			fail(next, r.Generation, reason)
		}
		next.Quarantined = true
	}
	return handOver(r, lease.OpTransfer, lease.Owner{}, c.transfer(reason), s, setAside)
}

// Unquarantine makes the shard claimable again, with no attempts on record.
func Unquarantine(r lease.Row, c Command, s Stamp) (lease.Write, error) {
	const name = "unquarantine"
	if err := seen(r, name, c); err != nil {
		return lease.Write{}, err
	}
	if !r.Quarantined {
		return lease.Write{}, rule(r, name, ErrNotQuarantined)
	}
	return handOver(r, lease.OpSwap, lease.Owner{}, c.transfer(lease.ReasonForced), s, func(next *lease.Row) {
		next.Quarantined, next.Failures = false, lease.Failures{}
	})
}

// Rewind moves the position of a shard that nobody holds, in either direction;
// the next holder starts there. A zero mark rewinds to the very beginning. A finished shard is unfinished by it, which is
// the one way to process it again; its children do not wait for that.
//
// A held shard is rewound by ForceRelease or Quarantine first: no position ever
// moves back within a generation.
func Rewind(r lease.Row, c Command, m checkpoint.Mark, s Stamp) (lease.Write, error) {
	const name = "rewind"
	if err := idle(r, name, c); err != nil {
		return lease.Write{}, err
	}
	return handOver(r, lease.OpSwap, lease.Owner{}, c.transfer(lease.ReasonForced), s, func(next *lease.Row) {
		next.Finished, next.Failures = false, lease.Failures{}
		next.Checkpoint = checkpoint.Checkpoint{}
		if !m.IsZero() {
			next.Checkpoint = checkpoint.Checkpoint{Mark: m, Generation: next.Generation, At: wall(s.At)}
		}
	})
}

// Remove leaves a tombstone where a shard was that is no longer listed. The
// row stays, and its generation with it: a late write of any earlier holder
// meets a higher generation, and a shard of the same name starts above it.
func Remove(r lease.Row, c Command, s Stamp) (lease.Write, error) {
	if err := idle(r, "removal", c); err != nil {
		return lease.Write{}, err
	}
	return handOver(r, lease.OpSwap, lease.Owner{}, c.transfer(lease.ReasonRemoved), s, func(next *lease.Row) {
		next.Parents, next.Failures = nil, lease.Failures{}
		next.Checkpoint = checkpoint.Checkpoint{}
		next.Finished, next.Quarantined, next.Removed = false, false, true
	})
}

// Revive makes a row of a tombstone, for a shard that is listed again. It starts
// like a new one, above every generation the tombstone remembers.
func Revive(r lease.Row, parents []string, by string, s Stamp) (lease.Write, error) {
	const name = "revival"
	if !r.Removed {
		return lease.Write{}, rule(r, name, ErrNotRemoved)
	}
	return jump(r, lease.OpSwap, 1, lease.Transfer{Reason: lease.ReasonInitial, By: by}, s, func(next *lease.Row) {
		next.Parents, next.Removed = sorted(parents), false
	})
}

// Adopt takes a row over from a table that was restored or replaced: whatever
// was issued in the table's lost future lies below the generation it gets.
func Adopt(r lease.Row, by string, s Stamp) (lease.Write, error) {
	return jump(r, lease.OpTransfer, generation.Lost, lease.Transfer{Reason: lease.ReasonAdopted, By: by}, s, nil)
}
