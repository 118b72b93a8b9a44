package engine

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Which workers watch the seats, in a fleet of more than fewest workers.
//
//	newcomer → idle ⇄ named by the plan
//	    ↓        ↓ no tick for a while
//	    acting as the first watcher → idle, or named
//
// The plan names the watchers. The first of them that lives ticks: once per heartbeat it swaps
// the plan, and says whether a seat is late. The other workers read only the plan. When the tick
// stands still, the workers wait for a time that differs from worker to worker, and then try to
// tick. The one whose swap is stored acts as the first watcher. If the plan was deleted meanwhile, they
// try to open a revision instead.
//
// A newcomer cannot know whether the watchers still live. So that somebody's clocks run when a
// whole fleet returns, some newcomers watch until they have seen a tick.
//
// Called by the fleet: saw with every plan that was read; watches, rank and pace. Called by the spine: keep in each step of
// a large fleet, settled with the answers to ticks; reading, limit and reserve to find out when to list, how much, and
// when to evict.
//
// A tick is one swap of the plan, which changes neither its revision nor what it says of shards. A crash of the first
// watcher leaves a tick that stands still, and a seat. The other watchers list the seats: when its heartbeat is late,
// the next of them is first, and ticks. Only if no watcher lives do the other workers take over.
//
// A swap that meets a tick is made again on the newer plan: neither a planner nor a watcher has lost anything by it.
//
// Invariant: taking over is one swap, so of many workers that try at the same time one succeeds.
// Invariant: the worker that has taken over watches until a higher revision is complete. Its own
// ticks do not end it.
// Invariant: in a small fleet nobody ticks.

const (
	fewest      = 8  // so many workers watch at most
	newcomers   = 64 // about so many newcomers watch when a whole fleet returns
	firstSeats  = 64 // the most records in a listing of the seats while the fleet seems to be small
	readsAtOnce = 3000
	forever     = time.Duration(1) << 62
)

// A duty is what this worker knows of the watchers, and what follows for itself: whether it watches (watches), in which
// order (rank), how soon it lists and reads (pace, reading).
type duty struct {
	members  int64 // how many workers the last complete plan had
	watchers []lease.Incarnation

	revision int64   // of the plan that was seen last
	tick     int64   // of that plan
	since    Instant // when that tick was first seen
	gone     bool    // the plan was deleted since
	acting   int64   // the revision under which this worker has taken over; 0: it has not
	newcomer bool    // it watches until it has seen a tick

	light   bool // this worker keeps only what a worker needs that does not plan
	crowded bool // there is no plan for so many seats yet
	low     bool // in such a fleet this worker is one of those that watch

	late  bool // a seat is late, or what a dead worker had is not placed yet
	swap  sending
	next  Instant // when the next tick is due
	after Instant // no tick before
}

// large reports whether only some workers watch.
func (d *duty) large() bool { return d.members > fewest }

// saw takes the plan as it was read. An open revision that does not name watchers leaves those of the plan before.
func (d *duty) saw(t *turn, me lease.Incarnation, plan lease.Plan) {
	if plan.Revision == 0 || plan.Revision < d.revision || plan.Revision == d.revision && plan.Tick < d.tick {
		return // what the last plan said stands until there is another one
	}
	first := d.revision == 0
	if plan.Revision != d.revision || plan.Tick != d.tick {
		d.newcomer = d.newcomer && plan.Tick == d.tick
		d.revision, d.tick, d.since, d.gone = plan.Revision, plan.Tick, t.now.Mono, false
	}
	if !plan.Open && plan.Revision > d.acting {
		d.acting = 0
	}
	if !plan.Open || plan.Members > 0 {
		d.members, d.watchers = plan.Members, plan.Watchers
		d.crowded = d.crowded && !d.large() && plan.Open
	}
	// The first plan that this worker has read: it is a newcomer, or has a new seat.
	if first && d.large() {
		d.newcomer = rebalance.Tie(string(me))%uint64(d.members) < newcomers
	}
}

// watches reports whether a worker of a large fleet watches.
func (d *duty) watches(me lease.Incarnation) bool {
	return d.acting > 0 || d.newcomer || slices.Contains(d.watchers, me)
}

// rank returns how many living watchers come before this one; -1: no plan names it, and it has
// not taken over. Those whose source does not answer come last. of says of a worker whether it lives, and whether its
// source is blind.
//
// Workers that have seen different seats may rank themselves alike for a moment. That is harmless: evictions, ticks
// and openings of revisions are conditional writes.
func (d *duty) rank(me lease.Incarnation, of func(lease.Incarnation) (lives, blind bool)) (rank int) {
	at := slices.Index(d.watchers, me)
	switch {
	case d.acting > 0:
		return 0
	case at < 0:
		return -1
	}
	_, mine := of(me)
	before := d.watchers
	if !mine {
		before = d.watchers[:at] // only those before it count
	}
	for i, inc := range before {
		if lives, blind := of(inc); lives && (i < at && blind == mine || mine && !blind) {
			rank++
		}
	}
	return rank
}

// keep ticks when it is time: the first watcher once per heartbeat, and at once when late changes;
// another worker when nobody has ticked for a while. vacant: it knows that no watcher has a seat, and
// waits for nobody.
func (d *duty) keep(t *turn, me lease.Owner, plan lease.Plan, rank int, vacant bool) {
	// If the plan was deleted, its watchers stay named until there is another one.
	deleted := d.gone || plan.Revision == 0
	if d.swap.try.sent || deleted && rank == 0 { // the first watcher writes a plan at once
		return
	}
	at := d.next
	switch {
	case rank != 0 && vacant:
		at = d.since.Add(d.wait(t, me.Incarnation))
	case rank != 0:
		at = d.since.Add(5*t.beat/2 + d.wait(t, me.Incarnation))
	case plan.Late != d.late:
		at = 0
	}
	if at = max(at, d.after); t.before(at) {
		return
	}
	// If this worker dies after the swap is stored, the tick stands still again, and the next worker takes over; an open
	// revision is opened again by the next planner.
	w, err := lease.Write{}, error(nil)
	if deleted {
		opening := protocol.Opening{By: me, Planner: t.cfg.planner(), Known: d.revision}
		w, err = protocol.OpenPlan(lease.Plan{Group: t.cfg.Group}, opening, t.stamp())
	} else {
		w, err = protocol.TickPlan(plan, d.late, t.stamp())
	}
	d.next, d.after = t.now.Mono.Add(t.jitter(t.beat)), t.now.Mono.Add(paceWaiting)
	d.swap.send(t, w, err)
}

// wait is how long this worker leaves it to others to take over. The clocks of newcomers that
// watch run already.
func (d *duty) wait(t *turn, me lease.Incarnation) time.Duration {
	tie, part := rebalance.Tie(string(me)), t.beat/4
	if d.newcomer {
		return time.Duration(tie % uint64(part))
	}
	return part + time.Duration(tie%uint64(t.beat))
}

// settled takes the answer to a tick, and returns the plan as it stands; zero: the answer does not show it. A worker
// that is not the first watcher has taken over if its swap is stored.
func (d *duty) settled(t *turn, in Settled, rank int) (now lease.Plan) {
	verdict, record, _ := d.swap.settled(t, "", in, t.beat, t.beat)
	now, _ = record.(lease.Plan)
	d.gone = d.gone || verdict == protocol.Gone
	if verdict == protocol.Stored && rank != 0 {
		d.acting = now.Revision
	}
	return now
}

// reserve is how long a watcher of that rank leaves an eviction to the others. A worker that only watches evicts
// nobody except itself: the seat that it had before.
func (d *duty) reserve(t *turn, rank int) time.Duration {
	if rank < 0 {
		return forever
	}
	by := time.Duration(rank) * paceWaiting
	if rank > 2 { // it lists the seats once per heartbeat, and sees first whether the seat is gone
		by += t.beat
	}
	return by
}

// limit returns how many records a listing of the seats may have; 0: any number. A newcomer does not know yet how large
// the fleet is. If its first listing is full, it learns whether it has to list all seats: see fleet.crowded.
func (d *duty) limit() int {
	if d.large() || d.crowded {
		return 0
	}
	return firstSeats
}

// pace returns how soon a watcher of that rank lists the seats again. The first three look more often, so that a death
// is noticed soon although one or two of them have died as well.
func (d *duty) pace(t *turn, rank int, dying bool) time.Duration {
	switch {
	case rank < 0 || rank > 2:
		return t.beat
	case dying:
		return paceDying
	}
	return min(paceSuspect<<rank, t.beat)
}

// reading returns how soon a worker that has just seen the plan reads it again. urgent: the worker
// waits for what the plan says. A watcher sees the plan with its next listing of the seats.
func (d *duty) reading(t *turn, plan lease.Plan, urgent, watching bool) time.Duration {
	switch {
	case plan.Late || plan.Open || urgent:
		return t.jitter(min(max(paceWaiting, time.Duration(d.members)*time.Second/readsAtOnce), t.beat))
	case watching:
		return t.beat + t.beat/8
	}
	return t.jitter(t.beat)
}
