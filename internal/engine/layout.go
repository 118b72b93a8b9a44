package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The target assignment as it is computed: pure functions of a [stage].
//
//	survey → place → assign
//
// Called by draft.gather when everything is read that a plan is made from. seatOf serves watch.go too.
//
//	survey  finds the shards, and the workers to which they are assigned
//	place   decides where they should be, by internal/layout and by the planner of the user (ask.go)
//	assign  makes the targets, with hints to the workers that are to give shards away
//
// Nothing is written here.

// mostExamples is how many shards without a worker the plan names.
const mostExamples = 10

// A stage is all that a plan is made from. Engine.gather makes it, draft.gather adds the targets and the standing wishes,
// and survey adds the shards. Later steps only read it.
type stage struct {
	layout.Input // its shards are those that survey finds

	plan    lease.Plan
	spoilt  bool // it cannot be read
	stored  lease.Wishes
	begun   order // the step in which the listing was sent that shows the seats
	facts   *facts
	feed    *feed
	torn    []lease.Incarnation              // the pages of these workers are no whole target
	rows    bool                             // the owners are those of the rows, not of the targets
	blind   bool                             // the rows cannot be listed at present
	strays  []string                         // sorted. Their workers read the rows again, and owners ask their sources
	acting  bool                             // this worker has taken over, because no watcher lives
	late    func(inc lease.Incarnation) bool // its seat has missed a heartbeat
	planner *planner
}

// An assignment is which worker should have which shard.
type assignment struct {
	stage
	*layout.Layout
	assigned []lease.Assigned // by shard of the layout

	outdated bool // the planner was shown other workers, shards or wishes
}

// over reports whether an assigned shard needs no worker any more. If the rows were read for this plan,
// they decide. Otherwise the news of its worker decides: older knowledge of the row may be out of date,
// because another planner may have assigned a shard that is back. If a command has brought the shard back
// since the listing, the news does not count: the worker may not know of the command yet. A shard that was given up as
// unlisted, and that every worker declines, is over: each reports it only once, and then perhaps to a planner that
// has already assigned it again.
func (in *stage) over(shard string, at int, torn bool) bool {
	of := in.facts.find(shard)
	if in.rows {
		if of != nil {
			return of.over()
		}
		return torn && in.feed.lacks(shard)
	}
	if of != nil && of.out && in.Declined(shard) {
		return true
	}
	back := of != nil && of.looked && !of.over()
	return !back && in.Says(at, shard, lease.NewsFinished, layout.NewsRemoved, layout.NewsUnlisted)
}

// seatOf returns the place of a worker among the seats, or Nobody.
func seatOf(seats []lease.Seat, inc lease.Incarnation) int { return layout.SeatOf(seats, inc) }

// survey finds the shards that need a worker, and the workers to which they are assigned. It reports false if the
// targets lack shards, and the rows have to be read for this plan.
func (l *assignment) survey() (whole bool) {
	all, known := l.entries()
	for _, e := range l.Confine(layout.Choose(all)) {
		if e.Rank >= 0 {
			known++
		}
		// A shard whose parents are not finished is left out. One that another planner has assigned meanwhile stays, unless
		// a parent is placed itself.
		trusted := e.Rank >= 0 && l.facts.under != l.plan.Revision // another planner has assigned it, and knew more
		if ready := l.child(&e.Assigned); !ready && (!trusted || slices.ContainsFunc(e.Parents, l.facts.isPlaced)) {
			continue // it comes back when its parents are finished
		}
		l.assigned = append(l.assigned, e.Assigned)
		l.Shards = append(l.Shards, rebalance.Place{
			Name: e.Shard, Weight: l.feed.weight(e.Shard), Owner: e.Owner, Tie: rebalance.Tie(e.Shard),
		})
	}
	// Fewer than the plan has placed: a target was deleted, or cannot be read.
	return l.rows || int64(known) >= l.plan.Shards-l.plan.Unplaced
}

// child notes the parents of a shard that has no row yet, and reports whether they are finished, as
// far as this worker can tell. The source has the say about parents.
func (l *assignment) child(a *lease.Assigned) (ready bool) {
	of, src := l.facts.find(a.Shard), l.feed.find(a.Shard)
	switch {
	case of != nil && of.begun && of.gone == 0:
		a.Parents = nil
	case src != nil && src.listed:
		a.Parents = src.Parents
	}
	return l.facts.begun == 0 || l.feed.complete == 0 || l.facts.ready(a.Parents, l.feed)
}

// entries returns where shards were found, and how many assigned ones need no worker any more.
func (l *assignment) entries() (all []layout.Found, over int) {
	for _, target := range l.Targets {
		at, torn := seatOf(l.Seats, target.Incarnation), slices.Contains(l.torn, target.Incarnation)
		for _, a := range target.Hold {
			if l.over(a.Shard, at, torn) {
				over++
			} else {
				all = append(all, layout.Found{Assigned: a, Owner: at, Rank: target.Revision})
			}
		}
	}
	owner := func(of *fact) int {
		if of == nil || of.gone > 0 {
			return rebalance.Nobody
		}
		return seatOf(l.Seats, of.owner)
	}
	for i := range l.facts.all {
		// Rows count only if they were read for this plan.
		if of := &l.facts.all[i]; l.rows && !of.over() && (of.begun || l.facts.ready(of.parents, l.feed)) {
			rank := int64(layout.Row)
			if owner(of) != rebalance.Nobody {
				rank = layout.Holding
			}
			all = append(all, layout.Found{Assigned: lease.Assigned{Shard: of.name}, Owner: owner(of), Rank: rank})
		}
	}
	added, _ := l.facts.added(l.feed, l.plan)
	for _, a := range added {
		all = append(all, layout.Found{Assigned: a, Owner: owner(l.facts.find(a.Shard)), Rank: layout.Unplaced})
	}
	return all, over
}

// place decides where every shard should be. It returns false if the planner has been asked and has to answer first.
func (l *assignment) place(t *turn, d *draft) (placed bool) {
	l.Layout = layout.New(l.Input)
	for n := 0; ; n++ {
		to, answered := l.ask(t, d, n)
		if !answered {
			return false
		}
		if l.Settle(to) {
			return true
		}
	}
}

// assign makes the targets of the revision, and what the plan says about them. Every confirmed seat gets a target, if
// only an empty one: a worker without a target would say that it misses it.
func (l *assignment) assign(t *turn) (next []lease.Target, found lease.Finding) {
	for _, s := range l.Seats {
		next = append(next, lease.Target{Group: t.cfg.Group, Incarnation: s.Incarnation, At: t.now.Wall})
	}
	// The finding is stored when the revision is completed.
	found = lease.Finding{Members: int64(len(staying(l.Seats))), Shards: int64(len(l.To)), Watchers: l.watchers()}
	for _, w := range l.Wishes {
		if w.Kind == lease.WishRaise {
			found.Raise = w.Number
		}
	}
	cause := l.causes()
	for i, to := range l.To {
		name, owner := l.View.Shards[i].Name, l.View.Shards[i].Owner
		if !l.Placed(i) {
			if found.Unplaced++; len(found.Examples) < mostExamples {
				found.Examples = append(found.Examples, name)
			}
			continue
		}
		next[to].Hold = append(next[to].Hold, l.assigned[i])
		why := cause(i)
		next[to].Because(why.to)
		if _, stray := slices.BinarySearch(l.strays, name); stray || l.facts.asks(name, l.feed) { // a hint to itself
			next[to].Give = append(next[to].Give, lease.Give{Shard: name, To: next[to].Incarnation})
		} else if owner != rebalance.Nobody && owner != to {
			next[owner].Give = append(next[owner].Give, lease.Give{Shard: name, To: l.Seats[to].Incarnation})
			next[owner].Because(why.from)
		}
	}
	if !l.Held && !l.outdated { // otherwise another plan is due: if held, when the seats stand still
		found.Inputs = inputs(l.madeFrom(next), hashed(l.stored), 0)
	}
	return next, found
}

// withheld returns what the layout withholds from workers for reasons that only this worker knows.
func (l *assignment) withheld() (of withheld) {
	for _, stall := range l.Stalls { // sorted by worker
		of.lagging = append(of.lagging, stall.Worker)
	}
	of.lagging = slices.Compact(of.lagging)
	me := seatOf(l.Seats, l.Me.Incarnation)
	for i, s := range l.View.Shards {
		if l.To[i] != me && l.Bars(s.Name) {
			of.barred = append(of.barred, s.Name)
		}
	}
	return of
}

// A reason is why a shard moves to the worker that gets it, and away from the worker to which the plan before had assigned it.
type reason struct{ to, from lease.MoveCause }

// causes returns a function that returns why a shard moves. If the worker to which the plan before had assigned the shard holds
// it, only this plan moves it. Otherwise the plan before has not moved it yet, and it also moves because the worker that holds it
// leaves or is drained.
func (l *assignment) causes() func(i int) reason {
	pending, givers := l.pending()
	return func(i int) reason {
		name, from := l.View.Shards[i].Name, l.Cause(i)
		to := from
		if l.Before(i) != rebalance.Nobody {
			give := lease.Give{Shard: name, To: l.Seats[l.Before(i)].Incarnation}
			was, clears := pending[give], givers[give]
			switch {
			case from.Why == 0:
				to = was
			case clears.Why != 0 && layout.Outlasts(was.Why, from.Why):
				to = clears
			}
		}
		to.Shards, from.Shards = []string{name}, []string{name}
		return reason{to, from}
	}
}

// pending returns, by the shard and the worker to which it moves, the causes of moves that may not be done yet, and why
// the workers that give the shards are to lose all that they have. When a worker has followed the plan, all that it gets and
// gives has moved. A target keeps its hints until its shards change, so a worker that leaves or is drained is known as the giver
// for as long as it has a seat. If the rows show the owners, they show all that has moved.
func (l *assignment) pending() (causes, givers map[lease.Give]lease.MoveCause) {
	causes, givers = map[lease.Give]lease.MoveCause{}, map[lease.Give]lease.MoveCause{}
	for _, target := range l.Targets {
		at := seatOf(l.Seats, target.Incarnation)
		if at < 0 || l.rows || l.Seats[at].Settled && l.Seats[at].Revision >= target.Revision {
			continue
		}
		for _, c := range target.Causes {
			for _, shard := range c.Shards {
				causes[lease.Give{Shard: shard, To: target.Incarnation}] = lease.MoveCause{Why: c.Why, Note: c.Note}
			}
		}
		clears := l.Cleared(at)
		for _, give := range target.Give {
			givers[give] = clears
		}
	}
	return causes, givers
}

// madeFrom returns the seats that count as inputs of the plan: those of workers that leave only if one of
// them keeps shards, because these are to be placed when its seat goes.
func (l *assignment) madeFrom(next []lease.Target) []lease.Seat {
	for at, s := range l.Seats {
		if s.Leaving && len(next[at].Hold) > 0 {
			return l.Seats
		}
	}
	return staying(l.Seats)
}

// watchers returns the workers that watch from now on: those that do and live, and others until
// there are enough. Their order is their rank; it stays as long as they live, so that the first of them stays the same.
func (l *assignment) watchers() (now []lease.Incarnation) {
	add := func(s lease.Seat) {
		if len(now) < fewest && !s.Leaving && !l.late(s.Incarnation) && !slices.Contains(now, s.Incarnation) {
			now = append(now, s.Incarnation)
		}
	}
	if l.acting {
		add(l.Me)
	}
	for _, inc := range l.plan.Watchers {
		if at := seatOf(l.Seats, inc); at >= 0 {
			add(l.Seats[at])
		}
	}
	for _, s := range l.Seats {
		add(s)
	}
	return now
}
