package engine

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The fleet is what this worker knows of all workers: its own seat, the seats of the others, the seats of owners that were
// read one by one, connections to the others, the plan, and which workers watch. It joins these parts, because what a
// worker of the fleet has to do rests on all of them. It holds two facts of its own, about the kind of the group.
//
// Called by the spine, and by the shards of this worker: owner, others and listedSince. The fleet itself writes
// nothing: peers evicts, and duty ticks.
//
// Who does what:
//
//	watching   lists the seats, and evicts               small: every worker; large: the watchers
//	plans      writes plans, and polls the source        small: every worker; large: the first watcher, or one of the
//	                                                     next if a plan stays due
//	audits     lists the rows from time to time          small: every worker; large: the first watcher
//	first      makes tombstones, removes wishes          the first watcher
//	duty.keep  ticks                                     small: nobody; large: the first watcher
//	reporter   makes the reports of the fleet            the first watcher that has a seat
//
// Invariant: in a small fleet every worker watches and plans. In a large one the plan names the
// watchers, and the first of them that lives plans.

// A fleet is what this worker knows of all workers.
type fleet struct {
	seat   seat
	peers  peers
	owners owners
	watch  watch
	duty   duty
	proofs proofs
	lag    lag

	sessions bool // the group is one of sessions, and no worker may claim anything in it
	planned  bool // this worker has seen a plan: the group is one of workers, whatever record replaces the plan later
}

// watching reports whether this worker lists the seats, and so may evict, plan and poll the source, unless it is only a
// newcomer (rank -1). In a small fleet every worker does.
func (f *fleet) watching() bool {
	d := &f.duty
	return d.large() && d.watches(f.seat.me) || !d.large() && (!d.crowded || d.low || slices.Contains(d.watchers, f.seat.me))
}

// rank returns how many workers come before this one in watching, planning and evicting; -1: the plan does not name it, and
// it has not taken over. As a newcomer it may list the seats.
func (f *fleet) rank() int {
	if !f.duty.large() {
		return 0
	}
	return f.duty.rank(f.seat.me, f.lives)
}

// first reports whether this worker is the first watcher that lives. The first watcher audits the
// rows, and in a large fleet it plans and polls the source.
func (f *fleet) first() bool { return f.watching() && f.duty.rank(f.seat.me, f.lives) == 0 }

// reporter reports whether this worker makes the reports of which the fleet needs one: no watcher before it has a
// seat. A watcher that is only late remains the reporter. A second report would soon be contradicted.
func (f *fleet) reporter() bool {
	return f.watching() && f.duty.rank(f.seat.me, func(inc lease.Incarnation) (seated, blind bool) {
		_, blind = f.lives(inc)
		return inc == f.seat.me || f.peers.seen == 0 || f.peers.find(inc) != nil, blind
	}) == 0
}

// lives reports whether the listed heartbeats of a worker come in time and nothing proves that it is dead; and whether
// its seat says that its source or its reads do not answer. A worker that has just been named a watcher has not listed
// the seats yet, and takes nobody for dead.
func (f *fleet) lives(inc lease.Incarnation) (lives, blind bool) {
	if inc == f.seat.me {
		return true, blinded(f.seat.row.Health)
	}
	p := f.peers.find(inc)
	return f.peers.seen == 0 || p != nil && !p.suspect && f.proofs.of(inc) == nil, p != nil && blinded(p.seat.Health)
}

// blinded reports whether a worker cannot see the source or the table: others should watch before it.
func blinded(h lease.Health) bool { return h.NoSource || protocol.CannotRead(h) }

// audits reports whether this worker lists the rows from time to time: the first watcher, and in a
// small fleet every worker, because a holder that has nothing to commit finds out in no other way
// that its shard was taken from it by hand.
func (f *fleet) audits() bool {
	return f.first() || f.watching() && f.watch.plan.Revision > 0 && !f.duty.large()
}

// plans reports whether this worker writes plans and polls the source: in a small fleet all do, in
// a large one the first watcher, and another one when a plan stays due.
func (f *fleet) plans(t *turn) bool {
	w, reserve := &f.watch, f.reserve()
	switch {
	case !f.duty.large():
		return f.watching()
	case reserve > 0:
		return w.waits > 0 && t.now.Mono >= w.stays(reserve-apart) // the source has to answer first
	}
	return f.first()
}

// reserve is how long a watcher of a large fleet leaves a plan that is due to the watchers before
// it. It is 0 for the first watcher, and for a worker that does not watch.
func (f *fleet) reserve() time.Duration {
	if rank := f.rank(); rank > 0 {
		return time.Duration(rank+1) * apart
	}
	return 0
}

// owner reports whether an owner has a seat, as far as a consistent read shows that began in the step since or later.
// For a seat that is gone, the returned one says only whether its worker was last seen leaving.
func (f *fleet) owner(t *turn, inc lease.Incarnation, since order) (ownerState, lease.Seat) {
	if f.watching() {
		switch p := f.peers.find(inc); {
		case p != nil && (p.suspect || f.dated()): // another worker may have evicted it
		case p != nil && (p.unreadable || p.seat.Confirmed()):
			return alive, p.seat
		case f.peers.begun >= since:
			return gone, lease.Seat{Says: lease.Says{Leaving: f.hasLeft(inc)}}
		}
	}
	state, seat := f.owners.owner(t, inc, since)
	if state == gone {
		seat.Leaving = f.hasLeft(inc)
	}
	return state, seat
}

// hasLeft reports whether a worker has given up its seat by itself. Only a watcher knows that, and only if nothing proves
// that the worker is dead.
func (f *fleet) hasLeft(inc lease.Incarnation) bool {
	return f.watching() && f.peers.hasLeft(inc) && f.proofs.of(inc) == nil
}

// dated reports whether the seats were listed before the plan, and have workers that the plan lacks: it may be
// there because a worker was evicted. In a large fleet most watchers read a plan long before they list the seats
// again.
func (f *fleet) dated() bool {
	if !f.duty.large() || f.peers.seen >= f.watch.since {
		return false
	}
	staying := int64(1) // this worker
	for i := range f.peers.all {
		if p := &f.peers.all[i]; p.unreadable || p.seat.Confirmed() && !p.seat.Leaving {
			staying++
		}
	}
	return staying > f.watch.plan.Members
}

// pace is how long until the seats are listed again: in a small fleet at most d.
func (f *fleet) pace(t *turn, d time.Duration) time.Duration {
	switch {
	case (f.duty.large() || f.duty.crowded) && f.peers.seen == 0 && f.watching():
		return 0 // only now it is known that this worker has to list all seats
	case f.duty.large():
		return t.jitter(f.duty.pace(t, f.rank(), f.peers.dying(t) || f.proofs.any()))
	case f.proofs.any():
		d = min(d, paceMoving)
	}
	return t.jitter(min(d, f.peers.pace(t), f.watch.pace(t)))
}

// proofDelay is how long after the proof of a death this worker leaves the eviction to the watchers before it.
func (f *fleet) proofDelay() time.Duration {
	rank := f.duty.rank(f.seat.me, f.lives)
	if rank < 0 {
		rank = len(f.duty.watchers)
	}
	return time.Duration(rank) * paceProven
}

// hurry is when the seat has to be written although no heartbeat is due, because it differs from
// what this worker says. news is when the latest was added. unsaid reports whether requests differ.
func (f *fleet) hurry(t *turn, says lease.Says, news Instant, unsaid func([]lease.Want) bool) Instant {
	said := &f.seat.row.Says
	missing := said.Missing != says.Missing && says.Missing > 0 && f.watch.waits == 0
	switch {
	case f.seat.phase != seated:
		return Never
	case said.Leaving != says.Leaving, said.Address != says.Address, missing, ails(said.Health, says.Health), unsaid(said.Wants):
		return t.now.Mono
	case said.Freed != says.Freed:
		return max(news, f.seat.beat.sent.Add(t.beat/32)) // there may be more of it
	}
	return Never
}

// others reports whether another worker may take shards of this one. A worker that does not watch,
// or has not listed the seats since it does, supposes so: the plan decides which worker does.
func (f *fleet) others() bool {
	return f.peers.seen == 0 || slices.ContainsFunc(f.peers.all, func(p peer) bool {
		return !p.unreadable && p.seat.Confirmed() && !p.seat.Leaving
	})
}

// seats returns the confirmed seats, this worker's own among them, sorted by incarnation. Of a seat that cannot be read it
// returns the incarnation alone, even if this worker could read the seat before, or if the seat is its own. Otherwise some
// workers would know more of that seat than others, and they would replace each other's plans.
func (f *fleet) seats() []lease.Seat {
	blank := func(s lease.Seat) lease.Seat { return lease.Seat{Group: s.Group, Incarnation: s.Incarnation, Beat: 1} }
	mine, all := f.seat.row, make([]lease.Seat, 0, 1+len(f.peers.all))
	if f.peers.mute {
		mine = blank(mine)
	}
	for i := range f.peers.all {
		switch p := &f.peers.all[i]; {
		case f.seat.was(p.seat.Incarnation):
		case p.unreadable:
			all = append(all, blank(p.seat))
		case p.seat.Confirmed():
			all = append(all, p.seat)
		}
	}
	at, _ := place(all, mine.Incarnation, func(s *lease.Seat) lease.Incarnation { return s.Incarnation })
	return slices.Insert(all, at, mine)
}

// declined reports whether a worker says that it cannot have the shard at present.
func (f *fleet) declined(name string) bool {
	return slices.ContainsFunc(f.seats(), func(s lease.Seat) bool {
		return slices.Contains(s.News, lease.News{Kind: lease.NewsDeclined, Shard: name})
	})
}

// helpless reports whether no other worker is well, as far as this one has listed the seats.
func (f *fleet) helpless() bool {
	other := func(s lease.Seat) bool { return s.Incarnation != f.seat.me && fit(s) }
	return f.watching() && len(f.peers.all) > 0 && !slices.ContainsFunc(f.seats(), other)
}

// listedSince returns the seats if they were listed after the given step. Only then is it known whose fault failures
// are that a row shows.
func (f *fleet) listedSince(since order) (seats []lease.Seat, known bool) {
	if f.peers.begun <= since {
		return nil, false
	}
	return f.seats(), true
}

// vacant reports whether a consistent listing has shown that no watcher of the plan has a seat.
func (f *fleet) vacant() bool {
	return f.peers.begun > 0 && !slices.ContainsFunc(f.duty.watchers, func(inc lease.Incarnation) bool { return f.peers.find(inc) != nil })
}

// manyLate reports whether so many seats of a large fleet may be dead that a plan should wait until it is known which:
// they have missed a heartbeat, or may have. A fleet of few workers that returns has as many dead seats:
// a plan for all of them would make it large, with watchers that are dead.
func (f *fleet) manyLate(t *turn, seats int) bool {
	return (f.duty.large() || seats > fewest) && (8*f.peers.late(t) >= seats || t.now.Mono < f.peers.from.Add(t.cfg.TTL/2))
}

// sighted takes the plan and the wishes that a listing shows. A plan that cannot be read stays what it was.
func (f *fleet) sighted(t *turn, in sighting, begun order) (changed bool) {
	if in.spoilt {
		f.unplannable(t, errPlanUnreadable)
		return false
	}
	f.watch.spoilt = nil
	return f.sawPlan(t, in.plan, in.wishes, begun)
}

// unplannable notes why the record under the key of the plan is not a readable plan. Until that ends, nobody plans, and
// nobody ticks.
func (f *fleet) unplannable(t *turn, why error) {
	f.watch.spoilt, f.watch.known, f.duty.since = why, true, t.now.Mono
}

// sawPlan takes the plan and the wishes, and reports whether it is another plan. If this worker knows a plan and
// finds a record of sessions in its place, somebody has deleted the plan by hand. That does not end the tenures.
func (f *fleet) sawPlan(t *turn, plan lease.Plan, wishes lease.Wishes, begun order) (changed bool) {
	switch {
	case plan.Sessions && f.planned:
		f.unplannable(t, errPlanUsurped)
		return false
	case plan.Sessions:
		f.sessions = true
		return false
	}
	f.planned = f.planned || plan.Revision > 0
	f.duty.saw(t, f.seat.me, plan)
	t.large = f.duty.large()
	if plan.Revision == 0 && !f.watching() {
		return false // it was deleted; the watchers write the next one
	}
	return f.watch.saw(t, f.seat.me, plan, wishes, begun)
}

// revision returns the newest revision of the plan that this worker knows.
func (f *fleet) revision() int64 { return max(f.watch.plan.Revision, f.seat.row.Revision) }

// crowded takes a listing that does not show all seats. The fleet is large, or there is no plan yet
// for all of it: then the workers watch whose seats it shows.
func (f *fleet) crowded(t *turn, in sighting, begun order) {
	f.duty.crowded = true
	f.duty.low = len(in.seats) > 0 && f.seat.me < in.seats[len(in.seats)-1].Incarnation
	f.sighted(t, in, begun)
	f.watch.known = true
}

// keep evicts, and in a large fleet ticks. It reports whether a listing of the seats is wanted that begins from now on
// (look; a worker that does not watch reads the plan instead), and whether the next one is due at once (soon). A worker that
// may not claim evicts all the same: a dead seat is dead also in a restored table, and the deletion is conditional.
func (f *fleet) keep(t *turn, leaves bool, unwatched *fault) (look, soon bool) {
	rank := f.rank()
	if t.cfg.Deathwatch {
		f.proofs.lapse(t)
		f.proofs.adjust(t, &f.peers, f.seat.former, rank >= 0)
		f.proofs.keep(t, f.peers.named, unwatched)
		look = f.proofs.due(t)
	}
	if f.watching() && f.peers.evict(t, f.seat.former, f.duty.reserve(t, rank), &f.proofs, f.proofDelay()) {
		look, soon = look || f.proofs.any(), true
	}
	if t.large && f.seat.capable() && f.watch.spoilt == nil && (rank == 0 || !leaves) {
		f.duty.late = f.watch.orphans || f.peers.late(t) > 0
		f.duty.keep(t, f.seat.row.Owner(), f.watch.plan, rank, f.vacant())
	}
	return look, soon
}

// evictionSettled takes the answer to an eviction, and reports whether it is decided. A plan is due when the seat is gone.
// unsure: the death of the worker was proven, and a heartbeat came first. It may have been on its way when the worker died,
// so only a listing that begins from now on shows whether the worker lives.
func (f *fleet) evictionSettled(t *turn, in Settled) (decided, unsure bool) {
	dead := f.proofs.of(lease.Incarnation(in.Write.Key().Name))
	evicted, alive := f.peers.settled(t, &f.seat, in)
	if evicted {
		f.watch.self, f.watch.orphans = true, true
		if dead != nil {
			f.watch.again = min(f.watch.again, f.watch.since.Add(apartProof))
		}
	}
	if alive && dead != nil {
		dead.step, unsure = t.step, true
	}
	return evicted || alive, unsure
}
