package engine_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
)

const beat = 10 * time.Second / 3

func TestFleetLife(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		t.Run(mode.String(), func(t *testing.T) {
			w := newWorld(t, 64)
			for _, name := range []string{"a", "b", "c", "d"} {
				w.join(name, config(mode))
			}
			took := w.until(time.Second, w.held)
			t.Logf("COLD held %v", took)
			took = w.until(beat+1500*time.Millisecond, w.even)
			t.Logf("COLD even %v %v", took, w.counts())
			w.run(20 * time.Second)
			clear(w.calls)
			w.run(60 * time.Second)
			t.Logf("STEADY minute: %v", w.calls)
			w.join("e", config(mode))
			took = w.until(beat+1500*time.Millisecond, w.even)
			t.Logf("JOIN even %v %v", took, w.counts())
			w.run(20 * time.Second)
			w.nodes[1].dead = true
			took = w.until(10*time.Second+beat+500*time.Millisecond, w.held)
			t.Logf("CRASH held %v %v", took, w.counts())
			w.until(beat+1500*time.Millisecond, w.even)
			w.run(20 * time.Second)
			w.nodes[2].step(engine.Stop{})
			took = w.until(beat+time.Second, func() bool { return w.held() && len(w.nodes[2].active) == 0 })
			t.Logf("STOP held %v %v", took, w.counts())
			w.until(time.Second, w.nodes[2].engine.Done)
			for _, n := range w.nodes {
				if !n.dead {
					n.step(engine.Stop{})
				}
			}
			took = w.until(time.Second, func() bool { return w.nodes[0].engine.Done() && w.nodes[3].engine.Done() && w.nodes[4].engine.Done() })
			t.Logf("ALL stopped %v", took)
		})
	}
}
