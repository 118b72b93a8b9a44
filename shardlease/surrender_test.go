package shardlease_test

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// These tests check when a worker whose heartbeats are answered, but which cannot write its
// rows, gives up its seat.

func allRows(w lease.Write) bool { return w.Key().Kind == lease.KindLease }

func (s *stage) ownedBy(name string) []string {
	return slices.DeleteFunc(s.names(), func(n string) bool { return s.row(n).Owner.Name != name })
}

// TestReleasesThatFailHandOver: the handlers of a have marked nothing, and one of them
// fails. The release of its shard cannot be written, nor can any other row. Before, only
// marks were waited for: nobody processed the shard for as long as the fault lasted, and
// Healthy returned nil.
func TestReleasesThatFailHandOver(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		var fail atomic.Bool
		idle := func(ctx context.Context, tn *shardlease.Tenure) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(time.Second):
					if fail.CompareAndSwap(true, false) {
						return errDown
					}
				}
			}
		}
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, idle)
		s.enter("b", shardlease.Config{Handoff: rebalance.Eager}, serve)
		s.shared(beat+1500*time.Millisecond, "a", "b")
		time.Sleep(time.Minute)
		a.refuse(allRows)
		fail.Store(true)
		time.Sleep(3*ttl + beat)
		if a.Healthy() == nil {
			t.Error("the worker is healthy")
		}
		s.within(3*ttl+2*beat, "b holds everything", func() bool { return s.running()["b"] == 4 })
	})
}

// TestRestingWorkerIsAlive: a can write no row, gives up its seat again and again, and rests for
// up to six lease times. Nothing else is due then, and /livez must not ask for a restart.
func TestRestingWorkerIsAlive(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 4, shardlease.Config{Handoff: rebalance.Eager, PollEvery: time.Hour, AuditEvery: time.Hour}, plodding, "a", "b")
		a := s.actor("a")
		a.refuse(allRows)
		rested := 0
		for range 1200 {
			time.Sleep(time.Second)
			if a.Status().Phase == "resting" {
				rested++
			}
			if code, body := probe(t, a.Worker, "/livez"); code != http.StatusOK {
				t.Fatalf("%+v", body)
			}
		}
		if rested < 100 {
			t.Errorf("the worker rested for %d seconds", rested)
		}
	})
}

// TestOneRowFailsThenAll: one row fails for five minutes, then all rows do. Before, the
// writes that were answered in those five minutes kept the worker in its seat for good.
func TestOneRowFailsThenAll(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Eager}, plodding, "a", "b")
		a := s.actor("a")
		time.Sleep(time.Minute)
		mine := s.ownedBy("a")
		a.refuse(func(w lease.Write) bool { return allRows(w) && w.Key().Name == mine[0] })
		time.Sleep(5 * time.Minute)
		a.never(t, event.Lost)
		a.refuse(allRows)
		s.within(3*ttl+5*time.Second+beat+3*time.Second, "b holds everything", func() bool { return s.running()["b"] == 8 })
	})
}

// TestOneBadRowAmongQuietOnes: no worker can write one row, and the worker's other shards
// are quiet, so that only a test write can show whether the worker can write. It makes one:
// no seat is given up and no quiet tenure ends, though each failure would quarantine its
// shard.
func TestOneBadRowAmongQuietOnes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		const bad = "shard-07"
		handler := func(ctx context.Context, tn *shardlease.Tenure) error {
			if tn.Shard().Name == bad {
				return plodding(ctx, tn)
			}
			return serve(ctx, tn)
		}
		s := staged(t, 20, shardlease.Config{Handoff: rebalance.Eager, MaxAttempts: 1}, handler, "a", "b", "c", "d")
		time.Sleep(time.Minute)
		before := len(s.all())
		for _, w := range s.actors {
			w.refuse(func(w lease.Write) bool { return isByHolder(w) && w.Key().Name == bad })
		}
		time.Sleep(time.Duration(fixture.Size(8, 120)) * time.Minute)
		for _, w := range s.actors {
			w.never(t, event.Lost, event.Quarantined)
		}
		if n := len(s.all()) - before; n > 0 {
			t.Errorf("%d tenures began", n)
		}
		for _, w := range s.actors {
			w.refuse(nil)
		}
	})
}

// TestNoProbeInDoubt: one row cannot be written, and when the worker is about to find out whether
// it can write another one, its wall clock steps ahead while heartbeats are not answered. Until a
// heartbeat is confirmed the worker may have lost its seat, so it writes no lease row.
func TestNoProbeInDoubt(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		handler := func(ctx context.Context, tn *shardlease.Tenure) error {
			if tn.Shard().Name == "shard-00" {
				return working(ctx, tn)
			}
			return serve(ctx, tn)
		}
		config := shardlease.Config{Handoff: rebalance.Eager, Commit: checkpoint.Policy{Every: time.Second}}
		s := staged(t, 8, config, handler, "a", "b")
		time.Sleep(time.Minute)
		a := s.actor(s.row("shard-00").Owner.Name)
		var silent atomic.Bool
		var probes atomic.Int32
		a.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			switch {
			case w.Key().Name == "shard-00":
				return nil, errDown
			case isByHolder(w):
				probes.Add(1)
			case w.Key().Kind == lease.KindSeat && silent.Load():
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return send()
		})
		time.Sleep(3*ttl - 3*time.Second)
		silent.Store(true)
		a.stepWall(time.Hour)
		time.Sleep(4500 * time.Millisecond)
		if n := probes.Load(); n > 0 {
			t.Errorf("%d lease rows were written in doubt", n)
		}
		silent.Store(false)
		s.within(beat, "the worker writes another row", func() bool { return probes.Load() > 0 })
		a.never(t, event.Lost)
		a.OnWrite(nil)
	})
}

// TestRestHasABound: a has given up its seat and rested several times, and the only other
// worker dies while a rests. Worker a notices when its rest is over, after at most six
// lease times.
func TestRestHasABound(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 4, shardlease.Config{Handoff: rebalance.Eager}, plodding, "a", "b")
		a, b := s.actor("a"), s.actor("b")
		a.refuse(allRows)
		time.Sleep(fixture.Size(15*time.Minute, 40*time.Minute)) // the rests have become longer
		n := len(a.of(event.Lost))
		s.within(20*time.Minute, "a rests again", func() bool { return len(a.of(event.Lost)) > n })
		a.refuse(nil)
		b.die()
		took := s.within(6*ttl+ttl+beat+time.Second, "a holds everything", func() bool { return s.running()["a"] == 4 })
		t.Logf("a holds all shards after %v", took)
	})
}

// TestWaitingMoveBlocksNoOther: b waits without a limit for two handlers of a that do not
// return, and then a cannot write any row. The other shards of a do not wait for those
// handlers.
func TestWaitingMoveBlocksNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		stuck := func(ctx context.Context, tn *shardlease.Tenure) error {
			err := working(ctx, tn)
			<-tn.Context().Done()
			return err
		}
		terms := rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}
		a := s.enter("a", shardlease.Config{Handoff: terms}, stuck)
		s.shared(beat+1500*time.Millisecond, "a")
		time.Sleep(10 * time.Second)
		s.enter("b", shardlease.Config{Handoff: terms}, nil)
		time.Sleep(30 * time.Second)
		if n := len(a.of(event.Draining)); n != 2 {
			t.Errorf("b has requested %d shards", n)
		}
		a.refuse(allRows)
		s.within(3*ttl+5*time.Second+20*time.Second+2*beat+3*time.Second, "b holds everything", func() bool { return s.running()["b"] == 4 })
	})
}

// TestSomeRowsThatCannotBeWritten: two of a's four rows cannot be written, and two can. The
// worker keeps its seat and continues to process all four shards.
func TestSomeRowsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Eager}, plodding, "a", "b")
		a := s.actor("a")
		time.Sleep(time.Minute)
		bad := s.ownedBy("a")[:2]
		a.refuse(func(w lease.Write) bool { return isByHolder(w) && slices.Contains(bad, w.Key().Name) })
		before := len(s.all())
		time.Sleep(time.Duration(fixture.Size(6, 60)) * time.Minute)
		if n := len(a.of(event.Lost)) + len(s.all()) - before; n > 0 || s.running()["a"] != 4 {
			t.Errorf("%d seats were lost or tenures begun, a processes %d shards of 4", n, s.running()["a"])
		}
		reports := a.of(event.CommitsFail)
		if last := reports[len(reports)-1]; last.Over || last.Count != 2 {
			t.Errorf("reported: %v", last)
		}
		a.refuse(nil)
	})
}
