package workers

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/fleet"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

var (
	loadFor    = flag.Duration("load.for", 3*time.Second, "how long TestCommitLoad commits")
	coldShards = flag.Int("cold.shards", 0, "how many shards TestColdStart claims")
)

// A crowd is a fleet of one worker with many handlers.
type crowd struct {
	*fleet.Fleet
	mu     sync.Mutex                 // guards took and slow
	took   map[string][]time.Duration // how long each commit took, by shard
	on     atomic.Bool                // while set, commits are counted
	fault  atomic.Int64               // number of store faults
	failed atomic.Int64               // how many shards the largest of them concerned
	slow   time.Duration              // the longest time that the server took for one request
}

func newCrowd(t *testing.T, shards int) *crowd {
	c := &crowd{took: map[string][]time.Duration{}}
	c.Fleet = fleet.New(t, fleet.Config{
		Table: local.Table(t), Shards: shards, Through: c.through, Observe: c.observe,
		Members: shardlease.Config{Handoff: rebalance.Eager, EventQueue: 1 << 20},
	})
	return c
}

// through notes how long the server takes.
func (c *crowd) through(_ *fleet.Worker, plain http.RoundTripper) http.RoundTripper {
	return network.Func(func(r *http.Request) (*http.Response, error) {
		began := time.Now()
		answer, err := plain.RoundTrip(r)
		c.mu.Lock() // requests end at the same time, and the longest must not be overwritten
		c.slow = max(c.slow, time.Since(began))
		c.mu.Unlock()
		return answer, err
	})
}

func (c *crowd) observe(e event.Event) {
	if e.Kind == event.StoreFault {
		if c.fault.Add(1) <= 3 {
			fmt.Fprintln(c.Output(), e)
		}
		c.failed.Store(max(c.failed.Load(), int64(e.Count)))
	}
}

// commits is a handler that commits without pause.
func (c *crowd) commits(ctx context.Context, t *shardlease.Tenure) error {
	for n := 1; ctx.Err() == nil; n++ {
		began := time.Now()
		if err := t.Commit(ctx, strconv.Itoa(n)); err != nil {
			return err
		}
		if c.on.Load() {
			c.mu.Lock()
			c.took[t.Shard().Name] = append(c.took[t.Shard().Name], time.Since(began))
			c.mu.Unlock()
		}
	}
	return nil
}

// begin starts the worker, and returns it when all handlers run, and after how long.
func (c *crowd) begin(limit time.Duration) (w *fleet.Worker, took time.Duration) {
	c.Helper()
	from := time.Now()
	w = c.Start("a")
	at, ok := c.Watch(fleet.Whole).Within(limit)
	if !ok {
		c.Fatalf("after %v: %s", limit, c.Held())
	}
	return w, at.Sub(from)
}

// TestCommitLoad: 64 handlers commit without pause, and every shard makes progress. When the last
// caller was admitted first, 17 of 64 shards made one commit in 15 s.
//
//	go test ./integration/workers -run TestCommitLoad -load.for 15s -v
func TestCommitLoad(t *testing.T) {
	const shards = 64
	c := newCrowd(t, shards)
	c.Handle = c.commits
	w, _ := c.begin(patience)
	fixture.Sleep(t, 500*time.Millisecond)
	c.on.Store(true)
	fixture.Sleep(t, *loadFor)
	c.on.Store(false)
	w.Stop()
	least, most, sum := 1<<30, 0, 0
	var each []time.Duration
	for _, took := range c.took {
		least, most, sum = min(least, len(took)), max(most, len(took)), sum+len(took)
		each = append(each, took...)
	}
	if len(c.took) < shards {
		least = 0
	}
	slices.Sort(each)
	median, p99, worst := each[len(each)/2], each[len(each)*99/100], each[len(each)-1]
	fmt.Fprintf(t.Output(), "%d handlers, %v: commits of a shard %d at least, %d on average, %d at most; p50 %v, p99 %v, worst wait %v\n",
		shards, *loadFor, least, sum/shards, most, median.Round(time.Millisecond), p99.Round(time.Millisecond), worst.Round(time.Millisecond))
	if least < sum/shards/fixture.Size(4, 2) { // on a busy machine a shard makes only a few
		t.Errorf("the slowest shard made %d commits; the average is %d", least, sum/shards)
	}
	if *loadFor >= 15*time.Second && p99 > 4*median { // in a shorter run one pause of the machine determines the p99
		t.Errorf("p99 %v, median %v", p99, median)
	}
}

// TestColdStart: one worker claims many shards at once, and reports no store fault without a cause that was
// measured: the server took a second for one request, or this process stood still. When the deadlines
// of claims ran out in the store's queue, 10,000 shards caused 7,910 faults.
//
//	go test ./integration/workers -run TestColdStart -cold.shards 10000 -v
func TestColdStart(t *testing.T) {
	longest, shards := standstill(t), fixture.Or(*coldShards, 300, 1000)
	c := newCrowd(t, shards)
	_, took := c.begin(2 * time.Minute)
	c.mu.Lock()
	n, slow, stood := c.fault.Load(), c.slow, longest()
	c.mu.Unlock()
	fmt.Fprintf(t.Output(), "%d shards held after %v, %d store faults; the server took %v at most, this process stood still for %v\n", shards, took.Round(time.Millisecond), n, slow, stood)
	if !fixture.Long() { // the machine may be busy
		return
	}
	if n > 0 && slow < time.Second && stood < 300*time.Millisecond {
		t.Errorf("%d store faults without a cause", n)
	}
	if failed := c.failed.Load(); failed > int64(shards/20) {
		t.Errorf("calls failed for %d of %d shards", failed, shards)
	}
}

// standstill returns a function that tells for how long at most this process has stood still since.
func standstill(t *testing.T) (longest func() time.Duration) {
	var most atomic.Int64
	go local.Stalls(t.Context(), 5*time.Millisecond, func(late time.Duration) { most.Store(max(most.Load(), int64(late))) })
	return func() time.Duration { return time.Duration(most.Load()) }
}
