package workers

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/fleet"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
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

// newFleet returns a fleet whose handlers process a hundred records a second.
func newFleet(t *testing.T, mode rebalance.Mode, shards int, ttl time.Duration) *fleet.Fleet {
	return fleet.New(t, fleet.Config{
		Table: local.Table(t), Shards: shards, Pace: 10 * time.Millisecond,
		Members: shardlease.Config{Handoff: mode, TTL: ttl, Drain: 2 * time.Second, Commit: checkpoint.Policy{Every: 200 * time.Millisecond}},
	})
}

// within waits until a condition holds, and returns how long that took.
func within(f *fleet.Fleet, limit time.Duration, what string, cond func(*fleet.Book) bool) time.Duration {
	f.Helper()
	if limit += slack; !fixture.Long() {
		limit = patience
	}
	from := time.Now()
	at, ok := f.Watch(cond).Within(limit)
	if !ok {
		f.Fatalf("not within %v: %s; %s", limit, what, f.Held())
	}
	return at.Sub(from)
}

// worst returns the longest gap and the longest overlap of any shard between two calls of its
// handler since then.
func worst(f *fleet.Fleet, since time.Time) (gap, overlap time.Duration) {
	for _, m := range f.Moves(since) {
		gap, overlap = max(gap, m.Gap), max(overlap, m.Overlap)
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
	f := newFleet(t, mode, 12, ttl)
	f.StartAll(2)
	cold := within(f, beat+1500*time.Millisecond, "a and b share", fleet.Shared("a", "b"))
	fixture.Sleep(t, ttl)

	joined := time.Now()
	third := f.Start("c")
	join := within(f, beat+1500*time.Millisecond, "c has its part", fleet.Shared("a", "b", "c"))
	gap, overlap := worst(f, joined)
	calm := fixture.Long() || f.Trouble.Load() == 0
	if calm && (mode == rebalance.Eager && overlap > 0 || mode == rebalance.Cooperative && gap > 0) {
		t.Errorf("planned moves had a gap of %v and an overlap of %v", gap, overlap)
	}
	fixture.Sleep(t, ttl)

	a := f.Worker("a")
	a.Cut()
	crash := within(f, ttl+beat+500*time.Millisecond, "b and c hold everything", fleet.Without("a"))
	if _, twice := worst(f, joined); fixture.Long() && mode == rebalance.Eager && twice > 0 {
		t.Errorf("shards of a worker without a store were processed elsewhere %v before it ended its tenures", twice)
	}
	a.Heal()
	within(f, 3*ttl, "a is back", fleet.Shared("a", "b", "c"))
	fixture.Sleep(t, ttl)

	left := time.Now()
	third.Stop()
	stop := within(f, beat+time.Second, "a and b hold everything", fleet.Without("c"))
	stop = max(stop, time.Since(left))
	t.Logf("cold start %v, a worker joins %v (gap %v, overlap %v), crash %v, clean stop %v", cold, join, gap, overlap, crash, stop)
}

// TestOutageOnDynamoDB: an outage of the store for half a lease time ends no tenure. An outage of
// two lease times ends all tenures in time, and they begin again afterwards.
func TestOutageOnDynamoDB(t *testing.T) {
	local.Beside(t)
	// A heartbeat is sent at most T/3 before the outage, and T/15 is left after it for the next.
	f := newFleet(t, rebalance.Cooperative, 8, ttl*fixture.Size[time.Duration](2, 3))
	long := f.Members.TTL
	f.StartAll(2)
	within(f, long/3+1500*time.Millisecond, "a and b share", fleet.Shared("a", "b"))
	fixture.Sleep(t, long)
	calls, calm := len(f.Calls()), fixture.Long() || f.Trouble.Load() == 0
	outage := func(d time.Duration) (heal func()) {
		for _, name := range []string{"a", "b"} {
			f.Worker(name).Cut()
		}
		fixture.Sleep(t, d)
		return func() {
			for _, name := range []string{"a", "b"} {
				f.Worker(name).Heal()
			}
		}
	}
	outage(long / 2)()
	fixture.Sleep(t, 2*long)
	if n := len(f.Calls()); n != calls {
		if fixture.Long() {
			t.Fatalf("half a lease time without a store: %d tenures began", n-calls)
		}
		t.Logf("half a lease time without a store: %d tenures began; heartbeats may have been late", n-calls)
		calm = false
	}
	heal := outage(2 * long)
	for _, c := range f.Calls() {
		if c.To.IsZero() {
			t.Errorf("the handler of %s still runs on %s", c.Shard, c.Worker)
		}
	}
	heal()
	within(f, 3*long, "a and b are back", fleet.Shared("a", "b"))
	for _, c := range f.Calls()[:calls] {
		if calm && !c.To.IsZero() && !errors.Is(c.Cause, event.CauseUnreachable) && !errors.Is(c.Cause, event.CauseHandedOff) {
			t.Errorf("%s of %s ended with %v", c.Shard, c.Worker, c.Cause)
		}
	}
}

// TestLateCommitIsRefusedByDynamoDB: commits of a worker are held back in the network and arrive
// after the worker was replaced; the table refuses them.
func TestLateCommitIsRefusedByDynamoDB(t *testing.T) {
	local.Beside(t)
	f := newFleet(t, rebalance.Eager, 4, ttl)
	var keep atomic.Bool
	net := network.NewFaulty(func(action string, body []byte) network.Fault {
		return network.Fault{Hold: keep.Load() && action == "UpdateItem" && strings.Contains(string(body), `"`+attr.Position+`"`)}
	})
	f.Through = func(w *fleet.Worker, next http.RoundTripper) http.RoundTripper {
		if w.Name == "a" {
			return net.Over(next)
		}
		return next
	}
	a := f.Start("a")
	within(f, beat+1500*time.Millisecond, "a has all", fleet.Shared("a"))
	fixture.Sleep(t, ttl/2)
	keep.Store(true)
	for from := time.Now(); net.Pending() == 0; fixture.Sleep(t, 5*time.Millisecond) {
		if time.Since(from) > patience {
			t.Fatal("no commit is held back")
		}
	}
	a.Cut()
	f.Start("b")
	within(f, ttl+2*beat+2*time.Second, "b has all", fleet.Shared("b"))
	fixture.Sleep(t, ttl/2)
	s := shardlease.Supervisor{Store: local.Open(t, local.Client(t, nil), f.Table), Group: f.Store.Group}
	before, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := net.Pending()
	for range late {
		if _, err := net.Release(0); err != nil {
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
