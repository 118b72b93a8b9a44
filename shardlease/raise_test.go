package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// In these tests handlers change a sink whose fence is raised at each takeover.

// A sink keeps the fence of each shard. Each worker has a way of its own to reach it, which a test disturbs.
type sink struct {
	memstore.Register
	takes time.Duration // how long a raise takes

	mu     sync.Mutex
	down   map[string]bool // the workers that cannot reach it; the name "*" is all
	busy   int             // how many raises are under way
	most   int             // the most that were
	called int
	calls  map[string]int // how many raises each worker has made
}

var errSinkDown = errors.New("connection refused")

func newSink(takes time.Duration) *sink {
	return &sink{takes: takes, down: map[string]bool{}, calls: map[string]int{}}
}

func (k *sink) set(worker string, down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down[worker] = down
}

// of returns the configuration of a worker that changes the sink.
func (k *sink) of(worker string, c shardlease.Config) shardlease.Config {
	c.Targets = append(c.Targets, shardlease.Target{Name: "orders-db", Raise: func(ctx context.Context, name string, generation int64) error {
		k.mu.Lock()
		k.called++
		k.calls[worker]++
		k.busy++
		k.most = max(k.most, k.busy)
		down := k.down[worker] || k.down["*"]
		k.mu.Unlock()
		defer func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.busy--
		}()
		if !sleep(ctx, k.takes) {
			return ctx.Err()
		}
		if down {
			return errSinkDown
		}
		return k.Raise(ctx, name, generation)
	}})
	return c
}

// fence returns the fence of a shard.
func (k *sink) fence(t testing.TB, shard string) int64 {
	at, err := k.Get(context.Background(), shard)
	check(t, err)
	return at.Generation
}

// raisedBy reports whether the worker's shards have their fences.
func (k *sink) raisedBy(s *stage, worker string) bool {
	return !slices.ContainsFunc(s.ownedBy(worker), func(shard string) bool { return k.fence(s, shard) != s.row(shard).Generation })
}

// closed returns a handler that fails the test if it is called while the sink accepts a lower generation.
func (k *sink) closed(t testing.TB) shardlease.Handler {
	return func(ctx context.Context, tn *shardlease.Tenure) error {
		if at := k.fence(t, tn.Shard().Name); at != tn.Generation() {
			t.Errorf("the handler of %s is called under generation %d, and the fence is %d", tn.Shard().Name, tn.Generation(), at)
		}
		return plodding(ctx, tn)
	}
}

// TestFencesAreRaisedFirst: at a claim, a recovery, an eager move and a seizure the handler is called when the fence is
// raised, and the late effect of the earlier owner is refused although its successor has written nothing.
func TestFencesAreRaisedFirst(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(s *stage, enter func(name string)){
		"recovery": func(s *stage, enter func(string)) {
			enter("b")
			s.shared(beat+3*time.Second, "a", "b")
			s.actor("a").die()
		},
		"eager move": func(s *stage, enter func(string)) {
			enter("b")
			s.shared(beat+3*time.Second, "a", "b")
			s.actor("a").leave()
		},
		"seizure": func(s *stage, enter func(string)) {
			s.actor("a").refuse(func(w lease.Write) bool { return w.Key().Kind == lease.KindLease })
			enter("b")
		},
	} {
		subtest(t, name, func(t *testing.T) {
			k := newSink(time.Second)
			s := newStage(t, 2)
			enter := func(name string) {
				s.enter(name, k.of(name, shardlease.Config{Handoff: rebalance.Eager, Drain: 7 * time.Second, CommitTimeout: -1}), k.closed(t))
			}
			enter("a")
			s.shared(3*time.Second, "a")
			replace(s, enter)
			s.within(time.Minute, "b holds a shard of a", func() bool { return s.running()["b"] > 0 })
			time.Sleep(time.Duration(fixture.Size(10, 60)) * time.Minute)
			moved := 0
			for _, shard := range s.names() {
				spans := s.of(shard)
				last := spans[len(spans)-1]
				if last.worker != "b" {
					continue
				}
				moved++
				if err := k.Put(t.Context(), shard, spans[0].generation, "late"); !errors.Is(err, checkpoint.ErrStale) {
					t.Errorf("%s: a late effect under %d returned %v, although generation %d has started", shard, spans[0].generation, err, last.generation)
				}
			}
			if moved == 0 {
				t.Error("no shard has moved")
			}
		})
	}
}

// TestIdleSuccessorLeavesTheSinkOpen: without a target, the late effect of a killed owner is accepted an hour after its
// successor has started.
func TestIdleSuccessorLeavesTheSinkOpen(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(0)
		s := staged(t, 1, shardlease.Config{Handoff: rebalance.Eager}, serve, "a")
		s.actor("a").die()
		s.enter("b", shardlease.Config{Handoff: rebalance.Eager}, serve)
		s.within(time.Minute, "b holds it", func() bool { return s.running()["b"] == 1 })
		time.Sleep(time.Hour)
		if err := k.Put(t.Context(), "shard-00", s.of("shard-00")[0].generation, "late"); err != nil {
			t.Errorf("refused without a raise: %v", err)
		}
	})
}

// TestCooperativeMoveRaisesBeside: a raise of a second makes no gap in a cooperative move, unless the target says Before.
func TestCooperativeMoveRaisesBeside(t *testing.T) {
	for _, before := range []bool{false, true} {
		subtest(t, fmt.Sprint("before ", before), func(t *testing.T) {
			k := newSink(time.Second)
			s := newStage(t, 4)
			enter := func(name string) *actor {
				c := k.of(name, shardlease.Config{Handoff: rebalance.Cooperative})
				c.Targets[0].Before = before
				return s.enter(name, c, nil)
			}
			enter("a")
			s.shared(3*time.Second, "a")
			time.Sleep(20 * time.Second)
			began := time.Now()
			b := enter("b")
			s.shared(beat+4*time.Second, "a", "b")
			for _, e := range b.of(event.Started) {
				if got := strings.Join(e.Targets, " "); got != "orders-db" {
					t.Errorf("the event names the targets %q", got)
				}
			}
			if n := b.Status().Unraised; (n > 0) == before {
				t.Errorf("%d tenures are not raised when their handlers have begun", n)
			}
			time.Sleep(2 * time.Second)
			if !before {
				s.moved(began, 0, beat)
			}
			for _, shard := range s.names() {
				spans := s.of(shard)
				last := spans[len(spans)-1]
				if gap, _ := s.gaps(shard, began); before && len(spans) > 1 && gap < 400*time.Millisecond {
					t.Errorf("%s moved with a gap of %v, although the raise of a second came first", shard, gap)
				}
				if at := k.fence(t, shard); at != last.generation {
					t.Errorf("%s is held under %d, and its fence is %d", shard, last.generation, at)
				}
			}
			if n := b.Status().Unraised; n > 0 {
				t.Errorf("%d tenures are not raised", n)
			}
			b.never(t, event.Raising)
		})
	}
}

// TestTargetDownForAll: a target is down for all workers for ten minutes, in which a worker dies. Nobody gives up a shard,
// nothing is quarantined, and everything runs within a heartbeat interval and a raise after the target is back. A worker
// whose shards are all raised finds out that it could not help.
func TestTargetDownForAll(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode rebalance.Mode) {
		k := newSink(200 * time.Millisecond)
		s := newStage(t, 9)
		config := shardlease.Config{Handoff: mode, MaxAttempts: 2}
		for _, name := range []string{"a", "b", "c", "d"} {
			s.enter(name, k.of(name, config), plodding)
		}
		s.shared(beat+4*time.Second, "a", "b", "c", "d")
		k.set("*", true)
		s.actor("d").die()
		time.Sleep(ttl + 3*beat)
		generations := map[string]int64{}
		waiting := 0
		for _, shard := range s.names() {
			row := s.row(shard)
			generations[shard] = row.Generation
			if spans := s.of(shard); spans[len(spans)-1].generation != row.Generation {
				waiting++
			}
		}
		if waiting < 2 {
			t.Fatalf("%d shards wait for a raise", waiting)
		}
		time.Sleep(10 * time.Minute)
		told := 0
		for _, name := range []string{"a", "b", "c"} {
			told += len(s.actor(name).of(event.Raising))
			s.actor(name).never(t, event.Quarantined)
		}
		if told == 0 {
			t.Error("nobody has reported that fences are not raised")
		}
		for shard, before := range generations {
			if row := s.row(shard); row.Generation != before || row.Quarantined {
				t.Errorf("%s: generation %d became %d: %v", shard, before, row.Generation, row)
			}
		}
		k.set("*", false)
		s.within(beat+time.Second, "everything runs", func() bool {
			n := s.running()
			return n["a"]+n["b"]+n["c"] == 9
		})
		time.Sleep(2 * beat)
		for _, name := range []string{"a", "b", "c"} {
			if events := s.actor(name).of(event.Raising); len(events) > 0 && !events[len(events)-1].Over {
				t.Errorf("%s reports last: %v", name, events[len(events)-1])
			}
		}
	})
}

// TestTargetDownForOne: a worker that alone cannot raise a fence gives the shards up, without a failed attempt, and the
// others get them. It gets shards again when its raises pass.
func TestTargetDownForOne(t *testing.T) {
	t.Parallel()
	for _, backoff := range []time.Duration{0, -1} {
		subtest(t, fmt.Sprint("backoff ", backoff), func(t *testing.T) {
			k := newSink(200 * time.Millisecond)
			s := newStage(t, 8)
			config := shardlease.Config{Handoff: rebalance.Eager, MaxAttempts: 2, Backoff: backoff}
			a := s.enter("a", k.of("a", config), plodding)
			s.shared(4*time.Second, "a")
			k.set("b", true)
			b := s.enter("b", k.of("b", config), plodding)
			time.Sleep(2*beat + time.Second)
			if n := b.Status().Unraised; n != 4 {
				t.Fatalf("b holds %d shards that are not raised", n)
			}
			s.within(ttl+3*beat, "a runs everything", func() bool { return s.running()["a"] == 8 })
			seats, err := shardlease.Supervisor{Store: s.store, Group: "orders"}.Workers(t.Context())
			must(t, err)
			for _, seat := range seats {
				want := ""
				if seat.Name == "b" {
					want = "cannot raise the fence of orders-db"
				}
				if seat.Health.Unwell != want {
					t.Errorf("the seat of %s says %q, want %q", seat.Name, seat.Health.Unwell, want)
				}
			}
			for _, shard := range s.names() {
				if row := s.row(shard); row.Attempts() != 0 {
					t.Errorf("%s has failed %d times", shard, row.Attempts())
				}
			}
			time.Sleep(10 * time.Minute)
			for _, shard := range s.names() {
				if n := s.row(shard).Generation - s.of(shard)[0].generation; n > 40 {
					t.Errorf("%s was moved %d times in ten minutes", shard, n)
				}
			}
			if n := s.running(); n["a"] < 7 {
				t.Errorf("a runs %d shards", n["a"])
			}
			k.mu.Lock()
			if n := k.calls["a"]; n > 250 { // one in each heartbeat interval, and those of the trials
				t.Errorf("a has made %d raises, although all its fences are raised", n)
			}
			k.mu.Unlock()
			a.never(t, event.Raising, event.Quarantined)
			k.set("b", false)
			s.within(10*time.Minute, "b gets its share", func() bool { n := s.running(); return n["a"] == 4 && n["b"] == 4 })
			if events := b.of(event.Raising); !events[len(events)-1].Over {
				t.Errorf("b reports last: %v", events[len(events)-1])
			}
		})
	}
}

// TestTargetDownForOneThenForAll: a worker has given its shards up because it alone could not raise a fence. Then no worker
// can, while an operator lets nothing move. When all can again, that worker gets its share.
func TestTargetDownForOneThenForAll(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(200 * time.Millisecond)
		s := newStage(t, 8)
		for _, name := range []string{"a", "b"} {
			s.enter(name, k.of(name, shardlease.Config{Handoff: rebalance.Eager}), nil)
			k.set("b", true)
			time.Sleep(10 * time.Second)
		}
		s.within(time.Minute, "a runs everything", func() bool { return s.running()["a"] == 8 })
		must(t, s.operator().Pause(t.Context(), 0, "to see"))
		time.Sleep(5 * time.Second)
		k.set("*", true)
		time.Sleep(3 * time.Minute)
		k.set("b", false)
		k.set("*", false)
		time.Sleep(5 * time.Second)
		must(t, s.operator().Lift(t.Context(), lease.WishPause, "", "done"))
		s.within(10*time.Minute, "b gets its share", func() bool { n := s.running(); return n["a"] == 4 && n["b"] == 4 })
	})
}

// TestTargetDownForOneOfMany: in a large fleet, a worker that does not list the seats reads those of the watchers before it
// gives up shards whose fences it alone cannot raise.
func TestTargetDownForOneOfMany(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		subtest(t, fmt.Sprint("down for all ", all), func(t *testing.T) {
			k := newSink(50 * time.Millisecond)
			s := newStage(t, 24)
			config := shardlease.Config{Handoff: rebalance.Eager}
			for i := range 11 {
				name := fmt.Sprintf("w%02d", i)
				s.enter(name, k.of(name, config), serve)
			}
			time.Sleep(time.Minute)
			k.set("z", true)
			if all {
				k.set("*", true)
			}
			z := s.enter("z", k.of("z", config), serve)
			s.within(20*time.Second, "z holds shards that are not raised", func() bool { return z.Status().Unraised == 2 })
			time.Sleep(2 * time.Minute)
			gave := slices.ContainsFunc(z.of(event.Ended), func(e event.Event) bool { return e.Cause == event.CauseGivenUp })
			if gave == all {
				t.Errorf("z has given shards up: %v", gave)
			}
			if n := len(s.all()); !all && s.running()["z"] > 0 || n > 60 {
				t.Errorf("%d handlers were called, and those of z run: %v", n, s.running())
			}
		})
	}
}

// TestHigherFenceMovesNothing: a target has a higher fence than the generation of a shard. No worker could raise it, so none
// gives the shard up, and the report says why.
func TestHigherFenceMovesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(0)
		must(t, k.Put(t.Context(), "shard-00", 1<<62, "of another table"))
		s := newStage(t, 4)
		for _, name := range []string{"a", "b"} {
			s.enter(name, k.of(name, shardlease.Config{Handoff: rebalance.Eager}), nil)
		}
		time.Sleep(30 * time.Second)
		before := s.row("shard-00").Generation
		time.Sleep(10 * time.Minute)
		if now := s.row("shard-00").Generation; now != before {
			t.Errorf("generation %d became %d", before, now)
		}
		events := append(s.actor("a").of(event.Raising), s.actor("b").of(event.Raising)...)
		if len(events) == 0 || !errors.Is(events[0].Err, checkpoint.ErrStale) || events[0].Shard != "shard-00" {
			t.Errorf("reported: %v", events)
		}
	})
}

// TestRaisesEndNobody: raises that panic, call runtime.Goexit or hang end neither the worker nor its heartbeats, and are
// reported. The tenures wait, and a shutdown does not.
func TestRaisesEndNobody(t *testing.T) {
	t.Parallel()
	for name, raise := range map[string]func(context.Context) error{
		"panics": func(context.Context) error { panic("raise") },
		"exits":  func(context.Context) error { runtime.Goexit(); return nil },
		"hangs":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		subtest(t, name, func(t *testing.T) {
			config := shardlease.Config{Handoff: rebalance.Eager, StallAfter: beat, MaxAttempts: 1, Targets: []shardlease.Target{
				{Name: "db", Raise: func(ctx context.Context, _ string, _ int64) error { return raise(ctx) }},
				{Name: "table"},
			}}
			s := newStage(t, 20)
			a := s.enter("a", config, nil)
			time.Sleep(10 * time.Minute)
			if n := s.running()["a"]; n > 0 {
				t.Errorf("%d handlers run", n)
			}
			if st := a.Status(); st.Unraised != 20 || st.Held != 20 || strings.Join(st.Targets, " ") != "db table" || a.Healthy() != nil {
				t.Errorf("status: %+v", st)
			}
			a.never(t, event.Ended, event.Lost, event.Quarantined)
			if events := a.of(event.Raising); len(events) == 0 || events[0].Count != 20 || !strings.Contains(events[len(events)-1].Err.Error(), "fence of db") {
				t.Errorf("reported: %v", events)
			}
			if faults := a.of(event.HookFault); (len(faults) > 0) == (name == "hangs") {
				t.Errorf("faults of the hook: %v", faults)
			}
			from := time.Now()
			a.leave()
			if took := time.Since(from); took > time.Second {
				t.Errorf("the shutdown took %v", took)
			}
		})
	}
}

// TestRaisesAreBounded: at most MaxRaises raises of one target run at a time, and those that wait for their turn make
// nobody unwell.
func TestRaisesAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(time.Second)
		s := newStage(t, 320)
		a := s.enter("a", k.of("a", shardlease.Config{Handoff: rebalance.Eager, Order: checkpoint.Decimal}), serve)
		from := time.Now()
		time.Sleep(3 * beat) // most raises wait for their turn
		seats, err := shardlease.Supervisor{Store: s.store, Group: "orders"}.Workers(t.Context())
		must(t, err)
		if seats[0].Health.Unwell != "" {
			t.Errorf("the seat says %q", seats[0].Health.Unwell)
		}
		s.within(time.Minute, "everything runs", func() bool { return s.running()["a"] == 320 })
		took := time.Since(from)
		if k.most != 16 || k.called != 320 || took < 20*time.Second || took > 22*time.Second {
			t.Errorf("%d raises, %d at a time, took %v", k.called, k.most, took)
		}
		time.Sleep(beat)
		if events := a.of(event.Raising); len(events) == 0 || !events[len(events)-1].Over {
			t.Errorf("reported: %v", events)
		}
	})
}

// TestAcquireRaises: a session returns a tenure when the fences are raised. If the caller gives up before, the lease is
// released.
func TestAcquireRaises(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k, store := newSink(time.Second), new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", Targets: k.of("a", shardlease.Config{}).Targets})
		b := runSession(t, store, shardlease.SessionConfig{Name: "b"})
		tn := a.lock(t, shardlease.AcquireOptions{})
		if at := k.fence(t, "lock"); at != tn.Generation() {
			t.Errorf("acquired under %d, and the fence is %d", tn.Generation(), at)
		}
		tn.Release("")
		time.Sleep(time.Second)
		k.set("a", true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := a.Acquire(ctx, "lock", shardlease.AcquireOptions{})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "fences of its targets") {
			t.Errorf("Acquire returned %v", err)
		}
		from := time.Now()
		b.lock(t, shardlease.AcquireOptions{})
		if took := time.Since(from); took > beat {
			t.Errorf("the lease was released after %v", took)
		}
	})
}

// TestAcquireOutlivesALossWhileItRaises: if a command takes the lease away before the fences are raised, the caller waits
// for the lease again, and gets it under a later generation.
func TestAcquireOutlivesALossWhileItRaises(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k, store := newSink(time.Second), new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", Targets: k.of("a", shardlease.Config{}).Targets})
		k.set("a", true)
		got := make(chan *shardlease.Tenure, 2)
		go func() {
			tn, err := a.Acquire(t.Context(), "lock", shardlease.AcquireOptions{})
			check(t, err)
			got <- tn
		}()
		done := make(chan error, 1)
		go func() {
			done <- a.Do(t.Context(), "other", shardlease.AcquireOptions{}, func(_ context.Context, tn *shardlease.Tenure) error {
				got <- tn
				return nil
			})
		}()
		time.Sleep(time.Minute)
		operator := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		taken := map[string]int64{}
		for _, name := range []string{"lock", "other"} {
			row, err := operator.Get(t.Context(), name)
			check(t, err)
			row, err = operator.ForceRelease(t.Context(), name, row.Generation, "to see")
			check(t, err)
			taken[name] = row.Generation
		}
		time.Sleep(time.Minute)
		k.set("a", false)
		time.Sleep(beat + 5*time.Second)
		for range 2 {
			select {
			case tn := <-got:
				if tn.Generation() <= taken[tn.Shard().Name] || k.fence(t, tn.Shard().Name) != tn.Generation() {
					t.Errorf("acquired under %d, and the fence is %d", tn.Generation(), k.fence(t, tn.Shard().Name))
				}
			default:
				t.Error("a caller still waits")
			}
		}
	})
}

// TestTargetsAreChecked: a target that could not work is refused.
func TestTargetsAreChecked(t *testing.T) {
	raise := func(context.Context, string, int64) error { return nil }
	for rule, targets := range map[string][]shardlease.Target{
		"Targets[0]":             {{Raise: raise}},
		"at most 64 bytes":       {{Name: strings.Repeat("x", 65)}},
		"of another target":      {{Name: "db", Raise: raise}, {Name: "db"}},
		"Before, and no Raise":   {{Name: "db", Before: true}},
		"Names or Before, and n": {{Name: "db", Names: func(shardlease.Shard) []string { return nil }}},
	} {
		_, err := shardlease.New(new(memstore.Store), shardlease.Static("s"), shardlease.Config{Group: "g", Handoff: rebalance.Eager, Targets: targets})
		if err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// TestNamesAreRaised: a target that keeps fences under other names is raised under each.
func TestNamesAreRaised(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		reports := new(memstore.Register)
		config := shardlease.Config{Handoff: rebalance.Eager, Targets: []shardlease.Target{{
			Name: "reports", Raise: reports.Raise,
			Names: func(s shardlease.Shard) []string { return []string{s.Name + "/daily", s.Name + "/weekly"} },
		}}}
		s := staged(t, 1, config, serve, "a")
		for name, want := range map[string]bool{"shard-00/daily": true, "shard-00/weekly": true, "shard-00": false} {
			if at, err := reports.Get(t.Context(), name); err != nil || (at.Generation == s.row("shard-00").Generation) != want {
				t.Errorf("%s: %+v, %v", name, at, err)
			}
		}
	})
}
