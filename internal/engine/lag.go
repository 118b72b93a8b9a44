package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Workers that send heartbeats and do not follow the plan: their reads fail, they are stuck, or they are of a version that
// has no plan. Such a worker keeps what it holds. But the plan assigns free shards to it, and it does not claim them.
//
//	its seat names an older revision → lags for three heartbeats → the rows are listed → no such shard
//	                                                                                   → stalls: a plan is due
//
// Called by the spine: noteLag with each listing of the seats, keep when a plan is considered. The layout takes a stall as
// declined by that worker. A worker that follows the plan and cannot take a shard declines it itself.
//
// Nothing is written here. A wrong stall costs a move: its worker finds that the plan has given the shard to another.
//
// Invariant: stalls come only from a listing of the rows that began under the present plan, after the worker had lagged
// for that long.

// mostLag is for how many heartbeat intervals of this worker another may lag: one to see the plan, one to publish that, one
// to spare.
const mostLag = 3

// A lag is the search for the free shards of workers that lag.
type lag struct {
	revision int64          // of the plan under which this worker looks; 0: it does not look
	asked    order          // the step in which it wanted the rows; 0: it has them
	seen     Instant        // when that was
	next     Instant        // when to want them again, unless a worker comes or goes before
	stalls   []layout.Stall // sorted
}

// noteLag notes which workers do not follow the plan, by a listing of the seats that is as new as the plan.
func (p *peers) noteLag(t *turn, plan *lease.Plan) {
	for i := range p.all {
		of := &p.all[i]
		said := &of.seat.Says
		switch {
		case plan.Open:
		case of.unreadable, said.Leaving, !of.seat.Confirmed(), said.Revision >= plan.Revision:
			of.lags = 0
		case of.lags == 0:
			of.lags = t.now.Mono
		}
	}
}

// lagged reports whether the worker has lagged for so long that others should have its free shards.
func (p *peer) lagged(t *turn) bool {
	return p != nil && p.lags > 0 && !t.before(p.lags.Add(mostLag*t.beat))
}

// seeksStalls reports whether this worker looks for the shards of lagging workers: it is the first watcher that is alive and
// neither lags nor is blind itself.
func (f *fleet) seeksStalls(t *turn) bool {
	return f.watching() && f.duty.rank(f.seat.me, func(inc lease.Incarnation) (lives, blind bool) {
		lives, blind = f.lives(inc)
		return lives && !f.peers.find(inc).lagged(t), blind
	}) == 0
}

// keep looks for the free shards of workers that lag. It reports whether the targets and the rows have to be listed.
func (l *lag) keep(t *turn, f *fleet, rows *facts) (look bool) {
	plan, late := &f.watch.plan, false
	for i := range f.peers.all {
		late = f.peers.all[i].lagged(t) || late // each call also sets when the engine runs again
	}
	switch {
	case plan.Open:
		l.stalls = nil // they were found under another plan
		return false
	case !late || plan.Revision == 0 || !f.seeksStalls(t):
		*l = lag{}
		return false
	case l.revision == 0:
		*l = lag{revision: plan.Revision, next: t.now.Mono}
	case l.revision != plan.Revision: // it has as long for this one
		*l = lag{revision: plan.Revision, seen: t.now.Mono, next: t.now.Mono.Add(mostLag * t.beat)}
	}
	switch {
	case l.asked > 0 && min(rows.begun, rows.pages.begun) >= l.asked && rows.fresh(*plan):
		l.asked, l.stalls = 0, rows.stalls(t, f)
	case l.asked == 0 && (l.seen < f.peers.changed || !t.before(l.next)):
		l.asked, l.seen, l.next = t.step, t.now.Mono, t.now.Mono.Add(t.cfg.Audit)
		return true
	}
	return false
}

// stalls returns the shards that are assigned to lagging workers and that nobody holds.
func (f *facts) stalls(t *turn, of *fleet) (all []layout.Stall) {
	for _, target := range layout.Join(f.pages.all) {
		if !of.peers.find(target.Incarnation).lagged(t) {
			continue
		}
		for _, a := range target.Hold {
			row := f.find(a.Shard)
			if row == nil || !row.over() && row.owner != of.seat.me && of.peers.find(row.owner) == nil {
				all = append(all, layout.Stall{Worker: target.Incarnation, Shard: a.Shard})
			}
		}
	}
	slices.SortFunc(all, layout.Stall.Compare)
	return all
}
