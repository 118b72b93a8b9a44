package engine_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
)

// TestFleetLife: four workers on 64 shards start, are joined by a fifth, lose one, and
// stop; within the bounds that are promised, and in fake time.
func TestFleetLife(t *testing.T) {
	t.Parallel()
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		t.Run(mode.String(), func(t *testing.T) {
			w := newTwins(t, 64)
			for _, name := range []string{"a", "b", "c", "d"} {
				w.enter(name, config(mode))
			}
			took := w.until(time.Second, w.held)
			t.Logf("cold start: all held after %v", took)
			took = w.until(beat+1500*time.Millisecond, w.even)
			t.Logf("cold start: even after %v more", took)
			w.Run(20 * time.Second)
			clear(w.calls)
			w.Run(60 * time.Second)
			t.Logf("a minute at rest: %v", w.calls)
			w.enter("e", config(mode))
			took = w.until(beat+1500*time.Millisecond, w.even)
			t.Logf("a fifth worker joins: even after %v", took)
			w.Run(20 * time.Second)
			w.nodes[1].Kill()
			took = w.until(10*time.Second+beat+500*time.Millisecond, w.held)
			t.Logf("a crash: all held again after %v", took)
			w.until(beat+1500*time.Millisecond, w.even)
			w.Run(20 * time.Second)
			w.nodes[2].Step(engine.Stop{})
			took = w.until(beat+time.Second, func() bool { return w.held() && len(w.nodes[2].Handlers) == 0 })
			t.Logf("a clean stop: all held again after %v", took)
			w.until(time.Second, w.nodes[2].Engine.Done)
			for _, n := range w.nodes {
				if n.Up() {
					n.Step(engine.Stop{})
				}
			}
			took = w.until(time.Second, func() bool { return w.nodes[0].Engine.Done() && w.nodes[3].Engine.Done() && w.nodes[4].Engine.Done() })
			t.Logf("all stop: %v", took)
		})
	}
}
