package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// In these tests a part of the raises fails: those of one shard, for a moment, or forever.

// TestUnraisedOwnerOffersNothing: an owner that has recovered a shard and cannot raise its fence gives the shard to a
// successor, in a cooperative move. The worker before, which was killed, has consented to nothing: its late effects are
// refused when the successor's handler is called.
func TestUnraisedOwnerOffersNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(time.Second)
		config := shardlease.Config{Handoff: rebalance.Cooperative}
		s := newStage(t, 4)
		a := s.enter("a", k.of("a", config), nil)
		s.shared(3*time.Second, "a")
		killed := map[string]int64{}
		for _, shard := range s.names() {
			killed[shard] = s.row(shard).Generation
		}
		a.die()
		k.set("b", true)
		b := s.enter("b", k.of("b", config), nil)
		s.within(time.Minute, "b holds everything", func() bool { return b.Status().Held == 4 })
		s.enter("c", k.of("c", config), func(ctx context.Context, tn *shardlease.Tenure) error {
			if at := k.fence(t, tn.Shard().Name); at <= killed[tn.Shard().Name] {
				t.Errorf("the handler of %s is called, and the sink accepts effects of the worker that was killed", tn.Shard().Name)
			}
			return working(ctx, tn)
		})
		s.within(beat+10*time.Second, "c runs two shards", func() bool { return s.running()["c"] >= 2 })
	})
}

// TestShardThatCannotBeRaisedStays: the raises for one shard fail under every worker, and all others pass. The shard does not
// bounce through the fleet, nobody else moves, and the fault is told.
func TestShardThatCannotBeRaisedStays(t *testing.T) {
	t.Parallel()
	for name, raise := range map[string]func(context.Context) error{
		"fails":  func(context.Context) error { return errSinkDown },
		"panics": func(context.Context) error { panic("no such row") },
		"locked": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		subtest(t, name, func(t *testing.T) {
			s := newStage(t, 9)
			k := newSink(50 * time.Millisecond)
			for _, name := range []string{"a", "b", "c"} {
				config := k.of(name, shardlease.Config{Handoff: rebalance.Eager})
				fine := config.Targets[0].Raise
				config.Targets[0].Raise = func(ctx context.Context, name string, generation int64) error {
					if name == "shard-00" {
						return raise(ctx)
					}
					return fine(ctx, name, generation)
				}
				s.enter(name, config, serve)
			}
			time.Sleep(time.Minute)
			before := s.row("shard-00").Generation
			calls := len(s.all())
			time.Sleep(fixture.Size(4*time.Minute, 10*time.Minute))
			if n := s.row("shard-00").Generation - before; n > 0 {
				t.Errorf("the shard has changed hands %d times", n)
			}
			if n := len(s.all()); n != calls {
				t.Errorf("%d handlers of other shards were called", n-calls)
			}
			told := 0
			for _, a := range s.actors {
				told += len(a.of(event.Raising))
			}
			if told == 0 {
				t.Error("nobody has reported it")
			}
		})
	}
}

// TestHungRaisesStarveNobody: a worker's raises never return, whatever their contexts do. The shards that only wait for their
// turn are given up as well.
func TestHungRaisesStarveNobody(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2, 16} {
		subtest(t, fmt.Sprint(most, " at a time"), func(t *testing.T) {
			k := newSink(50 * time.Millisecond)
			s := newStage(t, 40)
			end := make(chan struct{})
			s.rescue = func() { close(end) }
			config := shardlease.Config{Handoff: rebalance.Eager, MaxRaises: most}
			s.enter("a", k.of("a", config), serve)
			bad := k.of("b", config)
			bad.Targets[0].Raise = func(context.Context, string, int64) error { <-end; return errSinkDown }
			b := s.enter("b", bad, serve)
			s.within(20*time.Second, "b holds half of them", func() bool { return b.Status().Held == 20 })
			s.within(2*ttl+3*beat, "a runs everything", func() bool { return s.running()["a"] == 40 })
			time.Sleep(10 * time.Minute)
			if n := s.running()["a"]; n < 39 {
				t.Errorf("a runs %d", n)
			}
		})
	}
}

// TestHungRaiseLeavesTurns: the raise of one shard hangs, whatever its context does, and is repeated. Other shards get their
// turns, at the latest after a lease time: then the context of a raise ends.
func TestHungRaiseLeavesTurns(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 16} {
		subtest(t, fmt.Sprint(most, " at a time"), func(t *testing.T) {
			s := newStage(t, 9)
			k := newSink(50 * time.Millisecond)
			end := make(chan struct{})
			s.rescue = func() { close(end) }
			enter := func(name string) *actor {
				config := k.of(name, shardlease.Config{Handoff: rebalance.Eager, MaxRaises: most})
				fine := config.Targets[0].Raise
				config.Targets[0].Raise = func(ctx context.Context, name string, generation int64) error {
					if name == "shard-00" {
						<-end
					}
					return fine(ctx, name, generation)
				}
				return s.enter(name, config, serve)
			}
			enter("a")
			s.within(ttl+beat, "a runs all others", func() bool { return s.running()["a"] == 8 })
			enter("b")
			time.Sleep(10 * time.Minute)
			with, other := "a", "b"
			if s.row("shard-00").Owner.Name == "b" {
				with, other = other, with
			}
			s.actor(other).die()
			s.within(time.Minute, with+" runs all others", func() bool { return s.running()[with] == 8 })
		})
	}
}

// TestFewRaisesHang: raises that hang, whatever their contexts do, are no more than MaxRaises and sixteen at a time.
func TestFewRaisesHang(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 60)
		end := make(chan struct{})
		s.rescue = func() { close(end) }
		var mu sync.Mutex
		hang := 0
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager, MaxRaises: 2, Targets: []shardlease.Target{{
			Name: "db", Raise: func(context.Context, string, int64) error {
				mu.Lock()
				hang++
				mu.Unlock()
				<-end
				return errSinkDown
			},
		}}}, nil)
		time.Sleep(fixture.Size(15*time.Minute, time.Hour))
		mu.Lock()
		defer mu.Unlock()
		if n := a.Status().Unraised; hang != 2+16 || n != 60 {
			t.Errorf("%d raises hang, and %d tenures wait", hang, n)
		}
	})
}

// TestIdleWorkersMoveAShardOnce: a worker without a shard cannot find out whether it could raise a fence. At the start of an
// outage for all, a lone shard that waits moves at most once to each of them, and then stays. No move is a failed attempt.
func TestIdleWorkersMoveAShardOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(50 * time.Millisecond)
		s := newStage(t, 1)
		k.set("*", true)
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			s.enter(name, k.of(name, shardlease.Config{Handoff: rebalance.Eager, MaxAttempts: 1}), serve)
		}
		time.Sleep(10 * time.Second) // a worker has it, and cannot raise its fence
		holders := map[string]bool{}
		for range int(fixture.Size(20*time.Minute, time.Hour) / beat) {
			time.Sleep(beat)
			if owner := s.row("shard-00").Owner.Name; owner != "" {
				holders[owner] = true
			}
		}
		ended := 0
		for _, name := range names {
			ended += len(s.actor(name).of(event.Ended))
		}
		if row := s.row("shard-00"); ended > len(names)-1 || row.Attempts() != 0 || row.Quarantined {
			t.Errorf("%d tenures have ended under %v: %+v", ended, holders, row)
		}
		k.set("*", false)
		s.within(beat+time.Second, "it runs", func() bool { return len(s.running()) == 1 })
	})
}

// TestMomentOfATargetMovesNothing: a worker that starts with many shards meets a target that fails for a moment, so that
// each raise waits for a second turn. The raises pass one after the other, and no shard is given up to another worker.
func TestMomentOfATargetMovesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k, n := newSink(time.Second), fixture.Size(400, 800)
		s := newStage(t, n)
		k.set("b", true)
		b := k.of("b", shardlease.Config{Handoff: rebalance.Eager})
		fine := b.Targets[0].Raise
		b.Targets[0].Raise = func(ctx context.Context, name string, generation int64) error {
			k.mu.Lock()
			down := k.down["b"]
			k.mu.Unlock()
			if down {
				return errSinkDown
			}
			return fine(ctx, name, generation)
		}
		s.enter("b", b, serve)
		time.Sleep(3 * time.Second)
		s.enter("a", k.of("a", shardlease.Config{Handoff: rebalance.Eager}), serve)
		time.Sleep(time.Second)
		k.set("b", false)
		s.within(3*time.Minute, "everything runs", func() bool { return fixture.Even(s.running(), n, "a", "b") })
		for _, e := range s.actor("b").of(event.Ended) {
			if e.Cause == event.CauseGivenUp {
				t.Fatalf("given up: %v", e)
			}
		}
	})
}

// TestIdleWorkersGetWell: a target is down for all workers, and there are fewer shards than workers. When the target is back,
// and shards come, each worker gets some again.
func TestIdleWorkersGetWell(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(50 * time.Millisecond)
		s := newStage(t, 8)
		var mu sync.Mutex
		listed := []shardlease.Shard{{Name: "shard-00"}}
		s.source = shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(listed), nil
		})
		k.set("*", true)
		for _, name := range []string{"a", "b", "c"} {
			s.enter(name, k.of(name, shardlease.Config{Handoff: rebalance.Eager, PollEvery: 10 * time.Second}), plodding)
		}
		time.Sleep(5 * time.Minute)
		k.set("*", false)
		time.Sleep(5 * time.Minute)
		mu.Lock()
		for _, name := range s.names()[1:] {
			listed = append(listed, shardlease.Shard{Name: name})
		}
		mu.Unlock()
		time.Sleep(5 * time.Minute)
		seats, err := shardlease.Supervisor{Store: s.store, Group: "orders"}.Workers(t.Context())
		must(t, err)
		for _, seat := range seats {
			if seat.Health.Unwell != "" {
				t.Errorf("the seat of %s says %q", seat.Name, seat.Health.Unwell)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			if n := s.running(); n[name] < 2 {
				t.Errorf("%s runs %d of 8 shards", name, n[name])
			}
		}
	})
}

// TestHigherFenceIsToldLater: a raise first gets no answer, and then the refusal of a higher fence. The shard stays.
func TestHigherFenceIsToldLater(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		for _, name := range []string{"a", "b", "c", "d"} {
			var mu sync.Mutex
			tried := map[int64]bool{}
			s.enter(name, shardlease.Config{Handoff: rebalance.Eager, Targets: []shardlease.Target{{
				Name: "db", Raise: func(_ context.Context, name string, generation int64) error {
					mu.Lock()
					defer mu.Unlock()
					if !tried[generation] {
						tried[generation] = true
						return errSinkDown
					}
					return &checkpoint.StaleError{Shard: name, Mine: generation, Observed: 1 << 62}
				},
			}}}, nil)
		}
		time.Sleep(15 * time.Second)
		before := s.row("shard-00").Generation
		time.Sleep(10 * time.Minute)
		if n := s.row("shard-00").Generation - before; n > 0 {
			t.Errorf("the shard has changed hands %d times", n)
		}
		told := false
		for _, a := range s.actors {
			for _, e := range a.of(event.Raising) {
				told = told || errors.Is(e.Err, checkpoint.ErrStale)
			}
		}
		if !told {
			t.Error("nobody has reported the higher fence")
		}
	})
}
