package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

// How long it takes until what has happened to one shard, or to one plan, has been dealt with.

// An incident happens in a settled fleet. It returns how long it took until it was dealt with.
type incident func(f *fleet, i int) time.Duration

// TestBoundsOfIncidents: in small and in large fleets, at twenty moments between two heartbeats each.
func TestBoundsOfIncidents(t *testing.T) {
	t.Parallel()
	const backOff, poll = time.Second, 30 * time.Second
	for _, c := range []struct {
		name         string
		happens      incident
		small, large time.Duration
	}{
		{"a parent is finished, and its child is processed", finishParent, time.Second, beat + 2*time.Second},
		{"the last of two parents is finished, and their child is processed", finishParents, beat + 2*time.Second, beat + 2*time.Second},
		{"a shard is split, and its halves are merged", splitAndMerge, time.Second, beat + 2*time.Second},
		{"a handler fails, and another worker processes the shard", failOnce, backOff + beat + time.Second, backOff + beat + time.Second},
		{"the source lists a new shard, and it is processed", listNew, poll + beat + time.Second, poll + beat + time.Second},
		{"a planner dies while it plans, and a plan is complete", losePlanner, beat + 3*time.Second, beat + 3*time.Second},
	} {
		for workers, most := range map[int]time.Duration{4: c.small, 12: c.large} {
			t.Run(fmt.Sprintf("%s/%d workers", c.name, workers), func(t *testing.T) {
				worst, sum, n := time.Duration(0), time.Duration(0), 0
				for range fixture.Size(1, 5) {
					f := newFleet(t, fixture.Size(3, 6)*workers, workers, rebalance.Eager)
					for i := range fixture.Size(2, 4) {
						f.Run(70*time.Second + time.Duration(n)*beat/20)
						took := c.happens(f, i)
						worst, sum, n = max(worst, took), sum+took, n+1
					}
				}
				t.Logf("%v on average, %v at most", sum/time.Duration(n), worst)
				if worst > most {
					t.Errorf("%v at most, longer than %v", worst, most)
				}
			})
		}
	}
}

// finishParent lets a shard come to its end whose child is listed.
func finishParent(f *fleet, i int) time.Duration {
	up := f.up()
	parent := up[i*len(up)/4].Handlers[0].Shard
	child := engine.Shard{Name: fmt.Sprintf("child-%d", i), Parents: []string{parent}}
	f.lists(child)
	f.Run(time.Minute)
	f.end(parent) // takes 50 ms
	return f.until(time.Minute, func() bool { return f.processed(child.Name) }) + 50*time.Millisecond
}

// finishParents lets two shards come to their ends, one after the other and under different workers, whose child is listed.
func finishParents(f *fleet, i int) time.Duration {
	up := f.up()
	first, last := up[i*len(up)/4].Handlers[0].Shard, up[(i*len(up)/4+1)%len(up)].Handlers[0].Shard
	child := engine.Shard{Name: fmt.Sprintf("merged-%d", i), Parents: slices.Sorted(slices.Values([]string{first, last}))}
	f.lists(child)
	f.Run(time.Minute)
	f.end(first)
	f.Run(2 * beat)
	f.end(last) // takes 50 ms
	return f.until(time.Minute, func() bool { return f.processed(child.Name) }) + 50*time.Millisecond
}

// splitAndMerge lets a shard be split and merged again. Its two halves come to their ends one after the other, mostly under
// different workers.
func splitAndMerge(f *fleet, i int) time.Duration {
	up := f.up()
	root := up[i*len(up)/4].Handlers[0].Shard
	left, right, merged := fmt.Sprintf("left-%d", i), fmt.Sprintf("right-%d", i), fmt.Sprintf("merged-%d", i)
	f.source.Shards = append(slices.Clone(f.source.Shards), engine.Shard{Name: left, Parents: []string{root}},
		engine.Shard{Name: right, Parents: []string{root}}, engine.Shard{Name: merged, Parents: []string{left, right}})
	f.Run(time.Minute)
	f.end(root)
	for _, half := range []string{left, right} {
		f.until(time.Minute, func() bool { return f.processed(half) })
		f.Run(2 * beat)
		f.end(half) // takes 50 ms
	}
	return f.until(time.Minute, func() bool { return f.processed(merged) }) + 50*time.Millisecond
}

// failOnce lets a handler fail.
func failOnce(f *fleet, i int) time.Duration {
	up := f.up()
	n := up[i*len(up)/4]
	id := n.Handlers[0].Tenure
	n.Return(id, true)
	return f.until(time.Minute, func() bool {
		return slices.ContainsFunc(f.up(), func(other *member) bool { return other != n && other.holds(id.Shard) })
	})
}

// listNew makes the source list one shard more.
func listNew(f *fleet, i int) time.Duration {
	name := fmt.Sprintf("new-%d", i)
	f.lists(engine.Shard{Name: name})
	return f.until(2*time.Minute, func() bool { return f.processed(name) })
}

// losePlanner kills the worker that plans for a newcomer when it has opened a revision.
func losePlanner(f *fleet, _ int) time.Duration {
	before := f.plan()
	f.join()
	f.until(time.Minute, func() bool { return f.plan().Open })
	maker := f.plan().By.Incarnation
	f.nodes[slices.IndexFunc(f.nodes, func(n *member) bool { return n.Engine.Status().Incarnation == maker })].Kill()
	return f.until(time.Minute, func() bool { p := f.plan(); return p.Revision > before.Revision && !p.Open })
}
