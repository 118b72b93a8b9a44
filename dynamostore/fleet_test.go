package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A fleet is a set of workers. Each worker has its own store and network connection; all
// stores use one service.
type fleet struct {
	*testing.T
	*service
	config shardlease.Config
	memory *memstore.Store // if not nil, it stores the records instead of the service
	mute   atomic.Bool     // while set, no write of a lease row is answered
	shards []string
	handle shardlease.Handler

	mu      sync.Mutex
	holding map[string]int // how many handlers run, by worker
	events  []event.Event
}

// A member is one worker of a fleet.
type member struct {
	name string
	cut  atomic.Bool // while set, none of its requests reaches the service
	f    *service
	stop func()
}

// Do sends a request to the service.
func (m *member) Do(request *http.Request) (*http.Response, error) {
	if m.cut.Load() {
		return nil, errors.New("connection refused")
	}
	return m.f.Do(request)
}

// queued returns a link to a store in memory, on which calls wait, are cut off and are repeated like those of a
// Store. It does not use the SDK, so it is fast enough for fleets that make thousands of
// requests a second.
func (f *fleet) queued() *storetest.Link {
	link, calls := storetest.NewLink(f.memory), newReading(nil, "leases", Options{}.withDefaults())
	link.OnGet(func(ctx context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		return call(ctx, calls, k, func(ctx context.Context) (lease.Record, error) { return answered(f.work(ctx), send) })
	})
	link.OnList(func(ctx context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		_, err := call(ctx, calls, lease.Key{Group: q.Group, Kind: q.Kind}, func(ctx context.Context) (struct{}, error) { return struct{}{}, f.work(ctx) })
		if err != nil {
			return func(yield func(lease.Record, error) bool) { yield(nil, err) }
		}
		return send()
	})
	link.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		var refused error
		r, err := callAs(ctx, calls, classOf(w), w.Key(), func(ctx context.Context) (r lease.Record, err error) {
			if f.mute.Load() && w.Key().Kind == lease.KindLease {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return answered(f.work(ctx), func() (lease.Record, error) {
				r, refused = send()
				return r, nil
			})
		})
		return r, cmp.Or(err, refused)
	})
	return link
}

// answered returns err, or the result of then if err is nil.
func answered(err error, then func() (lease.Record, error)) (lease.Record, error) {
	if err != nil {
		return nil, err
	}
	return then()
}

func newFleet(t *testing.T, takes time.Duration, shards int, config shardlease.Config) *fleet {
	f := &fleet{T: t, service: newService(takes), config: config, holding: map[string]int{}}
	for i := range shards {
		f.shards = append(f.shards, fmt.Sprintf("shard-%05d", i))
	}
	f.config.Group, f.config.Order, f.config.Backoff = "orders", checkpoint.Decimal, -1
	f.handle = func(ctx context.Context, t *shardlease.Tenure) error {
		<-ctx.Done()
		return nil
	}
	return f
}

// join starts a worker, which runs until its stop is called, or until the end of the test.
func (f *fleet) join(name string) *member {
	m := &member{name: name, f: f.service}
	config := f.config
	config.Name = name
	config.EventQueue = 1 << 20
	config.Observe = func(e event.Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, e)
	}
	var store lease.Store
	if f.memory != nil {
		store = f.queued()
	} else {
		store = f.open(f.T, m, Options{})
	}
	w, err := shardlease.New(store, shardlease.Static(f.shards...), config)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	m.stop = func() { cancel(); <-done }
	f.Cleanup(m.stop)
	go func() {
		defer close(done)
		_ = w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
			f.count(name, 1)
			defer f.count(name, -1)
			return f.handle(ctx, t)
		})
	}()
	return m
}

func (f *fleet) count(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding[name] += n
}

// of returns the events of one kind.
func (f *fleet) of(kind event.Kind) (events []event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// shared waits until these workers hold all shards evenly, and returns how long that took.
func (f *fleet) shared(limit time.Duration, names ...string) time.Duration {
	f.Helper()
	from := time.Now()
	for time.Since(from) < limit {
		if f.even(names...) {
			return time.Since(from)
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.Errorf("after %v the workers hold %v", limit, f.holding)
	return limit
}

func (f *fleet) even(names ...string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fixture.Even(f.holding, len(f.shards), names...)
}

// busily is a handler that commits without pause.
func busily(ctx context.Context, t *shardlease.Tenure) error {
	n, _ := strconv.Atoi(t.Checkpoint().Position)
	for ctx.Err() == nil {
		n++
		if err := t.Commit(ctx, strconv.Itoa(n)); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// slow returns the workers that have reported that the lease time is too short for the table.
func (f *fleet) slow() map[string]bool {
	workers := map[string]bool{}
	for _, e := range f.of(event.StoreFault) {
		if _, ok := errors.AsType[*shardlease.SlowStoreError](e.Err); ok {
			workers[e.Worker] = true
		}
	}
	return workers
}

// TestSlowTable: however long each request takes, a fleet starts, holds its shards, moves
// them and recovers from crashes, at most a few answers later than promised. Workers report
// a lease time that is shorter than thirty answers. When attempts were cut off at a constant
// 500 ms, no worker started at 600 ms per request. When workers rested after each listing, a
// recovery at 300 ms and a lease time of 3 s took 7.0 s.
func TestSlowTable(t *testing.T) {
	for _, c := range []struct{ takes, ttl time.Duration }{
		{1200 * time.Millisecond, 20 * time.Second},
		{600 * time.Millisecond, 10 * time.Second},
		{300 * time.Millisecond, 3 * time.Second},
		{50 * time.Millisecond, 3 * time.Second},
	} {
		t.Run(c.takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSlowTable(t, c.takes, c.ttl) })
		})
	}
}

func testSlowTable(t *testing.T, takes, ttl time.Duration) {
	beat, reports := ttl/3, takes*30 > ttl
	f := newFleet(t, takes, 8, shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative})
	// A heartbeat that is under way when its worker dies, a poll, an eviction, and a listing that begins too
	// early; then a plan: the targets are listed, the plan is opened, the target of the worker is written,
	// that of the dead one is deleted, and the plan is completed; and a claim.
	late := 10 * takes
	joining := 21 * takes
	if !reports {
		late, joining = 0, 0 // as docs/lease-time.md promises
	}
	a := f.join("a")
	started := f.shared(beat+500*time.Millisecond+10*takes, "a")
	b := f.join("b")
	joined := f.shared(beat+1500*time.Millisecond+joining, "a", "b")
	var worst, sum time.Duration
	crashes := fixture.Size(1, 10)
	for i := range crashes {
		time.Sleep(3*ttl + time.Duration(i)*beat/10)
		if !f.even("a", b.name) {
			t.Errorf("the shards are not held evenly: %v", f.holding)
		}
		b.cut.Store(true)
		took := f.shared(ttl+beat+500*time.Millisecond+late, "a")
		worst, sum = max(worst, took), sum+took
		b.stop()
		b = f.join(fmt.Sprint("b", i))
		f.shared(2*ttl, "a", b.name)
	}
	t.Logf("started in %v, joined in %v; %d crashes took %v on average, %v at most", started, joined, crashes, sum/time.Duration(crashes), worst)
	for _, e := range f.of(event.Lost) {
		if e.Worker == "a" {
			t.Errorf("%v", e)
		}
	}
	b.stop()
	a.stop()
	if got := f.slow(); got["a"] != reports || got["b"] != reports {
		t.Errorf("these workers reported that %v is too short for %v: %v", ttl, takes, got)
	}
}

// TestJoinUnderLoad: 64 handlers commit without pause, on a table that serves 16 requests at a
// time (in a sample half as many of both), and a second worker joins. Both workers hold equally
// many shards within one heartbeat interval and 1.5 s, as without load.
func TestJoinUnderLoad(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 5*time.Millisecond, fixture.Size(32, 64), shardlease.Config{Handoff: mode})
				f.room, f.handle, f.memory = make(chan struct{}, len(f.shards)/4), busily, new(memstore.Store)
				f.join("a")
				f.shared(time.Second, "a")
				time.Sleep(time.Second)
				f.join("b")
				took := f.shared(10*time.Second/3+1500*time.Millisecond, "a", "b")
				t.Logf("even after %v", took)
			})
		})
	}
}

// TestBusyShardsShareASlowTable: 256 shards commit without pause on a table that takes 300 ms,
// first on one worker, then on two. When a repeated call queued at the back of the lane, the
// shards were even after 1.5 to 6 minutes, and a dozen or more events reported commits that
// were not accepted. With places kept they are even after 23 s, without such a report.
func TestBusyShardsShareASlowTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 300*time.Millisecond, fixture.Size(64, 256), shardlease.Config{Handoff: rebalance.Cooperative})
		f.memory, f.handle = new(memstore.Store), busily
		f.join("a")
		f.shared(time.Minute, "a")
		time.Sleep(time.Minute)
		f.join("b")
		t.Logf("even after %v", f.shared(time.Minute, "a", "b"))
		time.Sleep(time.Minute)
		stalled := 0
		for _, e := range f.of(event.Ended) {
			if e.Cause == event.CauseStalled {
				stalled++
			}
		}
		failing := f.of(event.CommitsFail)
		if stalled > 0 || len(failing) > 0 || !f.even("a", "b") {
			t.Errorf("%d tenures ended as stalled; %d reports of failing commits; the workers hold %v", stalled, len(failing), f.holding)
		}
	})
}

// TestColdStartReportsNoFault: a worker claims thousands of shards on a table that serves 16
// requests at a time, so claims queue in the store for seconds, or for longer than a lease
// time. When the deadlines of claims ran out in the queue, 10,000 shards made 7,910 store
// faults.
func TestColdStartReportsNoFault(t *testing.T) {
	for _, c := range []struct {
		takes  time.Duration
		shards int
		within time.Duration // each shard takes two writes
	}{{5 * time.Millisecond, fixture.Size(1000, 10_000), 7 * time.Second}, {80 * time.Millisecond, fixture.Size(500, 2000), 23 * time.Second}} {
		t.Run(c.takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, c.takes, c.shards, shardlease.Config{Handoff: rebalance.Eager})
				f.room, f.memory = make(chan struct{}, 16), new(memstore.Store)
				f.join("a")
				t.Logf("all held after %v", f.shared(c.within, "a"))
				faults := f.of(event.StoreFault)
				for _, e := range faults[:min(3, len(faults))] {
					t.Errorf("%d store faults: %v", len(faults), e)
				}
			})
		})
	}
}

// TestMuteTableIsReported: the table answers no write of a lease row. Of a hundred writes
// sixteen are under way, and the others queue in the store until their time ends. The report
// of the fault counts all of them.
func TestMuteTableIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5*time.Millisecond, 100, shardlease.Config{Handoff: rebalance.Eager})
		f.room, f.memory, f.handle = make(chan struct{}, 16), new(memstore.Store), busily
		f.join("a")
		f.shared(time.Second, "a")
		f.mute.Store(true)
		time.Sleep(25 * time.Second)
		if reports := f.of(event.StoreFault); !slices.ContainsFunc(reports, func(e event.Event) bool { return e.Count == 100 }) {
			t.Errorf("no report counts all 100 calls: %v", reports)
		}
		f.mute.Store(false)
	})
}
