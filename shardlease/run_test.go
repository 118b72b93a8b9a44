package shardlease_test

import (
	"context"
	"errors"
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

// bubble runs f in fake time.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

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

// A member is a running worker under test.
type member struct {
	*shardlease.Worker
	diary
	stop func() error // cancels Run and returns the result of Run
}

// join runs a worker; it sets the fields of config that are zero.
func join(t *testing.T, store lease.Store, source shardlease.Source, config shardlease.Config, handler shardlease.Handler) *member {
	t.Helper()
	return joinAs(t, store, source, config, handler, func(*shardlease.Worker) {})
}

func joinAs(t *testing.T, store lease.Store, source shardlease.Source, config shardlease.Config, handler shardlease.Handler, before func(*shardlease.Worker)) *member {
	t.Helper()
	m := &member{}
	config.Group = "orders"
	config.Observe = m.note
	if config.Handoff == nil {
		config.Handoff = rebalance.Eager
	}
	w, err := shardlease.New(store, source, config)
	if err != nil {
		t.Fatal(err)
	}
	m.Worker = w
	before(w)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, handler) }()
	m.stop = sync.OnceValue(func() error { cancel(); return <-done })
	return m
}

// count is a handler that marks 1, 2, 3, … from its checkpoint on, ten per second.
func count(ctx context.Context, t *shardlease.Tenure) error {
	n, _ := strconv.Atoi(t.Checkpoint().Position)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		n++
		if err := t.Mark(strconv.Itoa(n)); err != nil {
			return err
		}
	}
}

func owners(t *testing.T, store lease.Store) map[string]int {
	t.Helper()
	rows, err := shardlease.Supervisor{Store: store, Group: "orders"}.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int{}
	for _, row := range rows {
		held[row.Owner.Name]++
	}
	return held
}

// TestTwoWorkersShare: two workers share the shards of a source in either mode, and hand
// them over when they leave.
func TestTwoWorkersShare(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		t.Run(mode.String(), func(t *testing.T) { bubble(t, func(t *testing.T) { testTwoWorkersShare(t, mode) }) })
	}
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
	if err := errors.Join(a.Healthy(), b.Healthy(), a.Ready(), b.Ready()); err != nil {
		t.Error(err)
	}
	seats, err := shardlease.Supervisor{Store: store, Group: "orders"}.Workers(t.Context())
	if err != nil || len(seats) != 2 {
		t.Errorf("%d workers have a seat, error %v", len(seats), err)
	}
	if err := a.stop(); err != nil {
		t.Errorf("a stopped with %v", err)
	}
	time.Sleep(5 * time.Second)
	if held := owners(t, store); held["b"] != 4 {
		t.Errorf("after a left, the workers hold %v", held)
	}
	if err := b.stop(); err != nil {
		t.Errorf("b stopped with %v", err)
	}
	checkMoves(t, mode, a.of(event.Ended), b.of(event.Started))
}

// checkMoves checks the events of the four moves from a to b.
func checkMoves(t *testing.T, mode rebalance.Mode, ended, started []event.Event) {
	t.Helper()
	if len(ended) != 4 || len(started) != 4 {
		t.Fatalf("%d tenures ended and %d started", len(ended), len(started))
	}
	for _, e := range ended {
		if !errors.Is(e.Cause, event.CauseHandedOff) || e.Running || (e.Overlap > 0) != (mode == rebalance.Cooperative) {
			t.Errorf("unexpected event: %v", e)
		}
	}
	for _, e := range started {
		if e.Transfer.From != "a" || e.Reason != lease.ReasonHandoff || (e.Gap > 0) != (mode == rebalance.Eager) {
			t.Errorf("unexpected event: %v", e)
		}
	}
}
