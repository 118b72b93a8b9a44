package takeover_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestInterruptedStoryEnds: Play returns when its context ends, even while a worker is paused.
func TestInterruptedStoryEnds(t *testing.T) {
	for after := 100 * time.Millisecond; after < time.Second; after += 200 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			write := func(_ context.Context, _ *shardlease.Tenure, _ int, pause func() bool) error {
				pause()
				return nil
			}
			if _, err := takeover.Play(ctx, new(memstore.Store), io.Discard, write); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v", after, err)
			}
		})
	}
}
