package engine

import (
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// What the spine of a worker and the spine of a session do alike: a step, the life of the seat, the handlers and the
// rows of held shards, and the reports of faults.
//
// Called by the two spines, engine.go and session.go. Where they differ, common calls them back: see spine.
//
// Both have a seat too. It is not a part of common, because the seat of a worker is a part of its fleet: the methods here
// get it as mine.
//
// Nothing is written here, except that a worker deletes its seat when it can write no row (surrender). If it crashes
// before the deletion arrives, its seat stands still, and the other workers evict it.
//
// Invariant: trust is checked before an input is taken: an answer must not prolong what has ended.
// Invariant: a spine that is done only notes that handlers return.

// A common is the parts that a worker and a session have alike.
type common struct {
	turn     turn
	shards   shards
	leave    leave
	faults   faults
	raiser   raiser
	confirms confirms
	self     self // what tend passes to the shard, kept here because it would be on the heap anyway
}

// A spine is a worker or a session, where the two differ.
type spine interface {
	take(in Input)                         // hands an input to the part that it concerns
	live()                                 // does what is due, and reports faults last
	loseSeat(cause event.Cause, err error) // ends every tenure, and forgets what goes with the seat
	fill(s *shard, w *self)                // adds to w what only this spine knows of it
	blame(s *shard)                        // a handler has failed
	acquire(s *shard, w self, h *happened) // makes the next step for a shard that is not held
	happened(s *shard, h happened)         // draws the conclusions of what a shard reports
	fails() bool                           // a call that is about no shard waits to be repeated
	replaceable() bool                     // another worker could take over the shards of this one
}

// newCommon returns the parts of a worker or session that has done nothing yet.
func newCommon(c Config, now Moment) common {
	now.Mono = max(now.Mono, 1) // an instant of 0 stands for "never yet"
	return common{turn: turn{cfg: c, beat: c.TTL / 3, now: now}, shards: shards{due: Never}, faults: newFaults(), raiser: newRaiser()}
}

// step takes what has happened and returns what to do, and when to call it again at the latest.
func (c *common) step(of spine, mine *seat, now Moment, in Input) (out []Output, wake Instant) {
	t := &c.turn
	if paused := t.begin(now); paused > 0 {
		c.shards.overslept(paused)
	}
	if c.leave.done {
		if r, ok := in.(Returned); ok {
			c.shards.returned(r)
		}
		return t.out, Never
	}
	if cause, over := mine.fence(t); over {
		of.loseSeat(cause, nil)
	}
	if !c.confirmed(of, mine, in) {
		of.take(in)
	}
	of.live()
	if c.leave.done {
		return t.out, Never
	}
	return t.out, t.wake
}

// Done reports whether everything is given up: after a [Stop], or because the group is of the other kind. The
// handlers may still run, if they ignore their contexts.
func (c *common) Done() bool { return c.leave.done }

// take takes an input that means the same for a worker and a session.
func (c *common) take(of spine, mine *seat, in Input) {
	t := &c.turn
	switch in := in.(type) {
	case Verified:
		if mine.verified(t, in) {
			c.shards.tendAll(t)
		}
	case StoreSlow:
		c.faults.storeSlow(t, in.Err)
	case Marks:
		c.marked(of, mine, in)
	case Batch:
		c.marked(of, mine, in...)
	case Confirm:
		c.confirm(in)
	case Raised:
		s := c.shards.present(in.Tenure)
		if c.raiser.raised(t, s, in); s != nil {
			c.tend(of, mine, s)
		}
	case Unraised:
		c.raiser.unraised(t, c.shards.present(in.Tenure), in)
	case Returned:
		if s := c.shards.returned(in); s != nil {
			c.tend(of, mine, s)
		}
	}
}

// marked takes what handlers have marked and asked for: all marks of a batch first, so that no commit that is due leaves
// out one of them.
func (c *common) marked(of spine, mine *seat, batch ...Marks) {
	for _, in := range batch {
		if s := c.shards.present(in.Tenure); s != nil {
			if s.t.marked(&c.turn, s.name, in); in.Progress {
				of.happened(s, happened{succeeded: true})
			}
		}
	}
	for _, in := range batch {
		if s := c.shards.present(in.Tenure); s != nil {
			c.tend(of, mine, s)
		}
	}
}

// tend does what is due for one shard, and for the rest of the worker what follows from it. A worker without a seat tends
// nothing.
func (c *common) tend(of spine, mine *seat, s *shard) {
	if t := &c.turn; mine.phase == seated {
		before := s.ask != nil
		c.self = self{
			owner: mine.row.Owner(), capable: mine.capable(), doubt: mine.trust.doubt,
			leaving: c.leave.on, release: c.leave.all, since: c.leave.since, said: c.leave.said,
		}
		of.fill(s, &c.self)
		w := c.self
		h, free := s.tend(t, w, of.blame)
		if free {
			more := h // a copy, so that h is not on the heap for a shard that is held
			of.acquire(s, w, &more)
			h = more
		}
		of.happened(s, h)
		c.shards.countAsk(t, before, s.ask != nil)
	}
	c.shards.due = min(c.shards.due, s.wake)
}

// rowSettled takes the answer to the write of a row.
func (c *common) rowSettled(of spine, mine *seat, in Settled) {
	s := c.shards.find(in.Write.Key().Name)
	if s == nil {
		return
	}
	before := s.ask != nil
	h := s.settled(&c.turn, in, &c.faults.rows)
	c.shards.countAsk(&c.turn, before, s.ask != nil)
	of.happened(s, h)
	c.tend(of, mine, s)
}

// seatSettled takes the answer to a write of this process's seat. It returns what the answer means, because a worker
// then has more to do than a session.
func (c *common) seatSettled(of spine, mine *seat, in Settled) seatAnswer {
	doubted := mine.trust.doubt
	answer := mine.settled(&c.turn, in)
	switch answer {
	case seatLost:
		of.loseSeat(event.CauseExpired, in.Err)
	case seatGone:
		c.leave.done = true
	case seatStored, seatConfirmed:
		if answer == seatConfirmed || doubted && !mine.trust.doubt {
			c.shards.tendAll(&c.turn)
		}
	}
	return answer
}

// lose ends every tenure at once. Nothing is written: the rows stay in the name of the lost seat until they are recovered,
// perhaps by this worker. It takes another seat in the same step, unless it rests or shuts down.
func (c *common) lose(mine *seat, cause event.Cause, err error) {
	t := &c.turn
	if mine.phase == seated {
		t.report(event.Event{Kind: event.Lost, Cause: cause, Err: err})
	}
	if mine.misjudged(t, cause) {
		mine.hidden = t.now.Mono.Add(hideFor * t.cfg.TTL)
		c.faults.misjudged.raise(t, t.now.Mono, "", &misjudgedError{mine.row.Address})
	}
	mine.lose()
	c.shards.end(t, cause, err)
	c.shards.forget(t, "")
	c.leave.done = c.leave.on
}

// happened draws the conclusions that a worker and a session draw alike from what a shard reports.
func (c *common) happened(mine *seat, s *shard, h happened) {
	if h.late > 0 {
		c.faults.commits.raise(&c.turn, h.late, s.name, errNotAccepted)
	}
	if h.restored != nil {
		mine.table.restored = h.restored
	}
}

// scan begins the faults that this step has met in the store, and ends those that are over.
func (c *common) scan(of spine, mine *seat) {
	f, t := &c.faults, &c.turn
	f.meet(t, mine)
	if !f.scans(t) {
		return
	}
	if f.store.on {
		f.scanStore(t, c.shards.all, of.fails() || mine.fails())
	}
	if f.reserved.on {
		f.scanReserved(t, c.shards.all)
	}
	if f.commits.on && f.scanCommits(t, &c.shards, of.replaceable(), mine.young(t)) {
		c.surrender(of, mine)
	}
}

// surrender gives up the seat of a worker that can write no row. It rests before it takes another seat.
func (c *common) surrender(of spine, mine *seat) {
	rows, t := &c.faults.rows, &c.turn
	if w, err := protocol.Evict(mine.row); err == nil {
		t.do(Send{Write: w}) // its answer changes nothing: if a heartbeat comes first, the seat expires
	}
	rows.surrendered++
	of.loseSeat(event.CauseStalled, errNotAccepted)
	mine.rest = t.now.Mono.Add(backoff(rows.surrendered, t.cfg.TTL, longestRest*t.cfg.TTL))
}
