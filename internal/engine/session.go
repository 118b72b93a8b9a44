package engine

import (
	"reflect"
	"slices"

	"github.com/shardlease/shardlease-go/internal/digest"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The spine of a session: leases by name, without a plan, targets or a source. For the seat, the held
// leases, faults and the shutdown it calls the same parts as the spine of a worker. For the kind of
// the group and for the leases that the session waits for it calls parts of its own.
//
// The spine has no states of its own: seat.phase is the phase of the session.
//
// Called by the shell and the virtual world: NewSession once, Step with every input. A session has no
// inputs and outputs for sources, moves, and listings except one (kind.go).
//
// What a session writes:
//
//	seat     a seat and heartbeats, as a worker; at the end, or when it was lost, a deletion
//	kind     once in the life of a group: the record of sessions, under the key of a plan
//	wait     evictions of dead owners; the row of each lease that it acquires
//	hold     marks, if the holder makes some
//	give     a release; if the lease has no checkpoint, a tombstone
//	heed     the wishes of operators without those that have ended
//
// A crash leaves a seat and rows in its name. Sessions that wait for these leases evict the seat, and acquire them
// after the lock delay.
//
// Invariant: trust is checked before an input is taken: an answer must not prolong a tenure that has
// ended.
// Invariant: the session neither writes nor reads the row of a held lease without a mark or a command. So a
// session without marks sends only heartbeats and reads of the wishes, as many for one lease as for a thousand.

// A Session is one session's side of the protocol as a plain value.
type Session struct {
	turn   turn
	seat   seat
	kind   kind
	owners owners
	rivals rivals
	heed   heed
	shards shards
	leave  leave
	faults faults
	former lease.Seat // the last seat that this session lost, if it may still exist; zero: none
	swept  Instant    // when live last dropped rivals, owners and leases that are no longer needed
}

// NewSession returns a session that has done nothing yet. Its first step is a [Tick].
func NewSession(c Config, now Moment) *Session {
	now.Mono = max(now.Mono, 1) // an instant of 0 stands for "never yet"
	c.Discard = true
	e := &Session{turn: turn{cfg: c, beat: c.TTL / 3, now: now}, faults: newFaults()}
	e.shards.due = Never
	return e
}

// Step takes what has happened and returns what to do, and when to call it again at the latest.
// The outputs are valid until the next step. A session that is done only notes that handlers return.
func (e *Session) Step(now Moment, in Input) (out []Output, wake Instant) {
	t := &e.turn
	if paused := t.begin(now); paused > 0 {
		e.shards.overslept(paused)
	}
	if e.leave.done {
		if r, ok := in.(Returned); ok {
			e.returned(r)
		}
		return t.out, Never
	}
	if cause, over := e.seat.fence(t); over {
		e.loseSeat(cause, nil)
	}
	e.take(in)
	e.live()
	if e.leave.done {
		return t.out, Never
	}
	return t.out, t.wake
}

// Done reports whether the session has given up all leases and its seat, after a [Stop] or because the
// group is one of workers.
func (e *Session) Done() bool { return e.leave.done }

// take hands the input to the part that it concerns.
func (e *Session) take(in Input) {
	t := &e.turn
	switch in := in.(type) {
	case Got:
		e.got(in)
	case Settled:
		e.settled(in)
	case Listed:
		if e.kind.listed(t, in, e.seat.row.Owner()); e.kind.proven {
			e.shards.tendAll(t)
		}
	case Verified:
		if e.seat.verified(t, in) {
			e.shards.tendAll(t)
		}
	case StoreSlow:
		e.faults.storeSlow(t, in.Err)
	case Marks:
		e.marked(in)
	case Batch:
		e.marked(in...)
	case Returned:
		e.returned(in)
	case Acquire:
		s := e.shards.know(in.Name, t.cfg.Group, e.seat.me)
		s.want = &wanted{id: in.ID, task: in.Task, delay: in.LockDelay, try: in.Try}
		s.doubt()
		e.tend(s)
	case Forgo:
		if s := e.shards.find(in.Name); s != nil {
			if s.want != nil && s.want.id == in.ID {
				s.want, s.write.stuck = nil, false
			}
			e.tend(s)
		}
	case Stop:
		e.stop()
	}
}

// stop begins the shutdown, once: all leases are released at once.
func (e *Session) stop() {
	if t := &e.turn; e.leave.stop(t) {
		e.leave.all, e.leave.since = true, t.now.Mono // no successor has to ask first
		e.shards.tendAll(t)
	}
}

// live does everything that is due, whatever the input of this step was. The leases come before the seat, because a
// shutdown gives up the seat in the step in which the last lease is given up.
func (e *Session) live() {
	t := &e.turn
	if e.kind.foreign {
		e.stop()
	}
	e.shards.tendDue(t, e.seat.phase == seated, e.tend)
	if e.leave.keep(t, &e.seat) {
		e.leave.finish(t, &e.seat, &e.shards)
	}
	// A session says nothing on its seat except that it leaves, so no heartbeat is sent early.
	if (e.seat.phase != unseated || e.kind.needsSeat()) && e.seat.keep(t, lease.Says{Leaving: e.leave.on}, Never, e.leave.over) {
		e.begin(e.seat.me)
	}
	if e.seat.phase == seated && e.shards.held() > 0 {
		e.heed.keep(t, e.seat.me)
	} else {
		e.heed.next = 0
	}
	e.kind.keep(t, e.seat.phase == confirming || e.seat.phase == seated)
	// Not in every step: it looks at all leases.
	if t.now.Mono >= e.swept.Add(t.beat/8) {
		e.swept = t.now.Mono
		e.rivals.prune(t)
		e.owners.prune(t)
		e.shards.forgetDone(t)
		e.faults.unmet(t, func(key lease.Key) bool {
			s := e.shards.find(key.Name)
			return key.Kind == lease.KindLease && s != nil && s.want != nil ||
				key.Kind == lease.KindSeat && e.rivals.find(lease.Incarnation(key.Name)) != nil
		})
	}
	e.keepReporting()
	if e.seat.phase == seated {
		t.at(e.shards.due)
	}
}

// begin continues all leases under another incarnation; if me is empty, the session has no seat. The
// session continues to wait for the leases that it wants.
func (e *Session) begin(me lease.Incarnation) {
	e.shards.forget(&e.turn, me)
	for _, s := range e.shards.all {
		if s.want != nil {
			s.want.look, s.row.known = 0, false // read the row again: the former incarnation may have lost the lease since
		}
	}
}

// loseSeat ends every tenure at once. Nothing is written: the rows stay in the name of the lost seat, and another
// session recovers them when the seat is gone. This session takes another seat in the same step, unless it shuts down.
func (e *Session) loseSeat(cause event.Cause, err error) {
	t := &e.turn
	if e.seat.phase == seated {
		t.report(event.Event{Kind: event.Lost, Cause: cause, Err: err})
		e.former = e.seat.row
	}
	e.seat.lose()
	e.shards.end(t, cause, err)
	e.begin("")
	e.owners, e.rivals = owners{}, nil
	e.leave.done = e.leave.on
}

// tend does what is due for one lease.
func (e *Session) tend(s *shard) {
	if t := &e.turn; e.seat.phase == seated {
		w := self{
			owner: e.seat.row.Owner(), capable: e.seat.capable() && e.kind.proven, doubt: e.seat.trust.doubt,
			leaving: e.leave.on, release: e.leave.all, since: e.leave.since,
		}
		h, free := s.tend(t, w, func(*shard) {}) // no handler of a session fails
		if free {
			s.wait(t, waiter{self: w, owners: &e.owners, rivals: &e.rivals, former: e.seat.former})
		}
		e.happened(s, h)
	}
	e.shards.due = min(e.shards.due, s.wake)
}

// happened handles the reports of a lease that concern the whole session. The others are for plans, and a session has
// none.
func (e *Session) happened(s *shard, h happened) {
	t := &e.turn
	if h.late > 0 {
		e.faults.commits.raise(t, h.late, s.name, errNotAccepted)
	}
	if h.restored != nil {
		e.seat.table.restored = h.restored
	}
}

// marked takes the marks and the requests of the holders of tenures.
func (e *Session) marked(batch ...Marks) {
	for _, in := range batch {
		if s := e.shards.present(in.Tenure); s != nil {
			s.t.marked(&e.turn, s.tie, in)
			e.tend(s)
		}
	}
}

// returned takes the report that the handler of a tenure has returned.
func (e *Session) returned(in Returned) {
	if s := e.shards.returned(in); s != nil {
		e.tend(s)
	}
}

// got takes the answer to the read of one record. A part ignores an answer that it does not wait for.
func (e *Session) got(in Got) {
	t := &e.turn
	switch in.Key.Kind {
	case lease.KindPlan:
		if e.kind.got(t, in) {
			e.shards.tendAll(t)
		}
	case lease.KindWishes:
		for _, name := range e.heed.got(t, in) {
			if e.shards.find(name) != nil { // the session holds the lease, or its claim may already be stored
				e.shards.look(t, []string{name}, e.seat.me)
			}
		}
	case lease.KindSeat:
		if !e.owners.got(t, in) {
			return
		}
		inc := lease.Incarnation(in.Key.Name)
		if seat, ok := in.Record.(lease.Seat); ok && in.Err == nil {
			e.rivals.saw(t, seat)
		} else if malformed(in.Err) {
			e.rivals.sawSpoilt(t, inc, writtenBy(in.Err))
		}
		e.faults.met(t, in)
		e.tendOf(inc)
	case lease.KindLease:
		s := e.shards.find(in.Key.Name)
		if s == nil {
			return
		}
		e.faults.met(t, in)
		if s.got(t, in) {
			s.end(t, event.CauseVanished, nil)
		}
		s.looked(t)
		e.tend(s)
	}
}

// tendOf tends the leases that have this owner.
func (e *Session) tendOf(inc lease.Incarnation) {
	for _, s := range e.shards.all {
		if s.t == nil && s.row.copy.Row().Owner.Incarnation == inc {
			e.tend(s)
		}
	}
}

// settled takes the answer to a write.
func (e *Session) settled(in Settled) {
	t := &e.turn
	switch key := in.Write.Key(); key.Kind {
	case lease.KindSeat:
		// The deletion of another session's seat, or of the one that this session has lost.
		if !e.seat.beat.is(in.Write) {
			inc, begun := e.rivals.settled(t, e.seat.me, in)
			if begun > 0 {
				e.owners.evicted(t, inc, begun)
			}
			if inc != "" {
				e.tendOf(inc)
			}
			return
		}
		e.seatSettled(in)
	case lease.KindPlan:
		if e.kind.settled(t, e.seat.me, in) {
			e.shards.tendAll(t)
		}
	case lease.KindWishes:
		e.heed.settled(t, in)
	case lease.KindLease:
		s := e.shards.find(key.Name)
		if s == nil {
			return
		}
		e.happened(s, s.settled(t, in, &e.faults.rows))
		e.tend(s)
	}
}

// seatSettled takes the answer to a write of this session's own seat.
func (e *Session) seatSettled(in Settled) {
	t := &e.turn
	doubted := e.seat.trust.doubt
	switch e.seat.settled(t, in) {
	case seatLost:
		e.loseSeat(event.CauseExpired, in.Err)
		return
	case seatGone:
		e.leave.done = true
		return
	case seatConfirmed:
		e.bury()
		e.shards.tendAll(t)
	}
	if doubted && !e.seat.trust.doubt {
		e.shards.tendAll(t)
	}
}

// bury deletes the seat that this session has lost. It tries once: if the store has accepted a
// heartbeat of that seat without an answer, it refuses the deletion, and a session that waits for one
// of the leases evicts the seat.
func (e *Session) bury() {
	if w, err := protocol.Evict(e.former); err == nil && e.former.Beat > 0 {
		e.turn.do(Send{Write: w})
	}
	e.former = lease.Seat{}
}

// keepReporting reports the faults that last, and ends the faults that are over. A session keeps its
// seat although its commits fail, because it does not know whether another session waits for its
// leases.
func (e *Session) keepReporting() {
	f, t := &e.faults, &e.turn
	f.meet(t, &e.seat)
	if f.scans(t) {
		if f.store.on {
			f.scanStore(t, e.shards.all, e.seat.fails() || e.kind.fails() || e.rivals.fails() || e.owners.fails())
		}
		if f.commits.on {
			f.scanCommits(t, &e.shards, false, e.seat.young(t))
		}
	}
	f.keep(t)
}

// Status returns the session's state of health. Requested is the number of leases that it waits for. A session has no
// source and no plan: these are fine when the kind of the group is known.
func (e *Session) Status() Status {
	c := &e.seat
	s := Status{
		Seated: c.phase == seated, Leaving: e.leave.on, Draining: e.leave.all, Restored: c.table.restored != nil, Proven: c.table.proven,
		Listed: e.kind.proven, Sourced: true, Planned: e.kind.proven, Foreign: e.kind.foreign, Unclear: e.kind.unclear,
		Held: e.shards.held(), Requested: e.shards.wanted(), Trust: c.trust.until,
		StoreFault: e.faults.store.err, CommitsFail: e.faults.commits.shown(),
	}
	if c.phase != unseated {
		s.Incarnation = c.me
	}
	return s
}

// Clone returns another session in the same state. The two share nothing that either of them changes.
func (e *Session) Clone() *Session {
	c := *e
	c.turn.out = nil
	c.seat.former = slices.Clone(e.seat.former)
	c.rivals = slices.Clone(e.rivals)
	c.owners.all = slices.Clone(e.owners.all)
	c.faults.malformed = slices.Clone(e.faults.malformed)
	c.shards.all = make([]*shard, len(e.shards.all))
	for i, s := range e.shards.all {
		c.shards.all[i] = s.clone()
	}
	return &c
}

// Hash returns the same number for two sessions that will act alike from now on, as [Engine.Hash] does.
func (e *Session) Hash() uint64 {
	now := map[reflect.Type]int64{
		reflect.TypeFor[Instant](): int64(e.turn.now.Mono), reflect.TypeFor[wall](): e.turn.now.Wall.UnixNano(),
		reflect.TypeFor[order](): int64(e.turn.step), reflect.TypeFor[serial](): int64(e.turn.reads),
	}
	return digest.Of(now, int64(Never), e.turn.wake, e.seat, e.kind, e.owners,
		e.rivals, e.heed, e.shards, e.leave, e.former)
}
