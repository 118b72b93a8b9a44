package rebalance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardlease/shardlease-go/rebalance"
)

// fleet returns a view of free shards and of workers without limits.
func fleet(shards, workers int) rebalance.View {
	v := rebalance.View{
		Shards:  make([]rebalance.Place, shards),
		Workers: make([]rebalance.Worker, workers),
	}
	for i := range v.Shards {
		name := fmt.Sprintf("shard-%06d", i)
		v.Shards[i] = rebalance.Place{Name: name, Owner: rebalance.Nobody, Tie: rebalance.Tie(name)}
	}
	for w := range v.Workers {
		name := fmt.Sprintf("worker-%04d", w)
		v.Workers[w] = rebalance.Worker{Name: name, Tie: rebalance.Tie(name)}
	}
	return v
}

// applied returns v after the whole plan is carried out.
func applied(v rebalance.View, plan []int) rebalance.View {
	v.Shards = slices.Clone(v.Shards)
	for i, w := range plan {
		if w != rebalance.Nobody {
			v.Shards[i].Owner = w
		}
	}
	return v
}

// occasions returns typical views of a fleet that plans, by name.
func occasions(shards, workers int) map[string]rebalance.View {
	fresh := fleet(shards, workers)
	settled := applied(fresh, rebalance.Even{}.Plan(fresh))
	join := settled
	join.Workers = fleet(0, workers+1).Workers
	leave := settled
	leave.Workers = slices.Clone(settled.Workers)
	leave.Workers[workers/2].Leaving = true
	return map[string]rebalance.View{"fresh": fresh, "unchanged": settled, "join": join, "leave": leave}
}

func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ shards, workers int }{{1000, 20}, {25_000, 100}, {100_000, 1000}} {
		views := occasions(size.shards, size.workers)
		for _, occasion := range []string{"fresh", "unchanged", "join", "leave"} {
			b.Run(fmt.Sprintf("%dx%d/%s", size.shards, size.workers, occasion), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					rebalance.Even{}.Plan(views[occasion])
				}
			})
		}
	}
}
