package explore_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/explore"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

var given = flag.Int("explore.states", 0, "how many states TestEngines visits of each story")

// states returns how many states TestEngines visits of each story. Other tests visit a part of that.
func states() int { return fixture.Or(*given, 50, 3000) }

// visit visits about this number of states of a story, and reports whether these are all.
func visit(t *testing.T, s explore.Story, states int) (complete bool) {
	t.Helper()
	r, err := explore.Explore(s, states)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	t.Logf("%s: %d states, depth %d, complete: %t", s.Name, r.States, r.Depth, r.Complete)
	return r.Complete
}

// toTheEnd visits all states of a small story if tests are long, whatever -explore.states is, or else a sample of that size.
func toTheEnd(t *testing.T, s explore.Story) {
	t.Helper()
	if complete := visit(t, s, fixture.Size(states(), 1<<20)); !complete && fixture.Long() {
		t.Error("the story was not explored to its end")
	}
}

// TestEngines visits states that small fleets of real engines can reach.
func TestEngines(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			visit(t, s, states())
		})
	}
}

// TestCrashesAreExplored: the small stories about a crash are explored to their end.
func TestCrashesAreExplored(t *testing.T) {
	for _, s := range stories() {
		if !strings.HasSuffix(s.Name, "a crash and a mark") {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			toTheEnd(t, s)
		})
	}
}

func stories() []explore.Story {
	var all []explore.Story
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		for _, s := range []explore.Story{
			{Name: "cold start", Workers: 2, Shards: 1, For: 4 * time.Second},
			{Name: "cold start and a fault", Workers: 2, Shards: 1, Faults: 1, For: 4 * time.Second},
			{Name: "a join", Workers: 2, Shards: 2, Settled: 1, For: 12 * time.Second},
			{Name: "a join, a fault and a mark", Workers: 2, Shards: 2, Settled: 1, Faults: 1, Marks: 1, For: 12 * time.Second},
			{Name: "a mark and two faults", Workers: 2, Shards: 1, Settled: 2, Faults: 2, Marks: 1, For: 10 * time.Second},
			{Name: "a crash and a fault", Workers: 2, Shards: 1, Settled: 2, Crashes: 1, Faults: 1, For: 15 * time.Second},
			{Name: "a crash and a mark", Workers: 2, Shards: 1, Settled: 2, Crashes: 1, Marks: 1, For: 15 * time.Second},
			{Name: "a crash, a fault and a mark", Workers: 2, Shards: 1, Settled: 2, Crashes: 1, Faults: 1, Marks: 1, For: 15 * time.Second},
			{Name: "a pause", Workers: 2, Shards: 1, Settled: 2, Pauses: 1, For: 12 * time.Second},
			{Name: "a pause and a mark", Workers: 2, Shards: 1, Settled: 2, Pauses: 1, Marks: 1, For: 12 * time.Second},
			{Name: "a stop", Workers: 2, Shards: 1, Settled: 2, Stops: 1, For: 8 * time.Second},
			{Name: "a stop and a fault", Workers: 2, Shards: 1, Settled: 2, Stops: 1, Faults: 1, For: 8 * time.Second},
			{Name: "an owner stops, and a worker that has just requested its shard", Workers: 3, Shards: 3, Settled: 2, For: 8 * time.Second,
				Prelude: func(p *explore.Prelude) {
					p.Join(c)
					p.Until(c, "of target")
					p.Until(c, "lease g/")
					p.Until(c, "swap of seat")
					p.Rest(3 * time.Second) // b sees the request
					p.Stop(c)
					p.Until(c, "of target")
					p.Until(c, "swap of plan") // then nothing but its seat is left
					p.Stop(b)
				}},
			{Name: "a join and a crash", Workers: 2, Shards: 2, Settled: 1, Crashes: 1, For: 15 * time.Second},
			{Name: "a join, a pause and a mark", Workers: 2, Shards: 2, Settled: 1, Pauses: 1, Marks: 1, For: 15 * time.Second},
			{Name: "three workers and a crash", Workers: 3, Shards: 2, Settled: 3, Crashes: 1, For: 12 * time.Second},
		} {
			s.Name, s.Mode = mode.String()+": "+s.Name, mode
			all = append(all, s)
		}
	}
	return all
}
