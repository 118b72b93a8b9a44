package engine

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This worker's seat.
//
//	unseated → creating → confirming → seated → quitting → (the engine is done)
//	  ↑__________________________________|  the seat is lost, or given up for a rest
//
// Called by the spine: fence before any input is taken, keep at the end of each step, settled
// and verified with answers, lose when fence or an answer shows that the seat is lost, sight (peers.go) with
// listings. leave calls quit.
//
// Two clocks decide when a lease is over. They need not show the same time, but their rates differ by less than a
// tenth. This worker ceases to trust its seat when nine tenths of the lease time have passed since it first sent its
// last stored heartbeat. Another worker evicts it only after it has seen that heartbeat stand still for the whole lease
// time, and it cannot have seen it before it was sent.
//
// Invariant: a worker that is not seated has no tenure.
// Invariant: after any refusal of a write of the seat, and after trust has ended, the worker
// takes a new incarnation before it does anything else.

// A phase is how far a worker has come with its seat.
type phase uint8

const (
	unseated   phase = iota // there is no seat
	creating                // the creation is under way
	confirming              // the first heartbeat is under way; the worker claims nothing before
	seated
	quitting // the deletion is under way
)

// A seat is this worker's own seat.
type seat struct {
	phase phase
	me    lease.Incarnation // empty: unseated
	row   lease.Seat        // as last stored; zero until the creation is answered
	trust trust
	beat  heartbeat
	table tableCheck

	former []lease.Incarnation // earlier incarnations of this worker, whose seats may still exist
	rest   Instant             // the worker takes no seat before
	joined Instant             // when this seat was confirmed
	hidden Instant             // until then the seat shows no address
	deaf   bool                // the listener has failed: no seat of this worker shows an address any more
}

// A trust is the time in which this worker may believe in its own lease: a lease time from the
// first sending of the last stored heartbeat, less a tenth for clocks that run at different
// rates. It counts from the first sending because an answer may be to any sending of the bytes.
type trust struct {
	until     Instant
	wall      wall  // the wall clock at the sending that trust rests on
	confirmed order // the step in which the last heartbeat was confirmed
	// doubt: only the wall clock says that trust has ended. The machine was suspended, or
	// its clock was set. Commits wait, and a heartbeat is sent at once, whose answer decides.
	doubt bool
}

// A heartbeat is the write of the seat that is under way.
type heartbeat struct {
	sending
	sent     Instant // when it was first sent
	sentWall wall
	next     Instant // when the next one is due
}

// A tableCheck asks the store whether this is the table that the group has always used. Until
// the answer is there nothing is claimed.
type tableCheck struct {
	try      retry
	asked    serial
	proven   bool
	restored error // why the table is not the one it was; nil: nothing shows that
}

// awaits reports whether this answers the check that is under way.
func (v *tableCheck) awaits(in Verified) bool { return v.try.sent && serial(in.Read) == v.asked }

// trusted returns how long trust lasts.
func (t *turn) trusted() time.Duration { return t.cfg.TTL - t.cfg.TTL/10 }

// fence reports that this worker may no longer trust its own lease, and why. It needs no answer of the store. It also notes
// doubt.
func (c *seat) fence(t *turn) (cause event.Cause, over bool) {
	if c.phase != seated {
		return 0, false
	}
	if t.now.Mono >= c.trust.until {
		if c.beat.try.tries > 0 {
			return event.CauseUnreachable, true
		}
		return event.CauseExpired, true
	}
	if t.wall()-c.trust.wall >= wall(t.trusted()) {
		c.trust.doubt = true
	}
	return 0, false
}

// lose makes the worker forget its seat.
func (c *seat) lose() {
	former := append(slices.Clone(c.former), c.me)
	*c = seat{former: former[max(0, len(former)-8):], table: tableCheck{restored: c.table.restored}, hidden: c.hidden, deaf: c.deaf}
}

// was reports whether that incarnation is an earlier one of this worker or session.
func (c *seat) was(inc lease.Incarnation) bool { return slices.Contains(c.former, inc) }

// address returns the address that the seat shows at present; empty: none.
func (c *seat) address(t *turn) string {
	if c.deaf || t.cfg.Address == "" || t.before(c.hidden) {
		return ""
	}
	return t.cfg.Address
}

// misjudged reports whether the seat was deleted although this worker lives and its lease was valid, while the
// seat showed an address: another worker may have taken it for dead.
func (c *seat) misjudged(t *turn, cause event.Cause) bool {
	return c.phase == seated && cause == event.CauseExpired && c.row.Address != "" && t.now.Mono < c.trust.until && !c.trust.doubt
}

// capable reports whether this worker may claim.
func (c *seat) capable() bool {
	return c.phase == seated && c.table.proven && !c.trust.doubt && c.table.restored == nil
}

// fails reports whether a call about the seat or the table waits to be repeated.
func (c *seat) fails() bool {
	return c.beat.try.tries > 0 || c.table.restored == nil && c.table.try.tries > 0
}

// young reports whether there is no seat, or one that was taken less than CommitTimeout ago.
func (c *seat) young(t *turn) bool {
	return c.phase != seated || t.now.Mono < c.joined.Add(t.cfg.CommitTimeout)
}

// keep takes a seat, or sends the heartbeat that is due. hurry is when the worker has something
// to publish that should not wait for the next heartbeat. It reports whether a new incarnation
// begins in this step.
func (c *seat) keep(t *turn, says lease.Says, hurry Instant, over bool) (begins bool) {
	if c.phase == seated {
		t.at(c.trust.until)
	}
	if c.phase == unseated && !says.Leaving {
		if t.before(c.rest) {
			return false
		}
		c.create(t)
		return true
	}
	c.verify(t)
	b := &c.beat
	if b.open() {
		b.keep(t)
		return false
	}
	if !c.speaks(t, hurry) || over {
		return false
	}
	w, err := protocol.NextBeat(c.row, says, t.stamp())
	c.send(t, w, err)
	return false
}

// speaks reports whether a heartbeat is due.
func (c *seat) speaks(t *turn, hurry Instant) bool {
	switch {
	case c.beat.open():
		return false
	case c.phase == seated && !c.trust.doubt:
		return !t.before(min(c.beat.next, hurry))
	}
	return c.phase == seated || c.phase == confirming
}

// create takes a seat under a new incarnation. A crash before the first heartbeat leaves a seat that is not confirmed:
// it gets no shards, owns no rows, and is evicted like others.
func (c *seat) create(t *turn) {
	s := t.stamp()
	c.phase, c.me = creating, lease.Incarnation(s.ID)
	if t.cfg.Deathwatch {
		t.do(Answer{Incarnation: c.me})
	}
	w, err := protocol.Sit(lease.Seat{
		Group: t.cfg.Group, Incarnation: c.me, Name: t.cfg.Name, Task: t.cfg.Task, TTL: t.cfg.TTL, MaxShards: int64(t.cfg.MaxShards),
		Build: t.cfg.Build, Since: s.At, Handoff: t.cfg.Strategy, Backoff: cmp.Or(t.cfg.Backoff, -time.Millisecond),
	}, t.stamp())
	c.send(t, w, err)
}

// quit gives the seat up, at the end of a graceful shutdown. If the deletion does not arrive, or this worker dies
// before, the seat expires.
func (c *seat) quit(t *turn) {
	w, err := protocol.Evict(c.row)
	c.send(t, w, err)
	c.phase = quitting
}

// send makes w the open write of the seat. The shell has checked what a seat is made of; what
// is wrong nevertheless is reported, and tried again later.
func (c *seat) send(t *turn, w lease.Write, err error) {
	b := &c.beat
	if !b.send(t, w, err) {
		b.next = b.try.at
		return
	}
	b.sent, b.sentWall = t.now.Mono, t.wall()
}

// A seatAnswer is what the answer to a write of the seat means.
type seatAnswer uint8

const (
	seatUnchanged seatAnswer = iota // it is not decided yet, or the seat is only created
	seatLost                        // something else is in its place, or nothing
	seatStored                      // a heartbeat is stored
	seatConfirmed                   // it was the first
	seatGone                        // the seat was given up
)

// settled takes the answer to a write of the seat. Anything in its place other than what was
// written means that the worker was evicted: never an alarm, only a new incarnation.
func (c *seat) settled(t *turn, in Settled) seatAnswer {
	longest := t.beat / 2
	if c.phase == seated {
		longest = t.beat / 8 // a store that returns shortly before trust ends is reached in time
	}
	verdict, now, decided := c.beat.settled(t, c.me, in, t.beat/16, longest)
	switch {
	case !decided:
		return seatUnchanged
	case c.phase == quitting:
		return seatGone
	case verdict != protocol.Stored:
		return seatLost
	}
	c.row, _ = now.(lease.Seat)
	if c.phase == creating {
		c.phase = confirming
		return seatUnchanged
	}
	return c.confirm(t)
}

// confirm extends trust. It counts from when the heartbeat was first sent, not from the answer, because the others may
// have seen it as early as that.
func (c *seat) confirm(t *turn) seatAnswer {
	c.trust.until, c.trust.wall = c.beat.sent.Add(t.trusted()), c.beat.sentWall
	c.trust.confirmed = t.step
	c.beat.next = c.beat.sent.Add(t.jitter(t.beat))
	// The answer to a heartbeat that was sent before the machine slept shows nothing about
	// the time since.
	if t.wall()-c.trust.wall < wall(t.trusted()) {
		c.trust.doubt = false
	}
	if c.phase != confirming {
		return seatStored
	}
	c.phase, c.joined = seated, t.now.Mono
	t.report(event.Event{Kind: event.Joined})
	return seatConfirmed
}

// verify asks whether this is the table that the group has always used, from the first heartbeat of a seat until the answer
// is yes.
// A table that goes back later shows by the seat, which is then missing or older.
func (c *seat) verify(t *turn) {
	v := &c.table
	if c.phase != confirming && c.phase != seated || v.proven && v.restored == nil || !v.try.due(t) {
		return
	}
	t.reads++
	v.try.sent, v.asked = true, t.reads
	t.do(Verify{Read: uint64(v.asked)})
}

// verified takes the answer, and reports whether the table is proven now and was not before. An
// answer to an earlier seat's question proves nothing about this one.
func (c *seat) verified(t *turn, in Verified) (proven bool) {
	v := &c.table
	if !v.awaits(in) {
		return false
	}
	if in.Err == nil {
		*v = tableCheck{proven: true}
		t.answeredNow()
		return true
	}
	switch {
	case v.restored != nil:
	case errors.Is(in.Err, lease.ErrWentBack):
		v.restored = in.Err
		c.hidden = 0 // the seat before was not deleted: the table went back
	default:
		t.failedNow("", in.Err)
	}
	v.try.failed(t.now.Mono, t.beat/8, t.beat)
	return false
}
