package shardlease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// fails is a function of Do that fails at once.
func fails(context.Context, *shardlease.Tenure) error { return errDown }

// TestLoopThatFailsStarvesNobody: a program calls Do in a loop, and its function fails at once. Another session that waits
// for the lease acquires it within a heartbeat interval and an eighth. Meanwhile a caller of the first session that does
// not wait learns that the lease is left to others, and until when.
func TestLoopThatFailsStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a, b := runSession(t, store, shardlease.SessionConfig{Name: "a"}), runSession(t, store, shardlease.SessionConfig{Name: "b"})
		time.Sleep(time.Minute)
		must(t, a.Ready())
		if err := a.Do(t.Context(), "lock", shardlease.AcquireOptions{}, fails); err != errDown {
			t.Errorf("Do returned %v", err)
		}
		began := time.Now()
		_, err := a.TryAcquire(t.Context(), "lock", shardlease.AcquireOptions{Wait: -1})
		held, ok := errors.AsType[*shardlease.HeldError](err)
		if left := beat + beat/8; !ok || !errors.Is(err, lease.ErrHeld) || (held.LeftUntil.Sub(began)-left).Abs() > time.Second/10 ||
			time.Since(began) > time.Second/2 || !strings.Contains(err.Error(), "is left to other sessions until 20") {
			t.Errorf("after %v TryAcquire returned %v", time.Since(began), err)
		}
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan int)
		go func() {
			n := 0
			for ; a.Do(ctx, "lock", shardlease.AcquireOptions{}, fails) == errDown; n++ {
			}
			over <- n
		}()
		began = time.Now()
		must(t, b.Do(t.Context(), "lock", shardlease.AcquireOptions{}, func(context.Context, *shardlease.Tenure) error {
			if took := time.Since(began); took > 2*beat {
				t.Errorf("acquired after %v", took)
			}
			time.Sleep(time.Minute)
			return nil
		}))
		stop()
		if n := <-over; n > 2 {
			t.Errorf("the loop has failed %d times", n)
		}
	})
}

// TestQuarantineNamesItsAuthor: the HeldError of a quarantined lease has the name of the operator who quarantined it, and the
// reason, also if another command has changed the row since.
func TestQuarantineNamesItsAuthor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", MaxAttempts: 2})
		ann := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		seen := func() int64 { return lockRow(t, store).Generation }
		check := func(by, why string) {
			t.Helper()
			_, err := a.TryAcquire(t.Context(), "lock", shardlease.AcquireOptions{})
			held, ok := errors.AsType[*shardlease.HeldError](err)
			if !ok || held.By != by || held.Why != why || !strings.Contains(err.Error(), `is quarantined by "`+by+`" (`+why+`)`) {
				t.Errorf("TryAcquire returned %v", err)
			}
		}
		for range 2 {
			_ = a.Do(t.Context(), "lock", shardlease.AcquireOptions{}, fails)
		}
		check("a", "too many attempts")
		_, err := ann.Rewind(t.Context(), "lock", seen(), checkpoint.Mark{Position: "7"}, "once more")
		must(t, err)
		check("a", "too many attempts")
		_, err = ann.Unquarantine(t.Context(), "lock", seen(), "repaired")
		must(t, err)
		_, err = ann.Quarantine(t.Context(), "lock", seen(), "poison")
		must(t, err)
		check("ann", "poison")
	})
}

// TestEndOfALeaseIsInItsWords: the error of a session's tenure that has ended is about a lease, a session and a holder.
func TestEndOfALeaseIsInItsWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := runSession(t, new(memstore.Store), shardlease.SessionConfig{Name: "a"})
		tn := a.lock(t, shardlease.AcquireOptions{})
		a.stop()
		<-tn.Soft().Done()
		soft, _ := errors.AsType[*shardlease.EndError](context.Cause(tn.Soft()))
		<-tn.Context().Done()
		hard, _ := errors.AsType[*shardlease.EndError](context.Cause(tn.Context()))
		for want, end := range map[string]*shardlease.EndError{
			"the holder should wind down: stopped: this session shuts down": soft, "the tenure is over: stopped: this session shuts down": hard,
		} {
			if text := end.Error(); !strings.HasPrefix(text, `lease "lock", generation `) || !strings.HasSuffix(text, want) {
				t.Errorf("the error is %q, want %q", text, want)
			}
			for cause := event.CauseHandedOff; cause <= event.CauseUnlisted; cause++ {
				end.Cause = cause
				for _, word := range []string{"shard", "worker", "handler"} {
					if strings.Contains(end.Error(), word) {
						t.Errorf("%v", end)
					}
				}
			}
		}
	})
}
