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

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

var (
	loadFor    = flag.Duration("load.for", 3*time.Second, "how long TestCommitLoad commits")
	coldShards = flag.Int("cold.shards", 0, "how many shards TestColdStart claims")
)

// inTime has the default Timeout of dynamostore, because these tests are about deadlines: local.Open would set a longer one.
var inTime = dynamostore.Options{Timeout: 2 * time.Second}

// A crowd is all handlers of one worker.
type crowd struct {
	mu     sync.Mutex                 // guards took and slow
	took   map[string][]time.Duration // how long each commit took, by shard
	on     atomic.Bool                // while set, commits are counted
	held   atomic.Int64               // number of running handlers
	fault  atomic.Int64               // number of store faults
	failed atomic.Int64               // how many shards the largest of them concerned
	slow   time.Duration              // the longest time that the server took for one request
}

// through notes how long the server takes.
func (c *crowd) through(plain http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		began := time.Now()
		answer, err := plain.RoundTrip(r)
		c.mu.Lock() // requests end at the same time, and the longest must not be overwritten
		c.slow = max(c.slow, time.Since(began))
		c.mu.Unlock()
		return answer, err
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// run runs a worker on a new table until stop is called.
func (c *crowd) run(t *testing.T, shards int, handle shardlease.Handler) (stop func()) {
	t.Helper()
	names := make([]string, shards)
	for i := range names {
		names[i] = fmt.Sprintf("shard-%05d", i)
	}
	c.took = map[string][]time.Duration{}
	w, err := shardlease.New(local.Open(t, local.Client(t, c.through), local.Table(t), inTime), shardlease.Static(names...), shardlease.Config{
		Group: "orders", Name: "a", Handoff: rebalance.Eager, Order: checkpoint.Decimal, EventQueue: 1 << 20,
		Observe: func(e event.Event) {
			if e.Kind == event.StoreFault {
				if c.fault.Add(1) <= 3 {
					fmt.Fprintln(t.Output(), e)
				}
				c.failed.Store(max(c.failed.Load(), int64(e.Count)))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx, handle); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

// commits is a handler that commits without pause.
func (c *crowd) commits(ctx context.Context, t *shardlease.Tenure) error {
	c.held.Add(1)
	defer c.held.Add(-1)
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

// all waits until n handlers run.
func (c *crowd) all(t *testing.T, n int, limit time.Duration) time.Duration {
	t.Helper()
	from := time.Now()
	for c.held.Load() < int64(n) {
		if time.Since(from) > limit {
			t.Fatalf("after %v %d of %d shards are held", limit, c.held.Load(), n)
		}
		fixture.Sleep(t, 10*time.Millisecond)
	}
	return time.Since(from)
}

// TestCommitLoad: 64 handlers commit without pause, and every shard makes progress. When the last
// caller was admitted first, 17 of 64 shards made one commit in 15 s.
//
//	go test ./integration/workers -run TestCommitLoad -load.for 15s -v
func TestCommitLoad(t *testing.T) {
	const shards = 64
	c := &crowd{}
	stop := c.run(t, shards, c.commits)
	c.all(t, shards, patience)
	fixture.Sleep(t, 500*time.Millisecond)
	c.on.Store(true)
	fixture.Sleep(t, *loadFor)
	c.on.Store(false)
	stop()
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
	c, longest, shards := &crowd{}, standstill(t), fixture.Or(*coldShards, 300, 1000)
	stop := c.run(t, shards, func(ctx context.Context, t *shardlease.Tenure) error {
		c.held.Add(1)
		<-ctx.Done()
		return nil
	})
	took := c.all(t, shards, 2*time.Minute)
	c.mu.Lock()
	n, slow, stood := c.fault.Load(), c.slow, longest()
	c.mu.Unlock()
	fmt.Fprintf(t.Output(), "%d shards held after %v, %d store faults; the server took %v at most, this process stood still for %v\n", shards, took.Round(time.Millisecond), n, slow, stood)
	if !fixture.Long() { // the machine may be busy
		stop()
		return
	}
	if n > 0 && slow < time.Second && stood < 300*time.Millisecond {
		t.Errorf("%d store faults without a cause", n)
	}
	if failed := c.failed.Load(); failed > int64(shards/20) {
		t.Errorf("calls failed for %d of %d shards", failed, shards)
	}
	stop()
}

// standstill returns a function that tells for how long at most this process has stood still since: virtual
// machines are stopped now and then, and then no deadline can be met.
func standstill(t *testing.T) (longest func() time.Duration) {
	var most atomic.Int64
	go func() {
		const nap = 5 * time.Millisecond
		for t.Context().Err() == nil {
			from := time.Now()
			fixture.Sleep(t, nap)
			most.Store(max(most.Load(), int64(time.Since(from)-nap)))
		}
	}()
	return func() time.Duration { return time.Duration(most.Load()) }
}
