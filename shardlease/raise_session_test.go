package shardlease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

// TestAcquireIsGivenUpWhileARaiseHangs: the raise of a lease hangs, whatever its context does. A call that waits for it
// returns when its context ends, and the lease is free for others.
func TestAcquireIsGivenUpWhileARaiseHangs(t *testing.T) {
	for name, acquire := range map[string]func(context.Context, *shardlease.Session) error{
		"Acquire": func(ctx context.Context, s *shardlease.Session) error {
			_, err := s.Acquire(ctx, "lock", shardlease.AcquireOptions{})
			return err
		},
		"TryAcquire": func(ctx context.Context, s *shardlease.Session) error {
			_, err := s.TryAcquire(ctx, "lock", shardlease.AcquireOptions{})
			return err
		},
		"Do": func(ctx context.Context, s *shardlease.Session) error {
			return s.Do(ctx, "lock", shardlease.AcquireOptions{}, func(context.Context, *shardlease.Tenure) error {
				t.Error("the function is called, and the fence is not raised")
				return nil
			})
		},
	} {
		subtest(t, name, func(t *testing.T) {
			store, end := new(memstore.Store), make(chan struct{})
			a := runSession(t, store, shardlease.SessionConfig{Name: "a", MaxRaises: 1, Targets: []shardlease.Target{{
				Name: "db", Raise: func(context.Context, string, int64) error { <-end; return errSinkDown },
			}}})
			t.Cleanup(func() { close(end) }) // Run waits for the raise
			b := runSession(t, store, shardlease.SessionConfig{Name: "b"})
			for range 2 { // the second raise waits for the turn of the first, which hangs
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				from := time.Now()
				err := acquire(ctx, a.Session)
				cancel()
				if took := time.Since(from); took != 5*time.Second || !errors.Is(err, context.DeadlineExceeded) ||
					!strings.Contains(err.Error(), "waited for the fences of its targets") {
					t.Errorf("returned %v after %v", err, took)
				}
				from = time.Now()
				tn := b.lock(t, shardlease.AcquireOptions{})
				if took := time.Since(from); took > beat {
					t.Errorf("the lease was free after %v", took)
				}
				tn.Release("")
				time.Sleep(time.Second)
			}
		})
	}
}
