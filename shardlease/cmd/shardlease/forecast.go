package main

import (
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A dry run of the planner, by the functions with which workers plan (internal/layout), from what can be
// seen from outside.
//
// Invariant: while the seats stand still, the forecast is the plan that a worker would make. TestForecastIsTheNextPlan
// compares the two.
//
// Some things only the worker that plans knows: which shards its source lists, their weights, the limit in its own seat if
// nobody can read that, which workers have lagged for so long that others get their free shards, and its planner,
// if that is not rebalance.Even, the only one of the library.

// A forecast is where every shard is and should be.
type forecast struct {
	*layout.Layout
	layout.Input
	assigned []rebalance.Place // the shards with the workers to which they are assigned, also if these decline them
	loads    []load            // by worker
}

// A load is the number of a worker's shards.
type load struct {
	Held    int `json:"held"`
	Planned int `json:"planned"` // by the present plan
	Then    int `json:"then"`    // by the next one
}

// foresee returns the layout of the next plan.
func foresee(s *inspect.Snapshot, now time.Time, added []lease.Seat, removed []string) *forecast {
	return inputs(s, now, added, removed).layOut(s)
}

// inputs returns what the next plan is made from.
func inputs(s *inspect.Snapshot, now time.Time, added []lease.Seat, removed []string) *forecast {
	f := &forecast{Input: layout.Input{Wishes: layout.Standing(s.Wishes, now), Targets: layout.Join(s.Targets), Still: true}}
	var pages []lease.Key
	for i := range s.Workers {
		if w := &s.Workers[i]; !w.Dead && w.Seat.Confirmed() && !slices.Contains(removed, w.Seat.Name) {
			f.Seats = append(f.Seats, w.Seat)
		}
	}
	for _, u := range s.Unreadable {
		switch u.Key.Kind {
		case lease.KindSeat:
			f.Seats = append(f.Seats, lease.Seat{Group: s.Group, Incarnation: lease.Incarnation(u.Key.Name)})
		case lease.KindTarget:
			pages = append(pages, u.Key)
		}
	}
	f.Seats = append(f.Seats, added...)
	slices.SortFunc(f.Seats, func(a, b lease.Seat) int { return strings.Compare(string(a.Incarnation), string(b.Incarnation)) })
	f.Broken = layout.Broken(s.Targets, pages)
	f.survey(s)
	f.assigned = slices.Clone(f.Shards)
	return f
}

// layOut decides where the shards should be.
func (f *forecast) layOut(s *inspect.Snapshot) *forecast {
	f.Layout = layout.New(f.Input)
	for !f.Settle(rebalance.Even{}.Plan(f.View)) {
	}
	f.count(s)
	return f
}

// survey finds the shards that need a worker, and the workers to which they are assigned. As in the engine, the
// targets say that if a whole plan wrote them, and otherwise the rows.
func (f *forecast) survey(s *inspect.Snapshot) {
	rows := s.Plan == nil || s.Plan.Revision == 0 || s.Plan.Open || len(layout.Torn(s.Targets)) > 0
	all, known := f.found(s, rows)
	if !rows && known < s.Plan.Shards-s.Plan.Unplaced {
		all, _ = f.found(s, true)
	}
	for _, of := range all {
		if !blocked(s, of.Assigned) {
			f.Shards = append(f.Shards, rebalance.Place{Name: of.Shard, Owner: of.Owner, Tie: rebalance.Tie(of.Shard)})
		}
	}
}

// found returns where each shard was found, and how many shards the targets have.
func (f *forecast) found(s *inspect.Snapshot, rows bool) (all []layout.Found, known int64) {
	for _, target := range f.Targets {
		at := layout.SeatOf(f.Seats, target.Incarnation)
		for _, a := range target.Hold {
			if f.over(s, a.Shard, at) {
				known++
			} else {
				all = append(all, layout.Found{Assigned: a, Owner: at, Rank: target.Revision})
			}
		}
	}
	add := func(shard string, owner lease.Incarnation) {
		of := layout.Found{Assigned: lease.Assigned{Shard: shard}, Owner: layout.SeatOf(f.Seats, owner), Rank: layout.Unplaced}
		if rows && of.Owner == rebalance.Nobody {
			of.Rank = layout.Row
		} else if rows {
			of.Rank = layout.Holding
		}
		all = append(all, of)
	}
	for i := range s.Shards {
		if of := &s.Shards[i]; needsWorker(of) {
			add(of.Name, of.Owner.Incarnation)
		}
	}
	for _, u := range s.Unreadable {
		if u.Key.Kind == lease.KindLease {
			add(u.Key.Name, "")
		}
	}
	all = f.Confine(layout.Choose(all))
	for _, of := range all {
		if of.Rank >= 0 {
			known++
		}
	}
	return all, known
}

// needsWorker reports whether the plan has the shard.
func needsWorker(s *inspect.Shard) bool {
	return slices.Contains([]inspect.State{inspect.Held, inspect.Moving, inspect.Free, inspect.Resting, inspect.Orphaned}, s.State)
}

// over reports whether an assigned shard needs no worker any more: its row says so or, if it has none, its worker.
func (f *forecast) over(s *inspect.Snapshot, shard string, at int) bool {
	if of := s.Shard(shard); of != nil {
		return of.State != inspect.Blocked && !needsWorker(of)
	}
	return f.Says(at, shard, lease.NewsFinished, layout.NewsRemoved, layout.NewsUnlisted)
}

// blocked reports whether a shard waits for its parents.
func blocked(s *inspect.Snapshot, a lease.Assigned) bool {
	if of := s.Shard(a.Shard); of != nil {
		return of.State == inspect.Blocked
	}
	return slices.ContainsFunc(a.Parents, func(parent string) bool {
		of := s.Shard(parent)
		return of != nil && (of.State == inspect.Blocked || of.State == inspect.Quarantined || needsWorker(of))
	})
}

// count counts the shards of the workers. A shard that waits for its parents counts only as held.
func (f *forecast) count(s *inspect.Snapshot) {
	f.loads = make([]load, len(f.Seats))
	for i := range s.Shards {
		if at := layout.SeatOf(f.Seats, s.Shards[i].Owner.Incarnation); at != rebalance.Nobody {
			f.loads[at].Held++
		}
	}
	for i, place := range f.assigned {
		if place.Owner != rebalance.Nobody {
			f.loads[place.Owner].Planned++
		}
		if f.Placed(i) {
			f.loads[f.To[i]].Then++
		}
	}
}
