package engine_test

import (
	"context"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestGroupOfTheOtherKind: neither a worker nor a session does anything in the other's group.
func TestGroupOfTheOtherKind(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	a.lock()
	w := newTwins(t, 3)
	w.use(f.store)
	n := w.enter("worker", config(rebalance.Eager))
	w.until(20*time.Second, n.Engine.Done)
	if !n.Engine.Status().Foreign || len(f.table.Records("g", lease.KindLease)) != 1 {
		t.Errorf("a worker in a group of sessions: %+v", n.Engine.Status())
	}

	w = newTwins(t, 3)
	n = w.enter("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	f = newContest(t, 1)
	f.table.Store = w.store
	a = f.join("a")
	a.acquire("lock")
	f.until(20*time.Second, a.Engine.Done)
	if !a.Engine.Status().Foreign || a.holds("lock") {
		t.Errorf("a session in a group of workers: %+v", a.Engine.Status())
	}
}

// TestSessionTakesNoSeatAmongWorkers: it asks first which kind of group it is.
func TestSessionTakesNoSeatAmongWorkers(t *testing.T) {
	w := newTwins(t, 3)
	n := w.enter("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	f := newContest(t, 1)
	f.table.Store = w.store
	a := f.join("a")
	f.until(20*time.Second, a.Engine.Done)
	if len(a.asked) != 1 {
		t.Errorf("in a group of workers a session makes %v", a.asked)
	}
}

// TestSessionHeedsTheSeatsOfWorkers: as long as the seat of a worker names a plan that was deleted by hand, a
// session does not make the group one of sessions.
func TestSessionHeedsTheSeatsOfWorkers(t *testing.T) {
	w := newTwins(t, 3)
	n := w.enter("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	w.Run(10 * time.Second) // its seat says which plan it knows
	f := newContest(t, 1)
	f.table.Store = w.store
	a := f.join("a")
	plan := lease.Plan{Group: "g"}.Key()
	a.answer = func(in engine.Input) engine.Input {
		switch in := in.(type) {
		case engine.Got:
			if in.Key == plan {
				in.Record = nil
			}
			return in
		case engine.Listed:
			in.Records = slices.DeleteFunc(in.Records, func(r lease.Record) bool { return r.Key() == plan })
			return in
		}
		return in
	}
	f.until(20*time.Second, a.Engine.Done)
	if s := a.Engine.Status(); !s.Foreign || s.Unclear {
		t.Errorf("beside a worker that knows a plan: %+v", s)
	}
	for _, o := range a.asked {
		if send, ok := o.(engine.Send); ok && send.Write.Key() == plan {
			t.Errorf("the session writes the record of the group: %v", o)
		}
	}
}

// TestWorkerOutlastsARecordOfSessions: a worker that knows a plan keeps its shards when a record of sessions
// replaces that plan, and reports a stale plan until the record is deleted.
func TestWorkerOutlastsARecordOfSessions(t *testing.T) {
	w := newTwins(t, 3)
	n := w.enter("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	w.table.Store = usurped{w.table.Store, lease.Plan{Group: "g", Revision: 1 << 40, Sessions: true, WriteID: "s", At: time.Unix(1, 0)}}
	w.Run(2 * time.Minute)
	if n.Engine.Done() || n.Engine.Status().Foreign || len(n.Handlers) != 3 {
		t.Fatalf("the worker has given up its shards: %+v", n.Engine.Status())
	}
	stale := func() []told { return n.reports(event.PlanStale) }
	if said := stale(); len(said) == 0 || said[len(said)-1].Over {
		t.Errorf("the reports are %v", said)
	}
	w.table.Store = w.store
	w.until(time.Minute, func() bool { said := stale(); return len(said) > 0 && said[len(said)-1].Over })
}

// A usurped store shows a record of sessions in place of the plan.
type usurped struct {
	virtual.Store
	record lease.Plan
}

func (u usurped) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if k == u.record.Key() {
		return u.record, nil
	}
	return u.Store.Get(ctx, k)
}

func (u usurped) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for r, err := range u.Store.List(ctx, q) {
			if err == nil && r.Key() == u.record.Key() {
				r = u.record
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// TestSessionLeavesADeletedPlanToTheWorkers: it has met a record of the group that it could not read, and
// an operator deletes that record. The session ends, and does not make the group one of sessions.
func TestSessionLeavesADeletedPlanToTheWorkers(t *testing.T) {
	w := newTwins(t, 3)
	n := w.enter("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	f := newContest(t, 1)
	plan, deleted := lease.Plan{Group: "g"}.Key(), false
	f.table.Store = w.store
	f.unreadable(plan)
	a := f.join("a")
	a.answer = func(in engine.Input) engine.Input {
		if got, ok := in.(engine.Got); ok && got.Key == plan && deleted {
			got.Record, got.Err = nil, nil
			return got
		}
		return in
	}
	a.acquire("lock")
	f.Run(time.Minute)
	if a.Engine.Done() || a.holds("lock") {
		t.Error("the session does not wait for a record that can be read")
	}
	deleted = true
	f.until(20*time.Second, a.Engine.Done)
	if s := a.Engine.Status(); !s.Foreign || !s.Unclear || a.holds("lock") {
		t.Errorf("after the record was deleted: %+v", s)
	}
	for _, o := range a.asked {
		if send, ok := o.(engine.Send); ok && send.Write.Key() == plan {
			t.Errorf("the session writes the record of the group: %v", o)
		}
	}
}
