package main

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A host is the machine that one worker seems to run on: everything the worker
// reads from the table or writes to it, and every effect of its handlers, goes
// through here, and so it can be killed and paused.
//
// This is as close as one process gets. A worker cannot be SIGKILLed alone, so a
// killed host answers nothing and lets nothing out from that moment on; the worker's
// goroutines live on, unheard, until they are buried at the end of the story. And a
// paused host holds everything up, but the library's own timers go on behind it, as
// those of a stopped process would not; what they decide cannot get out either. To
// the table and to the other workers both look like the real thing. (The library's
// own tests send SIGKILL and SIGSTOP to processes.)
type host struct {
	store lease.Store

	mu      sync.Mutex
	state   state
	changed chan struct{} // closed when state changes
	wire    *lease.Write  // the commit that was under way when the host was paused
	refused map[lease.WriteID]bool
	stored  map[lease.WriteID]bool
}

type state uint8

const (
	up      state = iota
	pausing       // will be paused as soon as a commit is under way
	paused
	killed
	buried // killed, and the story is over
)

var errDead = errors.New("this host is dead")

func newHost(store lease.Store) *host {
	return &host{store: store, changed: make(chan struct{}), refused: map[lease.WriteID]bool{}, stored: map[lease.WriteID]bool{}}
}

// enter changes the state, and tells whoever waits for that.
func (h *host) enter(s state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.become(s)
}

func (h *host) become(s state) {
	h.state = s
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *host) now() (state, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, h.changed
}

// runs holds up a goroutine of the worker's for as long as the host is paused, no
// matter what its contexts say; false: it is dead.
func (h *host) runs() bool {
	for {
		switch s, changed := h.now(); s {
		case up, pausing:
			return true
		case buried:
			return false
		default:
			<-changed
		}
	}
}

// reach is what a call to the store waits for: its host must be up.
func (h *host) reach(ctx context.Context) error {
	for {
		s, changed := h.now()
		switch s {
		case up, pausing:
			return nil
		case buried:
			return errDead
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// List lists, when the host is up.
func (h *host) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if err := h.reach(ctx); err != nil {
			yield(nil, err)
			return
		}
		h.store.List(ctx, q)(yield)
	}
}

// Get reads, when the host is up.
func (h *host) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if err := h.reach(ctx); err != nil {
		return nil, err
	}
	return h.store.Get(ctx, k)
}

// Write writes, when the host is up; the commit that is to be under way when the
// host is paused goes on the wire, and arrives when the host wakes up.
func (h *host) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if h.pauseWith(w) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := h.reach(ctx); err != nil {
		return nil, err
	}
	return h.deliver(ctx, w)
}

// Verify asks the store whether its table is the one it was.
func (h *host) Verify(ctx context.Context, group string) error {
	if err := h.reach(ctx); err != nil {
		return err
	}
	return h.store.Verify(ctx, group)
}

// pauseWith pauses the host if that waits for a commit, and w is one.
func (h *host) pauseWith(w lease.Write) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != pausing || !isCheckpoint(w) {
		return false
	}
	h.wire = &w
	h.become(paused)
	return true
}

// wake lets the host go on. What was on the wire arrives first.
func (h *host) wake(ctx context.Context) (lease.Write, error) {
	_, err := h.deliver(ctx, *h.wire)
	h.enter(up)
	return *h.wire, err
}

// deliver is where the bytes reach the table. It counts checkpoints: by write, since
// one whose answer is lost is sent again.
func (h *host) deliver(ctx context.Context, w lease.Write) (lease.Record, error) {
	r, err := h.store.Write(ctx, w)
	if !isCheckpoint(w) {
		return r, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.stored[w.ID()] = true
	case newer(err, w) != nil:
		h.refused[w.ID()] = true
	}
	return r, err
}

// checkpoints tells how many were accepted, and how many refused as stale.
func (h *host) checkpoints() (accepted, refused int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.stored), len(h.refused)
}

// isCheckpoint reports whether w is a holder's write that carries a new checkpoint.
func isCheckpoint(w lease.Write) bool {
	old, ok := w.Old.(lease.Row)
	next, too := w.Next.(lease.Row)
	return ok && too && w.Op == lease.OpSwap && next.Checkpoint != old.Checkpoint
}

// newer is the row of a later generation over which w was refused.
func newer(err error, w lease.Write) *lease.Row {
	refused, ok := errors.AsType[*lease.RefusedError](err)
	if !ok {
		return nil
	}
	now, isRow := refused.Now.(lease.Row)
	if !isRow || now.Generation <= w.Old.(lease.Row).Generation {
		return nil
	}
	return &now
}
