package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func prepareNothing(context.Context, shardlease.Shard, checkpoint.Checkpoint) error { return nil }

// Group and Handoff have no default. All faults are reported at once.
func ExampleConfig() {
	_, err := shardlease.New(new(memstore.Store), shardlease.Static("1", "2"), shardlease.Config{TTL: 10})
	fmt.Println(err)

	_, err = shardlease.New(new(memstore.Store), shardlease.Static("1", "2"), shardlease.Config{
		Group:   "orders",
		Handoff: rebalance.Cooperative,
		Order:   checkpoint.Decimal,
	})
	fmt.Println(err)
	// Output:
	// invalid configuration: Group: must not be empty
	// invalid configuration: TTL: must be at least 300ms, is 10ns
	// invalid configuration: Handoff: choose a handoff mode: "eager" (no overlap: for a moment nobody processes a moving shard) or "cooperative" (no gap: for a moment two workers process it, and the late commits of the first are refused)
	// <nil>
}

// New checks a source whose shards never change.
func ExampleStatic() {
	_, err := shardlease.New(new(memstore.Store), shardlease.Static("1", "2", "1"), shardlease.Config{
		Group: "orders", Handoff: rebalance.Eager,
	})
	fmt.Println(err)
	// Output:
	// invalid configuration: source: source: "1": listed twice
}

// A source is any function that lists the shards, with their parents if a shard continues
// others.
func ExampleSourceFunc() {
	var source shardlease.Source = shardlease.SourceFunc(func(ctx context.Context) ([]shardlease.Shard, error) {
		return []shardlease.Shard{
			{Name: "shard-1"},
			{Name: "shard-2", Parents: []string{"shard-1"}},
		}, nil
	})
	shards, err := source.Shards(context.Background())
	fmt.Println(len(shards), err)
	// Output:
	// 2 <nil>
}

// A handler marks the records that it has processed. Here the shard ends after three
// records.
func ExampleTenure_Mark() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("1"), shardlease.Config{
		Group: "orders", Handoff: rebalance.Eager, Order: checkpoint.Decimal,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		defer stop()
		for _, position := range []string{"10", "20", "30"} {
			fmt.Println("processed", position)
			if err := t.Mark(position); err != nil {
				return err
			}
		}
		fmt.Println(t.Mark("25"))
		return t.Finish(t.Context())
	})
	fmt.Println(err)
	// Output:
	// processed 10
	// processed 20
	// processed 30
	// shard "1": position moves backwards: it is before the one already marked or accepted
	// <nil>
}

// The end of a tenure is an error, for errors.Is.
func ExampleEndError() {
	err := fmt.Errorf("write record: %w", &shardlease.EndError{
		Shard: "1", Generation: 8, Cause: event.CauseHandedOff,
		Err: &checkpoint.StaleError{Shard: "1", Mine: 8, Observed: 9, Owner: "b"},
	})
	fmt.Println(errors.Is(err, shardlease.ErrEnded), errors.Is(err, event.CauseHandedOff), errors.Is(err, checkpoint.ErrStale))
	// Output:
	// true true true
}

// This observer pages an operator. A fault that lasts is reported several times, with the
// time for which it has lasted, and once more when it is over.
func ExampleConfig_observe() {
	alert := func(e event.Event) {
		switch e.Kind {
		case event.Lost, event.Restored, event.Quarantined, event.Malformed, event.CommitsFail:
			fmt.Println("page:", e)
		case event.StoreFault, event.SourceFault:
			if e.Lasted > time.Minute {
				fmt.Println("page:", e)
			}
		}
	}
	config := shardlease.Config{Group: "orders", Handoff: rebalance.Eager, Observe: alert}
	config.Observe(event.Event{Kind: event.CommitsFail, Worker: "a", Shard: "1", Count: 1, Lasted: 40 * time.Second})
	config.Observe(event.Event{Kind: event.StoreFault, Worker: "a", Lasted: 10 * time.Second})
	// Output:
	// page: commits-fail: worker a, shard 1, lasted 40s
}

// A supervisor releases a shard whose worker is known to be dead.
func ExampleSupervisor_ForceRelease() {
	ctx := context.Background()
	store := new(memstore.Store)
	// The lease row of a shard that a worker holds, written by hand for this example.
	begin, _ := protocol.Begin("orders", "1", nil, "a", protocol.Stamp{ID: "w1", At: time.Now()})
	row, _ := store.Write(ctx, begin)
	claim, _ := protocol.Claim(row.(lease.Row), lease.Owner{Name: "a", Incarnation: "a1", Task: "run-17"}, protocol.Stamp{ID: "w2", At: time.Now()})
	_, _ = store.Write(ctx, claim)

	s := shardlease.Supervisor{Store: store, Group: "orders", By: "cleanup"}
	rows, _ := s.ByTask(ctx, "run-17")
	for _, row := range rows {
		released, err := s.ForceRelease(ctx, row.Shard, row.Generation, "run 17 was killed")
		fmt.Println(released.Shard, released.Last.Reason, released.Last.From, released.Owner, err)

		_, err = s.ForceRelease(ctx, row.Shard, row.Generation, "again")
		fmt.Println(errors.Is(err, lease.ErrOutdated))
	}
	// Output:
	// 1 forced a nobody <nil>
	// true
}
