package tenuretest_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/tenuretest"
)

// count is a handler under test: it processes ten records per second, up to the hundredth.
func count(ctx context.Context, t *shardlease.Tenure) error {
	n, _ := strconv.Atoi(t.Checkpoint().Position)
	for ; ctx.Err() == nil; n++ {
		if n == 100 {
			return t.Finish(t.Context())
		}
		time.Sleep(100 * time.Millisecond)
		if err := t.Mark(strconv.Itoa(n + 1)); err != nil {
			return err
		}
	}
	return nil
}

func TestHandlerAlone(t *testing.T) {
	fence := func(tn *tenuretest.Tenure) {
		_, _ = tn.Table.ForceRelease(context.Background(), "shard-3", tn.Generation(), "a test")
	}
	for name, tc := range map[string]struct {
		from, to string
		act      func(*tenuretest.Tenure) // is called after a second
		want     error
	}{
		"winds down": {"17", "27", func(tn *tenuretest.Tenure) { tn.Stop() }, nil},
		"finishes":   {"95", "100", func(*tenuretest.Tenure) {}, nil},
		"is fenced":  {"", "", fence, shardlease.ErrEnded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tenure := tenuretest.Begin(t, shardlease.Config{}, "shard-3", checkpoint.Mark{Position: tc.from})
				time.AfterFunc(950*time.Millisecond, func() { tc.act(tenure) })
				if err := tenure.Call(count); !errors.Is(err, tc.want) {
					t.Errorf("the handler returned %v", err)
				}
				row, err := tenure.Table.Get(t.Context(), "shard-3")
				if err != nil || row.Checkpoint.Position != tc.to || row.Finished != (tc.to == "100") {
					t.Errorf("the row is %v at %q, error %v", row, row.Checkpoint.Position, err)
				}
				if err := tenure.Call(func(context.Context, *shardlease.Tenure) error {
					t.Error("a second call of the handler")
					return nil
				}); err == nil {
					t.Error("a second Call returned nil")
				}
			})
		})
	}
}

// TestConsume runs the test that ExampleBegin shows.
func TestConsume(t *testing.T) { synctest.Test(t, checkConsume) }

// TestCallReturnsWhateverObserveDoes: Call returns although Observe is slow, its queue is short,
// and Observe panics at the end of the tenure.
func TestCallReturnsWhateverObserveDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := shardlease.Config{EventQueue: 1, Observe: func(e event.Event) {
			time.Sleep(10 * time.Second)
			if e.Kind == event.Ended {
				panic("at the end")
			}
		}}
		tenure := tenuretest.Begin(t, config, "shard-3", checkpoint.Mark{Position: "99"})
		if err := tenure.Call(count); err != nil {
			t.Error(err)
		}
	})
}
