package shardlease_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
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
	// invalid configuration: Handoff: choose a handoff mode: "eager" (no overlap: for a moment nobody processes a moving shard) or "cooperative" (usually no gap: for a moment two workers process it, and the late commits of the first are refused)
	// <nil>
}

// New checks a source whose shards never change.
func ExampleStatic() {
	_, err := shardlease.New(new(memstore.Store), shardlease.Static("1", "2", "1"), shardlease.Config{
		Group: "orders", Handoff: rebalance.Eager,
	})
	fmt.Println(err)
	// Output:
	// invalid configuration: source: "1": listed twice
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

// An observer that follows the column "alert" of docs/operations.md. A fault that lasts is
// reported again and again, with the time for which it has lasted, and once more when it is over.
func ExampleConfig_observe() {
	urgency := func(e event.Event) string {
		switch e.Kind {
		case event.Quarantined, event.Malformed, event.Restored, event.CommitsFail, event.Hangs:
			return "page"
		case event.StoreFault, event.SourceFault:
			if e.Lasted >= time.Minute {
				return "page"
			}
		case event.Lost, event.PeerEvicted, event.HookFault:
			return "ticket"
		case event.Ended:
			if e.Cause == event.CauseConflict || e.Running {
				return "page"
			}
			if e.Level() == slog.LevelWarn {
				return "ticket"
			}
		}
		return ""
	}
	alert := func(e event.Event) {
		if e.Over {
			return // the fault has ended: this is good news
		}
		if u := urgency(e); u != "" {
			fmt.Printf("%s: %v\n", u, e)
		}
	}
	config := shardlease.Config{Group: "orders", Handoff: rebalance.Eager, Observe: alert}
	config.Observe(event.Event{Kind: event.StoreFault, Worker: "a", Lasted: 10 * time.Second})
	config.Observe(event.Event{Kind: event.CommitsFail, Worker: "a", Shard: "1", Count: 1, Lasted: 40 * time.Second})
	config.Observe(event.Event{Kind: event.CommitsFail, Worker: "a", Shard: "1", Count: 1, Lasted: time.Minute, Over: true})
	config.Observe(event.Event{Kind: event.Ended, Worker: "a", Shard: "1", Cause: event.CauseConflict})
	config.Observe(event.Event{Kind: event.Ended, Worker: "a", Shard: "2", Cause: event.CauseForced, Running: true})
	config.Observe(event.Event{Kind: event.HookFault, Worker: "a", Err: errors.New("Planner panicked")})
	// Output:
	// page: commits-fail: worker a, shard 1, lasted 40s
	// page: ended: worker a, shard 1, cause conflict
	// page: ended: worker a, shard 2, cause forced, running true
	// ticket: hook-fault: worker a, err Planner panicked
}

// An operator releases the shards of a run that is dead. A command that was decided on an older
// generation is refused.
func ExampleSupervisor_ForceRelease() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := new(memstore.Store)
	w, err := shardlease.New(store, shardlease.Static("1"), shardlease.Config{
		Group: "orders", Name: "a", Task: "run-17", Handoff: rebalance.Eager,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	began, ended := make(chan struct{}, 9), make(chan error)
	go func() {
		ended <- w.Run(ctx, func(ctx context.Context, _ *shardlease.Tenure) error {
			began <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	<-began

	s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
	rows, err := s.ByTask(ctx, "run-17")
	fmt.Println(len(rows), err)
	for _, row := range rows {
		released, err := s.ForceRelease(ctx, row.Shard, row.Generation, "run 17 was killed")
		fmt.Println(released.Shard, released.Last.Reason, released.Last.From, released.Owner, err)

		_, err = s.ForceRelease(ctx, row.Shard, row.Generation, "again")
		fmt.Println(errors.Is(err, lease.ErrOutdated))
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// 1 <nil>
	// 1 forced a nobody <nil>
	// true
	// <nil>
}

// The probes of a worker beside other routes of the same server.
func ExampleWorker_Probes() {
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("1"), shardlease.Config{
		Group: "orders", Name: "a", Handoff: rebalance.Eager,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/livez", w.Probes())
	mux.Handle("/readyz", w.Probes())

	// Run was not called yet: the process is alive, and not ready.
	for _, path := range []string{"/livez", "/readyz"} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, answer.Code)
	}
	// Output:
	// /livez 200
	// /readyz 503
}

// The status of a worker as JSON, for a dashboard.
func ExampleWorker_Status() {
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("1"), shardlease.Config{
		Group: "orders", Name: "a", Handoff: rebalance.Eager,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := json.MarshalIndent(w.Status(), "", "  ")
	fmt.Println(string(status), err)
	// Output:
	// {
	//   "group": "orders",
	//   "name": "a",
	//   "phase": "new",
	//   "revision": "0",
	//   "settled": false,
	//   "held": 0,
	//   "moving": 0,
	//   "requested": 0,
	//   "abandoned": 0,
	//   "released": 0,
	//   "lost": 0,
	//   "trustSeconds": 0,
	//   "oldestMarkSeconds": 0,
	//   "unhealthy": "worker \"a\": it is not running",
	//   "unready": "worker \"a\": it is not running"
	// } <nil>
}
