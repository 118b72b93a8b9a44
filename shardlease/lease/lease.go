package lease

import (
	"slices"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// The life of one lease, as pure functions. Each takes the row as last read and
// returns the write that would move it on, or says why the rules do not allow
// it. Nothing here reads a clock, draws a random number or talks to a store.
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
// What takes a shard, from somebody or from nobody, is a transfer. [Op] says what
// these mean; rules.go has what the transitions share.

// A Hold is what a holder knows of its tenure. It is the handle every write of
// a holder is made with, and it is worth nothing once the row has moved on.
//
// [Copy.Start] gives one.
type Hold struct {
	Key         Key // of the row: generations of different shards say nothing about each other
	Incarnation Incarnation
	Generation  int64
	Order       checkpoint.Order // how its positions are compared; nil: not at all
}

// An End says how a holder gives a shard up.
type End struct {
	Reason     Reason
	Note       string          // for people; the row keeps its first MaxNote bytes
	Mark       checkpoint.Mark // the last mark; zero: the stored checkpoint stays
	Progressed bool            // the tenure got somewhere, so earlier failures no longer count
}

// A Command is what an operator or a supervisor says: which generation it saw,
// who it is, and why. A command for another generation is refused, like the
// write of any stale holder.
type Command struct {
	Seen int64
	By   string
	Note string // the row keeps its first MaxNote bytes
}

// Begin creates the row of a shard that has none. Nobody holds it yet.
func Begin(group, shard string, parents []string, by string, s Stamp) (Write, error) {
	next := Row{Group: group, Shard: shard, Parents: sorted(parents), Counter: 1, WriteID: s.ID}
	next.begin(FirstGeneration(s.At), Owner{}, Transfer{Reason: ReasonInitial, By: by}, s)
	next.fit()
	if err := validClock(s.At); err != nil {
		return Write{}, err
	}
	return checked(Write{Op: OpCreate, Next: next})
}

// Claim takes a row that nobody holds, or one that already names this
// incarnation although it has no tenure of it any more. The record repeats the
// reason why it was free, so that the latest transfer alone says why its owner
// came to hold it.
func (r Row) Claim(by Owner, s Stamp) (Write, error) {
	const name = "claim"
	if err := r.claimable(name); err != nil {
		return Write{}, err
	}
	reason := r.Last.Reason
	if !r.Owner.IsZero() {
		if r.Owner.Incarnation != by.Incarnation {
			return Write{}, r.rule(name, ErrHeld)
		}
		reason = ReasonReleased
	}
	return r.handOver(OpTransfer, by, Transfer{Reason: reason, By: by.Name}, s, nil)
}

// Recover takes a row whose owner is gone. That it is gone is for the caller
// to prove: in a consistent listing of the seats, begun after this row was
// read, no confirmed seat carries the owner's incarnation. A seat that is there
// and cannot be read is a sign of life.
//
// An offer of the dead owner is cleared, whoever it was made to.
func (r Row) Recover(by Owner, s Stamp) (Write, error) {
	if err := r.heldByOther("recovery", by.Incarnation); err != nil {
		return Write{}, err
	}
	return r.handOver(OpTransfer, by, Transfer{Reason: ReasonExpired, By: by.Name}, s, func(next *Row) { next.fail(r.Generation, ReasonExpired) })
}

// Seize takes a shard whose owner did not wind down in the time that the terms
// of the move allow. The owner may be alive; from here on it is fenced.
func (r Row) Seize(by Owner, s Stamp) (Write, error) {
	if err := r.heldByOther("seizure", by.Incarnation); err != nil {
		return Write{}, err
	}
	return r.handOver(OpTransfer, by, Transfer{Reason: ReasonDrainTimeout, By: by.Name}, s, nil)
}

// Take accepts the owner's offer: the cooperative handoff. It starts from the
// checkpoint in the row that the store returns.
func (r Row) Take(by Owner, s Stamp) (Write, error) {
	const name = "take"
	if err := r.heldByOther(name, by.Incarnation); err != nil {
		return Write{}, err
	}
	if r.OfferedTo != by.Incarnation {
		return Write{}, r.rule(name, ErrNotOffered)
	}
	return r.handOver(OpTransfer, by, Transfer{Reason: ReasonHandoff, By: by.Name}, s, nil)
}

// Commit stores a mark under the holder's generation. Of the holder's writes it
// alone needs one: the others take a zero mark for "nothing new", and leave the
// checkpoint as it is.
func (r Row) Commit(h Hold, m checkpoint.Mark, s Stamp) (Write, error) {
	if err := m.Validate(); err != nil {
		return Write{}, err
	}
	return r.keep("commit", h, m, s, nil)
}

// Progress says that the tenure gets somewhere although it has no mark to show: an
// accepted checkpoint ends the count of attempts, and so does this. The position
// stays.
func (r Row) Progress(h Hold, s Stamp) (Write, error) {
	return r.keep("progress", h, checkpoint.Mark{}, s, func(next *Row) { next.progress(h, s) })
}

// Offer stores the latest mark and names the successor that may take the shard.
// Until it does, the owner keeps the shard and may commit.
func (r Row) Offer(h Hold, to Incarnation, m checkpoint.Mark, s Stamp) (Write, error) {
	const name = "offer"
	if to == h.Incarnation {
		return Write{}, r.rule(name, ErrSelf)
	}
	if err := validID("incarnation", string(to)); err != nil {
		return Write{}, err
	}
	return r.keep(name, h, m, s, func(next *Row) { next.OfferedTo = to })
}

// Withdraw takes an offer back. A take that arrives later is refused.
func (r Row) Withdraw(h Hold, s Stamp) (Write, error) {
	const name = "withdrawal"
	if err := r.holds(name, h); err != nil {
		return Write{}, err
	}
	if r.OfferedTo == "" {
		return Write{}, r.rule(name, ErrNotOffered)
	}
	return r.keep(name, h, checkpoint.Mark{}, s, func(next *Row) { next.OfferedTo = "" })
}

// Yield hands the shard over in one write: the final mark, the successor as
// owner, the next generation. Reason is ReasonHandoff, or ReasonDrainTimeout when the
// handler had to be cut off. A yield to a successor that has died in the
// meantime leaves a row like that of any dead owner.
func (r Row) Yield(h Hold, to Owner, e End, s Stamp) (Write, error) {
	const name = "yield"
	if to.Incarnation == h.Incarnation {
		return Write{}, r.rule(name, ErrSelf)
	}
	if e.Reason != ReasonHandoff && e.Reason != ReasonDrainTimeout {
		return Write{}, r.rule(name, ErrReason)
	}
	if err := to.Validate(); err != nil {
		return Write{}, err
	}
	return r.giveUp(name, h, to, e, s, nil)
}

// Release gives the shard back to nobody. Reason is ReasonReleased, ReasonFailed,
// ReasonStalled or ReasonDrainTimeout.
func (r Row) Release(h Hold, e End, s Stamp) (Write, error) {
	const name = "release"
	if !slices.Contains([]Reason{ReasonReleased, ReasonFailed, ReasonStalled, ReasonDrainTimeout}, e.Reason) {
		return Write{}, r.rule(name, ErrReason)
	}
	return r.giveUp(name, h, Owner{}, e, s, func(next *Row) {
		if e.Reason == ReasonFailed || e.Reason == ReasonStalled {
			next.fail(h.Generation, e.Reason)
		}
	})
}

// Finish records that the shard has ended and is processed to its end. Nobody
// will claim it again, and its children may start.
func (r Row) Finish(h Hold, m checkpoint.Mark, s Stamp) (Write, error) {
	e := End{Reason: ReasonFinished, Mark: m}
	return r.giveUp("finish", h, Owner{}, e, s, func(next *Row) { next.Finished = true })
}

// ForceRelease takes the shard from whoever holds it and gives it to nobody.
func (r Row) ForceRelease(c Command, s Stamp) (Write, error) {
	const name = "force-release"
	if err := r.seen(name, c); err != nil {
		return Write{}, err
	}
	if r.Owner.IsZero() {
		return Write{}, r.rule(name, ErrNotHeld)
	}
	return r.handOver(OpTransfer, Owner{}, c.transfer(ReasonForced), s, nil)
}

// Quarantine sets the shard aside, held or not. Reason says what led to it:
// ReasonFailed, ReasonStalled, ReasonExpired or ReasonForced.
func (r Row) Quarantine(c Command, reason Reason, s Stamp) (Write, error) {
	const name = "quarantine"
	if err := r.seen(name, c); err != nil {
		return Write{}, err
	}
	if err := r.claimable(name); err != nil {
		return Write{}, err
	}
	if !slices.Contains([]Reason{ReasonFailed, ReasonStalled, ReasonExpired, ReasonForced}, reason) {
		return Write{}, r.rule(name, ErrReason)
	}
	setAside := func(next *Row) {
		if reason != ReasonForced && !r.Owner.IsZero() {
			next.fail(r.Generation, reason)
		}
		next.Quarantined = true
	}
	return r.handOver(OpTransfer, Owner{}, c.transfer(reason), s, setAside)
}

// Unquarantine makes the shard claimable again, with no attempts on record.
func (r Row) Unquarantine(c Command, s Stamp) (Write, error) {
	const name = "unquarantine"
	if err := r.seen(name, c); err != nil {
		return Write{}, err
	}
	if !r.Quarantined {
		return Write{}, r.rule(name, ErrNotQuarantined)
	}
	return r.handOver(OpSwap, Owner{}, c.transfer(ReasonForced), s, func(next *Row) {
		next.Quarantined, next.Failures = false, Failures{}
	})
}

// Rewind moves the position of a shard that nobody holds, in either direction;
// the next holder starts there. A zero mark rewinds to the very beginning. A finished shard is unfinished by it, which is
// the one way to process it again; its children do not wait for that.
//
// A held shard is rewound by ForceRelease or Quarantine first: no position ever
// moves back within a generation.
func (r Row) Rewind(c Command, m checkpoint.Mark, s Stamp) (Write, error) {
	const name = "rewind"
	if err := r.idle(name, c); err != nil {
		return Write{}, err
	}
	return r.handOver(OpSwap, Owner{}, c.transfer(ReasonForced), s, func(next *Row) {
		next.Finished, next.Failures = false, Failures{}
		next.Checkpoint = checkpoint.Checkpoint{}
		if !m.IsZero() {
			next.Checkpoint = checkpoint.Checkpoint{Mark: m, Generation: next.Generation, At: wall(s.At)}
		}
	})
}

// Remove leaves a tombstone where a shard was that is no longer listed. The
// row stays, and its generation with it: a late write of any earlier holder
// meets a higher generation, and a shard of the same name starts above it.
func (r Row) Remove(c Command, s Stamp) (Write, error) {
	if err := r.idle("removal", c); err != nil {
		return Write{}, err
	}
	return r.handOver(OpSwap, Owner{}, c.transfer(ReasonRemoved), s, func(next *Row) {
		next.Parents, next.Failures = nil, Failures{}
		next.Checkpoint = checkpoint.Checkpoint{}
		next.Finished, next.Quarantined, next.Removed = false, false, true
	})
}

// Revive makes a row of a tombstone, for a shard that is listed again. It starts
// like a new one, above every generation the tombstone remembers.
func (r Row) Revive(parents []string, by string, s Stamp) (Write, error) {
	const name = "revival"
	if !r.Removed {
		return Write{}, r.rule(name, ErrNotRemoved)
	}
	return r.jump(OpSwap, 1, Transfer{Reason: ReasonInitial, By: by}, s, func(next *Row) {
		next.Parents, next.Removed = sorted(parents), false
	})
}

// lostGenerations is how many changes of hands a table may have lost, whatever its
// workers' clocks said when they made its rows.
const lostGenerations = 1 << 22

// Adopt takes a row over from a table that was restored or replaced: whatever
// was issued in the table's lost future lies below the generation it gets.
func (r Row) Adopt(by string, s Stamp) (Write, error) {
	return r.jump(OpTransfer, lostGenerations, Transfer{Reason: ReasonAdopted, By: by}, s, nil)
}
