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
	// slack is added to the bounds of long tests, which have the machine for themselves.
	slack = 700 * time.Millisecond
	// patience replaces these bounds in other tests, which may run on a busy machine.
	patience = time.Minute
)

// A fleet is a set of workers on one table.
type fleet struct {
	*testing.T
	table  string
	shards []string
	mode   rebalance.Mode
	ttl    time.Duration
	uneasy atomic.Bool // a worker was suspected, or has lost a shard: the machine may have been too slow

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

// A process is a worker with a network that can be cut, or that can hold commits back.
type process struct {
	*shardlease.Worker
	name string
	cut  atomic.Bool
	keep atomic.Bool // hold commits back until release
	net  *network.Faulty
	stop func() error
}

func newFleet(t *testing.T, mode rebalance.Mode, shards int) *fleet {
	f := &fleet{T: t, table: local.Table(t), mode: mode, ttl: ttl}
	for i := range shards {
		f.shards = append(f.shards, fmt.Sprintf("shard-%02d", i))
	}
	return f
}

func (f *fleet) enter(name string) *process {
	f.Helper()
	h := &process{name: name}
	h.net = network.NewFaulty(func(action string, body []byte) network.Fault {
		return network.Fault{DropRequest: h.cut.Load(), Hold: h.keep.Load() && action == "UpdateItem" && strings.Contains(string(body), `"`+attr.Position+`"`)}
	})
	store := local.Open(f.T, local.Client(f.T, func(next http.RoundTripper) http.RoundTripper { return h.net.Over(next) }), f.table, inTime)
	w, err := shardlease.New(store, shardlease.Static(f.shards...), shardlease.Config{
		Group: "orders", Name: name, Handoff: f.mode, TTL: f.ttl, Drain: 2 * time.Second,
		Order: checkpoint.Decimal, Commit: checkpoint.Policy{Every: 200 * time.Millisecond}, Observe: f.observe,
	})
	if err != nil {
		f.Fatal(err)
	}
	h.Worker = w
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, f.watched(name)) }()
	h.stop = sync.OnceValue(func() error { cancel(); return <-done })
	f.Cleanup(func() {
		h.cut.Store(false)
		if err := h.stop(); err != nil {
			f.Error(err)
		}
	})
	return h
}

func (f *fleet) observe(e event.Event) {
	switch e.Kind {
	case event.Lost, event.StoreFault, event.PeerSuspect, event.PeerEvicted:
		f.uneasy.Store(true)
	}
}

// watched is a handler that marks a hundred records a second, and records when it ran.
func (f *fleet) watched(worker string) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		w := &watch{worker: worker, shard: t.Shard().Name, from: time.Now(), start: t.Checkpoint().Position}
		f.mu.Lock()
		f.spans = append(f.spans, w)
		f.mu.Unlock()
		n, _ := strconv.Atoi(w.start)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				f.mu.Lock()
				defer f.mu.Unlock()
				w.to, w.cause = time.Now(), context.Cause(ctx)
				return nil
			case <-tick.C:
			}
			n++
			if t.Mark(strconv.Itoa(n)) == nil {
				f.mu.Lock()
				w.last = strconv.Itoa(n)
				f.mu.Unlock()
			}
		}
	}
}

func (f *fleet) count() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]int{}
	for _, w := range f.spans {
		if w.to.IsZero() {
			counts[w.worker]++
		}
	}
	return counts
}

func (f *fleet) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.spans)
}

func (f *fleet) within(limit time.Duration, what string, cond func(map[string]int) bool) time.Duration {
	f.Helper()
	if limit += slack; !fixture.Long() {
		limit = patience
	}
	from := time.Now()
	for tick := time.Tick(5 * time.Millisecond); !cond(f.count()); <-tick {
		if time.Since(from) > limit {
			f.Fatalf("not within %v: %s; running handlers: %v", limit, what, f.count())
		}
	}
	return time.Since(from)
}

// worst returns the longest gap and the longest overlap of any shard between two calls of its
// handler since then.
func (f *fleet) worst(since time.Time) (gap, overlap time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := map[string]*watch{}
	for _, w := range f.spans {
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

// TestWorkerLife: workers start, join, are cut off and leave. A planned move has no gap in cooperative mode and no
// overlap in eager mode, if no heartbeat is late meanwhile.
func TestWorkerLife(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		t.Run(mode.String(), func(t *testing.T) { local.Beside(t); testWorkerLife(t, mode) })
	}
}

func testWorkerLife(t *testing.T, mode rebalance.Mode) {
	f := newFleet(t, mode, 12)
	a, _ := f.enter("a"), f.enter("b")
	cold := f.within(beat+1500*time.Millisecond, "a and b share", func(n map[string]int) bool { return fixture.Even(n, 12, "a", "b") })
	fixture.Sleep(t, ttl)

	joined := time.Now()
	third := f.enter("c")
	join := f.within(beat+1500*time.Millisecond, "c has its part", func(n map[string]int) bool { return fixture.Even(n, 12, "a", "b", "c") })
	gap, overlap := f.worst(joined)
	calm := fixture.Long() || !f.uneasy.Load()
	if calm && (mode == rebalance.Eager && overlap > 0 || mode == rebalance.Cooperative && gap > 0) {
		t.Errorf("planned moves had a gap of %v and an overlap of %v", gap, overlap)
	}
	fixture.Sleep(t, ttl)

	a.cut.Store(true)
	crash := f.within(ttl+beat+500*time.Millisecond, "b and c hold everything", func(n map[string]int) bool { return n["b"]+n["c"] == 12 })
	if _, twice := f.worst(joined); fixture.Long() && mode == rebalance.Eager && twice > 0 {
		t.Errorf("shards of a worker without a store were processed elsewhere %v before it ended its tenures", twice)
	}
	a.cut.Store(false)
	f.within(3*ttl, "a is back", func(n map[string]int) bool { return fixture.Even(n, 12, "a", "b", "c") })
	fixture.Sleep(t, ttl)

	left := time.Now()
	if err := third.stop(); err != nil {
		t.Error(err)
	}
	stop := f.within(beat+time.Second, "a and b hold everything", func(n map[string]int) bool { return n["c"] == 0 && n["a"]+n["b"] == 12 })
	stop = max(stop, time.Since(left))
	t.Logf("cold start %v, a worker joins %v (gap %v, overlap %v), crash %v, clean stop %v", cold, join, gap, overlap, crash, stop)
}

// TestOutageOnDynamoDB: an outage of the store for half a lease time ends no tenure. An outage of
// two lease times ends all tenures in time, and they begin again afterwards.
func TestOutageOnDynamoDB(t *testing.T) {
	local.Beside(t)
	f := newFleet(t, rebalance.Cooperative, 8)
	f.ttl *= fixture.Size[time.Duration](2, 3) // a beat is sent at most T/3 before the outage, and T/15 is left after it for the next
	processes := []*process{f.enter("a"), f.enter("b")}
	f.within(f.ttl/3+1500*time.Millisecond, "a and b share", func(n map[string]int) bool { return fixture.Even(n, 8, "a", "b") })
	fixture.Sleep(t, f.ttl)
	calls, calm := f.calls(), fixture.Long() || !f.uneasy.Load()
	outage := func(d time.Duration) {
		for _, h := range processes {
			h.cut.Store(true)
		}
		fixture.Sleep(t, d)
	}
	heal := func() {
		for _, h := range processes {
			h.cut.Store(false)
		}
	}
	outage(f.ttl / 2)
	heal()
	fixture.Sleep(t, 2*f.ttl)
	if n := f.calls(); n != calls {
		if fixture.Long() {
			t.Fatalf("half a lease time without a store: %d tenures began", n-calls)
		}
		t.Logf("half a lease time without a store: %d tenures began; heartbeats may have been late", n-calls)
		calm = false
	}
	outage(2 * f.ttl)
	if n := f.count(); len(n) != 0 {
		t.Errorf("handlers still run: %v", n)
	}
	heal()
	f.within(3*f.ttl, "a and b are back", func(n map[string]int) bool { return fixture.Even(n, 8, "a", "b") })
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.spans[:calls] {
		if calm && !w.to.IsZero() && !errors.Is(w.cause, event.CauseUnreachable) && !errors.Is(w.cause, event.CauseHandedOff) {
			t.Errorf("%s of %s ended with %v", w.shard, w.worker, w.cause)
		}
	}
}

// TestLateCommitIsRefusedByDynamoDB: commits of a worker are held back in the network and arrive
// after the worker was replaced; the table refuses them.
func TestLateCommitIsRefusedByDynamoDB(t *testing.T) {
	local.Beside(t)
	f := newFleet(t, rebalance.Eager, 4)
	a := f.enter("a")
	f.within(beat+1500*time.Millisecond, "a has all", func(n map[string]int) bool { return n["a"] == 4 })
	fixture.Sleep(t, ttl/2)
	a.keep.Store(true)
	f.within(ttl/2, "a commit is held back", func(map[string]int) bool { return a.net.Pending() > 0 })
	a.cut.Store(true)
	f.enter("b")
	f.within(ttl+2*beat+2*time.Second, "b has all", func(n map[string]int) bool { return n["b"] == 4 })
	fixture.Sleep(t, ttl/2)
	s := shardlease.Supervisor{Store: local.Open(t, local.Client(t, nil), f.table), Group: "orders"}
	before, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := a.net.Pending()
	for range late {
		if _, err := a.net.Release(0); err != nil {
			t.Fatal(err)
		}
	}
	after, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range after {
		if row.Owner != before[i].Owner || row.Checkpoint.Generation != 0 && row.Checkpoint.Generation < before[i].Checkpoint.Generation {
			t.Errorf("a late commit was accepted: %v, then %v", before[i], row)
		}
	}
	t.Logf("%d commits arrived late", late)
}
