package workers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// These tests run workers on DynamoDB Local in real time, with a lease time of a second. The tests
// of package shardlease show the same behaviour, and more, in fake time; these show that the
// service, the SDK and real clocks do not change it.

const (
	ttl  = time.Second
	beat = ttl / 3
	// slack is added to bounds, because the machine may be busy.
	slack = 700 * time.Millisecond
)

// A crew is a fleet on one table.
type crew struct {
	*testing.T
	table  string
	shards []string
	mode   rebalance.Mode

	mu    sync.Mutex
	spans []*watch
}

// A watch is one call of a handler.
type watch struct {
	worker, shard string
	from, to      time.Time
	start, last   string
	cause         error
}

// A hand is a worker with a network that can be cut, or that can hold commits back.
type hand struct {
	*shardlease.Worker
	name string
	cut  atomic.Bool
	keep atomic.Bool // hold commits back until release
	net  *network.Faulty
	stop func() error
}

func newCrew(t *testing.T, mode rebalance.Mode, shards int) *crew {
	c := &crew{T: t, table: local.Table(t), mode: mode}
	for i := range shards {
		c.shards = append(c.shards, fmt.Sprintf("shard-%02d", i))
	}
	return c
}

func (c *crew) enter(name string) *hand {
	c.Helper()
	h := &hand{name: name}
	h.net = network.NewFaulty(func(action string, body []byte) network.Fault {
		return network.Fault{DropRequest: h.cut.Load(), Hold: h.keep.Load() && action == "UpdateItem" && strings.Contains(string(body), `"`+attr.Position+`"`)}
	})
	store := local.Open(c.T, local.Client(c.T, func(next http.RoundTripper) http.RoundTripper { return h.net.Over(next) }), c.table)
	w, err := shardlease.New(store, shardlease.Static(c.shards...), shardlease.Config{
		Group: "orders", Name: name, Handoff: c.mode, TTL: ttl, Drain: 2 * time.Second,
		Order: checkpoint.Decimal, Commit: checkpoint.Policy{Every: 200 * time.Millisecond},
	})
	if err != nil {
		c.Fatal(err)
	}
	h.Worker = w
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, c.watched(name)) }()
	h.stop = sync.OnceValue(func() error { cancel(); return <-done })
	c.Cleanup(func() {
		h.cut.Store(false)
		if err := h.stop(); err != nil {
			c.Error(err)
		}
	})
	return h
}

// watched is a handler that marks a hundred records a second, and records when it ran.
func (c *crew) watched(worker string) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		w := &watch{worker: worker, shard: t.Shard().Name, from: time.Now(), start: t.Checkpoint().Position}
		c.mu.Lock()
		c.spans = append(c.spans, w)
		c.mu.Unlock()
		n, _ := strconv.Atoi(w.start)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				c.mu.Lock()
				defer c.mu.Unlock()
				w.to, w.cause = time.Now(), context.Cause(ctx)
				return nil
			case <-tick.C:
			}
			n++
			if t.Mark(strconv.Itoa(n)) == nil {
				c.mu.Lock()
				w.last = strconv.Itoa(n)
				c.mu.Unlock()
			}
		}
	}
}

func (c *crew) count() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := map[string]int{}
	for _, w := range c.spans {
		if w.to.IsZero() {
			counts[w.worker]++
		}
	}
	return counts
}

func (c *crew) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

func (c *crew) within(limit time.Duration, what string, cond func(map[string]int) bool) time.Duration {
	c.Helper()
	from := time.Now()
	for tick := time.Tick(5 * time.Millisecond); !cond(c.count()); <-tick {
		if time.Since(from) > limit+slack {
			c.Fatalf("not within %v: %s; running handlers: %v", limit, what, c.count())
		}
	}
	return time.Since(from)
}

// worst returns the longest gap and the longest overlap of any shard between two calls of its
// handler since then.
func (c *crew) worst(since time.Time) (gap, overlap time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := map[string]*watch{}
	for _, w := range c.spans {
		if before := last[w.shard]; before != nil && w.from.After(since) {
			to := before.to
			if to.IsZero() {
				to = time.Now()
			}
			gap, overlap = max(gap, w.from.Sub(to)), max(overlap, to.Sub(w.from))
		}
		last[w.shard] = w
	}
	return gap, overlap
}

func TestWorkerLife(t *testing.T) {
	local.Endpoint(t)
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		t.Run(mode.String(), func(t *testing.T) { testWorkerLife(t, mode) })
	}
}

func testWorkerLife(t *testing.T, mode rebalance.Mode) {
	c := newCrew(t, mode, 12)
	a, _ := c.enter("a"), c.enter("b")
	cold := c.within(beat+1500*time.Millisecond, "a and b share", func(n map[string]int) bool { return fixture.Even(n, 12, "a", "b") })
	fixture.Sleep(t, ttl)

	joined := time.Now()
	third := c.enter("c")
	join := c.within(beat+1500*time.Millisecond, "c has its part", func(n map[string]int) bool { return fixture.Even(n, 12, "a", "b", "c") })
	gap, overlap := c.worst(joined)
	if mode == rebalance.Eager && overlap > 0 || mode == rebalance.Cooperative && gap > 0 {
		t.Errorf("planned moves had a gap of %v and an overlap of %v", gap, overlap)
	}
	fixture.Sleep(t, ttl)

	a.cut.Store(true)
	crash := c.within(ttl+beat+500*time.Millisecond, "b and c hold everything", func(n map[string]int) bool { return n["b"]+n["c"] == 12 })
	if _, twice := c.worst(joined); mode == rebalance.Eager && twice > 0 {
		t.Errorf("shards of a worker without a store were processed elsewhere %v before it ended its tenures", twice)
	}
	a.cut.Store(false)
	c.within(3*ttl, "a is back", func(n map[string]int) bool { return fixture.Even(n, 12, "a", "b", "c") })
	fixture.Sleep(t, ttl)

	left := time.Now()
	if err := third.stop(); err != nil {
		t.Error(err)
	}
	stop := c.within(beat+time.Second, "a and b hold everything", func(n map[string]int) bool { return n["c"] == 0 && n["a"]+n["b"] == 12 })
	stop = max(stop, time.Since(left))
	t.Logf("cold start %v, a worker joins %v (gap %v, overlap %v), crash %v, clean stop %v", cold, join, gap, overlap, crash, stop)
}

// TestOutageOnDynamoDB: an outage of the store for half a lease time ends no tenure. An outage of
// two lease times ends all tenures in time, and they begin again afterwards.
func TestOutageOnDynamoDB(t *testing.T) {
	local.Endpoint(t)
	c := newCrew(t, rebalance.Cooperative, 8)
	hands := []*hand{c.enter("a"), c.enter("b")}
	c.within(beat+1500*time.Millisecond, "a and b share", func(n map[string]int) bool { return fixture.Even(n, 8, "a", "b") })
	fixture.Sleep(t, ttl)
	calls := c.calls()
	outage := func(d time.Duration) {
		for _, h := range hands {
			h.cut.Store(true)
		}
		fixture.Sleep(t, d)
	}
	heal := func() {
		for _, h := range hands {
			h.cut.Store(false)
		}
	}
	outage(ttl / 2)
	heal()
	fixture.Sleep(t, 2*ttl)
	if n := c.calls(); n != calls {
		t.Fatalf("half a lease time without a store: %d tenures began", n-calls)
	}
	outage(2 * ttl)
	if n := c.count(); len(n) != 0 {
		t.Errorf("handlers still run: %v", n)
	}
	heal()
	c.within(3*ttl, "a and b are back", func(n map[string]int) bool { return fixture.Even(n, 8, "a", "b") })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.spans[:calls] {
		if !w.to.IsZero() && !errors.Is(w.cause, event.CauseUnreachable) && !errors.Is(w.cause, event.CauseHandedOff) {
			t.Errorf("%s of %s ended with %v", w.shard, w.worker, w.cause)
		}
	}
}

// TestLateCommitIsRefusedByDynamoDB: commits of a worker are held back in the network and arrive
// after the worker was replaced; the table refuses them.
func TestLateCommitIsRefusedByDynamoDB(t *testing.T) {
	local.Endpoint(t)
	c := newCrew(t, rebalance.Eager, 4)
	a := c.enter("a")
	c.within(beat+1500*time.Millisecond, "a has all", func(n map[string]int) bool { return n["a"] == 4 })
	fixture.Sleep(t, ttl/2)
	a.keep.Store(true)
	fixture.Sleep(t, ttl/2)
	a.cut.Store(true)
	c.enter("b")
	c.within(ttl+2*beat+2*time.Second, "b has all", func(n map[string]int) bool { return n["b"] == 4 })
	fixture.Sleep(t, ttl/2)
	s := shardlease.Supervisor{Store: local.Open(t, local.Client(t, nil), c.table), Group: "orders"}
	before, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := a.net.Pending()
	for range late {
		if err := a.net.Release(0); err != nil {
			t.Fatal(err)
		}
	}
	after, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if late == 0 {
		t.Fatal("no commit was held back")
	}
	for i, row := range after {
		if row.Owner != before[i].Owner || row.Checkpoint.Generation != 0 && row.Checkpoint.Generation < before[i].Checkpoint.Generation {
			t.Errorf("a late commit was accepted: %v, then %v", before[i], row)
		}
	}
	t.Logf("%d commits arrived late", late)
}
