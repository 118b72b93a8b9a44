package shardlease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Handler processes one shard for as long as its tenure lasts. It is called on a
// goroutine of its own. One worker never runs two handlers of a shard at a time.
//
// When ctx ends, the handler has to wind down: it should read nothing more, finish and
// mark what it has read, and return. It may return ctx.Err(). For sink writes, commits
// and Finish it should use t.Context(), which ends when the tenure is over: in a
// cooperative move together with ctx, otherwise later, by the end of the drain time.
// Whatever the handler does after that is fenced. [context.Cause] of either context is
// an [*EndError]. Neither ends with the context that Run was given, but its values are
// there.
//
// An error or a panic ends the tenure and counts as a failed attempt; an error
// after ctx has ended does not. Returning nil gives the shard
// up, for any worker to take; this one rests it first, as long as after a failure
// ([Config.Backoff]), and longer each time until a tenure gets somewhere.
type Handler func(ctx context.Context, t *Tenure) error

// A Worker is one member of a fleet that shares the shards of a source.
type Worker struct {
	store  lease.Store
	source Source
	config Config
	wall   func() time.Time

	ran atomic.Bool

	mu    sync.Mutex
	state state
	began time.Time // of Run
	trust engine.Instant
	ready bool
	fails engine.Fault // commits that the table does not accept
}

// A state is how far a worker has come.
type state uint8

const (
	idle state = iota
	running
	over
)

// New makes a worker. All that is wrong with its arguments is reported at once.
func New(store lease.Store, source Source, config Config) (*Worker, error) {
	config, err := config.withDefaults()
	f := faults{}
	if isNil(store) {
		f.add("store", "must be given: a dynamostore.Store, or a memstore.Store to try things out"+nilOf(store))
	}
	if isNil(source) {
		f.add("source", "must be given: it says which shards there are"+nilOf(source))
	}
	if shards, ok := source.(static); ok {
		f.wrap("source", look(context.Background(), shards).Err)
	}
	if err := errors.Join(err, errors.Join(f...)); err != nil {
		return nil, err
	}
	return &Worker{store: store, source: source, config: config, wall: time.Now}, nil
}

// Run claims shards and calls handler for each, until ctx is cancelled; then it
// stops in good order and returns nil. That order takes as long as others take to
// ask for its shards and handlers to wind down, and [Config.Drain] at most for either:
// no context of a handler lives longer than twice that. What the table has not
// answered a lease time later is left to the others.
//
// Whatever happens to the store, a shard or a handler in between is told as an
// event and does not end Run. When it returns, everything that it started has
// ended: it waits for handlers that ignore their contexts, and so may return late
// or never.
//
// A Worker runs once.
func (w *Worker) Run(ctx context.Context, handler Handler) error {
	if handler == nil {
		return &ConfigError{Field: "handler", Rule: "must be given: Run calls it for each shard"}
	}
	if !w.ran.CompareAndSwap(false, true) {
		return ErrRunning
	}
	r := newRun(ctx, w, handler)
	defer r.finish()
	r.loop(ctx)
	return nil
}

// Healthy reports whether the worker does its part: nil while Run runs, the last
// confirmed heartbeat is younger than the lease time, and the table accepts its
// commits ([Config.CommitTimeout]). A worker that has just started has a lease time for
// its first heartbeat.
func (w *Worker) Healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != running {
		return fmt.Errorf("worker %q is not running", w.config.Name)
	}
	// Trust ends a tenth of the lease time early; a beat is as young as that.
	silent := time.Since(w.began) - max(0, time.Duration(w.trust)-w.config.TTL*9/10)
	if silent >= w.config.TTL {
		return fmt.Errorf("worker %q has not had a heartbeat confirmed for %v", w.config.Name, silent.Round(time.Millisecond))
	}
	if n := w.fails.Count; n > 0 {
		late := time.Since(w.began) - time.Duration(w.fails.Since)
		return fmt.Errorf("worker %q: the table has accepted no commit of %d shards for %v: %.64q", w.config.Name, n, late.Round(time.Millisecond), w.fails.Shards)
	}
	return nil
}

// Ready reports whether the worker has its place in the fleet and has looked at the
// shards, and so may hold some. It is not ready while it looks for a new place after
// it lost one, and when the table was restored.
func (w *Worker) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state == running && w.ready
}

func (w *Worker) enter(s state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s == running {
		w.began = time.Now()
	}
	w.state = s
}

func (w *Worker) publish(s engine.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Trust > 0 { // it has none while it has no seat; the last beat was when it was
		w.trust = s.Trust
	}
	w.fails = s.CommitsFail
	w.ready = s.Seated && !s.Restored && (w.ready || s.Planned)
}
