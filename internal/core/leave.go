package core

import (
	"slices"

	"github.com/shardlease/shardlease-go/shardlease/event"
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
// Called by the spine: stop once, then keepLeaving in each step.
//
// Invariant: the seat is given up only when no row is in the name of this worker, or when handlers
// and writes have had their time.

// A leave is a graceful shutdown.
type leave struct {
	on    bool
	began Instant
	all   bool    // the worker waits for successors no longer
	since Instant // since when
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

// keepLeaving continues the shutdown.
func (e *Engine) keepLeaving() {
	l, t := &e.leave, &e.turn
	if !l.on || l.done {
		return
	}
	switch e.seat.phase {
	case unseated:
		l.done = true
		return
	case creating, confirming: // without a heartbeat its seat counts for nobody
		l.done = t.now.Mono >= l.began.Add(t.beat)
		t.at(l.began.Add(t.beat))
		return
	case quitting: // without an answer, the seat expires by itself
		l.done = t.now.Mono >= e.seat.trust.until
		t.at(e.seat.trust.until)
		return
	}
	if !l.all && !e.waitsForSuccessors() {
		l.all, l.since = true, t.now.Mono
		e.shards.tendAll(t)
		e.tendDue()
	}
	if l.all && !l.over {
		e.endAll()
	}
	if l.over && !e.seat.beat.open() {
		e.seat.quit(t)
	}
}

// waitsForSuccessors reports whether other workers may still request the shards of this one.
func (e *Engine) waitsForSuccessors() bool {
	t := &e.turn
	at := e.leave.began.Add(t.cfg.Drain)
	if t.now.Mono >= at || e.shards.held() == 0 {
		return false
	}
	if e.others() && e.expected() {
		t.at(at)
		return true
	}
	return false
}

// expected reports whether a shard of this worker is expected by another: until a plan knows
// that this worker leaves, all are; then those that this plan or a later one assigns to another
// worker. A later plan does not say so again of a shard that this worker still holds.
func (e *Engine) expected() bool {
	if e.duty.large() && len(e.follow.target.Hold) > 0 {
		return true
	}
	if !e.seat.row.Leaving || e.watch.plan.Open || !e.duty.large() && !current(e.watch.plan, e.seats(), e.watch.wishes) || e.follow.revision < e.watch.plan.Revision {
		return true
	}
	return slices.ContainsFunc(e.shards.all, func(s *shard) bool { return s.t != nil && s.aim.given })
}

// endAll decides when nothing is left but the seat. Handlers have their drain time, and writes a
// lease time after it. What the table has not answered by then is left to the others: without a
// seat, everything in this worker's name is a dead worker's.
func (e *Engine) endAll() {
	l, t := &e.leave, &e.turn
	at := l.since.Add(t.cfg.Drain + t.cfg.TTL)
	if !e.nothingLeft() && t.now.Mono < at {
		t.at(at)
		return
	}
	l.over = true
	var h happened
	for _, s := range e.shards.all {
		if s.t != nil {
			s.end(t, event.CauseStopped, nil, &h)
		}
	}
}

// nothingLeft reports whether no row is in this worker's name, nor may come to be.
func (e *Engine) nothingLeft() bool {
	for _, s := range e.shards.all {
		if _, busy := s.row.copy.Open(); busy || s.t != nil || s.row.copy.Row().Owner.Incarnation == e.seat.me {
			return false
		}
	}
	return true
}
