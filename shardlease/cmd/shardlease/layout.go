package main

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A dry run of the planner. It lays the fleet out as internal/engine/layout.go does, from what can be
// seen from outside:
//
//	survey → staff → pin → plan → settle
//
// Invariant: it keeps the rules of the engine's layout. TestForecastIsWhatTheFleetDoes compares the two.
//
// Some things only the worker that plans knows: its planner, the weights of its source, and the
// shards that its own handlers have just failed. The dry run uses rebalance.Even, which ignores weights.

// A forecast is where every shard is and should be.
type forecast struct {
	wishes []lease.Wish // those that stand
	seats  []lease.Seat // sorted by incarnation
	held   []int        // by worker: how many shards it has now
	view   rebalance.View
	owners []lease.Owner // by shard: the worker that has it now, also one that is no member
	to     []int         // by shard
	loads  []int         // by worker: how many shards it should have
	anyFit bool          // a worker is neither leaving nor cordoned nor unwell
	stuck  bool          // all workers that stay are drained: they keep what they have
}

// foresee returns the layout of the next plan.
func foresee(s *inspect.Snapshot, now time.Time, added []lease.Seat, removed []string) *forecast {
	f := &forecast{}
	for _, w := range s.Wishes {
		if w.Stands(now) {
			f.wishes = append(f.wishes, w)
		}
	}
	for i := range s.Workers {
		if w := &s.Workers[i]; !w.Dead && w.Seat.Confirmed() && !slices.Contains(removed, w.Seat.Name) {
			f.seats = append(f.seats, w.Seat)
		}
	}
	f.seats = append(f.seats, added...)
	slices.SortFunc(f.seats, func(a, b lease.Seat) int { return strings.Compare(string(a.Incarnation), string(b.Incarnation)) })
	f.survey(s)
	f.staff()
	f.pin()
	f.plan()
	f.settle()
	return f
}

// needsWorker reports whether the plan has the shard.
func needsWorker(s *inspect.Shard) bool {
	return slices.Contains([]inspect.State{inspect.Held, inspect.Moving, inspect.Free, inspect.Resting, inspect.Orphaned}, s.State)
}

// survey finds the shards that need a worker, and the workers to which they are assigned.
func (f *forecast) survey(s *inspect.Snapshot) {
	f.held = make([]int, len(f.seats))
	for i := range s.Shards {
		of := &s.Shards[i]
		if !needsWorker(of) {
			continue
		}
		assigned := of.Owner
		if !of.Target.IsZero() && s.Plan != nil && !s.Plan.Open {
			assigned = of.Target
		}
		at := f.seat(assigned.Incarnation)
		if at == rebalance.Nobody && assigned != of.Owner {
			assigned, at = of.Owner, f.seat(of.Owner.Incarnation)
		}
		if f.declines(at, of.Name) { // it goes back to the worker that was to give it
			giver := f.seat(of.Owner.Incarnation)
			if assigned, at = of.Owner, giver; giver != rebalance.Nobody && (f.declines(giver, of.Name) || !isFit(f.seats[giver])) {
				at = rebalance.Nobody
			}
		}
		if at != rebalance.Nobody {
			f.held[at]++
		}
		f.owners = append(f.owners, assigned)
		f.view.Shards = append(f.view.Shards, rebalance.Place{Name: of.Name, Owner: at, Tie: rebalance.Tie(of.Name)})
	}
}

func isFit(s lease.Seat) bool { return !s.Leaving && s.Health.Unwell == "" }

// seat returns the place of a worker among the seats, or Nobody.
func (f *forecast) seat(inc lease.Incarnation) int {
	return slices.IndexFunc(f.seats, func(s lease.Seat) bool { return s.Incarnation == inc })
}

// declines reports whether a worker reports that it has failed the shard.
func (f *forecast) declines(at int, shard string) bool {
	return at >= 0 && slices.Contains(f.seats[at].News, lease.News{Kind: lease.NewsDeclined, Shard: shard})
}

// wants reports whether an operator wants this of a worker or a shard.
func (f *forecast) wants(kind lease.WishKind, subject string) bool {
	return slices.ContainsFunc(f.wishes, func(w lease.Wish) bool { return w.Kind == kind && w.Subject == subject })
}

// staff shows the planner the workers.
func (f *forecast) staff() {
	for i, s := range f.seats {
		w := rebalance.Worker{
			Name: s.Name, Tie: rebalance.Tie(string(s.Incarnation)), Labels: map[string]string{"task": s.Task, "build": s.Build},
			Limit: int(s.MaxShards), Leaving: s.Leaving || f.wants(lease.WishDrain, s.Name),
			Cordoned: f.wants(lease.WishCordon, s.Name), Unwell: s.Health.Unwell != "",
		}
		if w.Unwell && s.Health.Trial && f.held[i] == 0 {
			w.Limit, w.Unwell = 1, false
		}
		f.anyFit = f.anyFit || !w.Leaving && !w.Cordoned && !w.Unwell
		f.view.Workers = append(f.view.Workers, w)
	}
	for i := range f.view.Workers {
		if w := &f.view.Workers[i]; !f.anyFit && f.drained(i) {
			w.Leaving, w.Cordoned, f.stuck = false, true, true
		}
	}
}

// open reports whether a worker may get shards.
func (f *forecast) open(at int) bool {
	w := &f.view.Workers[at]
	return !w.Leaving && !(f.anyFit && (w.Cordoned || w.Unwell))
}

// drained reports whether a wish drains the worker, and the worker is not leaving itself.
func (f *forecast) drained(at int) bool { return f.view.Workers[at].Leaving && !f.seats[at].Leaving }

func (f *forecast) full(at int) bool {
	most := f.view.Workers[at].Limit
	return most > 0 && f.loads[at] >= most
}

// pin shows the planner the pins that can be obeyed.
func (f *forecast) pin() {
	f.view.Pins = map[int]int{}
	loads := make([]int, len(f.seats))
	for _, wish := range f.wishes {
		i := slices.IndexFunc(f.view.Shards, func(s rebalance.Place) bool { return s.Name == wish.Subject })
		if wish.Kind != lease.WishPin || i < 0 {
			continue
		}
		for at, w := range f.view.Workers {
			can := w.Name == wish.To && !w.Leaving && (f.open(at) || f.view.Shards[i].Owner == at) && !f.declines(at, wish.Subject)
			if can && (w.Limit <= 0 || loads[at] < w.Limit) {
				f.view.Pins[i] = at
				loads[at]++
				break
			}
		}
	}
}

// plan asks the planner. A pause keeps held shards where they are.
func (f *forecast) plan() {
	f.to = rebalance.Even{}.Plan(f.view)
	paused := f.wants(lease.WishPause, "")
	if !paused && !f.stuck {
		return
	}
	view := f.view
	view.Pins = maps.Clone(f.view.Pins)
	for i, s := range f.view.Shards {
		if s.Owner != rebalance.Nobody && (paused || !f.seats[s.Owner].Leaving) {
			view.Pins[i] = s.Owner
		}
	}
	f.view = view
	f.to = rebalance.Even{}.Plan(f.view)
}

// settle keeps the rules that no planner may break.
func (f *forecast) settle() {
	f.loads = make([]int, len(f.seats))
	for i, s := range f.view.Shards {
		if at, pinned := f.view.Pins[i]; pinned {
			f.to[i] = at
		} else if f.to[i] == rebalance.Nobody {
			f.to[i] = s.Owner
		}
		if at := f.to[i]; at != rebalance.Nobody && at == s.Owner {
			f.loads[at]++
		}
	}
	for i, s := range f.view.Shards {
		switch at := f.to[i]; {
		case at == s.Owner:
		case !f.full(at):
			f.loads[at]++
		default:
			if f.to[i] = s.Owner; s.Owner != rebalance.Nobody {
				f.loads[s.Owner]++
			}
		}
	}
	f.avoid()
	f.place()
}

// avoid moves shards away from workers that decline them or may not get them.
func (f *forecast) avoid() {
	for i, at := range f.to {
		wrong := at != f.view.Shards[i].Owner && (f.declines(at, f.view.Shards[i].Name) || at != rebalance.Nobody && !f.open(at))
		if _, pinned := f.view.Pins[i]; pinned || !wrong {
			continue
		}
		if to := f.another(i, f.open); to != rebalance.Nobody {
			f.loads[at]--
			f.loads[to]++
			f.to[i] = to
		}
	}
}

// place finds workers for the shards that have none.
func (f *forecast) place() {
	for i, at := range f.to {
		if at != rebalance.Nobody {
			continue
		}
		to := f.another(i, f.open)
		if to == rebalance.Nobody {
			to = f.another(i, f.drained)
		}
		if to != rebalance.Nobody {
			f.loads[to]++
			f.to[i] = to
		}
	}
}

// another returns a different worker for a shard: of those that may have it, one that has the fewest shards.
func (f *forecast) another(i int, may func(at int) bool) int {
	least := math.MaxInt
	can := func(at int) bool { return may(at) && !f.full(at) && !f.declines(at, f.view.Shards[i].Name) }
	for at, load := range f.loads {
		if can(at) {
			least = min(least, load)
		}
	}
	v, seats := rebalance.View{Shards: slices.Clone(f.view.Shards[i : i+1])}, []int(nil)
	for at, load := range f.loads {
		if load <= least && can(at) {
			w := f.view.Workers[at]
			w.Leaving = false
			v.Workers, seats = append(v.Workers, w), append(seats, at)
		}
	}
	v.Shards[0].Owner = slices.Index(seats, f.view.Shards[i].Owner) // Nobody, if its owner is none of these
	if to := (rebalance.Even{}).Plan(v)[0]; to != rebalance.Nobody {
		return seats[to]
	}
	return rebalance.Nobody
}
