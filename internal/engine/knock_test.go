package engine_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
)

// TestDeathsSoonAfterAnother: three workers of a large fleet die within two heartbeat intervals. Each time all are held
// again in less than a second, also if a worker gets shards of the dead by one plan soon after another.
func TestDeathsSoonAfterAnother(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 80, 0, rebalance.Cooperative)
	f.wires = new(virtual.Wires)
	f.config.TTL = time.Minute
	for range 40 {
		f.join()
	}
	f.until(5*time.Minute, f.even)
	f.Run(3 * time.Minute)
	for _, name := range []string{"w005", "w010", "w020"} {
		f.named(name).Kill()
		if took := f.until(time.Minute, f.held); took > time.Second {
			t.Errorf("after the death of %s all are held after %v", name, took)
		}
		f.Run(time.Second)
	}
}
