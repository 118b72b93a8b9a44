package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestDoEndsTheHold: however the function ends, the lease is free afterwards, and Do returns its error as it is. An
// error, a panic and a runtime.Goexit are failed attempts, and a nil error ends their count.
func TestDoEndsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", MaxAttempts: 100})
		down := errors.New("down")
		for i, of := range []struct {
			f    func(context.Context, *shardlease.Tenure) error
			want func(error) bool
			left int64 // failed attempts
		}{
			{func(context.Context, *shardlease.Tenure) error { return down }, func(err error) bool { return err == down }, 1},
			{func(context.Context, *shardlease.Tenure) error { panic(down) }, func(err error) bool { return errors.Is(err, down) && strings.Contains(err.Error(), "panic") }, 2},
			{func(context.Context, *shardlease.Tenure) error { runtime.Goexit(); return nil }, func(err error) bool { return err != nil }, 3},
			{func(_ context.Context, tn *shardlease.Tenure) error { tn.Release("later"); return nil }, func(err error) bool { return err == nil }, 3},
			{func(ctx context.Context, tn *shardlease.Tenure) error {
				token, ok := fence.FromContext(ctx)
				if !ok || token.Generation != tn.Generation() || ctx != tn.Soft() || tn.Attempt() != 3 {
					t.Errorf("the function gets %v with the token %v at attempt %d", ctx, token, tn.Attempt())
				}
				return nil
			}, func(err error) bool { return err == nil }, 0},
		} {
			err := a.Do(t.Context(), "lock", shardlease.AcquireOptions{}, of.f)
			if !of.want(err) {
				t.Errorf("%d: Do returned %v", i, err)
			}
			time.Sleep(time.Second)
			if r := lockRow(t, store); !r.Owner.IsZero() || r.Attempts() != of.left || r.Removed != (of.left == 0) {
				t.Errorf("%d: left %v with %d attempts", i, r, r.Attempts())
			}
		}
		if err := a.Do(t.Context(), "lock", shardlease.AcquireOptions{}, nil); !errors.Is(err, shardlease.ErrConfig) {
			t.Errorf("Do without a function returns %v", err)
		}
	})
}

// TestFailureBeforeAStop: a program ends Run as soon as Do has returned an error, as a cron job does. Each of these failures
// counts, although the stop overtakes the return of the function.
func TestFailureBeforeAStop(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		for i := range 60 {
			s := runSession(t, store, shardlease.SessionConfig{Name: fmt.Sprint("host-", i%2), MaxAttempts: 100})
			s.Do(t.Context(), "lock", shardlease.AcquireOptions{}, func(context.Context, *shardlease.Tenure) error { return errors.New("down") })
			s.end(t)
			if r := lockRow(t, store); r.Attempts() != int64(i)+1 {
				t.Fatalf("%d failures of %d count: %v", r.Attempts(), i+1, r)
			}
		}
	})
}

// TestDoWaitsForItsFunction: the context of Do ends while its function runs, or just before. The soft context ends, and
// Do returns when the function has. Until then no other call of the session acquires the lease. That is no failed
// attempt.
func TestDoWaitsForItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", MaxAttempts: 3})
		ctx, cancel := context.WithCancel(t.Context())
		running, over := make(chan bool), make(chan error)
		go func() {
			over <- a.Do(ctx, "lock", shardlease.AcquireOptions{}, func(ctx context.Context, tn *shardlease.Tenure) error {
				running <- true
				<-ctx.Done()
				time.Sleep(5 * time.Second)
				if tn.Context().Err() != nil {
					t.Error("the function has no time to wind down")
				}
				return ctx.Err()
			})
		}()
		<-running
		cancel()
		for range 4 {
			if _, err := a.TryAcquire(t.Context(), "lock", shardlease.AcquireOptions{}); !errors.Is(err, shardlease.ErrHolding) {
				t.Errorf("while the function runs, TryAcquire returns %v", err)
			}
			time.Sleep(time.Second)
		}
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Do returned %v", err)
		}
		time.Sleep(time.Second)
		if r := lockRow(t, store); !r.Removed || r.Last.Note != "no longer wanted" {
			t.Errorf("left %v", r)
		}
		for i := range 30 { // the lease and the end of the context reach Do together
			ctx, end := context.WithCancel(t.Context())
			runs := false
			_ = a.Do(lateContext{ctx, end}, "lock", shardlease.AcquireOptions{}, func(ctx context.Context, _ *shardlease.Tenure) error {
				runs = true
				defer func() { runs = false }()
				<-ctx.Done()
				time.Sleep(5 * time.Second)
				return nil
			})
			if runs {
				t.Errorf("%d: Do has returned, and its function runs", i)
			}
			time.Sleep(5 * time.Second)
		}
	})
}

// TestSuccessBesideACheckpoint: a lease that has a checkpoint counts failures until a function of Do returns nil, as one
// without. A release ends the count only if there is no limit.
func TestSuccessBesideACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", MaxAttempts: 5})
		down := errors.New("down")
		for i, of := range []struct {
			most int
			f    func(context.Context, *shardlease.Tenure) error
			left int64 // failed attempts
		}{
			{0, func(ctx context.Context, tn *shardlease.Tenure) error { return tn.Commit(ctx, "1") }, 0},
			{0, func(context.Context, *shardlease.Tenure) error { return down }, 1},
			{0, func(context.Context, *shardlease.Tenure) error { return down }, 2},
			{0, func(_ context.Context, tn *shardlease.Tenure) error { tn.Release(""); return nil }, 2},
			{0, func(context.Context, *shardlease.Tenure) error { return nil }, 0},
			{0, func(context.Context, *shardlease.Tenure) error { return down }, 1},
			{-1, func(context.Context, *shardlease.Tenure) error { return down }, 2},
			{-1, func(_ context.Context, tn *shardlease.Tenure) error { tn.Release(""); return nil }, 0},
		} {
			_ = a.Do(t.Context(), "lock", shardlease.AcquireOptions{MaxAttempts: of.most}, of.f)
			time.Sleep(time.Second)
			if r := lockRow(t, store); r.Attempts() != of.left || r.Checkpoint.Position != "1" {
				t.Errorf("%d: left %v with %d attempts, want %d", i, r, r.Attempts(), of.left)
			}
		}
	})
}

// TestErrorAtTheEndOfDo: a function looks at the context of Do itself, and returns an error in the moment in which that
// context ends: its soft context lasts a moment longer. That is no failed attempt, as it is none after the soft context has
// ended.
func TestErrorAtTheEndOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", MaxAttempts: 3})
		for range 50 {
			ctx, end := context.WithCancel(t.Context())
			err := a.Do(ctx, "lock", shardlease.AcquireOptions{}, func(context.Context, *shardlease.Tenure) error {
				end()
				return ctx.Err()
			})
			time.Sleep(time.Second)
			if r := lockRow(t, store); !errors.Is(err, context.Canceled) || r.Attempts() != 0 {
				t.Fatalf("Do returned %v, and left %v with %d attempts", err, r, r.Attempts())
			}
		}
	})
}

// TestDoSaysThatItsLeaseWasLost: the function takes no notice, and returns nil.
func TestDoSaysThatItsLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		a := runSession(t, link, shardlease.SessionConfig{Name: "a"})
		err := a.Do(t.Context(), "lock", shardlease.AcquireOptions{}, func(context.Context, *shardlease.Tenure) error {
			link.Cut()
			time.Sleep(time.Minute)
			link.Heal()
			return nil
		})
		if !errors.Is(err, event.CauseUnreachable) {
			t.Errorf("Do returned %v", err)
		}
		if err := a.Do(t.Context(), "lock", shardlease.AcquireOptions{}, func(_ context.Context, tn *shardlease.Tenure) error {
			return tn.Finish(tn.Context())
		}); err != nil {
			t.Errorf("Do of a function that finishes the lease returned %v", err)
		}
	})
}

// TestHangingHolderLosesItsLease: by the configuration of its session, or by the options of the call, which may also
// turn that off. It happens to the function of Do and to the holder of a tenure of Acquire.
func TestHangingHolderLosesItsLease(t *testing.T) {
	t.Parallel()
	const stall = 15 * time.Second
	for name, of := range map[string]struct {
		session, call time.Duration
		keeps         bool
	}{
		"of the session": {session: stall}, "of the call": {session: time.Hour, call: stall},
		"off for the call": {session: stall, call: -1, keeps: true}, "off": {keeps: true},
	} {
		for _, do := range []bool{false, true} {
			subtest(t, fmt.Sprintf("%s, do=%t", name, do), func(t *testing.T) {
				store := new(memstore.Store)
				a := runSession(t, store, shardlease.SessionConfig{Name: "a", StallAfter: of.session})
				b := runSession(t, store, shardlease.SessionConfig{Name: "b"})
				wake, over := make(chan bool), make(chan error, 1)
				hang := func(ctx context.Context, tn *shardlease.Tenure) error { <-wake; return tn.Context().Err() }
				go func() {
					o := shardlease.AcquireOptions{StallAfter: of.call}
					if do {
						over <- a.Do(t.Context(), "lock", o, hang)
						return
					}
					tn, err := a.Acquire(t.Context(), "lock", o)
					if err == nil {
						err = hang(t.Context(), tn)
					}
					over <- err
				}()
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), fixture.Size(10*time.Minute, time.Hour))
				defer cancel()
				began := time.Now()
				_, err := b.Acquire(ctx, "lock", shardlease.AcquireOptions{})
				if took := time.Since(began); of.keeps != (err != nil) || !of.keeps && took > stall+20*time.Second+beat {
					t.Errorf("after %v: %v", took, err)
				}
				close(wake)
				if err := <-over; of.keeps != (err == nil) {
					t.Errorf("the holder that hung is told %v", err)
				}
			})
		}
	}
}

// TestItemThatKillsItsHolders: each process that works on the item dies. The thirteenth finds the item quarantined, and
// so does everybody after it, until an operator ends that.
func TestItemThatKillsItsHolders(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		deaths := 0
		for range 14 {
			link := storetest.NewLink(store)
			s := runSession(t, link, shardlease.SessionConfig{Name: fmt.Sprint("run-", deaths%2), MaxAttempts: 12})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := s.Do(ctx, "lock", shardlease.AcquireOptions{}, func(ctx context.Context, _ *shardlease.Tenure) error {
				deaths++
				link.Cut()
				<-ctx.Done()
				return nil
			})
			cancel()
			if deaths == 12 && errors.Is(err, context.DeadlineExceeded) {
				break
			}
		}
		if r := lockRow(t, store); deaths != 12 || !r.Quarantined || r.Attempts() != 12 {
			t.Errorf("%d have died, and the row is %v", deaths, r)
		}
		s := runSession(t, store, shardlease.SessionConfig{Name: "run-2"})
		_, err := s.TryAcquire(t.Context(), "lock", shardlease.AcquireOptions{})
		if held, ok := errors.AsType[*shardlease.HeldError](err); !ok || !held.Quarantined {
			t.Errorf("TryAcquire returned %v", err)
		}
		operator := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		_, err = operator.Unquarantine(t.Context(), "lock", lockRow(t, store).Generation, "repaired")
		must(t, err)
		must(t, s.Do(t.Context(), "lock", shardlease.AcquireOptions{}, func(context.Context, *shardlease.Tenure) error { return nil }))
	})
}

// TestAcquireOptionsAreChecked: their limits have the bounds of those of the session.
func TestAcquireOptionsAreChecked(t *testing.T) {
	_, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks", StallAfter: time.Second})
	if !errors.Is(err, shardlease.ErrConfig) {
		t.Errorf("NewSession returned %v", err)
	}
	s, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks"})
	must(t, err)
	if _, err := s.Acquire(t.Context(), "lock", shardlease.AcquireOptions{StallAfter: time.Second}); !errors.Is(err, shardlease.ErrConfig) {
		t.Errorf("Acquire returned %v", err)
	}
}
