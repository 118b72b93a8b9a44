package shardlease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A holder is a session that holds the lease "lock", on a link whose reads of lease rows a test can hold and change.
type holder struct {
	*shardlease.Tenure
	session  *runner
	link     *storetest.Link
	operator shardlease.Supervisor
	reads    atomic.Int64                          // of lease rows
	answer   func(lease.Row) (lease.Record, error) // changes the answer to a read; nil: nothing does
	held     chan struct{}                         // if not nil: a read that was served is answered after a receive from it
}

func newHolder(t *testing.T) *holder {
	store := new(memstore.Store)
	h := &holder{link: storetest.NewLink(store), operator: shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}}
	h.session = runSession(t, h.link, shardlease.SessionConfig{Name: "a", TTL: ttl})
	h.Tenure = h.session.lock(t, shardlease.AcquireOptions{})
	h.link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		r, err := send()
		row, ok := r.(lease.Row)
		if !ok {
			return r, err
		}
		h.reads.Add(1)
		if h.held != nil {
			<-h.held
		}
		if h.answer != nil {
			return h.answer(row)
		}
		return r, err
	})
	return h
}

// ask calls Confirm.
func (h *holder) ask(t *testing.T) chan error {
	result := make(chan error, 1)
	go func() { result <- h.Confirm(t.Context()) }()
	synctest.Wait()
	return result
}

// release takes the lease away.
func (h *holder) release(t *testing.T) {
	t.Helper()
	_, err := h.operator.ForceRelease(t.Context(), "lock", h.Generation(), "it hangs")
	must(t, err)
}

// checkEnd checks that an error is the end of a tenure for this cause, and matches another error.
func checkEnd(t *testing.T, what string, err error, cause event.Cause, also error) {
	t.Helper()
	end, _ := errors.AsType[*shardlease.EndError](err)
	if end == nil || end.Cause != cause || also != nil && !errors.Is(err, also) {
		t.Errorf("%s: %v; expected the cause %v", what, err, cause)
	}
}

// TestConfirmReadsAfterTheCall: a call that comes while a read is under way does not get its answer, which is from
// before the call; calls that wait share the next read.
func TestConfirmReadsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t)
		h.held = make(chan struct{})
		before := h.ask(t)
		h.release(t)
		var after []chan error
		for range 10 {
			after = append(after, h.ask(t))
		}
		h.held <- struct{}{}
		if err := <-before; err != nil {
			t.Errorf("the lease was held after the first call began: %v", err)
		}
		synctest.Wait()
		if len(after[0]) > 0 {
			t.Fatalf("a read from before the call answers it: %v", <-after[0])
		}
		close(h.held)
		began := time.Now()
		for _, result := range after {
			checkEnd(t, "after the release", <-result, event.CauseForced, checkpoint.ErrStale)
		}
		if n := h.reads.Load(); n != 2 || time.Since(began) > 0 { // later the session finds the operator's wish
			t.Errorf("%d reads for calls that may share one, and the answer came after %v", n, time.Since(began))
		}
		checkEnd(t, "the context", context.Cause(h.Context()), event.CauseForced, checkpoint.ErrStale)
		checkEnd(t, "a later call", h.Confirm(t.Context()), event.CauseForced, checkpoint.ErrStale)
	})
}

// TestConfirmOneAfterTheOther: each call has a read, and no other request.
func TestConfirmOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t)
		must(t, h.Commit(t.Context(), "1"))
		for n := range int64(3) {
			if err := h.Confirm(t.Context()); err != nil || h.reads.Load() != n+1 {
				t.Errorf("call %d: %v, %d reads", n+1, err, h.reads.Load())
			}
		}
		h.Release("done")
		<-h.Context().Done()
		checkEnd(t, "after the release", h.Confirm(t.Context()), event.CauseGivenUp, nil)
	})
}

// TestConfirmThatFails: a read that fails returns its error, and changes nothing.
func TestConfirmThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t)
		h.answer = func(lease.Row) (lease.Record, error) { return nil, errDown }
		if err := h.Confirm(t.Context()); !errors.Is(err, errDown) || errors.Is(err, shardlease.ErrEnded) {
			t.Errorf("a read that fails: %v", err)
		}
		h.answer, h.held = nil, make(chan struct{})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errSlow)
		defer cancel()
		if err := h.Confirm(ctx); !errors.Is(err, errSlow) {
			t.Errorf("a read that is not answered in time: %v", err)
		}
		began := time.Now()
		if err := h.Confirm(t.Context()); err == nil || errors.Is(err, shardlease.ErrEnded) || time.Since(began) > ttl {
			t.Errorf("a read that is not answered at all: %v after %v", err, time.Since(began))
		}
		close(h.held)
		time.Sleep(ttl)
		must(t, h.Commit(t.Context(), "1"))
		must(t, h.Confirm(t.Context()))
	})
}

var errSlow = errors.New("slow")

// TestConfirmTellsTheHolds: a row under the same generation that names another incarnation, an older row and
// no row are no confirmation, and they end the tenure as refused commits do.
func TestConfirmTellsTheHolds(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(lease.Row) (lease.Record, error)
		cause  event.Cause
	}{
		"another incarnation": {func(r lease.Row) (lease.Record, error) { r.Owner.Incarnation = "another"; return r, nil }, event.CauseConflict},
		"no row":              {func(lease.Row) (lease.Record, error) { return nil, lease.ErrNotFound }, event.CauseVanished},
		"an older row":        {func(r lease.Row) (lease.Record, error) { r.Generation--; return r, nil }, event.CauseVanished},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder(t)
				h.answer = c.answer
				checkEnd(t, "Confirm", h.Confirm(t.Context()), c.cause, nil)
				checkEnd(t, "the context", context.Cause(h.Context()), c.cause, nil)
				h.answer = nil
			})
		})
	}
}

// TestConfirmDuringAWrite: a commit that is not answered does not keep calls from their answers. When a read shows that
// the lease is lost, the answer to the commit ends the tenure.
func TestConfirmDuringAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t)
		answered := make(chan struct{})
		h.link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			r, err := send()
			if w.Key().Kind == lease.KindLease {
				<-answered
			}
			return r, err
		})
		committed := make(chan error, 1)
		go func() { committed <- h.Commit(t.Context(), "1") }()
		synctest.Wait()
		must(t, h.Confirm(t.Context()))
		h.release(t)
		err := h.Confirm(t.Context())
		checkEnd(t, "after the release", err, event.CauseForced, checkpoint.ErrStale)
		if end, _ := errors.AsType[*shardlease.EndError](err); end == nil || !end.OutcomeUnknown || h.Context().Err() != nil || len(committed) > 0 {
			t.Errorf("the commit is not answered yet: %v, and the context %v", err, h.Context().Err())
		}
		close(answered)
		if err := <-committed; err != nil {
			t.Errorf("the commit was stored: %v", err)
		}
		checkEnd(t, "later", h.Confirm(t.Context()), event.CauseForced, checkpoint.ErrStale)
	})
}

// TestConfirmEndsWithTheTenure: a call whose read is under way returns when the tenure ends for another reason.
func TestConfirmEndsWithTheTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t)
		h.held = make(chan struct{})
		result := h.ask(t)
		h.Release("done")
		synctest.Wait()
		if len(result) == 0 {
			t.Fatal("the call outlasts its tenure")
		}
		checkEnd(t, "after the release", <-result, event.CauseGivenUp, nil)
		close(h.held)
	})
}

// TestWorkerConfirms: Confirm works in a handler of a worker, and is no sign of progress.
func TestWorkerConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := make(chan error, 3)
		s := newStage(t, 1)
		s.enter("a", shardlease.Config{StallAfter: 30 * time.Second}, func(ctx context.Context, tn *shardlease.Tenure) error {
			if tn.Checkpoint().Position != "" {
				<-ctx.Done()
				return nil
			}
			results <- tn.Confirm(tn.Context())
			for context.Cause(ctx) == nil {
				time.Sleep(time.Second)
				_ = tn.Confirm(tn.Context())
			}
			results <- context.Cause(ctx)
			operator := shardlease.Supervisor{Store: s.store, Group: "orders", By: "ann"}
			_, err := operator.ForceRelease(tn.Context(), tn.Shard().Name, tn.Generation(), "it hangs")
			must(t, err)
			results <- tn.Confirm(tn.Context())
			return nil
		})
		if err := <-results; err != nil {
			t.Errorf("while the worker holds the shard: %v", err)
		}
		checkEnd(t, "a handler that only calls Confirm", <-results, event.CauseStalled, nil)
		checkEnd(t, "after the release", <-results, event.CauseForced, checkpoint.ErrStale)
	})
}

// TestTrust: the trust begins when a heartbeat is sent and confirmed, and no answer later than that makes it longer.
func TestTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t)
		for range 100 {
			if left := h.Trust(); left <= ttl*9/10-beat-time.Millisecond || left > ttl*9/10 {
				t.Fatalf("a session whose heartbeats are confirmed trusts its lease for %v", left)
			}
			time.Sleep(ttl / 7)
		}
		h.link.Silence()
		left := h.Trust()
		const margin = 2 * time.Second
		trusted, stop := h.TrustedFor(t.Context(), margin)
		defer stop()
		began := time.Now()
		<-trusted.Done()
		if took := time.Since(began); took != left-margin || h.Trust() != margin || !errors.Is(context.Cause(trusted), context.DeadlineExceeded) || h.Context().Err() != nil {
			t.Errorf("the context ended after %v of %v with %v left: %v", took, left, h.Trust(), context.Cause(trusted))
		}
		<-h.Context().Done()
		if took := time.Since(began); took != left || h.Trust() != 0 {
			t.Errorf("the tenure ended after %v of %v, with %v left", took, left, h.Trust())
		}
		h.link.Heal()
	})
}

// TestTrustedForLasts: the context lasts as long as heartbeats are confirmed, and ends with the tenure, with its own
// parent, and at once if the margin is too large.
func TestTrustedForLasts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		h := newHolder(t)
		parent, cancel := context.WithCancel(t.Context())
		first, stop := h.TrustedFor(parent, ttl/3)
		defer stop()
		second, stop := h.TrustedFor(t.Context(), 0)
		defer stop()
		third, stop := h.TrustedFor(t.Context(), ttl)
		defer stop()
		if third.Err() == nil {
			t.Error("a margin of a lease time is never there")
		}
		time.Sleep(time.Hour)
		if err := errors.Join(first.Err(), second.Err()); err != nil {
			t.Errorf("while heartbeats are confirmed: %v", err)
		}
		cancel()
		if first.Err() == nil {
			t.Error("the context outlasts its parent")
		}
		h.Release("done")
		<-h.Context().Done()
		synctest.Wait()
		checkEnd(t, "after the release", context.Cause(second), event.CauseGivenUp, nil)
		if h.Trust() != 0 {
			t.Errorf("trusts a lease that is released for %v", h.Trust())
		}
	})
}

// TestTrustEndsWhileTheMachineSleeps: a monotonic clock stops while the machine is suspended; the wall clock does not.
func TestTrustEndsWhileTheMachineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenure := make(chan *shardlease.Tenure, 1)
		s := newStage(t, 1)
		a := s.enter("a", shardlease.Config{}, func(ctx context.Context, tn *shardlease.Tenure) error {
			tenure <- tn
			<-ctx.Done()
			return nil
		})
		tn := <-tenure
		synctest.Wait()
		if tn.Trust() == 0 {
			t.Error("a worker that has just taken its seat does not trust its lease")
		}
		a.stepWall(ttl)
		if left := tn.Trust(); left != 0 {
			t.Errorf("trusts its lease for %v although it may have expired", left)
		}
	})
}
