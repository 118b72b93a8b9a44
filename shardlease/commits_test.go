package shardlease_test

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestCommitsAreSpread: 256 shards start together, mark without pause, and commit once in 10 s
// each. No second may have more than twice the average number of commits. When every tenure
// counted its 10 s from its first mark, all 256 commits fell into one second of ten, and the
// peak was 10 times the average.
func TestCommitsAreSpread(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		const every, windows = 10 * time.Second, 6
		shards := fixture.Size(128, 256)
		s := newStage(t, shards)
		seconds := &cadence{from: time.Now(), counts: map[int]int{}, shards: map[string]int{}}
		for _, name := range []string{"a", "b", "c", "d"} {
			config := shardlease.Config{Handoff: rebalance.Eager, Commit: checkpoint.Policy{Every: every}}
			s.enter(name, config, plodding).watch(seconds.count, nil)
		}
		s.shared(beat+1500*time.Millisecond, "a", "b", "c", "d")
		time.Sleep(2 * every)
		seconds.begin()
		time.Sleep(windows * every)
		peak, sum, each := seconds.end(int(windows * every / time.Second))
		mean := float64(sum) / (windows * every).Seconds()
		t.Logf("commits in a second: average %.1f, peak %d", mean, peak)
		if float64(peak) > 2*mean {
			t.Errorf("commits in a second: average %.1f, peak %d", mean, peak)
		}
		for shard, n := range each {
			if n < windows-1 || n > windows+1 {
				t.Errorf("%s: %d commits in %v, want one each %v", shard, n, windows*every, every)
			}
		}
		if len(each) != shards {
			t.Errorf("%d of %d shards have committed", len(each), shards)
		}
	})
}

// A cadence counts commits by second and by shard.
type cadence struct {
	mu     sync.Mutex
	from   time.Time
	counts map[int]int    // commits by second since from
	shards map[string]int // commits by shard
}

func (c *cadence) count(w lease.Write) {
	old, held := w.Old.(lease.Row)
	next, _ := w.Next.(lease.Row)
	if !held || old.Generation != next.Generation || old.Checkpoint.Mark == next.Checkpoint.Mark {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[int(time.Since(c.from)/time.Second)]++
	c.shards[next.Shard]++
}

func (c *cadence) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from = time.Now()
	clear(c.counts)
	clear(c.shards)
}

// end returns the number of commits in the busiest of the first seconds, and in all of
// these seconds; and how many each shard has made so far.
func (c *cadence) end(seconds int) (peak, sum int, each map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for second := range seconds {
		peak, sum = max(peak, c.counts[second]), sum+c.counts[second]
	}
	return peak, sum, maps.Clone(c.shards)
}
