package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// These tests are about the two contexts of a handler: what it must know of them, and what
// it need not.

// onlyCtx returns a handler that uses only its ctx. When ctx ends, it returns the error of
// leave.
func onlyCtx(leave func(ctx context.Context) error) shardlease.Handler {
	return func(ctx context.Context, tn *shardlease.Tenure) error {
		n, _ := strconv.Atoi(tn.Checkpoint().Position)
		sp := ctx.Value(spanKey{}).(*span)
		for {
			select {
			case <-ctx.Done():
				return leave(ctx)
			case <-time.After(100 * time.Millisecond):
				n++
				if err := tn.Mark(strconv.Itoa(n)); err != nil {
					return err
				}
				sp.end.Store(strconv.Itoa(n))
			}
		}
	}
}

// TestHandlerThatKnowsOnlyItsContext: in an eager move such a handler hands its shard over
// at once. When its ctx was the hard context, the move took the whole drain time. An error
// that it returns after the end of ctx is no failure: an error of its own is reported, but
// counts no attempt either.
func TestHandlerThatKnowsOnlyItsContext(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(ctx context.Context) error{
		"nil":           func(context.Context) error { return nil },
		"error":         func(ctx context.Context) error { return ctx.Err() },
		"wrapped error": func(ctx context.Context) error { return fmt.Errorf("read: %w", ctx.Err()) },
		"cause":         context.Cause,
		"its own error": func(context.Context) error { return errDown },
	} {
		subtest(t, name, func(t *testing.T) { testOnlyCtx(t, leave, name == "its own error") })
	}
}

func testOnlyCtx(t *testing.T, leave func(ctx context.Context) error, reported bool) {
	config := shardlease.Config{Handoff: rebalance.Eager, MaxAttempts: 1}
	s := staged(t, 8, config, onlyCtx(leave), "a")
	a := s.actor("a")
	time.Sleep(20 * time.Second)
	joined := time.Now()
	b := s.enter("b", config, onlyCtx(leave))
	s.shared(beat+1500*time.Millisecond, "a", "b")
	s.moved(joined, 300*time.Millisecond, 0)
	s.handedOver()
	for _, name := range s.names() {
		if row := s.row(name); row.Attempts() != 0 {
			t.Errorf("a failed attempt is counted: %v", row)
		}
	}
	ended := a.of(event.Ended)
	for _, e := range ended {
		if (e.Err != nil) != reported || e.Cause != event.CauseHandedOff || e.Drained > 10*time.Millisecond {
			t.Errorf("unexpected event: %v", e)
		}
		if !reported && e.Level() != slog.LevelInfo {
			t.Errorf("%v is logged as %v", e, e.Level())
		}
	}
	for _, e := range b.of(event.Started) {
		if e.Attempt != 0 {
			t.Errorf("unexpected event: %v", e)
		}
	}
	if len(ended) != 4 {
		t.Errorf("%d shards moved", len(ended))
	}
}

// TestContextsAndTheirCauses: in an eager move t.Context() outlives ctx by up to the drain
// time; in a cooperative move both end at once. The cause of both is an EndError, whose text
// states whether the tenure was over. If the handler takes too long, the event is a warning that
// reports this.
func TestContextsAndTheirCauses(t *testing.T) {
	for mode, wind := range map[rebalance.Mode]time.Duration{rebalance.Eager: 20 * time.Second, rebalance.Cooperative: 0} {
		subtest(t, mode.String(), func(t *testing.T) { testContexts(t, mode, wind) })
	}
}

func testContexts(t *testing.T, mode rebalance.Mode, wind time.Duration) {
	s := newStage(t, 2)
	ended := make(chan time.Duration, 2)
	a := s.enter("a", shardlease.Config{Handoff: mode}, func(ctx context.Context, tn *shardlease.Tenure) error {
		<-ctx.Done()
		from := time.Now()
		<-tn.Context().Done()
		for _, c := range []context.Context{ctx, tn.Context()} {
			end, ok := errors.AsType[*shardlease.EndError](context.Cause(c))
			if !ok || !errors.Is(end, shardlease.ErrEnded) || end.Generation != tn.Generation() || !errors.Is(c.Err(), context.Canceled) {
				t.Errorf("the cause is %v", context.Cause(c))
			}
			if ok && end.Cause != event.CauseHandedOff && end.Cause != event.CauseStopped {
				t.Errorf("the cause is %v", end)
			}
			soft := c == ctx && time.Since(from) > 0 // it ended before the tenure
			text := map[bool]string{true: "the handler should wind down", false: "the tenure is over"}
			if ok && (!strings.Contains(end.Error(), text[soft]) || strings.Contains(end.Error(), text[!soft])) {
				t.Errorf("the text of the cause is %q; only the soft context: %t", end, soft)
			}
		}
		ended <- time.Since(from)
		time.Sleep(time.Second)
		return tn.Context().Err()
	})
	s.shared(time.Second, "a")
	time.Sleep(20 * time.Second)
	s.enter("b", shardlease.Config{Handoff: mode}, nil)
	if took := <-ended; took < wind || took > wind+10*time.Millisecond {
		t.Errorf("the hard context ended %v after the soft one, not %v", took, wind)
	}
	time.Sleep(5 * time.Second)
	for _, e := range a.of(event.Ended) {
		late := mode == rebalance.Eager
		if late != (e.Level() == slog.LevelWarn) || late != (e.Err != nil && strings.Contains(e.Err.Error(), "handler did not return after its context ended")) {
			t.Errorf("%v is logged as %v", e, e.Level())
		}
	}
}

// TestCommitWithTheSoftContext: a commit whose ctx is the soft context gives up when that has
// ended, but does not claim that the tenure is over.
func TestCommitWithTheSoftContext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 2)
		config := shardlease.Config{Handoff: rebalance.Eager}
		a := s.enter("a", config, func(ctx context.Context, tn *shardlease.Tenure) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), event.CauseHandedOff) {
				return nil
			}
			if err := tn.Commit(ctx, "50"); !errors.Is(err, context.Canceled) || errors.Is(err, shardlease.ErrEnded) {
				t.Errorf("with the soft context: %v", err)
			}
			if err := tn.Commit(tn.Context(), "51"); err != nil {
				t.Errorf("with the hard context: %v", err)
			}
			return nil
		})
		s.shared(5*time.Second, "a")
		a.Delay(time.Millisecond) // else a commit may be accepted before it notices that its context has ended
		s.enter("b", config, nil)
		s.shared(20*time.Second, "a", "b")
	})
}
