package shardlease_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// processors has room for the bubbles that run at a time. They compute without a pause, so more of them would only delay the
// tests in real time that run beside them.
var processors = make(chan struct{}, runtime.GOMAXPROCS(0))

// bubble runs f in fake time. The test may run beside others if it calls t.Parallel before.
func bubble(t *testing.T, f func(t *testing.T)) {
	processors <- struct{}{}
	defer func() { <-processors }()
	synctest.Test(t, f)
}

// subtest runs f in fake time, as a subtest.
func subtest(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// inBothModes runs f in fake time, as a subtest for each mode.
func inBothModes(t *testing.T, f func(t *testing.T, mode rebalance.Mode)) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		subtest(t, mode.String(), func(t *testing.T) { f(t, mode) })
	}
}

// must ends the test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check reports an error. Handlers may call it, in their goroutines.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// A diary records the events that Observe is called with.
type diary struct {
	mu     sync.Mutex
	events []event.Event
}

func (d *diary) note(e event.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

func (d *diary) of(kind event.Kind) []event.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.events), func(e event.Event) bool { return e.Kind != kind })
}

// never reports events of these kinds.
func (d *diary) never(t testing.TB, kinds ...event.Kind) {
	t.Helper()
	for _, kind := range kinds {
		if events := d.of(kind); len(events) > 0 {
			t.Errorf("%d events of the kind %v: %v", len(events), kind, events)
		}
	}
}

// A member is a running worker under test.
type member struct {
	*shardlease.Worker
	diary
	stop func() error // cancels Run and returns the result of Run
}

// leave stops the worker; the end of the test checks the result of Run.
func (m *member) leave() { _ = m.stop() }

// join runs a worker until the end of the test, which checks that it shuts down gracefully.
// join sets the fields of config that are zero, and calls before ahead of Run.
func join(t *testing.T, store lease.Store, source shardlease.Source, config shardlease.Config, handler shardlease.Handler, before ...func(*shardlease.Worker)) *member {
	t.Helper()
	m := newMember(t, store, source, config, handler, before...)
	t.Cleanup(func() {
		check(t, m.stop())
	})
	return m
}

func newMember(t *testing.T, store lease.Store, source shardlease.Source, config shardlease.Config, handler shardlease.Handler, before ...func(*shardlease.Worker)) *member {
	t.Helper()
	m := &member{}
	config.Group = "orders"
	also := config.Observe
	config.Observe = func(e event.Event) {
		m.note(e)
		if also != nil {
			also(e)
		}
	}
	if config.Handoff == nil {
		config.Handoff = rebalance.Eager
	}
	w, err := shardlease.New(store, source, config)
	must(t, err)
	m.Worker = w
	for _, f := range before {
		f(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = w.Run(ctx, handler)
	}()
	m.stop = func() error { cancel(); <-done; return err }
	return m
}

// count is a handler that marks 1, 2, 3, … from its checkpoint on, one per second. It returns the error of a mark.
func count(ctx context.Context, t *shardlease.Tenure) error {
	for n, _ := strconv.Atoi(t.Checkpoint().Position); sleep(ctx, time.Second); {
		n++
		if err := t.Mark(strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func owners(t *testing.T, store lease.Store) map[string]int {
	t.Helper()
	rows, err := shardlease.Supervisor{Store: store, Group: "orders"}.List(t.Context())
	must(t, err)
	held := map[string]int{}
	for _, row := range rows {
		held[row.Owner.Name]++
	}
	return held
}

// TestTwoWorkersShare: two workers share the shards of a source in either mode, and hand
// them over when they leave.
func TestTwoWorkersShare(t *testing.T) {
	t.Parallel()
	inBothModes(t, testTwoWorkersShare)
}

func testTwoWorkersShare(t *testing.T, mode rebalance.Mode) {
	store, source := new(memstore.Store), shardlease.Static("0", "1", "2", "3")
	config := shardlease.Config{Handoff: mode, Order: checkpoint.Decimal}
	config.Name = "a"
	a := join(t, store, source, config, count)
	time.Sleep(5 * time.Second)
	if held := owners(t, store); held["a"] != 4 {
		t.Fatalf("while a is alone, the workers hold %v", held)
	}
	config.Name = "b"
	b := join(t, store, source, config, count)
	time.Sleep(30 * time.Second)
	if held := owners(t, store); held["a"] != 2 || held["b"] != 2 {
		t.Errorf("two workers hold %v", held)
	}
	check(t, errors.Join(a.Healthy(), b.Healthy(), a.Ready(), b.Ready()))
	seats, err := shardlease.Supervisor{Store: store, Group: "orders"}.Workers(t.Context())
	if err != nil || len(seats) != 2 {
		t.Errorf("%d workers have a seat, error %v", len(seats), err)
	}
	a.leave()
	time.Sleep(5 * time.Second)
	if held := owners(t, store); held["b"] != 4 {
		t.Errorf("after a left, the workers hold %v", held)
	}
	b.leave()
	checkMoves(t, mode, a.of(event.Ended), b.of(event.Started))
}

// checkMoves checks the events of the four moves from a to b.
func checkMoves(t *testing.T, mode rebalance.Mode, ended, started []event.Event) {
	t.Helper()
	if len(ended) != 4 || len(started) != 4 {
		t.Fatalf("%d tenures ended and %d started", len(ended), len(started))
	}
	for _, e := range ended {
		if !errors.Is(e.Cause, event.CauseHandedOff) || e.Running || (e.Continued > 0) != (mode == rebalance.Cooperative) {
			t.Errorf("unexpected event: %v", e)
		}
		if e.Next != e.Generation+1 || e.Terms.Mode != mode {
			t.Errorf("generation %d and terms %v follow in %v", e.Next, e.Terms, e)
		}
	}
	for _, e := range started {
		if e.Terms.Mode != mode || e.Transfer.Mode != mode {
			t.Errorf("terms %v and the transfer %v in %v", e.Terms, e.Transfer, e)
		}
		if e.Transfer.From != "a" || e.Reason != lease.ReasonHandoff || (e.Gap > 0) != (mode == rebalance.Eager) || e.Delay > 0 && mode == rebalance.Eager {
			t.Errorf("unexpected event: %v", e)
		}
	}
}
