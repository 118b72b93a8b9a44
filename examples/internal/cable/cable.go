// Package cable lets examples cut a worker off from its lease table, and kill it.
package cable

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Cable is the way from one worker to the store. While it is cut nothing goes in or out:
// to everybody else that worker is as good as dead, and to itself the store is silent.
type Cable struct {
	store lease.Store

	mu     sync.Mutex
	cut    chan struct{}    // closed when it is mended; nil: it is not cut
	killed bool             // and cannot be mended
	trap   chan lease.Write // for CutAtCheckpoint
}

var errKilled = errors.New("this worker was killed")

// To is a cable to a store.
func To(store lease.Store) *Cable { return &Cable{store: store} }

// Cut cuts it.
func (c *Cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sever()
}

func (c *Cable) sever() {
	if c.cut == nil {
		c.cut = make(chan struct{})
	}
}

// Mend mends it.
func (c *Cable) Mend() { c.end(false) }

// Kill makes everything that passes through it, or waits for it, fail from now on.
func (c *Cable) Kill() { c.end(true) }

func (c *Cable) end(killed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut != nil {
		close(c.cut)
	}
	c.cut, c.killed = nil, c.killed || killed
}

// CutAtCheckpoint cuts it as soon as a checkpoint is on its way, and returns that write,
// which may still arrive, late.
func (c *Cable) CutAtCheckpoint(ctx context.Context) (lease.Write, error) {
	trap := make(chan lease.Write, 1)
	c.setTrap(trap)
	select {
	case w := <-trap:
		return w, nil
	case <-ctx.Done():
		c.setTrap(nil)
		return lease.Write{}, context.Cause(ctx)
	}
}

func (c *Cable) setTrap(trap chan lease.Write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trap = trap
}

// spring cuts the cable if w is the checkpoint that CutAtCheckpoint waits for.
func (c *Cable) spring(w lease.Write) {
	old, ok := w.Old.(lease.Row)
	next, too := w.Next.(lease.Row)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trap != nil && ok && too && w.Op == lease.OpSwap && next.Checkpoint != old.Checkpoint {
		c.trap <- w
		c.trap = nil
		c.sever()
	}
}

// Wait waits while the cable is cut. Handlers call it right before an effect, so that they
// are paused with their worker.
func (c *Cable) Wait(ctx context.Context) error {
	for {
		c.mu.Lock()
		cut, killed := c.cut, c.killed
		c.mu.Unlock()
		switch {
		case killed:
			return errKilled
		case cut == nil:
			return ctx.Err()
		}
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// List lists, unless the cable is cut.
func (c *Cable) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if err := c.Wait(ctx); err != nil {
			yield(nil, err)
			return
		}
		c.store.List(ctx, q)(yield)
	}
}

// Get reads, unless the cable is cut.
func (c *Cable) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if err := c.Wait(ctx); err != nil {
		return nil, err
	}
	return c.store.Get(ctx, k)
}

// Write writes, unless the cable is cut.
func (c *Cable) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	c.spring(w)
	if err := c.Wait(ctx); err != nil {
		return nil, err
	}
	return c.store.Write(ctx, w)
}

// Verify asks the store whether its table is the one it was.
func (c *Cable) Verify(ctx context.Context, group string) error {
	if err := c.Wait(ctx); err != nil {
		return err
	}
	return c.store.Verify(ctx, group)
}
