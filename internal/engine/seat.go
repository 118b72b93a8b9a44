package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A phase is how far a worker has come with its seat.
type phase uint8

const (
	standing   phase = iota // it has none
	sitting                 // the creation is under way
	confirming              // its first beat is: before that nobody counts it, and it claims nothing
	seated
	left // given up
)

// A chair is this worker's own seat.
//
// Invariant: a worker that is not seated has no tenure.
type chair struct {
	phase phase
	me    lease.Incarnation
	seat  lease.Seat // as last confirmed
	open  lease.Write
	try   retry
	// Trust lasts until a lease time after the first sending of the last
	// confirmed beat, less a tenth. The first sending: an answer may be to any
	// sending of the same bytes.
	sent       Instant // of open, first
	sentWall   wall
	trust      Instant
	trustWall  wall    // the wall clock at the sending that trust rests on
	confirmed  order   // the step in which the last beat was
	next       Instant // when the next beat is due
	doubt      bool    // the wall clock alone says that trust has ended
	restored   bool    // the table went back in time: claim nothing
	unwritable bool    // the last beat that was due could not be made
	proven     bool    // asked after the seat was stored, the store said that this is the table it was
	check      retry   // of that question, …
	asked      serial  // … and its number: an answer to an earlier seat's says nothing of this one
	freed      int64
	former     []lease.Incarnation // earlier ones of this worker, whose seats may still be there
	rest       Instant             // the worker takes no seat before
	joined     Instant             // when this seat was confirmed
	wake       Instant
}

// selfFence ends what this worker holds when it cannot trust its own lease any
// more, by its own clock and without the store. An observer needs a whole lease
// time of standing still; the tenth between is for clocks that run at different
// rates.
//
// A monotonic clock stops while the machine is suspended. When the wall clock
// alone says that trust has ended, that may be suspend or a step of the clock:
// commits are held, a beat is sent at once, and its answer decides.
func (e *Engine) selfFence() {
	c := &e.seat
	if c.phase != seated {
		return
	}
	if e.now.Mono >= c.trust {
		cause := event.CauseExpired
		if c.open.Op != 0 && c.try.tries > 0 {
			cause = event.CauseUnreachable
		}
		e.loseSeat(cause, nil)
		return
	}
	if !c.doubt && e.wall()-c.trustWall >= wall(e.trusted()) {
		c.doubt = true
	}
}

// trusted is how long trust lasts.
func (e *Engine) trusted() time.Duration { return e.cfg.TTL - e.cfg.TTL/10 }

// loseSeat ends every tenure at once. The worker takes a new incarnation before
// it does anything else.
func (e *Engine) loseSeat(cause event.Cause, err error) {
	c := &e.seat
	if c.phase == seated {
		e.tell(event.Event{Kind: event.Lost, Cause: cause, Err: err})
	}
	c.former = append(c.former, c.me)
	if len(c.former) > 8 {
		c.former = slices.Clone(c.former[1:])
	}
	*c = chair{former: c.former, restored: c.restored}
	for _, s := range e.shards {
		if s.t.on {
			e.over(s, cause, err)
		}
		e.forget(s, "")
	}
	e.looks = looks{count: e.looks.count, away: e.looks.away, seats: e.looks.seats.again(), rows: e.looks.rows.again()}
	e.fleet = fleet{malformed: e.fleet.malformed}
	e.leave.done = e.leave.on
}

// keepSeat takes a seat, or beats the one there is.
func (e *Engine) keepSeat() {
	c := &e.seat
	c.wake = Never
	if c.phase == seated {
		c.wake = c.trust
	}
	if e.leave.done {
		return
	}
	if c.phase == standing && !e.leave.on {
		if e.now.Mono < c.rest {
			c.wake = c.rest
			return
		}
		e.sit()
	}
	if c.phase >= confirming && c.phase <= seated && (!c.proven || c.restored) && c.check.due(e.now.Mono, &c.wake) {
		e.looks.count++
		c.check.sent, c.asked = true, e.looks.count
		e.do(Verify{Read: uint64(c.asked)})
	}
	if c.open.Op != 0 {
		if c.try.due(e.now.Mono, &c.wake) {
			c.try.sent = true
			e.do(Send{Write: c.open})
		}
		return
	}
	if c.phase != confirming && c.phase != seated || e.leave.over && (!e.large() || c.seat.Freed == c.freed) {
		return
	}
	if next := e.nextBeat(); c.phase == seated && e.now.Mono < next {
		c.wake = min(c.wake, next)
		return
	}
	w, err := protocol.NextBeat(c.seat, e.says(), e.stamp())
	e.sendSeat(w, err)
}

// verified takes in whether this is still the table it was. The question is asked
// beside the first beats of every seat, after the seat is known to be stored: a table
// that is put back in time later shows by the seat, which is then missing or older.
// Until the answer is there nothing is claimed.
func (e *Engine) verified(in Verified) {
	c := &e.seat
	if !c.check.sent || serial(in.Read) != c.asked {
		return
	}
	if in.Err == nil {
		if c.restored && e.large() {
			e.looks.rowsStep = 0 // what it remembers is of another table
		}
		c.check, c.proven, c.restored = retry{}, true, false
		e.faults.answered = e.step
		e.lower(&e.faults.restored)
		e.wantPlan()
		e.tendAllSoon()
		return
	}
	switch {
	case c.restored:
	case errors.Is(in.Err, lease.ErrWentBack):
		c.restored = true
		e.raise(&e.faults.restored, e.now.Mono, "", in.Err)
	default:
		e.storeFailed("", in.Err)
	}
	c.check.failed(e.now.Mono, e.beat/8, e.beat)
}

// sit takes a new incarnation.
func (e *Engine) sit() {
	c := &e.seat
	c.phase = sitting
	s := e.stamp()
	c.me = lease.Incarnation(s.ID)
	e.ids++
	w, err := protocol.Sit(lease.Seat{
		Group: e.cfg.Group, Incarnation: c.me, Name: e.cfg.Name, Task: e.cfg.Task, TTL: e.cfg.TTL,
		MaxShards: int64(e.cfg.MaxShards), Planner: e.cfg.Planner.Fingerprint(),
	}, e.stamp())
	for _, s := range e.shards {
		e.forget(s, c.me)
	}
	e.sendSeat(w, err)
}

// sendSeat makes w the open write of the seat. The shell has checked what a seat is
// made of; what is wrong all the same is told, and tried again later.
func (e *Engine) sendSeat(w lease.Write, err error) {
	c := &e.seat
	if c.unwritable = err != nil; c.unwritable {
		e.storeFailed("", err)
		c.next = e.now.Mono.Add(e.beat)
		c.wake = min(c.wake, c.next)
		return
	}
	c.open, c.try = w, retry{sent: true}
	c.sent, c.sentWall = e.now.Mono, e.wall()
	e.do(Send{Write: w})
}

// seatSettled takes in the answer to a write of the seat. Whatever stands in its
// place, if it is not what was written, then the worker was evicted: that is
// never an alarm, only a new incarnation.
func (e *Engine) seatSettled(in Settled) {
	c := &e.seat
	if in.Write.Op == lease.OpDelete && in.Write.Key().Name != string(c.me) {
		e.evicted(in)
		return
	}
	if c.open.Op == 0 || in.Write.Op != c.open.Op || in.Write.ID() != c.open.ID() {
		return
	}
	verdict, now := protocol.Settle(c.me, c.open, in.Record, in.Err)
	if verdict != protocol.Unknown {
		e.faults.answered = e.step
	}
	switch {
	case verdict == protocol.Unknown:
		e.storeFailed("", in.Err)
		longest := e.beat / 2
		if c.phase == seated {
			longest = e.beat / 8 // a store that was away for half a lease time comes back shortly before trust ends
		}
		c.try.failed(e.now.Mono, e.beat/16, longest)
		return
	case c.open.Op == lease.OpDelete:
		e.seatGivenUp(verdict, now)
		return
	case verdict != protocol.Stored:
		e.loseSeat(event.CauseExpired, in.Err)
		return
	}
	e.looks.near(e.now.Mono.Sub(c.sent))
	op := c.open.Op
	c.seat, _ = now.(lease.Seat)
	c.open, c.try = lease.Write{}, retry{}
	if op == lease.OpCreate {
		c.phase = confirming
		return
	}
	e.confirm()
}

// confirm extends trust.
func (e *Engine) confirm() {
	c := &e.seat
	c.trust, c.trustWall = c.sent.Add(e.trusted()), c.sentWall
	c.next = c.sent.Add(e.jitter(e.beat))
	c.confirmed = e.step
	e.wantsAreSaid()
	// An answer to a beat that was sent before the machine slept says nothing about
	// what was done meanwhile.
	if c.doubt && e.wall()-c.trustWall < wall(e.trusted()) {
		c.doubt = false
		e.tendAllSoon()
	}
	if c.phase == confirming {
		c.phase, c.joined = seated, e.now.Mono
		e.tell(event.Event{Kind: event.Joined})
		e.fleet.changed = e.now.Mono
		e.wantPlan()
		e.tendAllSoon()
	}
}

// wantsAreSaid starts the time of the wants that the others can see from now on.
func (e *Engine) wantsAreSaid() {
	for _, w := range e.seat.seat.Wants {
		if s := e.shard(w.Shard); s != nil && s.asks() && !s.ask.said && s.ask.generation == w.Generation {
			s.ask.said, s.ask.since = true, e.now.Mono
			e.at(s, e.now.Mono)
		}
	}
}

// says is what the next beat tells.
func (e *Engine) says() lease.Says {
	says := lease.Says{Leaving: e.leave.on, Freed: e.seat.freed}
	for _, s := range e.shards {
		if s.asks() {
			says.Wants = append(says.Wants, lease.Want{Shard: s.name, Generation: s.ask.generation, Terms: s.ask.terms})
		}
	}
	if len(says.Wants) == 0 {
		says.Wants = e.unasked()
	}
	return says
}

// nextBeat is when the seat has to beat again: at once, if it has something else to
// say than the last time. What was freed can wait a little, for there may be more of
// it.
func (e *Engine) nextBeat() Instant {
	c := &e.seat
	said := &c.seat.Says
	switch {
	case c.doubt || said.Leaving != e.leave.on:
		return e.now.Mono
	case (len(said.Wants) > 0 || e.fleet.asks > 0) && !(said.Leaving && e.large()) && !slices.Equal(said.Wants, e.says().Wants):
		return e.now.Mono
	case said.Freed != c.freed:
		return min(c.next, c.sent.Add(e.beat/8))
	}
	return c.next
}

// capable reports whether this worker may claim.
func (e *Engine) capable() bool {
	return e.seat.phase == seated && e.seat.proven && !e.seat.doubt && !e.seat.restored
}
