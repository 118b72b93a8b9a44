// Package zombie plays the takeover of an idle shard: an owner writes to a sink and is cut off, its successor starts under
// a higher generation and has nothing to write, and much later the old owner writes once more.
package zombie

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A Sink is how handlers write to a sink, under the token of the context, and how its fence is raised. Neither may wait for
// a network: in a bubble, time would stand still.
type Sink struct {
	Write func(ctx context.Context, text string) error
	Raise func(ctx context.Context, name string, generation int64) error
}

// Check plays the takeover in fake time, as subtests. The sink has to refuse the late write if its fence is raised, and
// accepts it if the fence is not. Each has a sink of its own.
func Check(t *testing.T, open func(t *testing.T) Sink) {
	t.Helper()
	for _, raised := range []bool{true, false} {
		name := "raised"
		if !raised {
			name = "not raised"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of, target := open(t), shardlease.Target{Name: "sink"}
				if raised {
					target.Raise = of.Raise
				}
				late := play(t, []shardlease.Target{target}, of.Write)
				if errors.Is(late, checkpoint.ErrStale) != raised || !raised && late != nil {
					t.Errorf("the late write: %v", late)
				}
			})
		})
	}
}

// play returns the error of the late write; nil: the sink has accepted it.
func play(t *testing.T, targets []shardlease.Target, write func(ctx context.Context, text string) error) (late error) {
	t.Helper()
	store := new(memstore.Store)
	link := storetest.NewLink(store)
	started := make(chan fence.Token, 8)
	join := func(link *storetest.Link, name, text string) (leave func()) {
		w, err := shardlease.New(link, shardlease.Static("shard-0"), shardlease.Config{
			Group: "orders", Name: name, Handoff: rebalance.Eager, Targets: targets,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() {
			ended <- w.Run(ctx, func(ctx context.Context, tn *shardlease.Tenure) error {
				if text != "" {
					if err := write(ctx, text); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				token, _ := fence.FromContext(ctx)
				started <- token
				<-ctx.Done()
				return nil
			})
		}()
		return func() {
			stop()
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	leave := join(link, "a", "the first of a")
	next := func() fence.Token {
		select {
		case token := <-started:
			return token
		case <-time.After(time.Hour):
			t.Fatal("no handler has started")
			return fence.Token{}
		}
	}
	defer func() { link.Heal(); leave() }()
	old := next()
	link.Cut() // for the others, a is dead from here on
	defer join(storetest.NewLink(store), "b", "")()
	if successor := next(); successor.Generation <= old.Generation {
		t.Errorf("%v after %v", successor, old)
	}
	time.Sleep(time.Hour)
	return write(fence.NewContext(context.WithoutCancel(t.Context()), old), "the late one of a")
}
