package explore_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/explore"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

// TestRaises: raises of a fence fail and pass at any later time, in a join, a crash, a stop and a pause. The promises hold,
// and from every state all shards are served again.
func TestRaises(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		for _, s := range []explore.Story{
			{Name: "a cold start", Workers: 2, Shards: 2, Raises: 2, For: 30 * time.Second},
			{Name: "a join and a mark", Workers: 2, Shards: 2, Settled: 1, Raises: 1, Marks: 1, For: 30 * time.Second},
			{Name: "a crash", Workers: 2, Shards: 2, Settled: 2, Crashes: 1, Raises: 2, For: 40 * time.Second},
			{Name: "a stop", Workers: 2, Shards: 2, Settled: 2, Stops: 1, Raises: 1, For: 30 * time.Second},
			{Name: "a pause", Workers: 2, Shards: 1, Settled: 2, Pauses: 1, Raises: 1, For: 30 * time.Second},
		} {
			s.Name, s.Mode, s.Targets, s.Goal = mode.String()+": "+s.Name, mode, true, true
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				visit(t, s, max(states(), fixture.Size(50, 5000)))
			})
		}
	}
}
