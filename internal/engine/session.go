package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The spine of a session: leases by name, without a plan, targets or a source. The seat, the held leases, faults and the
// shutdown are the same parts as those of a worker, and what both spines do with them stands in common.go. For the kind of
// the group and for the leases that the session waits for there are parts of its own.
//
// The spine has no states of its own: seat.phase is the phase of the session.
//
// Called by the shell and the virtual world: NewSession once, Step with every input. A session has no
// inputs and outputs for sources and moves. It lists nothing but the seats: once for its kind (kind.go), and now and
// then (roll.go).
//
// What a session writes:
//
//	seat     a seat and heartbeats, as a worker; at the end, or when it was lost, a deletion
//	kind     once in the life of a group: the record of sessions, under the key of a plan
//	wait     evictions of dead owners; the row of each lease that it acquires, or sets aside after too many failures
//	roll     evictions of dead sessions whose leases nobody wants
//	hold     marks, if the holder makes some
//	give     a release; if the lease has no checkpoint, a tombstone
//	heed     the wishes of operators without those that have ended
//
// A crash leaves a seat and rows in its name. Sessions that want these leases evict the seat, and acquire the leases
// after the lock delay. If no session wants them, any session of the group evicts the seat about a minute later.
//
// Invariant: the session neither writes nor reads the row of a held lease without a mark or a command. So a
// session without marks sends only heartbeats, reads of the wishes and its share of the listings, as many for one lease
// as for a thousand.

// A Session is one session's side of the protocol as a plain value.
type Session struct {
	common
	seat   seat
	kind   kind
	owners owners
	rivals rivals
	heed   heed
	census census
	roll   roll
	proofs proofs
	former lease.Seat // the last seat that this session lost, if it may still exist; zero: none
	swept  Instant    // when live last dropped rivals, owners and leases that are no longer needed

	contention contention
}

// NewSession returns a session that has done nothing yet. Its first step is a [Tick].
func NewSession(c Config, now Moment) *Session {
	c.Discard, c.Backoff = true, 0 // its callers decide when it tries a lease again
	return &Session{common: newCommon(c, now), census: census{list: read{next: Never}}}
}

// Step takes what has happened and returns what to do, and when to call it again at the latest.
// The outputs are valid until the next step. A session that is done only notes that handlers return.
func (e *Session) Step(now Moment, in Input) (out []Output, wake Instant) {
	return e.common.step(e, &e.seat, now, in)
}

// take hands the input to the part that it concerns.
func (e *Session) take(in Input) {
	t := &e.turn
	switch in := in.(type) {
	case Got:
		e.got(in)
	case Settled:
		e.settled(in)
	case Listed:
		if e.listed(in) {
			break
		}
		if e.kind.listed(t, in, e.seat.row.Owner()); e.census.listed(t, in) || e.kind.proven {
			e.shards.tendAll(t)
		}
	case Acquire:
		s := e.shards.know(in.Name, t.cfg.Group, e.seat.me)
		s.want = &wanted{
			id: in.ID, task: in.Task, delay: in.LockDelay, limits: limits{in.StallAfter, in.MaxAttempts},
			try: in.Try, wait: in.Wait, since: t.now.Mono,
		}
		s.doubt()
		e.faults.silent.expect(in.StallAfter)
		e.tend(s)
	case Forgo:
		if s := e.shards.find(in.Name); s != nil {
			if s.want != nil && s.want.id == in.ID {
				s.want, s.stuck = nil, false
				e.contention.ended(t, s.name)
			}
			e.tend(s)
		}
	case Linked:
		if e.proofs.linked(t, in) {
			e.tendOf(in.Peer)
		}
	case Visited: // a waiting session has connected to this holder, which need do nothing
	case Deaf:
		e.seat.deaf = true
		e.faults.deaf.raise(t, t.now.Mono, "", in.Err)
	case Stop:
		e.stop()
	default:
		e.common.take(e, &e.seat, in)
	}
}

// stop begins the shutdown, once: all leases are released at once.
func (e *Session) stop() {
	if t := &e.turn; e.leave.stop(t) {
		e.leave.all, e.leave.since = true, t.now.Mono // no successor has to ask first
		e.contention.stopped(t)
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
	e.proofs.lapse(t)
	e.shards.tendDue(t, e.seat.phase == seated, e.tend)
	if e.leave.keep(t, &e.seat) {
		e.leave.finish(t, &e.seat, &e.shards)
	}
	e.raiser.obey(t, e.heed.raise(t, e.shards.held() > 0))
	if e.seat.phase == seated {
		e.raiser.keep(t, &e.shards, nil)
	}
	e.faults.silent.keep(t, e.shards.all)
	// Nothing on the seat of a session is urgent, so no heartbeat is sent early.
	says := lease.Says{Leaving: e.leave.on, Address: e.seat.address(t), Health: e.faults.silent.says(), Raised: e.raiser.saysRaised(t)}
	e.raiser.says(t, &says.Health)
	if e.seat.speaks(t, Never) {
		says.Waits, says.WaitsLeft = e.contention.oldest()
		tell(&says, t, &e.shards, e.faults.silent.busy)
	}
	if (e.seat.phase != unseated || e.kind.needsSeat()) && e.seat.keep(t, says, Never, e.leave.over) {
		e.shards.forget(t, e.seat.me) // they continue under a new incarnation
	}
	e.census.keep(t)
	if e.seat.phase == seated && e.shards.held() > 0 {
		e.heed.keep(t, e.seat.me, e.shards.done)
	} else {
		e.heed.next = 0
	}
	e.kind.keep(t, e.seat.phase == confirming || e.seat.phase == seated)
	if e.seat.capable() && e.kind.proven && !e.leave.on {
		e.roll.keep(t, e.seat.me, &e.rivals, &e.owners)
	}
	// Not in every step: it looks at all leases.
	if t.now.Mono >= e.swept.Add(t.beat/8) {
		e.swept = t.now.Mono
		e.rivals.prune()
		e.owners.prune(t)
		e.shards.forgetDone(t)
		if t.cfg.Deathwatch {
			e.proofs.relink(t, e.shards.holders(e.rivals))
		}
		e.faults.unmet(t, func(key lease.Key) bool {
			s := e.shards.find(key.Name)
			return key.Kind == lease.KindLease && s != nil && s.want != nil ||
				key.Kind == lease.KindSeat && e.rivals.spoilt(lease.Incarnation(key.Name))
		})
	}
	e.proofs.keep(t, e.rivals.named, &e.faults.unwatched)
	e.scan(e, &e.seat)
	if f := &e.faults.misjudged; f.on && !t.before(e.seat.hidden) {
		f.lower(t)
	}
	e.faults.keep(t)
	e.raiser.fault.keep(t)
	e.contention.keep(t, e.leave.done)
	if e.seat.phase == seated {
		t.at(e.shards.due)
	}
}

// loseSeat ends every tenure. Another session recovers the rows when the seat is gone.
func (e *Session) loseSeat(cause event.Cause, err error) {
	if e.seat.phase == seated {
		e.former = e.seat.row
	}
	e.lose(&e.seat, cause, err)
	e.owners, e.rivals, e.census = owners{}, nil, census{list: e.census.list.again()}
}

// tend does what is due for one lease.
func (e *Session) tend(s *shard) { e.common.tend(e, &e.seat, s) }

// fill adds that nothing is claimed before the kind of the group is proven, and the move that an operator has ordered.
func (e *Session) fill(s *shard, w *self) {
	w.capable = w.capable && e.kind.proven
	if s.t != nil {
		w.order = e.heed.ordered(&e.turn, s.name, s.t.generation)
	}
}

// blame blames the lease: a session tries only what its callers ask for.
func (e *Session) blame(s *shard) { s.t.wind.blame = shardAtFault }

// acquire makes the next step for a lease that a caller of the session may want.
func (e *Session) acquire(s *shard, w self, h *happened) {
	want := s.want
	s.wait(&e.turn, waiter{
		self: w, owners: &e.owners, rivals: &e.rivals, census: &e.census, roll: &e.roll, proofs: &e.proofs, former: e.seat.former,
	}, h)
	if !w.leaving {
		e.contention.saw(&e.turn, s, want)
	}
}

// happened handles the reports of a lease that concern the whole session. Those that only a worker handles are for plans,
// and a session has none.
func (e *Session) happened(s *shard, h happened) {
	e.common.happened(&e.seat, s, h)
	if h.suspects {
		e.census.want()
	}
	// A caller waits for the lock delay of an earlier holder of this session as for that of another one.
	if t, want := &e.turn, s.want; want != nil && s.t != nil && s.t.lost(&s.row) {
		if why := s.t.delays(t, &s.row); !s.before(t, want.deadline(why)) {
			s.refuse(t, why)
		} else if want.look == 0 {
			if want.look = t.now.Mono; want.try {
				s.tell(t, why, true)
			}
		}
		if !e.leave.on {
			e.contention.saw(t, s, want)
		}
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
		names, all := e.heed.got(t, in)
		for _, s := range e.shards.all { // the session holds the lease, or its claim may already be stored
			if all || slices.Contains(names, s.name) {
				e.shards.look(t, []string{s.name}, e.seat.me)
			}
			if s.t != nil && e.heed.ordered(t, s.name, s.t.generation) != nil {
				e.tend(s)
			}
		}
	case lease.KindSeat:
		if !e.owners.got(t, in) {
			return
		}
		inc := lease.Incarnation(in.Key.Name)
		sent := e.owners.find(inc).sent
		switch seat, ok := in.Record.(lease.Seat); {
		case malformed(in.Err):
			e.rivals.sawSpoilt(t, inc, writtenBy(in.Err), sent)
		case in.Err != nil:
		case ok:
			e.rivals.saw(t, seat, sent)
		default:
			e.rivals.gone(inc)
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

// listed takes a listing that was made now and then, and reports the seats that cannot be read. It reports false if the
// listing was for another purpose.
func (e *Session) listed(in Listed) (mine bool) {
	mine = e.roll.listed(&e.turn, e.seat.me, &e.rivals, in)
	for _, s := range e.shards.all { // the seats may show that there are no others
		if mine && e.turn.now.Mono < s.aim.leave {
			e.tend(s)
		}
	}
	for _, u := range in.Unreadable {
		if mine && e.rivals.spoilt(lease.Incarnation(u.Key.Name)) {
			e.faults.found(&e.turn, u.Key, u.Err)
		}
	}
	return mine
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
			inc, begun := e.rivals.settled(t, &e.seat, in)
			if begun > 0 {
				e.owners.evicted(t, inc, begun)
			}
			if inc != "" {
				e.tendOf(inc)
			}
			return
		}
		if e.seatSettled(e, &e.seat, in) == seatConfirmed {
			e.bury()
		}
	case lease.KindPlan:
		if e.kind.settled(t, e.seat.me, in) {
			e.shards.tendAll(t)
		}
	case lease.KindWishes:
		e.heed.settled(t, in)
	case lease.KindLease:
		e.rowSettled(e, &e.seat, in)
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

// fails reports whether a call that is about no lease waits to be repeated.
func (e *Session) fails() bool {
	return e.kind.fails() || e.rivals.fails() || e.owners.fails() || e.heed.fails() || e.census.fails() || e.roll.fails()
}

// replaceable is false: a session keeps its seat although its commits fail, because it does not know whether another
// session waits for its leases.
func (e *Session) replaceable() bool { return false }
