package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

// TestStartOnAStarvedMachine: all workers of a group that has no rows yet start at the same moment, as goroutines of one
// process that has little of a processor: 200 workers with 10,000 shards have a quarter of a core, fewer have
// accordingly less. The processor is busy until all shards are held, and everything waits for it, heartbeats too. No
// seat is lost, and nearly every shard begins once.
//
//   - The lanes become narrow when answers come late. Otherwise sixteen requests of each worker are under way, and a
//     heartbeat, which waits four times for the processor, takes longer than a lease.
//   - A read of a row that only waits for its turn is no fault. Otherwise each worker lists all rows, to find out
//     whether it can read, and thereby takes the processor from all.
func TestStartOnAStarvedMachine(t *testing.T) {
	requests := fixture.Sample(1, []time.Duration{200 * time.Microsecond, 150 * time.Microsecond, 300 * time.Microsecond})
	for _, request := range requests {
		t.Run(fmt.Sprint("a request takes ", request), func(t *testing.T) {
			workers := fixture.Size(100, 200)
			s := setting{
				shards: 50 * workers, workers: workers, buckets: 1, mode: rebalance.Cooperative,
				empty: true, share: float64(workers) / 800, request: request,
			}
			f := newFleet(s)
			f.begin()
			for range s.workers {
				f.join()
			}
			r := f.settle()
			t.Logf("%v%v", r, f.meter)
			if most := 120 * time.Second; r.held < 0 || r.even < 0 || r.even > most {
				t.Errorf("all held after %v, even after %v, at most %v", r.held, r.even, most)
			}
			if 10*r.starts > 13*s.shards || r.lost > 0 {
				t.Errorf("%d tenures began for %d shards; %d seats lost", r.starts, s.shards, r.lost)
			}
		})
	}
}
