package otelshardlease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

func recorded(t *testing.T, edits ...func(*Options)) (*Telemetry, *recorder) {
	t.Helper()
	r := newRecorder()
	o := Options{Meters: r}
	for _, edit := range edits {
		edit(&o)
	}
	telemetry, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return telemetry, r
}

// compare compares the values of these names, and of no others that begin like one of them.
func compare(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	names := map[string]bool{}
	for name := range want {
		names[strings.Fields(name)[0]] = true
	}
	found := maps.Clone(got)
	maps.DeleteFunc(found, func(name string, _ float64) bool { return !names[strings.Fields(name)[0]] })
	if !maps.Equal(found, want) {
		t.Errorf("got\n%v, want\n%v", found, want)
	}
}

// TestStoreIsAStore: a store that is wrapped keeps the whole contract of a store.
func TestStoreIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) lease.Store {
		telemetry, _ := recorded(t)
		return telemetry.Store(new(memstore.Store))
	})
	telemetry, _ := recorded(t)
	for _, none := range []lease.Store{nil, (*memstore.Store)(nil)} {
		if _, err := telemetry.Worker(none, shardlease.Static("a"), shardlease.Config{Group: "g", Handoff: rebalance.Eager}); err == nil || !strings.Contains(err.Error(), "store") {
			t.Errorf("a worker without a store: %v", err)
		}
		if _, err := telemetry.Session(none, shardlease.SessionConfig{Group: "g"}); err == nil || !strings.Contains(err.Error(), "store") {
			t.Errorf("a session without a store: %v", err)
		}
	}
}

// TestWorkersAreMeasured: two workers share shards, one leaves, and everything that happens is measured.
func TestWorkersAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, r := recorded(t)
		f := newFleet(t, telemetry)
		var seen atomic.Int64
		f.observe = func(event.Event) { seen.Add(1) }
		f.start("a", rebalance.Eager)
		time.Sleep(time.Minute)
		compare(t, r.collect(t), map[string]float64{"shardlease.held": 4, "shardlease.transfers none initial": 4})
		f.start("b", rebalance.Eager)
		time.Sleep(time.Minute)
		f.stop("a")
		time.Sleep(time.Minute)
		got := r.collect(t)
		compare(t, got, map[string]float64{
			"shardlease.held": 4, "shardlease.transfers none initial": 4, "shardlease.transfers eager handoff": 4,
			"shardlease.tenure.duration handed-off": 4, "shardlease.handoff.gap eager": 4,
		})
		for _, name := range []string{"shardlease.events joined info", "shardlease.trust", "shardlease.store.duration heartbeat ok", "shardlease.store.duration commit ok", "shardlease.store.duration list-seats ok", "shardlease.store.duration claim ok"} {
			if got[name] == 0 {
				t.Errorf("no %s in %v", name, got)
			}
		}
		if n := seen.Load(); n < 10 {
			t.Errorf("only %d events have reached the user's Observe", n)
		}
		f.end()
		if got := r.collect(t); got["shardlease.held"] != 0 || got["shardlease.unready"] != 0 {
			t.Errorf("workers that have stopped: %v", got)
		}
	})
}

// TestCooperativeMovesAreMeasured: a cooperative move has a delay and an overlap, and no gap.
func TestCooperativeMovesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, r := recorded(t)
		f := newFleet(t, telemetry)
		f.slow = 10 * time.Millisecond // of the table: otherwise a move takes no time in a bubble
		f.start("a", rebalance.Cooperative)
		time.Sleep(time.Minute)
		f.start("b", rebalance.Cooperative)
		time.Sleep(time.Minute)
		got := r.collect(t)
		compare(t, got, map[string]float64{
			"shardlease.transfers none initial": 4, "shardlease.transfers cooperative handoff": 2,
			"shardlease.handoff.overlap handed-off": 2, "shardlease.tenure.duration handed-off": 2,
		})
		if got["shardlease.handoff.gap cooperative"] != 0 {
			t.Errorf("a cooperative move has no gap: %v", got)
		}
		f.end()
	})
}

// A fleet is workers on one table, which may be slow.
type fleet struct {
	t         *testing.T
	telemetry *Telemetry
	store     *memstore.Store
	slow      time.Duration
	observe   func(event.Event)
	cancel    map[string]context.CancelFunc
	ended     chan error
}

func newFleet(t *testing.T, telemetry *Telemetry) *fleet {
	return &fleet{t: t, telemetry: telemetry, store: new(memstore.Store), cancel: map[string]context.CancelFunc{}, ended: make(chan error, 9)}
}

func (f *fleet) start(name string, handoff rebalance.Mode) {
	f.t.Helper()
	link := storetest.NewLink(f.store)
	link.Delay(f.slow)
	w, err := f.telemetry.Worker(link, shardlease.Static("s1", "s2", "s3", "s4"),
		shardlease.Config{Group: "orders", Name: name, Handoff: handoff, Observe: f.observe})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	f.cancel[name] = cancel
	go func() { f.ended <- w.Run(ctx, handle) }()
}

// handle marks once in a second.
func handle(ctx context.Context, t *shardlease.Tenure) error {
	for n := 0; ; n++ {
		if err := t.Mark(fmt.Sprint(n)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (f *fleet) stop(name string) {
	f.t.Helper()
	f.cancel[name]()
	delete(f.cancel, name)
	if err := <-f.ended; err != nil {
		f.t.Error(err)
	}
}

func (f *fleet) end() {
	for name := range f.cancel {
		f.stop(name)
	}
}

// TestEventsAreRecorded: what the events of a handoff and of a bad day say is recorded under the labels of the page.
func TestEventsAreRecorded(t *testing.T) {
	telemetry, r := recorded(t)
	for _, e := range []event.Event{
		{Kind: event.Started, Transfer: lease.Transfer{Reason: lease.ReasonHandoff, Mode: rebalance.Eager}, Gap: 80 * time.Millisecond},
		{Kind: event.Started, Transfer: lease.Transfer{Reason: lease.ReasonExpired}},
		{Kind: event.Started, Transfer: lease.Transfer{Reason: lease.ReasonHandoff, Mode: rebalance.Cooperative}, Delay: 20 * time.Millisecond},
		{Kind: event.Ended, Cause: event.CauseStalled, Took: time.Minute, Drained: 2 * time.Second, Continued: 3 * time.Second, Pending: 7},
		{Kind: event.PeerEvicted, Dropped: 3},
		{Kind: event.Lost},
		{Kind: event.StoreFault, Err: errors.New("no answer")},
		{Kind: event.StoreFault, Over: true},
	} {
		e.Group = "orders"
		telemetry.Observe(e)
	}
	got := r.collect(t)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return strings.HasPrefix(name, "shardlease.kinesis") })
	want := map[string]float64{
		"shardlease.events started info": 3, "shardlease.events ended warn": 1, "shardlease.events peer-evicted warn": 1,
		"shardlease.events lost error": 1, "shardlease.events store-fault warn": 1, "shardlease.events store-fault info": 1,
		"shardlease.events.dropped": 3, "shardlease.marks.unaccepted": 7,
		"shardlease.transfers eager handoff": 1, "shardlease.transfers none expired": 1, "shardlease.transfers cooperative handoff": 1,
		"shardlease.handoff.gap eager": 1, "shardlease.handoff.gap:last eager": .08,
		"shardlease.handoff.delay": 1, "shardlease.handoff.delay:last": .02,
		"shardlease.tenure.duration stalled": 1, "shardlease.tenure.duration:last stalled": 60,
		"shardlease.drain.duration stalled": 1, "shardlease.drain.duration:last stalled": 2,
		"shardlease.handoff.overlap stalled": 1, "shardlease.handoff.overlap:last stalled": 3,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

// TestSeriesBeginAtZero: from the first call of the store on, every reason for which a tenure may begin and every fault among the
// events has a series, and all are 0.
func TestSeriesBeginAtZero(t *testing.T) {
	telemetry, r := recorded(t)
	s := telemetry.Store(new(memstore.Store))
	if _, err := s.Get(t.Context(), lease.Key{Group: "orders", Kind: lease.KindLease, Name: "a"}); err != lease.ErrNotFound {
		t.Error(err)
	}
	want := map[string]float64{
		"shardlease.transfers eager handoff": 0, "shardlease.transfers cooperative handoff": 0, "shardlease.transfers eager drain-timeout": 0,
		"shardlease.events.dropped": 0, "shardlease.marks.unaccepted": 0,
	}
	moved := []lease.Reason{lease.ReasonHandoff, lease.ReasonDrainTimeout}
	ended := []lease.Reason{lease.ReasonFinished, lease.ReasonRemoved} // nobody claims such a shard
	for _, reason := range fixture.Kinds[lease.Reason](t) {
		if !slices.Contains(moved, reason) && !slices.Contains(ended, reason) {
			want["shardlease.transfers none "+string(reason)] = 0
		}
	}
	for _, kind := range fixture.Kinds[event.Kind](t) {
		for _, cause := range fixture.Kinds[event.Cause](t) {
			if level := (event.Event{Kind: kind, Cause: cause, Err: errors.New("why")}).Level(); level >= slog.LevelWarn {
				want[fmt.Sprintf("shardlease.events %v %s", kind, strings.ToLower(level.String()))] = 0
			}
		}
	}
	compare(t, r.meter.values, want)
}

// TestStoreOutcomes: a call is recorded by its operation and its outcome, and the answer is passed on as it was.
func TestStoreOutcomes(t *testing.T) {
	telemetry, r := recorded(t)
	link := storetest.NewLink(new(memstore.Store))
	s := telemetry.Store(link)
	var answer error
	link.OnWrite(func(context.Context, lease.Write, func() (lease.Record, error)) (lease.Record, error) {
		return nil, answer
	})
	row := func(generation int64, owner lease.Incarnation) lease.Row {
		return lease.Row{Group: "orders", Shard: "a", Generation: generation, Owner: lease.Owner{Name: "w", Incarnation: owner}}
	}
	free := row(3, "")
	free.Owner = lease.Owner{}
	writes := []lease.Write{
		{Op: lease.OpSwap, Old: lease.Seat{Group: "orders"}, Next: lease.Seat{Group: "orders"}},
		{Op: lease.OpSwap, Old: row(2, "w"), Next: row(2, "w")},
		{Op: lease.OpTransfer, Old: row(2, "w"), Next: row(3, "v")},
		{Op: lease.OpTransfer, Old: row(2, "w"), Next: free},
		{Op: lease.OpSwap, Old: row(2, "w"), Next: free},
		{Op: lease.OpDelete, Old: lease.Seat{Group: "orders"}},
		{Op: lease.OpCreate, Next: row(1, "w")},
	}
	for _, answer = range []error{nil, &lease.RefusedError{}, &lease.QueuedError{}, context.Canceled, context.DeadlineExceeded, errors.New("broken")} {
		for _, w := range writes {
			if _, err := s.Write(t.Context(), w); err != answer {
				t.Errorf("%v became %v", answer, err)
			}
		}
	}
	link.OnVerify(func(context.Context, string, func() error) error { return lease.ErrWentBack })
	if err := s.Verify(t.Context(), "orders"); err != lease.ErrWentBack {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), lease.Key{Group: "orders", Kind: lease.KindLease, Name: "a"}); err != lease.ErrNotFound {
		t.Error(err)
	}
	for _, kind := range []lease.Kind{lease.KindLease, lease.KindSeat, lease.KindTarget} {
		for range s.List(t.Context(), lease.Query{Group: "orders", Kind: kind}) {
		}
	}
	want := map[string]float64{}
	for operation, n := range map[string]float64{"heartbeat": 1, "commit": 1, "claim": 1, "write": 4} {
		for outcome, times := range map[string]float64{"ok": 1, "refused": 1, "queued": 1, "cancelled": 1, "failed": 2} {
			want["shardlease.store.duration "+operation+" "+outcome] = n * times
		}
	}
	for _, operation := range []string{"verify", "get", "list-leases", "list-seats", "list-targets"} {
		want["shardlease.store.duration "+operation+" ok"] = 1
	}
	compare(t, r.collect(t), want)
}

// TestStatusesAreAddedUp: counts are sums, ages are the largest, trust is the smallest, and what a session has counted stays
// when it has stopped.
func TestStatusesAreAddedUp(t *testing.T) {
	telemetry, r := recorded(t)
	now := []shardlease.Status{
		{Group: "orders", Phase: "serving", Held: 3, Moving: 1, Trust: 9 * time.Second, OldestMark: time.Second, Abandoned: 1, Unraised: 2, Unready: "why"},
		{Group: "orders", Phase: "serving", Held: 2, Trust: 7 * time.Second, OldestMark: 4 * time.Second, Unhealthy: "why", Unready: "why"},
		{Group: "orders", Phase: "serving", Held: 1, Trust: 8 * time.Second, Refused: 5, Waited: 6, LongestWait: time.Minute},
	}
	for i := range now {
		telemetry.Status(func() shardlease.Status { return now[i] })
	}
	all := map[string]float64{
		"shardlease.held": 6, "shardlease.moving": 1, "shardlease.trust": 7, "shardlease.mark.age": 4, "shardlease.abandoned": 1,
		"shardlease.unraised": 2, "shardlease.unhealthy": 1, "shardlease.unready": 2, "shardlease.acquisitions refused": 5,
		"shardlease.acquisitions waited": 6, "shardlease.acquisition.wait": 60,
	}
	if got := r.collect(t); !maps.Equal(got, all) {
		t.Errorf("got\n%v, want\n%v", got, all)
	}
	for i := range now {
		now[i].Phase = "stopped"
	}
	for range 2 {
		want := map[string]float64{"shardlease.acquisitions refused": 5, "shardlease.acquisitions waited": 6}
		if got := r.collect(t); !maps.Equal(got, want) {
			t.Errorf("got\n%v, want\n%v", got, want)
		}
	}
}

// TestKinesisFigures: the figures of two consumers are added up, in seconds.
func TestKinesisFigures(t *testing.T) {
	telemetry, r := recorded(t)
	for _, behind := range []int64{1500, 500} {
		telemetry.Kinesis("orders", func() map[string]map[string]int64 {
			return map[string]map[string]int64{"": {"behind_max_ms": behind, "behind_ms": 2 * behind, "age_ms": 250, "records": 10, "shards": 2}, "shard-1": {"records": 9}}
		})
	}
	want := map[string]float64{
		"shardlease.kinesis.behind": 1.5, "shardlease.kinesis.behind.sum": 4, "shardlease.kinesis.age": .25, "shardlease.kinesis.records": 20,
		"shardlease.kinesis.shards": 4,
	}
	if got := r.collect(t); !maps.Equal(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

// TestWatchExportsTheGroup: a watcher exports the figures of the group, says when it cannot look, and nothing once it ends.
func TestWatchExportsTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, r := recorded(t)
		f := newFleet(t, telemetry)
		link := storetest.NewLink(f.store)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- telemetry.Watch(ctx, link, "orders", inspect.WatchOptions{}) }()
		f.start("a", rebalance.Eager)
		time.Sleep(time.Minute)
		group := map[string]float64{"shardlease.shards held": 4, "shardlease.workers": 1, "shardlease.warnings alone info": 1}
		compare(t, r.collect(t), group)
		link.Cut()
		time.Sleep(time.Minute)
		got := r.collect(t)
		if _, old := got["shardlease.workers"]; old || got["shardlease.check.status"] != 3 {
			t.Errorf("while looks fail: %v", got)
		}
		link.Heal()
		time.Sleep(time.Minute)
		compare(t, r.collect(t), group)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := r.collect(t); got["shardlease.workers"] != 0 {
			t.Errorf("after the watch: %v", got)
		}
		f.end()
	})
}

// commits returns a function that makes a commit on a store that answers at once.
func commits(t testing.TB, o Options) func() {
	telemetry, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	row := lease.Row{
		Group: "orders", Shard: "a", Generation: 3, Counter: 1, WriteID: "w", Owner: lease.Owner{Name: "w", Incarnation: "w"},
		Checkpoint: checkpoint.Checkpoint{Mark: checkpoint.Mark{Position: "17"}, Generation: 3},
	}
	w := lease.Write{Op: lease.OpSwap, Old: row, Next: row}
	s := telemetry.Store(still{new(memstore.Store)})
	return func() {
		if _, err := s.Write(context.Background(), w); err != nil {
			t.Fatal(err)
		}
	}
}

type still struct{ *memstore.Store }

func (still) Write(context.Context, lease.Write) (lease.Record, error) { return nil, nil }

// TestNothingListens: without an SDK, the measurement of a commit allocates nothing.
func TestNothingListens(t *testing.T) {
	for name, o := range map[string]Options{"the global provider": {}, "a provider that does nothing": {Meters: noop.NewMeterProvider()}} {
		if n := testing.AllocsPerRun(1000, commits(t, o)); n != 0 {
			t.Errorf("%s: %v allocations for a commit", name, n)
		}
	}
}

// BenchmarkCommit is what the measurement of a commit costs without an SDK.
func BenchmarkCommit(b *testing.B) {
	commit := commits(b, Options{})
	b.ReportAllocs()
	for b.Loop() {
		commit()
	}
}
