package shardlease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A river is a polled source whose shards can be changed.
type river struct {
	mu     sync.Mutex
	shards []shardlease.Shard
	err    error
	calls  int // the listings since the last change
}

func (r *river) Shards(context.Context) ([]shardlease.Shard, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	return slices.Clone(r.shards), r.err
}

func (r *river) set(err error, shards ...shardlease.Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shards, r.err, r.calls = shards, err, 0
}

// listings returns how often the source was listed since the last change.
func (r *river) listings() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

func split() []shardlease.Shard {
	return []shardlease.Shard{{Name: "parent"}, {Name: "left", Parents: []string{"parent"}}, {Name: "right", Parents: []string{"parent"}},
		{Name: "merged", Parents: []string{"left", "right"}}, {Name: "orphan", Parents: []string{"long gone"}}}
}

// TestChildrenWaitForTheirParents: a child waits until all its parents are finished,
// whatever workers hold them. A parent that no complete listing contains counts as
// finished.
func TestChildrenWaitForTheirParents(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 0)
		r := &river{}
		r.set(nil, split()...)
		s.source = r
		var mu sync.Mutex
		ends := map[string]time.Duration{"parent": 10 * time.Second, "left": 10 * time.Second, "right": 20 * time.Second}
		finished := map[string]time.Time{}
		handler := func(ctx context.Context, tn *shardlease.Tenure) error {
			mu.Lock()
			for _, p := range tn.Shard().Parents {
				if p != "long gone" && finished[p].IsZero() {
					t.Errorf("%s began before %s was finished", tn.Shard().Name, p)
				}
			}
			mu.Unlock()
			d, ok := ends[tn.Shard().Name]
			if !ok {
				<-ctx.Done()
				return nil
			}
			if !sleep(ctx, d) {
				return nil // the shard is released, and starts again on another worker
			}
			mu.Lock()
			finished[tn.Shard().Name] = time.Now()
			mu.Unlock()
			return tn.Finish(tn.Context())
		}
		for _, name := range []string{"a", "b"} {
			s.enter(name, shardlease.Config{Handoff: rebalance.Eager}, handler)
		}
		s.within(time.Minute+30*time.Second, "all but merged and orphan are finished", func() bool {
			return len(s.of("merged")) > 0 && s.row("right").Finished
		})
		mu.Lock()
		for child, parents := range map[string][]string{"left": {"parent"}, "right": {"parent"}, "merged": {"left", "right"}} {
			last := time.Time{}
			for _, p := range parents {
				if finished[p].After(last) {
					last = finished[p]
				}
			}
			if wait := s.of(child)[0].from.Sub(last); wait > beat+beat/4+time.Second {
				t.Errorf("%s began %v after its parents were finished", child, wait)
			}
		}
		mu.Unlock()
	})
}

// TestFinishedShardsAreRemovedLate: a finished shard is removed only when two complete
// listings in a row lack it. A listing that failed or was empty does not count.
func TestFinishedShardsAreRemovedLate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 0)
		r := &river{}
		r.set(nil, shardlease.Shard{Name: "job"}, shardlease.Shard{Name: "stays"})
		s.source = r
		handler := func(ctx context.Context, tn *shardlease.Tenure) error {
			if tn.Shard().Name == "job" {
				return tn.Finish(tn.Context())
			}
			return working(ctx, tn)
		}
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, handler)
		time.Sleep(5 * time.Second)
		if !s.row("job").Finished {
			t.Fatalf("%v", s.row("job"))
		}
		for _, listing := range []func(){func() { r.set(errors.New("no answer")) }, func() { r.set(nil) }} {
			listing()
			time.Sleep(5 * time.Minute)
			if s.row("job").Removed {
				t.Fatal("removed after a listing that failed or was empty")
			}
		}
		r.set(nil, shardlease.Shard{Name: "stays"})
		s.within(40*time.Second, "one listing lacks it", func() bool { return r.listings() == 1 })
		b := s.enter("b", shardlease.Config{Handoff: rebalance.Eager}, handler) // when a worker joins, all workers list and plan
		time.Sleep(5 * time.Second)
		if s.row("job").Removed {
			t.Error("removed after one listing")
		}
		b.leave()
		s.within(70*time.Second, "it is removed", func() bool { return s.row("job").Removed })
		if row := s.row("job"); !row.Removed || row.Last.Reason != lease.ReasonRemoved {
			t.Errorf("the row is %v", row)
		}
		if len(s.of("stays")) != 1 {
			t.Errorf("the other shard was started %d times", len(s.of("stays")))
		}
		r.set(nil, shardlease.Shard{Name: "stays"}, shardlease.Shard{Name: "job"})
		time.Sleep(2 * time.Minute)
		if len(s.of("job")) != 2 || !s.row("job").Finished {
			t.Errorf("after it was listed again, the shard was started %d times: %v", len(s.of("job")), s.row("job"))
		}
		if n := len(begun(a.of(event.SourceFault))); n == 0 || n > 2 {
			t.Errorf("%d faults of the source were reported", n)
		}
	})
}

// TestQuarantineComesAtOnce: a shard is quarantined when its last attempt fails, and not
// after one more rest, which may take five minutes.
func TestQuarantineComesAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		config := shardlease.Config{MaxAttempts: 3, Backoff: time.Minute}
		m := join(t, store, shardlease.Static("job"), config, func(context.Context, *shardlease.Tenure) error { return errDown })
		pass(time.Minute + 2*time.Minute + 5*time.Second) // the rests after the first and the second failure
		if row := rowOf(t, store, "job"); !row.Quarantined || len(m.of(event.Quarantined)) != 1 {
			t.Errorf("the row is %v", row)
		}
	})
}

// TestQuarantineIsReversible: a shard that fails too often is quarantined, and a supervisor
// makes it claimable again.
func TestQuarantineIsReversible(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		var mu sync.Mutex
		healed, calls := false, 0
		join(t, store, shardlease.Static("job"), shardlease.Config{MaxAttempts: 3}, func(ctx context.Context, tn *shardlease.Tenure) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			if !healed {
				return errors.New("not yet")
			}
			return tn.Finish(tn.Context())
		})
		time.Sleep(time.Minute)
		supervisor := shardlease.Supervisor{Store: store, Group: "orders", By: "op"}
		row, err := supervisor.Get(t.Context(), "job")
		if err != nil || !row.Quarantined || calls != 3 {
			t.Fatalf("after %d calls: %v, %v", calls, row, err)
		}
		mu.Lock()
		healed = true
		mu.Unlock()
		if _, err := supervisor.Unquarantine(t.Context(), "job", row.Generation, "mended"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second) // the other workers notice at their next audit
		if row, err := supervisor.Get(t.Context(), "job"); err != nil || !row.Finished {
			t.Errorf("the row is %v, error %v", row, err)
		}
	})
}

// TestEmptySource: a source lists nothing any more. By default nothing follows from that; with EmptySource the
// handlers wind down, and their contexts say why.
func TestEmptySource(t *testing.T) {
	for _, empty := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := newStage(t, 0)
			r := &river{}
			r.set(nil, shardlease.Shard{Name: "job"})
			s.source = r
			causes := make(chan error, 10)
			a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager, EmptySource: empty}, func(ctx context.Context, tn *shardlease.Tenure) error {
				defer func() { causes <- context.Cause(ctx) }()
				return working(ctx, tn)
			})
			time.Sleep(5 * time.Second)
			r.set(nil)
			time.Sleep(5 * time.Minute)
			if faults := len(a.of(event.SourceFault)); (faults > 0) == empty {
				t.Errorf("EmptySource: %t; %d faults of the source were reported", empty, faults)
			}
			if !empty {
				if len(causes) > 0 || s.row("job").Owner.IsZero() {
					t.Errorf("a tenure has ended: %v", s.row("job"))
				}
				return
			}
			if len(causes) != 1 || s.row("job").Last.Reason != lease.ReasonUnlisted {
				t.Fatalf("%d tenures have ended; %v", len(causes), s.row("job"))
			}
			if err := <-causes; !errors.Is(err, event.CauseUnlisted) {
				t.Errorf("the cause is %v", err)
			}
			r.set(nil, shardlease.Shard{Name: "job"})
			s.within(45*time.Second, "it is processed again", func() bool { return !s.row("job").Owner.IsZero() })
		})
	}
	config := valid()
	config.EmptySource = true
	if _, err := shardlease.New(new(memstore.Store), shardlease.Static(), config); err != nil {
		t.Errorf("a static source without shards: %v", err)
	}
}
