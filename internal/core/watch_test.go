package core_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
)

const (
	leaseTime = 10 * time.Second
	beat      = leaseTime / 3
)

var modes = []rebalance.Mode{rebalance.Eager, rebalance.Cooperative}

// TestLargeFleetChanges: a fleet of twelve, of which eight watch, is even within the bounds after each
// change, with as few moves as can be.
func TestLargeFleetChanges(t *testing.T) {
	for _, mode := range modes {
		for _, c := range []struct {
			name   string
			change func(f *fleet)
			limit  time.Duration
			starts int // tenures that begin
			gap    bool
		}{
			{"joins", func(f *fleet) { f.join() }, beat + 2*time.Second, 9, mode == rebalance.Eager},
			{"stops", func(f *fleet) { f.others()[0].Input(engine.Stop{}) }, beat + 2*time.Second, 10, mode == rebalance.Eager},
			{"a watcher stops", func(f *fleet) { f.watchers()[3].Input(engine.Stop{}) }, beat + 2*time.Second, 10, mode == rebalance.Eager},
			{"the first watcher stops", func(f *fleet) { f.watchers()[0].Input(engine.Stop{}) }, beat + 2*time.Second, 10, mode == rebalance.Eager},
			{"dies", func(f *fleet) { f.others()[0].kill() }, leaseTime + 2500*time.Millisecond, 10, true},
			{"a watcher dies", func(f *fleet) { f.watchers()[3].kill() }, leaseTime + 2500*time.Millisecond, 10, true},
			{"the first watcher dies", func(f *fleet) { f.watchers()[0].kill() }, leaseTime + 2500*time.Millisecond, 10, true},
			{"two die", func(f *fleet) { f.watchers()[0].kill(); f.others()[0].kill() }, leaseTime + 2500*time.Millisecond, 20, true},
			{"three join", func(f *fleet) { f.join(); f.join(); f.join() }, beat + 2*time.Second, 24, mode == rebalance.Eager},
		} {
			t.Run(c.name+" "+mode.String(), func(t *testing.T) {
				f := newFleet(t, 120, 12, mode)
				f.reset()
				c.change(f)
				took := f.until(c.limit, func() bool {
					if !c.gap && !f.held() {
						t.Fatal("a shard is not processed")
					}
					return f.even()
				})
				f.Run(10 * time.Second)
				t.Logf("after %v: %v", took, f.calls)
				if !f.even() || f.starts > c.starts {
					t.Errorf("%d tenures began, at most %d are needed; %v", f.starts, c.starts, f.counts())
				}
			})
		}
	}
}
