package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Asking the user's planner.
//
//	free → asked → free
//
// The shell calls the planner beside the engine, because the planner may take long, hang or panic. It answers within a
// third of the lease time, if only that there is no plan. Then rebalance.Even makes the plan. Meanwhile the worker does
// everything else. Without a planner of the user nothing is asked: rebalance.Even is quick.
//
// A draft asks once, and again with pins if held shards would move and may not (layout.Settle). Called by the spine with
// each answer, and by the layout.
//
// The answer comes later than the question. So a question keeps names, and the layout is made again from
// what is known when the answer comes. Of the answer counts only which of these workers should have which of these
// shards. For shards that are new, and for those of workers that are gone, the layout finds a worker.
//
// Nothing is written here, and a crash leaves nothing.
//
// Invariant: at most one question has no answer. That of a draft that was dropped counts: the next draft waits for the
// answer, and ignores it.
// Invariant: if the planner was shown other workers, shards or wishes than those of the plan, another plan is due.

// A planner is what an engine knows of the user's planner.
type planner struct {
	open serial // the question without an answer; 0: there is none
}

// A question is one that a draft has asked. It has its answer when none is open.
type question struct {
	shards []rebalance.Place // sorted by name, as the planner was shown them
	seats  []lease.Seat      // sorted by incarnation, likewise
	wished string            // the hash of the wishes
	to     []int             // the answer, as indices of these; nil: none, or none yet
}

// answered takes an answer, and reports whether it is that to the open question.
func (p *planner) answered(in Planned) bool {
	if p.open == 0 || p.open != serial(in.Ask) {
		return false
	}
	p.open = 0
	return true
}

// answered takes the answer to the latest question. A draft that has asked nothing gets the answer to one of an earlier
// draft, and ignores it.
func (d *draft) answered(in Planned) {
	if n := len(d.asked); n > 0 {
		d.asked[n-1].to = in.To
	}
}

// unplanned reports whether the planner has given no plan. Then rebalance.Even plans for the rest of the draft.
func (d *draft) unplanned() bool {
	return slices.ContainsFunc(d.asked, func(q question) bool { return q.to == nil })
}

// ask returns the answer of the planner to question n of the draft. If the question was not asked yet, ask asks it and
// returns false.
func (l *assignment) ask(t *turn, d *draft, n int) (to []int, answered bool) {
	switch {
	case t.cfg.Planner == "", d.unplanned():
		return rebalance.Even{}.Plan(l.View), true
	case n < len(d.asked):
		return d.asked[n].apply(l), true
	}
	t.reads++
	l.planner.open = t.reads
	d.asked = append(d.asked, question{shards: l.View.Shards, seats: l.Seats, wished: hashed(l.stored)})
	t.do(Plan{Ask: uint64(t.reads), View: l.View})
	return nil, false
}

// apply returns what the answer says of the present shards and workers. It notes if they are not those of the question.
func (q *question) apply(l *assignment) (to []int) {
	l.outdated = l.outdated || inputs(q.seats, q.wished, 0) != inputs(l.Seats, hashed(l.stored), 0)
	to = slices.Repeat([]int{rebalance.Nobody}, len(l.View.Shards))
	for i := range l.View.Shards {
		at, shown := place(q.shards, l.View.Shards[i].Name, func(s *rebalance.Place) string { return s.Name })
		if !shown {
			l.outdated = true
		} else if w := q.to[at]; w != rebalance.Nobody {
			to[i] = seatOf(l.Seats, q.seats[w].Incarnation)
		}
	}
	return to
}
