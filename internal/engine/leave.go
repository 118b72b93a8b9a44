package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A graceful shutdown.
//
//	leaving → releasing → nothing left → the seat is given up → done
//
// The seat says that the worker leaves, which makes a plan due. The worker writes that plan itself,
// in a large fleet the first watcher does. The worker serves until its successors have requested
// its shards, at most for the drain time. Then it releases the rest and gives up its seat. Nobody
// waits for anything to expire.
//
// Called by the spines: stop once, then keep and finish in each step. A session waits for no
// successors.
//
// A crash in a shutdown is like any other: the seat expires, and the workers to which the plan has given the remaining
// shards recover their rows.
//
// Invariant: the seat is given up only when no row is in the name of this worker, or when handlers
// and writes have had their time.
// Invariant: a worker that has requested shards first stores on its seat that it leaves, then reads their rows for as
// long as the owners may not have seen that, and only then gives up its seat. Otherwise an owner could hand a row over
// to a worker without a seat.

// A leave is a graceful shutdown. None of its flags is ever reset.
type leave struct {
	on    bool
	began Instant
	all   bool    // the worker waits for successors no longer
	since Instant // since when
	said  Instant // when the seat was stored that says that the worker leaves; 0: not yet. A session does not note it.
	over  bool    // nothing is left but the seat
	done  bool
}

// stop begins the shutdown, and reports whether it has not begun before.
func (l *leave) stop(t *turn) bool {
	if l.on {
		return false
	}
	*l = leave{on: true, began: t.now.Mono}
	return true
}

// keep reports whether a shutdown is under way that may still have shards to release. A worker
// without a confirmed seat holds nothing, so its shutdown is soon over.
func (l *leave) keep(t *turn, c *seat) bool {
	if !l.on || l.done {
		return false
	}
	switch c.phase {
	// The seat was lost during the shutdown, or there was none: there is nothing to give up.
	case unseated:
		l.done = true
		return false
	case creating, confirming: // without a heartbeat its seat counts for nobody
		l.done = !t.before(l.began.Add(t.beat))
		return false
	case quitting: // without an answer, the seat expires by itself
		l.done = !t.before(c.trust.until)
		return false
	}
	return true
}

// finish gives up the seat when the worker has released everything else. The deletion of the seat is the last write. If
// it does not arrive, the seat expires.
func (l *leave) finish(t *turn, c *seat, shards *shards) {
	// Handlers have their drain time, and writes a lease time after it. What the table has not answered
	// by then is left to the others: without a seat, everything in this worker's name is a dead worker's.
	if l.all && !l.over && !(shards.named(c.me, l.awaits(t)) && t.before(l.since.Add(t.cfg.Drain+t.cfg.TTL))) {
		l.over = true
		shards.end(t, event.CauseStopped, nil)
	}
	if l.over && !c.beat.open() {
		c.quit(t)
	}
}

// awaits reports whether an owner may still hand over a shard that this worker had requested, because it may not have
// seen that this worker leaves. Meanwhile shard.watchLeft reads the rows, and this worker releases a row that names it.
// The time counts from when the seat says that it leaves, whether or not the table answers these reads.
func (l *leave) awaits(t *turn) bool { return l.said == 0 || t.now.Mono < l.said.Add(noticed(t)) }

// expected reports whether a shard of this worker is expected by another: until a plan knows
// that this worker leaves, all are; then those that this plan or a later one assigns to another
// worker. A later plan does not say so again of a shard that this worker still holds.
//
// In a small fleet a worker without shards waits for that plan as well: it writes the plan itself.
func (f *fleet) expected(target *follow, l *shards) bool {
	plan := &f.watch.plan
	switch {
	case f.duty.large() && l.held() == 0 || !f.others():
		return false
	case f.duty.large() && len(target.target.Hold) > 0, !f.seat.row.Leaving, plan.Open, target.revision < plan.Revision:
		return true
	case !f.duty.large() && !current(*plan, f.seats(), f.watch.wished):
		return true
	}
	return slices.ContainsFunc(l.all, func(s *shard) bool { return s.t != nil && s.aim.given })
}

// named reports whether a row is in the name of this worker, or may come to be: an open write may be a claim, and while
// the worker awaits hand-overs, an owner may hand over a shard that it had requested. named is called in every step of
// a shutdown, so it begins with the shard that it found last.
func (l *shards) named(me lease.Incarnation, awaits bool) bool {
	for range l.all {
		l.last %= len(l.all)
		s := l.all[l.last]
		if _, busy := s.row.copy.Open(); busy || s.t != nil || awaits && s.aim.left > 0 || !s.left && s.row.copy.Row().Owner.Incarnation == me {
			return true
		}
		l.last++
	}
	return false
}
