package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// These tests run workers with their goroutines and timers in fake time, on a memstore, and
// let something go wrong.

func TestCrashIsRecovered(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Eager}, nil, "a", "b")
		a := s.actor("a")
		time.Sleep(17 * time.Second)
		held := map[string]bool{}
		for _, name := range s.names() {
			held[name] = s.row(name).Owner.Name == "a"
		}
		a.die()
		took := s.within(ttl+beat+500*time.Millisecond, "b holds everything", func() bool { return s.running()["b"] == 8 })
		t.Logf("held again after %v", took)
		for _, name := range s.names() {
			if row := s.row(name); row.Owner.Name != "b" || held[name] != (row.Last.Reason == lease.ReasonExpired) {
				t.Errorf("the row is %v", row)
			}
		}
	})
}

// TestPausedWorkerIsRefused: a worker is paused past its lease while a commit is on the
// way. The commit arrives after the worker was replaced, and the table refuses it. When the
// worker wakes up, it first ends its tenures.
func TestPausedWorkerIsRefused(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		wire, refused, woken := make(chan struct{}), make(chan error, 1), make(chan error, 1)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, func(ctx context.Context, tn *shardlease.Tenure) error {
			if err := tn.Commit(tn.Context(), "1"); err != nil {
				return err
			}
			time.Sleep(5 * time.Second)
			woken <- tn.Commit(context.WithoutCancel(ctx), "2")
			<-tn.Context().Done()
			refused <- context.Cause(tn.Context())
			return nil
		})
		a.watch(func(w lease.Write) {
			if r, ok := w.Next.(lease.Row); ok && r.Checkpoint.Position == "2" {
				<-wire
			}
		}, nil)
		s.within(5*time.Second, "the first commit", func() bool { return s.running()["a"] == 1 && s.row("shard-00").Checkpoint.Position == "1" })
		s.enter("b", shardlease.Config{Handoff: rebalance.Eager, MaxMoves: 1}, nil)
		// b does not request the shard: one worker with one shard is an even distribution.
		time.Sleep(6 * time.Second)
		a.freeze()
		s.within(ttl+beat+500*time.Millisecond, "b has taken over", func() bool { return s.running()["b"] == 1 })
		close(wire)
		time.Sleep(time.Second)
		row := s.row("shard-00")
		if row.Owner.Name != "b" || row.Checkpoint.Position == "2" && row.Checkpoint.Generation != row.Generation {
			t.Errorf("the table accepted the late commit: %v", row)
		}
		if start := s.of("shard-00")[1].start; start != "1" {
			t.Errorf("b started at %q", start)
		}
		a.thaw()
		if err := <-woken; !errors.Is(err, shardlease.ErrEnded) {
			t.Errorf("the commit after waking up returned %v", err)
		}
		if err := <-refused; !errors.Is(err, event.CauseExpired) {
			t.Errorf("the context of the paused handler ended with %v", err)
		}
	})
}

// TestShortOutageLosesNothing: for half a lease time the store refuses all requests or
// answers none. The outage begins at any moment between two heartbeats.
func TestShortOutageLosesNothing(t *testing.T) {
	t.Parallel()
	t.Run("refuses", func(t *testing.T) { shortOutage(t, (*storetest.Link).Cut) })
	t.Run("answers nothing", func(t *testing.T) { shortOutage(t, (*storetest.Link).Silence) })
}

func shortOutage(t *testing.T, begin func(*storetest.Link)) {
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Cooperative}, nil, "a", "b")
		time.Sleep(20 * time.Second)
		for _, a := range s.actors {
			a.Delay(100 * time.Millisecond)
		}
		calls := len(s.all())
		moments := fixture.Size(10, 100)
		for range moments {
			time.Sleep(2*ttl + beat/time.Duration(moments))
			for _, a := range s.actors {
				begin(a.Link)
			}
			time.Sleep(ttl / 2)
			for _, a := range s.actors {
				a.Heal()
			}
		}
		time.Sleep(time.Minute)
		if len(s.all()) != calls {
			t.Errorf("%d tenures began", len(s.all())-calls)
		}
	})
}

// TestLongOutage: every worker ends its tenures by its own clock, before another worker
// could hold the shards. After the outage the fleet recovers by itself.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Eager}, nil, "a", "b")
		time.Sleep(20 * time.Second)
		before := len(s.all())
		down := time.Now()
		for _, a := range s.actors {
			a.Cut()
		}
		time.Sleep(2 * ttl)
		for _, sp := range s.all() {
			if !sp.to.IsZero() && sp.to.Before(down) {
				continue // a planned move before the outage
			}
			if sp.to.IsZero() || sp.to.Sub(down) > ttl-ttl/10 {
				t.Errorf("the tenure of %s by %s lasted until %v", sp.shard, sp.worker, sp.to.Sub(down))
			}
			if !errors.Is(sp.cause, event.CauseUnreachable) {
				t.Errorf("the tenure ended with %v", sp.cause)
			}
		}
		for _, a := range s.actors {
			a.Heal()
		}
		s.shared(ttl/2, "a", "b")
		s.moved(down, unbounded, 0)
		t.Logf("%d tenures, then %d", before, len(s.all())-before)
	})
}

// TestEagerMove: no two handlers of a shard ever run together, and the last mark of one is
// the start of the next.
func TestEagerMove(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Eager}, workingFor(300*time.Millisecond), "a")
		time.Sleep(20 * time.Second)
		joined := time.Now()
		s.enter("b", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(beat+1500*time.Millisecond, "a", "b")
		s.moved(joined, 300*time.Millisecond, 0)
		s.handedOver()
	})
}

// TestCooperativeMove: in a planned move a handler processes the shard at every moment.
func TestCooperativeMove(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Cooperative}, nil, "a")
		time.Sleep(20 * time.Second)
		joined := time.Now()
		s.enter("b", shardlease.Config{Handoff: rebalance.Cooperative}, nil)
		s.shared(beat+1500*time.Millisecond, "a", "b")
		s.moved(joined, 0, 300*time.Millisecond)
		for _, name := range s.names() {
			if spans := s.of(name); len(spans) == 2 {
				left, _ := strconv.Atoi(spans[0].last())
				if start, _ := strconv.Atoi(spans[1].start); left-start > 4 {
					t.Errorf("%s: the old tenure was at %d and the new one started at %d: the offer did not contain the latest mark", name, left, start)
				}
			}
			for _, sp := range s.of(name) {
				if !sp.to.IsZero() && !errors.Is(sp.cause, event.CauseHandedOff) {
					t.Errorf("%s ended with %v", name, sp.cause)
				}
			}
		}
	})
}

// TestSlowSuccessor: in a cooperative move the successor's handler starts late, because the answer to its takeover is. If
// heartbeats of the owner were answered as late, its handler goes on until then. Otherwise nobody processes the shard for a
// moment. In both cases the events of the two workers tell what the move has cost.
func TestSlowSuccessor(t *testing.T) {
	const late = 400 * time.Millisecond
	for name, slow := range map[string]time.Duration{"after quick answers": 0, "after slow answers": late/2 + 20*time.Millisecond} {
		subtest(t, name, func(t *testing.T) {
			config := shardlease.Config{Handoff: rebalance.Cooperative}
			s := newStage(t, 2)
			a := s.enter("a", config, nil)
			a.watch(func(w lease.Write) {
				if w.Key().Kind == lease.KindSeat {
					time.Sleep(slow)
				}
			}, nil)
			s.shared(time.Second+4*slow, "a")
			time.Sleep(20 * time.Second)
			b := s.enter("b", config, nil)
			b.watch(nil, func(w lease.Write) {
				if w.Op == lease.OpTransfer {
					a.lag(20 * time.Millisecond) // what happens meanwhile does not count as time of the handler
					time.Sleep(late)
				}
			})
			s.shared(beat+2*time.Second, "a", "b")
			s.within(time.Second, "both have reported", func() bool { return len(a.of(event.Ended)) > 0 && len(b.of(event.Started)) > 0 })
			started, ended := b.of(event.Started)[0], a.of(event.Ended)[0]
			spans := s.of(started.Shard)
			gap, told := spans[1].from.Sub(spans[0].to), started.Delay-ended.Continued
			if (gap > 0) != (slow == 0) || started.Delay < late || (told-gap).Abs() > 2*time.Millisecond {
				t.Errorf("nobody processed the shard for %v; the events are\n%v\n%v", gap, started, ended)
			}
		})
	}
}

// TestDrainDeadline: the handler of an owner takes a minute to wind down. After the drain
// time the shard is taken from it, or the move waits, as the terms say.
func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	for _, after := range []rebalance.AfterDrain{rebalance.Force, rebalance.Wait} {
		subtest(t, after.String(), func(t *testing.T) { testDrainDeadline(t, after) })
	}
}

func testDrainDeadline(t *testing.T, after rebalance.AfterDrain) {
	s := newStage(t, 2)
	config := shardlease.Config{Handoff: rebalance.Terms{Mode: rebalance.Eager, Drain: 20 * time.Second, AfterDrain: after}}
	s.enter("a", config, func(ctx context.Context, tn *shardlease.Tenure) error {
		<-ctx.Done()
		time.Sleep(time.Minute) // ignores its contexts
		return nil
	})
	s.shared(time.Second, "a")
	time.Sleep(20 * time.Second)
	s.enter("b", config, nil)
	drained := s.within(beat+2*time.Second+65*time.Second, "b has one", func() bool { return s.running()["b"] == 1 })
	var moved *span
	for _, sp := range s.all() {
		if sp.worker == "b" {
			moved = sp
		}
	}
	row := s.row(moved.shard)
	switch after {
	case rebalance.Force:
		if row.Last.Reason != lease.ReasonDrainTimeout || drained > beat+time.Second+21*time.Second {
			t.Errorf("after %v: %v", drained, row)
		}
	case rebalance.Wait:
		if _, overlap := s.gaps(moved.shard, time.Time{}); overlap > 0 || row.Last.Reason != lease.ReasonHandoff || drained < time.Minute {
			t.Errorf("after %v, overlap %v: %v", drained, overlap, row)
		}
	}
}

// TestRestoredTableIsNotClaimed: the table is replaced by an older one. Every worker ends
// its tenures, reports the fault, and claims nothing until the table is adopted. Then the
// fleet continues under generations above all that were used before. A store that embeds
// the one that detects the restore still detects it.
func TestRestoredTableIsNotClaimed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		older := new(memstore.Store)
		v := storetest.NewLink(older)
		wrapped := struct{ lease.Store }{v} // like a user's store that counts calls
		a := join(t, wrapped, shardlease.Static("s"), shardlease.Config{Name: "a"}, count)
		time.Sleep(time.Minute)
		backup := older.Clone()
		time.Sleep(time.Minute)
		supervisor := shardlease.Supervisor{Store: v, Group: "orders", By: "op"}
		row, _ := supervisor.Get(t.Context(), "s")
		if _, err := supervisor.ForceRelease(t.Context(), "s", row.Generation, "a change of hands that will be lost"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		lost, _ := supervisor.Get(t.Context(), "s")
		lead(v, backup)
		v.OnVerify(restored)
		time.Sleep(5 * time.Minute)
		if n := len(a.of(event.Restored)); n == 0 || a.Ready() == nil || a.Status().Phase != "restored" {
			t.Errorf("reported %d times; ready: %v; %+v", n, a.Ready(), a.Status())
		}
		stale, _ := supervisor.Get(t.Context(), "s")
		if stale.Generation >= lost.Generation {
			t.Fatalf("claimed in a restored table: %v", stale)
		}
		fixture.Must[lease.Row](t, v)(protocol.Adopt(stale, "op", fixture.Stamp()))
		v.OnVerify(nil)
		time.Sleep(2 * time.Minute)
		if row, _ := supervisor.Get(t.Context(), "s"); row.Owner.Name != "a" || row.Generation <= lost.Generation {
			t.Errorf("after the adoption: %v; lost was %v", row, lost)
		}
	})
}

// restored is the answer of Verify on a table that was replaced by an older one.
func restored(context.Context, string, func() error) error {
	return fmt.Errorf("the table is another: %w", lease.ErrWentBack)
}

// lead redirects reads and writes over the link to another store.
func lead(link *storetest.Link, to lease.Store) {
	link.OnList(func(ctx context.Context, q lease.Query, _ func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return to.List(ctx, q)
	})
	link.OnGet(func(ctx context.Context, k lease.Key, _ func() (lease.Record, error)) (lease.Record, error) {
		return to.Get(ctx, k)
	})
	link.OnWrite(func(ctx context.Context, w lease.Write, _ func() (lease.Record, error)) (lease.Record, error) {
		return to.Write(ctx, w)
	})
}

// TestReleaseTaskBringsShardsBack: the shards of a dead run are processed again long before
// its lease time is over.
func TestReleaseTaskBringsShardsBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 6)
		dead := s.enter("a", shardlease.Config{Handoff: rebalance.Eager, Task: "run 1", TTL: time.Minute, Drain: time.Minute}, nil)
		s.enter("b", shardlease.Config{Handoff: rebalance.Eager, Task: "run 2", TTL: time.Minute, Drain: time.Minute}, nil)
		s.shared(time.Minute, "a", "b")
		time.Sleep(time.Minute)
		dead.die()
		released, err := shardlease.Supervisor{Store: s.store, Group: "orders", By: "op"}.ReleaseTask(t.Context(), "run 1", "the run is dead")
		if err != nil || len(released) != 3 {
			t.Errorf("%d released, %v", len(released), err)
		}
		s.within(21*time.Second, "b holds everything", func() bool { return s.running()["b"] == 6 })
	})
}
