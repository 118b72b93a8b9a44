// Package cable lets examples cut a worker off from its lease table.
package cable

import (
	"context"
	"iter"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Cable is the way from one worker to the store. Once it is cut nothing goes in or
// out: to everybody else that worker is as good as dead, and to itself the store is
// silent.
type Cable struct {
	store lease.Store
	once  sync.Once
	cut   chan struct{}
}

// To is a cable to a store.
func To(store lease.Store) *Cable { return &Cable{store: store, cut: make(chan struct{})} }

// Cut cuts it.
func (c *Cable) Cut() { c.once.Do(func() { close(c.cut) }) }

// reach waits until ctx ends, if the cable is cut.
func (c *Cable) reach(ctx context.Context) error {
	select {
	case <-c.cut:
		<-ctx.Done()
	default:
	}
	return ctx.Err()
}

// List lists, unless the cable is cut.
func (c *Cable) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if err := c.reach(ctx); err != nil {
			yield(nil, err)
			return
		}
		c.store.List(ctx, q)(yield)
	}
}

// Get reads, unless the cable is cut.
func (c *Cable) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if err := c.reach(ctx); err != nil {
		return nil, err
	}
	return c.store.Get(ctx, k)
}

// Write writes, unless the cable is cut.
func (c *Cable) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if err := c.reach(ctx); err != nil {
		return nil, err
	}
	return c.store.Write(ctx, w)
}

// Verify asks the store whether its table is the one it was, where it can tell.
func (c *Cable) Verify(ctx context.Context, group string) error {
	if err := c.reach(ctx); err != nil {
		return err
	}
	return c.store.Verify(ctx, group)
}
