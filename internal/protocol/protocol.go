// Package protocol has the transitions of a lease row as pure functions. Each takes the row
// as last read and returns the write that changes it, or the rule that forbids the change.
// Nothing here reads a clock, draws a random number or calls a store.
//
//	transition     from                     to                  made by
//	Begin          no row                   free                a worker that sees a new shard
//	BeginHeld      no row                   held                a session
//	Claim          free, or mine            held                a worker
//	Recover        held, owner evicted      held                a worker
//	Inherit        held, owner left         held                a worker
//	Seize          held, drain time over    held                the successor
//	Take           held, offered to me      held                the successor
//	Commit         held                     held                the holder
//	Progress       held                     held                the holder
//	Offer          held                     held, offered       the holder
//	Withdraw       held, offered            held                the holder
//	Yield          held                     held by successor   the holder
//	Release        held                     free                the holder
//	Discard        held, no checkpoint      removed             the holder
//	Reserve        held                     free, reserved      the holder, for an operator
//	Finish         held                     finished            the holder
//	ForceRelease   held, reserved           free                an operator
//	Reassign       held, reserved           free, reserved      an operator
//	Quarantine     free, held               quarantined         an operator, a worker
//	Unquarantine   quarantined              free                an operator
//	Conclude       free, held,              finished            an operator
//	               quarantined
//	Rewind         free, held,              free, quarantined   an operator
//	               quarantined, finished
//	Remove         free, quarantined,       removed             a worker whose source omits the
//	               finished                                     shard, an operator
//	Revive         removed                  free                a worker that sees it again
//	ReviveHeld     removed                  held                a session
//	Adopt          any row                  the same, no owner  an operator
//
// Invariant: every transition except Commit, Progress, Offer and Withdraw raises the generation of
// the row.
//
// The writes of a holder are swaps, and so are Unquarantine, Remove, Revive and ReviveHeld, which change rows
// without owner, the Quarantine of a worker, and Conclude and Rewind, which may take the shard from its owner: a
// commit that was stored since the row was read refuses them. The other changes of existing rows are transfers:
// Claim, Recover, Inherit, Seize, Take, ForceRelease, Reassign, Adopt, and the Quarantine of an operator. [lease.Op]
// defines both. rules.go has what the transitions share, seat.go the transitions of seats, and plan.go those of the
// plan, of targets and of wishes.
//
// A write is a plain value that contains its own condition; a [lease.Store] makes writes and
// knows nothing else. A [Copy] is what a worker remembers of a row between writes; the example
// of this package shows all steps together. [Decide] defines what a refusal means.
package protocol

import (
	"cmp"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An End describes how a holder gives a shard up.
type End struct {
	Reason     lease.Reason
	Note       string          // a note for people; the row keeps its first lease.MaxNote bytes, of a failure as its error
	Mark       checkpoint.Mark // the last mark; zero: the stored checkpoint stays
	Progressed bool            // the tenure made progress, so earlier failures no longer count
	Mode       rebalance.Mode  // of Yield: the mode of the move
	Excused    bool            // the failure is the worker's fault, not the shard's: it is recorded, and no failed attempt is counted
}

// A Command is the order of an operator or a supervisor. A command for another generation than
// the present one is refused, like the write of a stale holder.
type Command struct {
	Seen int64  // the generation that the operator saw
	By   string // the name of the operator
	Note string // why; the row keeps its first lease.MaxNote bytes

	NoDelay bool // of ForceRelease and Reassign: they leave no lock delay in the row
}

// delay returns the lock delay that the command leaves in r: its owner's, or the one that an earlier command has left.
func (c Command) delay(r lease.Row) time.Duration {
	if c.NoDelay {
		return 0
	}
	return cmp.Or(r.Owner.LockDelay, r.Reserved.Delay)
}

// A Stamp is the random id and the time of one write. The transitions are pure, so they take a
// Stamp as an argument.
type Stamp struct {
	ID lease.WriteID // crypto/rand.Text makes good ones
	// At is the time of the write. It is for people to read; Begin, Revive and Adopt compute
	// generations from it, and Remove and Discard the expiry of a tombstone.
	At time.Time
}

// Begin creates the row of a shard that has none. The new row has no owner.
func Begin(group, shard string, parents []string, by string, s Stamp) (lease.Write, error) {
	return create(lease.Row{Group: group, Shard: shard, Parents: sorted(parents)}, lease.Owner{}, by, s)
}

// BeginHeld creates the row of a lease by name with by as its owner. A free row would need a second
// write, the claim, and another session could claim the lease between the two.
func BeginHeld(group, name string, by lease.Owner, s Stamp) (lease.Write, error) {
	return create(lease.Row{Group: group, Shard: name}, by, by.Name, s)
}

func create(next lease.Row, owner lease.Owner, by string, s Stamp) (lease.Write, error) {
	next.Counter, next.WriteID = 1, s.ID
	begin(&next, generation.First(s.At), owner, lease.Transfer{Reason: lease.ReasonInitial, By: by}, s)
	fit(&next, true)
	if err := generation.ValidClock(s.At); err != nil {
		return lease.Write{}, err
	}
	return checked(lease.Write{Op: lease.OpCreate, Next: next})
}

// Claim takes a row that nobody holds, or a row that names this incarnation as owner although
// its tenure is over. The new transfer repeats the reason why the row was free, so the last
// transfer alone shows how the shard came to its owner.
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

// Recover takes a row whose owner was evicted. The caller has to prove that: in a consistent
// listing of the seats that began after the row was read, no confirmed seat has the owner's
// incarnation. A seat that cannot be read counts as a sign of life.
//
// Recover clears an offer of the dead owner, also one to another successor. It counts a failed attempt.
func Recover(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	if err := heldByOther(r, "recover", by.Incarnation); err != nil {
		return lease.Write{}, err
	}
	return handOver(r, lease.OpTransfer, by, lease.Transfer{Reason: lease.ReasonExpired, By: by.Name}, s, func(next *lease.Row) {
		fail(next, r.Generation, lease.ReasonExpired)
	})
}

// Inherit is Recover for a row that was handed over to a worker that was leaving. That worker has
// never started the shard, so Inherit counts no failed attempt. The caller has to prove what Recover
// demands, that the owner was last seen leaving, and that the row is [Untouched].
func Inherit(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	if err := heldByOther(r, "inherit", by.Incarnation); err != nil {
		return lease.Write{}, err
	}
	return handOver(r, lease.OpTransfer, by, lease.Transfer{Reason: lease.ReasonExpired, By: by.Name}, s, nil)
}

// Untouched reports whether a Yield began the generation of r, and its owner has written nothing since. If both
// workers have the same name, the row does not tell a Yield from a Take, after which the handler starts at once: it
// counts as touched.
func Untouched(r lease.Row) bool {
	last := r.Last
	return EndingOf(last.Reason) == Moved && last.By == last.From && last.From != r.Owner.Name && last.WriteID == r.WriteID
}

// Seize takes a shard whose owner did not wind down in the time that the terms of the move
// allow. The owner may be alive; after this write it is fenced.
func Seize(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	if err := heldByOther(r, "seize", by.Incarnation); err != nil {
		return lease.Write{}, err
	}
	return handOver(r, lease.OpTransfer, by, lease.Transfer{Reason: lease.ReasonDrainTimeout, By: by.Name, Mode: rebalance.Eager}, s, nil)
}

// Take takes the shard over by accepting the owner's offer, in a cooperative move. The
// successor starts at the checkpoint in the row that the store returns.
func Take(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	const name = "take"
	if err := heldByOther(r, name, by.Incarnation); err != nil {
		return lease.Write{}, err
	}
	if r.OfferedTo != by.Incarnation {
		return lease.Write{}, rule(r, name, ErrNotOffered)
	}
	return handOver(r, lease.OpTransfer, by, lease.Transfer{Reason: lease.ReasonHandoff, By: by.Name, Mode: rebalance.Cooperative}, s, nil)
}

// Reach is Take of a row that cannot be read, as if its owner had offered the shard. If the owner has not, the store
// refuses the write, and the refusal contains the row as it stands.
func Reach(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	r.OfferedTo = by.Incarnation
	return Take(r, by, s)
}

// Commit stores a mark under the holder's generation. It is the only write of a holder that
// requires a mark: the others leave the checkpoint as it is if the mark is zero.
func Commit(r lease.Row, h lease.Hold, m checkpoint.Mark, s Stamp) (lease.Write, error) {
	if err := m.Validate(); err != nil {
		return lease.Write{}, err
	}
	return keep(r, "commit", h, m, s, nil)
}

// Progress records that the tenure makes progress, for a tenure that has no mark to commit. Like
// an accepted checkpoint it resets the attempts. The position stays.
func Progress(r lease.Row, h lease.Hold, s Stamp) (lease.Write, error) {
	return keep(r, "progress", h, checkpoint.Mark{}, s, func(next *lease.Row) { progress(next, h, s) })
}

// Offer stores the latest mark and names the successor that may take the shard over. The owner
// keeps the shard and may commit until the successor does.
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

// Withdraw withdraws an offer. A Take that arrives later is refused.
func Withdraw(r lease.Row, h lease.Hold, s Stamp) (lease.Write, error) {
	const name = "withdraw"
	if err := holds(r, name, h); err != nil {
		return lease.Write{}, err
	}
	if r.OfferedTo == "" {
		return lease.Write{}, rule(r, name, ErrNotOffered)
	}
	return keep(r, name, h, checkpoint.Mark{}, s, func(next *lease.Row) { next.OfferedTo = "" })
}

// Yield hands the shard over in one write: it stores the last mark, the successor as owner, and
// the next generation. The reason is ReasonHandoff, or ReasonDrainTimeout if the handler had to
// be cut off. If the successor has died in the meantime, the shard is recovered like those of
// any dead owner.
func Yield(r lease.Row, h lease.Hold, to lease.Owner, e End, s Stamp) (lease.Write, error) {
	const name = "yield"
	if to.Incarnation == h.Incarnation {
		return lease.Write{}, rule(r, name, ErrSelf)
	}
	if EndingOf(e.Reason) != Moved {
		return lease.Write{}, rule(r, name, ErrReason)
	}
	if err := to.Validate(); err != nil {
		return lease.Write{}, err
	}
	return giveUp(r, name, h, to, e, s, nil)
}

// Release gives the shard up without a successor. The reason is ReasonReleased, ReasonUnlisted,
// ReasonFailed, ReasonStalled or ReasonDrainTimeout.
func Release(r lease.Row, h lease.Hold, e End, s Stamp) (lease.Write, error) {
	const name = "release"
	if !slices.Contains([]lease.Reason{lease.ReasonReleased, lease.ReasonUnlisted, lease.ReasonFailed, lease.ReasonStalled, lease.ReasonDrainTimeout}, e.Reason) {
		return lease.Write{}, rule(r, name, ErrReason)
	}
	return giveUp(r, name, h, lease.Owner{}, e, s, func(next *lease.Row) {
		if !e.Excused && EndingOf(e.Reason) == Failed {
			fail(next, h.Generation, e.Reason)
		}
		blame(next, h.Generation)
	})
}

// Discard releases a lease by name that has no checkpoint, and leaves a tombstone: otherwise a row
// would stay for every name that was ever used. The tombstone keeps the generation, so the next
// holder starts above it. The reason is ReasonReleased or ReasonDrainTimeout. A row with a checkpoint,
// or with recorded progress, is released instead.
func Discard(r lease.Row, h lease.Hold, e End, s Stamp) (lease.Write, error) {
	const name = "discard"
	switch {
	case e.Reason != lease.ReasonReleased && e.Reason != lease.ReasonDrainTimeout:
		return lease.Write{}, rule(r, name, ErrReason)
	case r.Checkpoint != (checkpoint.Checkpoint{}) || !e.Mark.IsZero() || e.Progressed:
		return lease.Write{}, rule(r, name, ErrCheckpoint)
	}
	if err := generation.ValidClock(s.At); err != nil {
		return lease.Write{}, err
	}
	return giveUp(r, name, h, lease.Owner{}, e, s, func(next *lease.Row) {
		next.Parents, next.Failures, next.Removed = nil, lease.Failures{}, true
	})
}

// Reserve gives a lease by name up for a move that the operator by wants, and reserves it for the sessions with one
// name. The transfer names the operator, and its note is the operator's reason. The reason of e is ReasonHandoff, or
// ReasonDrainTimeout if the holder was cut off. A holder that was cut off may still run, so its lock delay stays in the
// row. After a release there is no delay.
func Reserve(r lease.Row, h lease.Hold, to lease.Reservation, by string, e End, s Stamp) (lease.Write, error) {
	const name = "reserve"
	if EndingOf(e.Reason) != Moved {
		return lease.Write{}, rule(r, name, ErrReason)
	}
	to.Delay = 0
	if e.Reason == lease.ReasonDrainTimeout {
		to.Delay = r.Owner.LockDelay
	}
	if err := to.Validate(); err != nil {
		return lease.Write{}, err
	}
	return giveUp(r, name, h, lease.Owner{}, e, s, func(next *lease.Row) {
		next.Reserved, next.Last.By, next.Last.Did = to, by, "reassigned"
	})
}

// Finish records that the shard has ended and is processed to its end. Nobody claims it again,
// and its children may start.
func Finish(r lease.Row, h lease.Hold, m checkpoint.Mark, s Stamp) (lease.Write, error) {
	e := End{Reason: lease.ReasonFinished, Mark: m}
	return giveUp(r, "finish", h, lease.Owner{}, e, s, func(next *lease.Row) { next.Finished = true })
}

// ForceRelease takes the shard from its owner, and leaves it without one. If nobody holds the shard, it ends a
// reservation. A lock delay stays in the row as a reservation for nobody: the handler of the owner may still run.
func ForceRelease(r lease.Row, c Command, s Stamp) (lease.Write, error) {
	const name = "force-release"
	if err := seen(r, name, c); err != nil {
		return lease.Write{}, err
	}
	left := lease.Reservation{Delay: c.delay(r)}
	if r.Owner.IsZero() && r.Reserved == left {
		return lease.Write{}, rule(r, name, unheld(r))
	}
	return handOver(r, lease.OpTransfer, lease.Owner{}, c.transfer(lease.ReasonForced, "released"), s, func(next *lease.Row) {
		next.Reserved = left
	})
}

// Reassign takes the shard from its owner, leaves it without an owner, and reserves it for the workers or
// sessions with one name. If nobody holds the shard, it replaces a reservation. A lock delay stays, as after ForceRelease.
// No store refuses a claim because of the reservation: engines with other names make no claim while it lasts.
func Reassign(r lease.Row, c Command, to lease.Reservation, s Stamp) (lease.Write, error) {
	const name = "reassign"
	if err := seen(r, name, c); err != nil {
		return lease.Write{}, err
	}
	if err := to.Validate(); err != nil {
		return lease.Write{}, err
	}
	if r.Owner.IsZero() && r.Reserved.IsZero() {
		return lease.Write{}, rule(r, name, unheld(r))
	}
	return handOver(r, lease.OpTransfer, lease.Owner{}, c.transfer(lease.ReasonForced, "reassigned"), s, func(next *lease.Row) {
		next.Reserved = to
		next.Reserved.Delay = c.delay(r)
	})
}

// Quarantine sets the shard aside, held or not. The reason is ReasonForced for a command, and otherwise ReasonFailed,
// ReasonStalled or ReasonExpired: then the write is a swap. A commit that was stored since r was read may have ended the
// count of the failures, also one that a dead owner has sent, and the store refuses the swap.
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
	op := lease.OpTransfer
	if reason != lease.ReasonForced {
		op = lease.OpSwap
	}
	setAside := func(next *lease.Row) {
		if reason != lease.ReasonForced && !r.Owner.IsZero() {
			fail(next, r.Generation, reason)
		}
		next.Quarantined = true
	}
	return handOver(r, op, lease.Owner{}, c.transfer(reason, "quarantined"), s, setAside)
}

// Unquarantine makes the shard claimable again, and resets its attempts.
func Unquarantine(r lease.Row, c Command, s Stamp) (lease.Write, error) {
	const name = "unquarantine"
	if err := seen(r, name, c); err != nil {
		return lease.Write{}, err
	}
	if !r.Quarantined {
		return lease.Write{}, rule(r, name, ErrNotQuarantined)
	}
	return handOver(r, lease.OpSwap, lease.Owner{}, c.transfer(lease.ReasonForced, "unquarantined"), s, func(next *lease.Row) {
		next.Quarantined, next.Failures = false, lease.Failures{}
	})
}

// Conclude marks the shard as finished at its checkpoint, and takes it from its owner if it has one. Nobody claims it
// again, and its children may start. The reason is ReasonForced and not that of Finish, so the owner does not take the
// command for its own Finish. A commit that was stored since r was read refuses the write: the operator has not
// seen that position.
func Conclude(r lease.Row, c Command, s Stamp) (lease.Write, error) {
	const name = "finish"
	if err := seen(r, name, c); err != nil {
		return lease.Write{}, err
	}
	if r.Finished {
		return lease.Write{}, rule(r, name, ErrFinished)
	}
	return handOver(r, lease.OpSwap, lease.Owner{}, c.transfer(lease.ReasonForced, "finished"), s, func(next *lease.Row) {
		next.Finished, next.Quarantined, next.Failures = true, false, lease.Failures{}
	})
}

// Rewind moves the position of a shard, in either direction, and takes the shard from its owner if it has one; the
// next holder starts there. A zero mark rewinds to the very beginning. A finished shard is no longer finished
// afterwards, and this is the only way to process it again. Its children do not wait for it. A
// quarantined shard stays quarantined. Rewind refuses a lease whose holder has a lock delay: release it first, which
// leaves the delay.
//
// The position gets the generation that begins, because none ever moves back within a generation. The write of the
// owner that the store accepts first refuses the other one.
func Rewind(r lease.Row, c Command, m checkpoint.Mark, s Stamp) (lease.Write, error) {
	if err := seen(r, "rewind", c); err != nil {
		return lease.Write{}, err
	}
	if r.Owner.LockDelay > 0 {
		return lease.Write{}, rule(r, "rewind", ErrDelays)
	}
	return handOver(r, lease.OpSwap, lease.Owner{}, c.transfer(lease.ReasonForced, "rewound"), s, func(next *lease.Row) {
		next.Finished, next.Failures = false, lease.Failures{}
		next.Checkpoint = checkpoint.Checkpoint{}
		if !m.IsZero() {
			next.Checkpoint = checkpoint.Checkpoint{Mark: m, Generation: next.Generation, At: wall(s.At)}
		}
	})
}

// Remove replaces the row of a shard that is no longer listed by a tombstone. The tombstone keeps
// the generation: it refuses late writes of earlier holders, and a shard with the same name
// starts above it. A tombstone from a clock that was never set would expire at once.
func Remove(r lease.Row, c Command, s Stamp) (lease.Write, error) {
	if err := idle(r, "remove", c); err != nil {
		return lease.Write{}, err
	}
	if err := generation.ValidClock(s.At); err != nil {
		return lease.Write{}, err
	}
	return handOver(r, lease.OpSwap, lease.Owner{}, c.transfer(lease.ReasonRemoved, "removed"), s, func(next *lease.Row) {
		next.Parents, next.Failures = nil, lease.Failures{}
		next.Checkpoint = checkpoint.Checkpoint{}
		next.Finished, next.Quarantined, next.Removed = false, false, true
	})
}

// Revive replaces a tombstone by a new row, for a shard that is listed again. The row is like a
// new one, but its generation is above that of the tombstone.
func Revive(r lease.Row, parents []string, by string, s Stamp) (lease.Write, error) {
	const name = "revive"
	if !r.Removed {
		return lease.Write{}, rule(r, name, ErrNotRemoved)
	}
	return jump(r, lease.OpSwap, 1, lease.Owner{}, lease.Transfer{Reason: lease.ReasonInitial, By: by}, s, func(next *lease.Row) {
		next.Parents, next.Removed = sorted(parents), false
	})
}

// ReviveHeld replaces the tombstone of a lease by name with a row whose owner is by. Where there is no
// tombstone, BeginHeld creates such a row.
func ReviveHeld(r lease.Row, by lease.Owner, s Stamp) (lease.Write, error) {
	const name = "revive"
	if !r.Removed {
		return lease.Write{}, rule(r, name, ErrNotRemoved)
	}
	return jump(r, lease.OpSwap, 1, by, lease.Transfer{Reason: lease.ReasonInitial, By: by.Name}, s, func(next *lease.Row) {
		next.Removed = false
	})
}

// Adopt takes a row of a restored or replaced table into use. It removes the owner, and begins a
// generation above all that were issued after the backup and are lost.
func Adopt(r lease.Row, by string, s Stamp) (lease.Write, error) {
	return jump(r, lease.OpTransfer, generation.Lost, lease.Owner{}, lease.Transfer{Reason: lease.ReasonAdopted, By: by, Did: "adopted"}, s, nil)
}
