package shardlease

import (
	"context"
	"errors"
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

	turned atomic.Int64 // when the run loop last turned, as an engine.Instant

	mu      sync.Mutex
	state   state
	began   time.Time // of Run
	trust   engine.Instant
	ready   bool
	status  engine.Status
	tenures map[*Tenure]struct{} // those that are not over
}

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
