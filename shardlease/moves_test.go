package shardlease_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
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

// TestDyingInEveryPhase: in a move from a to b, one of the two is killed at each step of
// the move, just before and just after the write of that step. Whatever was in progress
// ends by itself, and the survivor holds all shards within the recovery time of a crash.
func TestDyingInEveryPhase(t *testing.T) {
	t.Parallel()
	asks := func(w lease.Write) bool { s, ok := w.Next.(lease.Seat); return ok && len(s.Wants) > 0 }
	changes := func(cond func(old, next lease.Row) bool) func(lease.Write) bool {
		return func(w lease.Write) bool {
			old, okOld := w.Old.(lease.Row)
			next, okNext := w.Next.(lease.Row)
			return okOld && okNext && cond(old, next)
		}
	}
	offers := changes(func(old, next lease.Row) bool { return old.OfferedTo == "" && next.OfferedTo != "" })
	takes := changes(func(old, next lease.Row) bool { return next.Accepts(old) })
	yields := changes(func(old, next lease.Row) bool {
		return old.Owner.Name == "a" && next.Owner.Name == "b" && !next.Accepts(old)
	})
	for _, tc := range []struct {
		name string
		mode rebalance.Mode
		who  string // the worker that makes the write of the step
		dies string
		step func(lease.Write) bool
	}{
		{"successor dies asking", rebalance.Eager, "b", "b", asks},
		{"owner dies when asked", rebalance.Eager, "b", "a", asks},
		{"owner dies yielding", rebalance.Eager, "a", "a", yields},
		{"successor dies when yielded to", rebalance.Eager, "a", "b", yields},
		{"successor dies asking, cooperative", rebalance.Cooperative, "b", "b", asks},
		{"owner dies when asked, cooperative", rebalance.Cooperative, "b", "a", asks},
		{"owner dies offering", rebalance.Cooperative, "a", "a", offers},
		{"successor dies when offered to", rebalance.Cooperative, "a", "b", offers},
		{"successor dies taking", rebalance.Cooperative, "b", "b", takes},
		{"owner dies when taken from", rebalance.Cooperative, "b", "a", takes},
	} {
		for _, before := range []bool{true, false} {
			name := tc.name + ", after the write"
			if before {
				name = tc.name + ", before the write"
			}
			subtest(t, name, func(t *testing.T) { dieAt(t, tc.mode, tc.who, tc.dies, tc.step, before) })
		}
	}
}

func dieAt(t *testing.T, mode rebalance.Mode, who, dies string, step func(lease.Write) bool, before bool) {
	config := shardlease.Config{Handoff: mode}
	s := staged(t, 4, config, plodding, "a")
	time.Sleep(20 * time.Second)
	s.enter("b", config, plodding)
	var once sync.Once
	died := make(chan struct{})
	hook := func(w lease.Write) {
		if step(w) {
			once.Do(func() { s.actor(dies).die(); close(died) })
		}
	}
	if before {
		s.actor(who).watch(hook, nil)
	} else {
		s.actor(who).watch(nil, hook)
	}
	select {
	case <-died:
	case <-time.After(beat + 2*time.Second):
		s.Fatal("that step was never taken")
	}
	survivor := map[string]string{"a": "b", "b": "a"}[dies]
	s.within(ttl+beat+time.Second, survivor+" holds everything", func() bool { return s.running()[survivor] == 4 })
	time.Sleep(time.Minute)
	if n := s.running()[survivor]; n != 4 {
		t.Errorf("a minute later %s holds %d shards", survivor, n)
	}
	for _, name := range s.names() {
		if row := s.row(name); row.Attempts() > 1 || row.OfferedTo != "" {
			t.Errorf("the row is %v", row)
		}
	}
}

// TestCleanStop: one worker stops, then all others at once. No lease has to expire, and no
// seat remains.
func TestCleanStop(t *testing.T) {
	t.Parallel()
	inBothModes(t, testCleanStop)
}

func testCleanStop(t *testing.T, mode rebalance.Mode) {
	s := staged(t, 8, shardlease.Config{Handoff: mode}, nil, "a", "b", "c")
	time.Sleep(20 * time.Second)
	began := time.Now()
	go s.actors[0].leave()
	took := s.within(beat+time.Second, "b and c hold everything", func() bool { n := s.running(); return n["a"] == 0 && n["b"]+n["c"] == 8 })
	t.Logf("held again after %v", took)
	if mode == rebalance.Eager {
		s.moved(began, 300*time.Millisecond, 0)
	} else {
		s.moved(began, 0, beat)
	}
	s.shared(beat+1500*time.Millisecond, "b", "c")
	time.Sleep(20 * time.Second)
	began = time.Now()
	s.end() // stops all at once
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the other workers took %v to stop", took)
	}
	workers, err := shardlease.Supervisor{Store: s.store, Group: "orders"}.Workers(t.Context())
	if err != nil || len(workers) != 0 {
		t.Errorf("seats are left: %v, %v", workers, err)
	}
	for _, name := range s.names() {
		if row := s.row(name); !row.Owner.IsZero() || row.Last.Reason != lease.ReasonReleased || row.Attempts() > 0 {
			t.Errorf("the row is %v", row)
		}
		if spans := s.of(name); spans[len(spans)-1].last() != s.row(name).Checkpoint.Position {
			t.Errorf("%s: the last mark was %q and the stored position is %v", name, spans[len(spans)-1].last(), s.row(name).Checkpoint.Position)
		}
	}
}

// TestOneNameTwice: names are for people. Two workers with one name are two workers.
func TestOneNameTwice(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 4, shardlease.Config{}, nil, "a")
		s.spans = nil // the stage distinguishes workers by name
		join(t, s.store, s.source, shardlease.Config{Name: "a"}, s.recorded("the other a", working))
		s.within(2*beat, "the other has two", func() bool { return s.running()["the other a"] == 2 })
		time.Sleep(time.Minute)
		if n := s.running()["the other a"]; n != 2 {
			t.Errorf("the other worker holds %d shards", n)
		}
	})
}

// TestModesMix: while a change of mode is rolled out, each move follows the terms in the
// request of its successor.
func TestModesMix(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Eager}, nil, "a")
		time.Sleep(10 * time.Second)
		joined := time.Now()
		s.enter("b", shardlease.Config{Handoff: rebalance.Cooperative}, nil)
		s.shared(beat+1500*time.Millisecond, "a", "b")
		s.moved(joined, 0, unbounded) // on cooperative terms
		time.Sleep(10 * time.Second)
		joined = time.Now()
		s.enter("c", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(beat+1500*time.Millisecond, "a", "b", "c")
		s.moved(joined, unbounded, 0) // on eager terms
	})
}

// TestStuckHandlerLosesItsShard: a handler makes no progress. Its tenure ends as stalled,
// and another worker claims the shard. The worker's other shards continue, and so does an
// idle shard whose handler calls Progress.
func TestStuckHandlerLosesItsShard(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		config := shardlease.Config{Handoff: rebalance.Eager, StallAfter: 15 * time.Second}
		jam, freed := make(chan struct{}), make(chan struct{})
		s.rescue = sync.OnceFunc(func() { close(freed) })
		var once sync.Once
		var stuck atomic.Value
		handler := func(ctx context.Context, tn *shardlease.Tenure) error {
			mine := false
			for sleep(ctx, time.Second) {
				select {
				case <-jam:
					if ctx.Value(spanKey{}).(*span).worker == "b" {
						continue
					}
					once.Do(func() { mine = true; stuck.Store(tn.Shard().Name) })
				default:
				}
				if mine {
					<-freed
					return nil
				}
				tn.Progress() // it is idle, and reports that
			}
			return nil
		}
		s.enter("a", config, handler)
		s.enter("b", config, nil)
		s.shared(2*beat, "a", "b")
		time.Sleep(20 * time.Second)
		close(jam)
		took := s.within(15*time.Second+20*time.Second+3*beat+2*time.Second, "b has three", func() bool { return s.running()["b"] == 3 })
		t.Logf("claimed by the other worker after %v", took)
		time.Sleep(time.Minute)
		row := s.row(stuck.Load().(string))
		if row.Owner.Name != "b" || row.Last.Reason != lease.ReasonStalled {
			t.Errorf("the stuck shard: %v", row)
		}
		s.rescue()
		s.end()
		for _, sp := range s.all() {
			lost := sp.worker == "a" && sp.shard == stuck.Load() && errors.Is(sp.cause, event.CauseStalled)
			if !lost && !errors.Is(sp.cause, event.CauseHandedOff) && !errors.Is(sp.cause, event.CauseStopped) {
				t.Errorf("the tenure of %s by %s ended with %v", sp.shard, sp.worker, sp.cause)
			}
		}
	})
}

// TestAliveKeepsTheAttempts: a handler that only calls Alive is not stalled, and the count
// of its shard's failed attempts continues. When it called Progress instead, the shard
// failed 10 times in ten minutes and was not quarantined.
func TestAliveKeepsTheAttempts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		config := shardlease.Config{Handoff: rebalance.Eager, StallAfter: 15 * time.Second, MaxAttempts: 3, Backoff: -1}
		s.enter("a", config, func(ctx context.Context, tn *shardlease.Tenure) error {
			for range 60 {
				if !sleep(ctx, time.Second) {
					return nil
				}
				tn.Alive()
			}
			return errors.New("no order")
		})
		time.Sleep(10 * time.Minute)
		if row := s.row("shard-00"); !row.Quarantined || row.Last.Reason != lease.ReasonFailed || row.Attempts() != 3 {
			t.Errorf("the row is %v", row)
		}
		s.end()
		for _, sp := range s.all() {
			if took := sp.to.Sub(sp.from); took < time.Minute {
				t.Errorf("a tenure ended after %v", took)
			}
		}
		if n := len(s.all()); n != 3 {
			t.Errorf("%d tenures, want 3", n)
		}
	})
}

// TestPlannedMovesAreNoWarning: what happens in every deployment is logged as Info or Debug
// and has no err. A commit that is refused as too late is part of a cooperative move.
func TestPlannedMovesAreNoWarning(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode rebalance.Mode) {
		var log bytes.Buffer
		s := newStage(t, fixture.Size(4, 8))
		config := shardlease.Config{
			Handoff: mode, Commit: checkpoint.Policy{Marks: 1},
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
		busy := func(ctx context.Context, tn *shardlease.Tenure) error {
			from, _ := strconv.Atoi(tn.Checkpoint().Position)
			for n := from + 1; ctx.Err() == nil; n++ {
				if err := tn.Mark(strconv.Itoa(n)); err != nil {
					return err
				}
				time.Sleep(17 * time.Millisecond)
			}
			return nil
		}
		a := s.enter("a", config, busy)
		time.Sleep(5 * time.Second)
		b := s.enter("b", shardlease.Config{Handoff: mode}, busy)
		// The owner holds its commits for a second after the offer. When b takes over
		// later than that, a commit of a comes before a's next poll.
		b.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if old, ok := w.Old.(lease.Row); ok && old.OfferedTo != "" {
				time.Sleep(1200 * time.Millisecond)
			}
			return send()
		})
		time.Sleep(20 * time.Second)
		if n := s.running(); n["b"] != s.shards/2 {
			t.Errorf("b holds %d shards", n["b"])
		}
		a.leave()
		b.leave()
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") || strings.Contains(line, " err=") {
				t.Errorf("a has logged a warning: %s", line)
			}
		}
		if refused := strings.Contains(log.String(), "event=refused"); refused != (mode == rebalance.Cooperative) {
			t.Errorf("a late commit was refused: %t", refused)
		}
	})
}

// TestRefusalAfterAMove: a shard came by a planned move, and later the table names another
// incarnation under the same generation. That is no late commit of a move.
func TestRefusalAfterAMove(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		config := shardlease.Config{Handoff: rebalance.Cooperative}
		s := staged(t, 2, config, nil, "a")
		b := s.enter("b", config, nil)
		s.shared(beat+1500*time.Millisecond, "a", "b")
		time.Sleep(10 * time.Second)
		var once sync.Once
		b.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (now lease.Record, err error) {
			if isByHolder(w) {
				once.Do(func() {
					row := w.Old.(lease.Row)
					row.Owner, row.Counter, row.WriteID = lease.Owner{Name: "c", Incarnation: "c-1"}, row.Counter+1, "c-write"
					err = &lease.RefusedError{Op: w.Op, Key: w.Key(), Now: row}
				})
			}
			if err != nil {
				return nil, err
			}
			return send()
		})
		time.Sleep(15 * time.Second)
		refused := b.of(event.Refused)
		if len(refused) == 0 || refused[0].Err == nil || refused[0].Level() != slog.LevelWarn {
			t.Errorf("reported: %v", refused)
		}
	})
}

// TestErrorsAfterAMove: the handler of the former owner ends with a panic, or with an error
// beside the stale one. Both are reported; a stale write alone is part of the move.
func TestErrorsAfterAMove(t *testing.T) {
	stale := &checkpoint.StaleError{Shard: "x", Mine: 1, Observed: 2}
	for name, tc := range map[string]struct {
		leave func() error
		level slog.Level
	}{
		"a stale write":              {func() error { return fmt.Errorf("sink: %w", stale) }, slog.LevelInfo},
		"a panic with a stale write": {func() error { panic(fmt.Errorf("bug: %w", stale)) }, slog.LevelWarn},
		"another error beside it":    {func() error { return errors.Join(stale, errDown) }, slog.LevelWarn},
	} {
		subtest(t, name, func(t *testing.T) {
			s := newStage(t, 2)
			config := shardlease.Config{Handoff: rebalance.Cooperative}
			a := s.enter("a", config, func(ctx context.Context, tn *shardlease.Tenure) error {
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), event.CauseHandedOff) {
					return tc.leave()
				}
				return nil
			})
			s.shared(5*time.Second, "a")
			s.enter("b", config, nil)
			s.shared(10*time.Second, "a", "b")
			time.Sleep(5 * time.Second)
			ended := a.of(event.Ended)
			if len(ended) != 1 || ended[0].Level() != tc.level || (ended[0].Err != nil) != (tc.level == slog.LevelWarn) {
				t.Errorf("reported: %v", ended)
			}
		})
	}
}

// TestNoDrainIsNoWarning: a handler that has no time at all to wind down is not blamed for it.
func TestNoDrainIsNoWarning(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		config := shardlease.Config{Handoff: rebalance.Eager, Drain: -1}
		s := staged(t, 2, config, nil, "a")
		a := s.actor("a")
		s.enter("b", config, nil)
		s.shared(10*time.Second, "a", "b")
		s.end()
		for _, e := range a.of(event.Ended) {
			if e.Level() > slog.LevelInfo {
				t.Errorf("%v at level %v", e, e.Level())
			}
		}
	})
}
