package shardlease_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// pass waits for d, and then until everything that is due at the end of d is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// serve is a handler that does nothing until its ctx ends.
func serve(ctx context.Context, _ *shardlease.Tenure) error {
	<-ctx.Done()
	return nil
}

func rowOf(t *testing.T, store lease.Store, shard string) lease.Row {
	t.Helper()
	row, err := shardlease.Supervisor{Store: store, Group: "orders"}.Get(t.Context(), shard)
	must(t, err)
	return row
}

// A stringContext is a context that a nil pointer can be taken for.
type stringContext struct{ context.Context }

func TestAWorkerRunsOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		w := join(t, new(memstore.Store), shardlease.Static("1"), shardlease.Config{}, serve)
		pass(time.Second)
		if err := w.Run(t.Context(), nil); !errors.Is(err, shardlease.ErrConfig) {
			t.Errorf("Run without a handler: %v", err)
		}
		for _, none := range []context.Context{nil, (*stringContext)(nil)} {
			if err := w.Run(none, serve); !errors.Is(err, shardlease.ErrConfig) || !strings.Contains(err.Error(), "ctx: must be given") {
				t.Errorf("Run without a context: %v", err)
			}
		}
		if err := w.Run(t.Context(), serve); !errors.Is(err, shardlease.ErrRunning) {
			t.Errorf("Run while the worker runs: %v", err)
		}
		if err := w.stop(); err != nil {
			t.Errorf("the first Run returned %v", err)
		}
		if err := w.Run(t.Context(), serve); !errors.Is(err, shardlease.ErrRunning) {
			t.Errorf("after it ran: %v", err)
		}
		if w.Healthy() == nil || w.Ready() == nil {
			t.Errorf("after it ran: %v, ready %v", w.Healthy(), w.Ready())
		}
	})
}

// TestHandlersThatFail: an error, a panic and a runtime.Goexit end one tenure and count as
// attempts; other tenures are not affected. The table stores the text of the error, and no note of a transfer has it.
func TestHandlersThatFail(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":  func() error { return errDown },
		"panic":  func() error { panic(errDown) },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		subtest(t, name, func(t *testing.T) { testHandlerThatFails(t, fail) })
	}
}

func testHandlerThatFails(t *testing.T, fail func() error) {
	var log lines
	store := new(memstore.Store)
	config := shardlease.Config{MaxAttempts: 3, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	var attempts []int
	w := join(t, store, shardlease.Static("bad", "good"), config, func(ctx context.Context, tn *shardlease.Tenure) error {
		if tn.Shard().Name == "good" {
			return serve(ctx, tn)
		}
		attempts = append(attempts, tn.Attempt())
		return fail()
	})
	pass(time.Minute)
	if len(attempts) != 3 || attempts[2] != 2 || !rowOf(t, store, "bad").Quarantined {
		t.Errorf("attempts %v, then %v", attempts, rowOf(t, store, "bad"))
	}
	if rowOf(t, store, "good").Owner.IsZero() {
		t.Error("the tenure of the other shard was affected")
	}
	ended := w.of(event.Ended)
	if len(ended) != 3 || ended[0].Err == nil || ended[0].Cause != event.CauseGivenUp {
		t.Errorf("ended: %v", ended)
	}
	if text, of := rowOf(t, store, "bad").LastError(); text != ended[2].Err.Error() || of != ended[2].Generation {
		t.Errorf("the row has the error %q of generation %d, and the event %v", text, of, ended[2].Err)
	}
	for _, r := range append(rowOf(t, store, "bad").History(), rowOf(t, store, "bad").Last) {
		if strings.Contains(r.Note, "stream") {
			t.Errorf("the row has another note: %v", r)
		}
	}
	w.leave()
	if text := log.String(); strings.Contains(text, "panic: the stream is down") != strings.Contains(text, "stack=") {
		t.Errorf("a panic is logged with its stack: %s", text)
	}
}

// lines is a buffer that any goroutine may write to.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestStopIsSoft: when the context of Run ends, the hard context of a tenure continues,
// with the values of Run's context, and the last mark is written.
func TestStopIsSoft(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		w, err := shardlease.New(store, shardlease.Static("1"), valid())
		must(t, err)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		time.AfterFunc(5*time.Second, cancel)
		err = w.Run(ctx, func(ctx context.Context, tn *shardlease.Tenure) error {
			<-ctx.Done()
			time.Sleep(10 * time.Second)
			hard := tn.Context()
			if hard.Err() != nil || hard.Value(key{}) != "value" || ctx.Value(key{}) != "value" || !errors.Is(context.Cause(ctx), event.CauseStopped) {
				t.Errorf("the handler's contexts: %v, %v", hard.Err(), context.Cause(ctx))
			}
			return tn.Mark("last")
		})
		if row := rowOf(t, store, "1"); err != nil || row.Checkpoint.Position != "last" || !row.Owner.IsZero() {
			t.Errorf("error %v, the row is %v", err, row)
		}
	})
}

// TestStopOfAStubbornHandler: the hard context of a handler that does not wind down ends
// after Drain. Run waits for the handler nevertheless.
func TestStopOfAStubbornHandler(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		var ended time.Duration
		start := time.Now()
		var stubborn atomic.Pointer[shardlease.Worker]
		w := join(t, store, shardlease.Static("1"), shardlease.Config{}, func(ctx context.Context, tn *shardlease.Tenure) error {
			<-tn.Context().Done()
			ended = time.Since(start)
			time.Sleep(time.Minute)
			if s := stubborn.Load().Status(); s.Abandoned != 1 || s.Phase != "draining" {
				t.Errorf("while Run waits for it: %+v", s)
			}
			if err := tn.Mark("late"); !errors.Is(err, shardlease.ErrEnded) {
				t.Errorf("a mark after the end: %v", err)
			}
			return context.Cause(tn.Context())
		})
		stubborn.Store(w.Worker)
		pass(5 * time.Second)
		w.leave()
		if s := w.Status(); s.Abandoned != 0 {
			t.Errorf("after the end: %+v", s)
		}
		if ended < 25*time.Second || ended > 26*time.Second || time.Since(start) < 85*time.Second {
			t.Errorf("the context ended after %v, and Run after %v", ended, time.Since(start))
		}
		if ended := w.of(event.Ended); len(ended) != 1 || !ended[0].Running || ended[0].Cause != event.CauseStopped {
			t.Errorf("reported: %v", ended)
		}
		if row := rowOf(t, store, "1"); !row.Owner.IsZero() || row.Last.Reason != lease.ReasonDrainTimeout {
			t.Errorf("the row is %v", row)
		}
	})
}

func TestCommitAndFinish(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		source := listing(shard("child", "parent"), shard("parent"))
		var order []string
		w := join(t, store, source, shardlease.Config{}, func(ctx context.Context, tn *shardlease.Tenure) error {
			order = append(order, tn.Shard().Name)
			if err := tn.Commit(tn.Context(), "5"); err != nil {
				t.Errorf("commit: %v", err)
			}
			if row := rowOf(t, store, tn.Shard().Name); row.Checkpoint.Position != "5" || row.Checkpoint.Generation != tn.Generation() {
				t.Errorf("after the commit the row is %v", row)
			}
			if h := tn.Hold(); h.Generation != tn.Generation() || h.Key.Name != tn.Shard().Name || !tn.Checkpoint().IsZero() {
				t.Errorf("holds %+v from %v", h, tn.Checkpoint())
			}
			check(t, tn.MarkState("6", "sum"))
			return tn.Finish(tn.Context())
		})
		pass(time.Minute)
		w.leave()
		row := rowOf(t, store, "child")
		if !row.Finished || row.Checkpoint.Position != "6" || row.Checkpoint.State != "sum" || strings.Join(order, " ") != "parent child" {
			t.Errorf("%v after %v", row, order)
		}
	})
}

// TestPolicyCommits: without Flush, marks are written only as the policy says, and only the
// latest of them.
func TestPolicyCommits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		marked := 0
		w := join(t, store, shardlease.Static("1"), shardlease.Config{Commit: checkpoint.Policy{Every: 2 * time.Second}}, func(ctx context.Context, tn *shardlease.Tenure) error {
			for sleep(ctx, 100*time.Millisecond) {
				marked++
				if err := tn.Mark(strconv.Itoa(marked)); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
		pass(time.Minute)
		row := rowOf(t, store, "1")
		if commits := row.Counter; commits < 28 || commits > 32 {
			t.Errorf("%d writes in a minute", commits)
		}
		w.leave()
		if row := rowOf(t, store, "1"); row.Checkpoint.Position != strconv.Itoa(marked) || marked < 590 {
			t.Errorf("the last position is %q of %d", row.Checkpoint.Position, marked)
		}
	})
}

// TestRelease: Release ends the tenure without a failed attempt, and stores its note.
func TestRelease(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		calls := 0
		w := join(t, store, shardlease.Static("1"), shardlease.Config{}, func(ctx context.Context, tn *shardlease.Tenure) error {
			if calls++; calls == 1 {
				tn.Release("too hot")
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), event.CauseGivenUp) {
					t.Errorf("the cause after Release is %v", context.Cause(ctx))
				}
				return nil
			}
			return serve(ctx, tn)
		})
		pass(500 * time.Millisecond)
		if row := rowOf(t, store, "1"); !row.Owner.IsZero() || row.Last.Note != "too hot" || row.Last.Reason != lease.ReasonReleased || row.Attempts() != 0 {
			t.Errorf("the row is %v", row)
		}
		pass(time.Minute)
		if err := w.stop(); err != nil || calls != 2 {
			t.Errorf("%v, %d calls", err, calls)
		}
	})
}

// TestSlowObserver: no heartbeat waits for a slow observer; the events that it missed are
// counted.
func TestSlowObserver(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var told, dropped atomic.Uint64
		config := shardlease.Config{EventQueue: 2, Observe: func(e event.Event) {
			told.Add(1)
			dropped.Add(e.Dropped)
			time.Sleep(time.Hour)
		}}
		w := join(t, new(memstore.Store), shardlease.Static("1", "2", "3", "4"), config, serve)
		pass(5 * time.Minute)
		if err := w.Healthy(); err != nil || told.Load() != 1 {
			t.Errorf("after %d events: %v", told.Load(), err)
		}
		w.leave()
		if dropped.Load() == 0 {
			t.Errorf("%d dropped of %d", dropped.Load(), told.Load())
		}
	})
}

func TestObserverThatPanics(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var log lines
		config := shardlease.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Observe: func(event.Event) { panic("at the disco") }}
		w := join(t, new(memstore.Store), shardlease.Static("1"), config, serve)
		pass(time.Minute)
		w.leave()
		if !strings.Contains(log.String(), "hook-fault") {
			t.Error(log.String())
		}
	})
}

// TestStoreFallsSilent: without the store a worker trusts its leases for less than a lease
// time. Then the contexts of all its tenures end, it reports that it is not healthy, and it
// recovers when the store answers again.
func TestStoreFallsSilent(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := storetest.NewLink(new(memstore.Store))
		var ended []time.Time
		var cause error
		w := join(t, store, shardlease.Static("1"), shardlease.Config{}, func(ctx context.Context, tn *shardlease.Tenure) error {
			<-tn.Context().Done()
			ended, cause = append(ended, time.Now()), context.Cause(tn.Context())
			return cause
		})
		pass(30 * time.Second)
		fell := time.Now()
		store.Silence()
		pass(11 * time.Second)
		if len(ended) != 1 || ended[0].Sub(fell) > 9*time.Second || !errors.Is(cause, event.CauseUnreachable) {
			t.Errorf("ended %v after %v: %v", ended, fell, cause)
		}
		if w.Healthy() == nil || w.Ready() == nil {
			t.Errorf("healthy: %v, ready: %v", w.Healthy(), w.Ready())
		}
		store.Heal()
		pass(30 * time.Second)
		if err := errors.Join(w.Healthy(), w.Ready()); err != nil || rowOf(t, store, "1").Owner.IsZero() {
			t.Errorf("after the store came back: %v, %v", err, rowOf(t, store, "1"))
		}
	})
}

// TestWallClockSteps: no worker loses a shard because the wall clock steps, in either
// direction.
func TestWallClockSteps(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		subtest(t, step.String(), func(t *testing.T) {
			s := staged(t, 1, shardlease.Config{}, nil, "a")
			time.Sleep(20 * time.Second)
			s.actor("a").stepWall(step)
			time.Sleep(40 * time.Second)
			if n := len(s.all()); n != 1 {
				t.Errorf("%d tenures", n)
			}
		})
	}
}

// TestParentsAreACopy: a handler may change its list of parents without an effect on the
// worker.
func TestParentsAreACopy(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		w := join(t, store, listing(shard("child", "a", "b")), shardlease.Config{}, func(ctx context.Context, tn *shardlease.Tenure) error {
			clear(tn.Shard().Parents)
			if err := tn.Commit(tn.Context(), "1"); err != nil {
				t.Errorf("the commit after that: %v", err)
			}
			return serve(ctx, tn)
		})
		pass(time.Minute)
		w.leave()
		if row := rowOf(t, store, "child"); !slices.Equal(row.Parents, []string{"a", "b"}) || row.Checkpoint.Position != "1" {
			t.Errorf("the row is %v, with the parents %v", row, row.Parents)
		}
	})
}

// TestPrepare: Prepare prepares the worker for a shard that another worker still holds. Its
// context ends at the deadline, and the move continues.
func TestPrepare(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store, source := new(memstore.Store), shardlease.Static("1", "2")
		config := shardlease.Config{Name: "a", Handoff: rebalance.Terms{Mode: rebalance.Cooperative, Prepare: 3 * time.Second}}
		join(t, store, source, config, count)
		pass(20 * time.Second)
		config.Name = "b"
		var took time.Duration
		config.Prepare = func(ctx context.Context, s shardlease.Shard, from checkpoint.Checkpoint) error {
			start := time.Now()
			<-ctx.Done()
			took = time.Since(start)
			if from.IsZero() {
				t.Errorf("Prepare got no checkpoint of %s", s.Name)
			}
			return ctx.Err()
		}
		b := join(t, store, source, config, count)
		pass(20 * time.Second)
		if took != 3*time.Second || len(b.of(event.Started)) != 1 || len(b.of(event.HookFault)) != 0 {
			t.Errorf("prepared for %v, then %v, %v", took, b.of(event.Started), b.of(event.HookFault))
		}
	})
}

// begun returns the first report of each fault.
func begun(events []event.Event) []event.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return e.Lasted > 0 || e.Over })
}

// TestSourceFaultsAreToldOnce: a fault of the source is reported once, and once more when
// the source fails in another way; a different request number in the text is not another
// way. The tenures continue.
func TestSourceFaultsAreToldOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var answer atomic.Pointer[error]
		source := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
			if err := answer.Load(); err != nil {
				return nil, *err
			}
			return []shardlease.Shard{{Name: "1"}}, nil
		})
		w := join(t, new(memstore.Store), source, shardlease.Config{PollEvery: time.Second}, serve)
		pass(5 * time.Second)
		down, gone := errDown, errors.New("no such stream, request 17")
		later := errors.New("no such stream, request 18")
		for _, err := range []*error{&down, &gone, &later, nil, &gone} {
			answer.Store(err)
			pass(10 * time.Second)
		}
		if faults := begun(w.of(event.SourceFault)); len(faults) != 3 || !errors.Is(faults[0].Err, errDown) {
			t.Errorf("reported: %v", faults)
		}
		if len(w.of(event.Started)) != 1 || len(w.of(event.Ended)) != 0 {
			t.Error("the tenure was affected")
		}
	})
}

// TestDeafSource: a source that does not return is reported; the tenures continue, and Run
// waits for the source.
func TestDeafSource(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var polls atomic.Int64
		back := make(chan struct{})
		source := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
			if polls.Add(1) > 1 {
				<-back
			}
			return []shardlease.Shard{{Name: "1"}}, nil
		})
		w := join(t, new(memstore.Store), source, shardlease.Config{}, serve)
		pass(5 * time.Minute)
		if faults := begun(w.of(event.SourceFault)); len(faults) != 1 || polls.Load() != 2 || w.Healthy() != nil {
			t.Errorf("%d polls, reported: %v, healthy: %v", polls.Load(), faults, w.Healthy())
		}
		time.AfterFunc(time.Minute, func() { close(back) })
		start := time.Now()
		if err := w.stop(); err != nil || time.Since(start) != time.Minute {
			t.Errorf("stopped after %v: %v", time.Since(start), err)
		}
	})
}

// TestRunUnderAnEndedContext: a worker that is stopped before it starts has nothing to
// release.
func TestRunUnderAnEndedContext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		w, err := shardlease.New(new(memstore.Store), shardlease.Static("1"), valid())
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := w.Run(ctx, serve); err != nil || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
