package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// A lot is a set of durations, zeros included.
type lot []time.Duration

func (l lot) quantile(q float64) time.Duration { return fixture.Quantile(l, q) }
func (l lot) max() time.Duration               { return l.quantile(1) }
func (l lot) mean() time.Duration              { return fixture.Mean(l) }

// cells returns the cells of a table for a lot.
func (l lot) cells() []string {
	return []string{fmt.Sprint(len(l)), short(l.mean()), short(l.quantile(0.5)), short(l.quantile(0.99)), short(l.max())}
}

// short returns a readable duration.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// A goal is one bound of the design, and what was measured.
type goal struct {
	what, kcl2, kcl3 string
	limit, got       float64
	show             func(float64) string
}

// verdict returns "met", or by how much the goal was missed.
func (g goal) verdict() string {
	if g.got <= g.limit {
		return "met"
	}
	return "**missed by " + g.show(g.got-g.limit) + "**"
}

func seconds(v float64) string { return short(time.Duration(v * float64(time.Second))) }
func plain(v float64) string   { return fmt.Sprintf("%.4g", v) }

func unit(u string) func(float64) string {
	return func(v float64) string { return plain(v) + " " + u }
}

func within(what, kcl2, kcl3 string, limit, got time.Duration) goal {
	return goal{what, kcl2, kcl3, limit.Seconds(), got.Seconds(), seconds}
}

// goals are the figures that the library was designed to reach, next to figures of the Kinesis Client
// Library that were measured at that time.
func (r *report) goals() []goal {
	t := r.plan.slow
	h := t / 3
	return slices.Concat([]goal{
		{"steady requests/s, 64 shards, 4 workers", "19.4", "20.0", 2.8 * 10 / t.Seconds(), r.costs[0].requests, plain},
		{"… and for each worker: the most of three sizes over the least", "grows with shards", "grows with shards", 1.1, r.ratio(), plain},
		within("cold start: all held", "0.4–1.7 s", "10–30 s", 600*time.Millisecond, r.held.max()),
		within("cold start: even", "282–323 s", "30–200 s", h+1500*time.Millisecond, r.even.max()),
		within("a fifth worker joins: even", "222 s", "40–400 s", h+1500*time.Millisecond, max(r.modes[0].joins.max(), r.modes[1].joins.max())),
	}, r.crashGoals(r.slowCrash, "29–35 s", "50–75 s; its leader 137–150 s"), r.crashGoals(r.fastCrash, "", ""), []goal{
		within("clean stop: all held again", "34.5 s", "54 s", h+time.Second, max(r.modes[0].stops.max(), r.modes[1].stops.max())),
	}, r.moveGoals(), r.benchGoals())
}

// ratio describes whether the number of idle requests depends on the number of shards.
func (r *report) ratio() float64 {
	var each []float64
	for _, c := range r.costs {
		if !c.busy {
			each = append(each, c.requests/float64(c.workers))
		}
	}
	return slices.Max(each) / slices.Min(each)
}

func (r *report) crashGoals(f crashFigures, kcl2, kcl3 string) []goal {
	name := fmt.Sprintf("crash, T = %v: all held again, ", f.ttl)
	return []goal{
		within(name+"mean", kcl2, kcl3, f.ttl+500*time.Millisecond, f.recovery.mean()),
		within(name+"max", kcl2, kcl3, f.ttl+f.ttl/3+500*time.Millisecond, f.recovery.max()),
	}
}

func (r *report) moveGoals() []goal {
	eager, coop := r.modes[0], r.modes[1]
	return []goal{
		within("eager move: gap, max", "0", "7.5 s", 150*time.Millisecond, eager.gaps.max()),
		within("eager move: overlap, max", "≤ 3.0 s", "0", 0, eager.overlaps.max()),
		within("cooperative move: gap, max", "0", "7.5 s", 0, coop.gaps.max()),
		within("cooperative move: overlap, max", "≤ 3.0 s", "0", 200*time.Millisecond, coop.overlaps.max()),
		{"writes of the row for an eager move", "1, unannounced", "5–7", 2, eager.writesPerMove(), plain},
		{"writes of the row for a cooperative move", "1, unannounced", "5–7", 3, coop.writesPerMove(), plain},
	}
}

func (f modeFigures) writesPerMove() float64 {
	return float64(f.rows.rows()) / float64(max(1, f.moved))
}

func (r *report) benchGoals() []goal {
	var slowest, allocs float64
	for _, occasion := range []string{"fresh", "unchanged", "join", "leave"} {
		l := r.benchOf("rebalance", "Plan/100000x1000/"+occasion)
		slowest, allocs = max(slowest, l.values["ns/op"]), max(allocs, l.values["allocs/op"])
	}
	mark, commit := r.benchOf("shardlease", "MarkOnAWorker"), r.benchOf("shardlease", "Commit")
	more := r.memoryOf.library.minus(r.memoryOf.user)
	return []goal{
		{"plan, 100,000 shards × 1,000 workers, the slowest of four", "–", "–", 1.5, slowest / 1e6, unit("ms")},
		{"… allocations, the most of four", "–", "–", 100, allocs, plain},
		{"memory per held shard, beyond the handler", "–", "–", 2048, more.heap + more.stack, unit("bytes")},
		{"goroutines per held shard, the handler's included", "–", "–", 1.01, r.memoryOf.library.goroutines, plain},
		{"`Mark`", "–", "–", 50, mark.values["ns/op"], unit("ns")},
		{"… allocations", "–", "–", 0, mark.values["allocs/op"], plain},
		{"commit, the whole path on memstore", "–", "–", 5, commit.values["ns/op"] / 1000, unit("µs")},
	}
}
