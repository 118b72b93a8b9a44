package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An Ailment is one thing that is wrong for a long time, while nothing else is. Meanwhile a shard is
// added, a worker dies and comes back, and a shard is split.
type Ailment struct {
	Name string
	set  func(*settings)
	ail  func(*world) // begins it
}

// Ailments are all of them.
func Ailments() []Ailment {
	// spoil makes a record unreadable until trouble ends.
	spoil := func(key func(*world) lease.Key) func(*world) {
		return func(w *world) { w.table.Unreadable[key(w)] = true }
	}
	// repeat repeats something until trouble ends.
	repeat := func(lease time.Duration, do func(*world)) func(*world) {
		return func(w *world) {
			var next func()
			next = func() {
				if !w.peace {
					do(w)
					w.After(lease*w.set.ttl, next)
				}
			}
			next()
		}
	}
	sick := func(t temper) func(*world) {
		return func(w *world) {
			n := w.newcomer()
			n.boot()
			n.host.sick = t
		}
	}
	// deny lets reads of one worker fail, or those of all.
	deny := func(name string, all bool, which func(engine.Output) bool) Ailment {
		return Ailment{Name: name, ail: func(w *world) {
			for i, n := range w.nodes {
				if all || i == 0 {
					n.denied = which
				}
			}
			w.silence.helped = !all
		}}
	}
	return slices.Insert([]Ailment{
		{Name: "the plan is unreadable", ail: spoil(func(*world) lease.Key { return planKey() })},
		{Name: "nothing", ail: func(*world) {}},
		{Name: "a row is unreadable", ail: spoil(func(w *world) lease.Key { return rowKey(w.streams.all[0].name) })},
		{Name: "a seat is unreadable", ail: spoil(func(w *world) lease.Key {
			return seatKey(w.nodes[0].me)
		})},
		{Name: "a target is unreadable", ail: spoil(func(w *world) lease.Key {
			return targetKey(w.nodes[0].me)
		})},
		{Name: "the plan is deleted every six lease times", ail: repeat(6, func(w *world) { w.deletePlan() })},
		{Name: "the plan is deleted every lease time", ail: repeat(1, func(w *world) { w.deletePlan() })},
		{Name: "advice is deleted every lease time", ail: repeat(1, func(w *world) { deleteAdvice(&w.faults, AdviceDeleted, nil) })},
		{Name: "the source cannot be listed", ail: func(w *world) { w.set.source = 1 }},
		{Name: "no preparation succeeds", set: func(s *settings) { s.prepare = time.Second }, ail: func(w *world) { w.set.hook = 1 }},
		{Name: "one worker cannot write", ail: repeat(1, func(w *world) { w.nodes[0].blocked[1] = true })},
		{Name: "one worker can write its seat only", ail: repeat(1, func(w *world) { w.nodes[0].mute = true })},
		{Name: "the table is down", ail: func(w *world) { w.net.down = true }},
		{Name: "there is too little room", set: func(s *settings) { s.limit = 1 }, ail: func(*world) {}},
		{Name: "handlers fail at once on one host", ail: sick(failing)},
		{Name: "handlers fail at once on one host, and attempts are limited", set: func(s *settings) { s.attempts = 3 }, ail: sick(failing)},
		{Name: "handlers hang on one host", ail: sick(stuck)},
		{Name: "handlers mark nothing on one host", ail: sick(silent)},
		{Name: "one host is busy", ail: func(w *world) {
			n := w.newcomer()
			n.boot()
			n.host.cost = 20 * time.Millisecond
		}},
	}, 1, reads(deny)...)
}

// reads are the ailments of reads, by kind of request and of record, of one worker and of all.
func reads(deny func(name string, all bool, which func(engine.Output) bool) Ailment) (all []Ailment) {
	for _, method := range []string{"get", "list", "get or list"} {
		for _, kind := range []lease.Kind{lease.KindSeat, lease.KindTarget, 0, lease.KindLease} {
			which := func(o engine.Output) bool {
				switch o := o.(type) {
				case engine.Get:
					return method != "list" && (kind == 0 || o.Key.Kind == kind)
				case engine.List:
					return method != "get" && (kind == 0 || o.Query.Kind == kind)
				}
				return false
			}
			what := method + " any record"
			if kind != 0 {
				what = fmt.Sprintf("%s a %v", method, kind)
			}
			all = append(all, deny("one worker cannot "+what, false, which), deny("no worker can "+what, true, which))
		}
	}
	return all
}

// Run simulates the ailment in a fleet of that many workers, and then what follows every trouble: rest,
// changes in calm, and the end.
func (a Ailment) Run(workers int, seed uint64, log func(string)) Result {
	w := newWorld(seed, log)
	w.set = settings{
		ttl: 3 * time.Second, drain: 3 * time.Second, pace: 200 * time.Millisecond, wind: 100 * time.Millisecond,
		retention: time.Minute, nodes: workers, streams: 2 * workers, every: 50 * time.Millisecond, commits: time.Second, flush: 0.05,
		backoff: 200 * time.Millisecond, audit: time.Minute, rest: 30 * time.Second, exact: true,
		handoff: pick(w.chance, rebalance.Eager, rebalance.Cooperative), poll: 10 * time.Second,
	}
	if a.set != nil {
		a.set(&w.set)
	}
	w.populate()
	rest{w}.settle()
	w.peace, w.strict = false, false
	a.ail(w)
	for _, change := range []func(){
		func() { w.streams.add("late", w.set.every, w.Now()) },
		func() { w.nodes[1].crash() },
		func() { w.nodes[1].boot() },
		func() { reshard(&w.faults, Split, nil) },
	} {
		change()
		w.silence.disturb()
		w.run(w.set.standsStill() + 4*w.set.ttl)
	}
	rest{w}.settle()
	life{rest{w}}.all()
	r := w.result()
	if r.Err != nil {
		r.Err = fmt.Errorf("%s, %d workers: %w", a.Name, workers, r.Err)
	}
	return r
}
