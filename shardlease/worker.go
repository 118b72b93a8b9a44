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

// A Handler processes one shard for as long as its tenure lasts. The worker calls it on a
// goroutine of its own, and never runs two handlers of one shard at a time.
//
// When ctx ends, the handler should wind down: read nothing more, finish and mark what it
// has read, and return. It may return ctx.Err(). For sink writes, commits and Finish it
// should use t.Context(), which ends when the tenure is over. If the handler is asked to wind
// down (in an eager move, a shutdown or a stall, or after Release), t.Context() ends later than
// ctx, by the end of the drain time. If the shard is lost (fenced, expired, unreachable or
// forced) or was taken over in a cooperative move, both end together. Whatever the handler does
// after that is fenced. [context.Cause] of either context is an [*EndError]. Neither context
// ends with the context of Run, but both carry its values.
//
// An error or a panic ends the tenure and counts as a failed attempt; an error after ctx
// has ended does not. If the handler returns nil, the worker releases the shard, and any
// worker may claim it. This worker waits before it claims the shard again: as long as after
// a failure ([Config.Backoff]), and longer each time until a tenure makes progress.
type Handler func(ctx context.Context, t *Tenure) error

// A Worker is one member of a fleet that shares the shards of a source.
type Worker struct {
	noun     string // "worker", or "session" for the worker inside a Session
	engine   func(engine.Config, engine.Moment) stepper
	refuse   func(engine.Unavailable) // set by a session
	unwanted func(*Tenure) bool       // the same: no caller waits for the tenure any more
	again    func(*Tenure)            // the same: the tenure has ended before its handler was called
	store    lease.Store
	source   Source
	config   Config
	wall     func() time.Time

	ran atomic.Bool

	turned atomic.Int64 // when the run loop last turned: an engine.Instant

	mu        sync.Mutex
	state     state
	began     time.Time // when Run began
	trust     engine.Instant
	trustWall time.Time // when trust ends by the wall clock
	ready     bool
	status    engine.Status
	tenures   map[*Tenure]struct{} // the tenures that are not over

	abandoned      int // the number of handlers whose tenures were reported as over and running
	released, lost int // the number of tenures that have ended, by how they ended
}

// New returns a worker. It reports all faults of its arguments at once.
func New(store lease.Store, source Source, config Config) (*Worker, error) {
	config, err := config.withDefaults()
	f := faults{}
	if isNil(store) {
		f.add("store", "must be given: a dynamostore.Store, or a memstore.Store to try things out"+nilOf(store))
	}
	if isNil(source) {
		f.add("source", "must be given: it lists the shards"+nilOf(source))
	}
	if shards, ok := source.(static); ok {
		f.wrap("source", listSource(context.Background(), shards, config.EmptySource).Err)
	}
	if err := errors.Join(err, errors.Join(f...)); err != nil {
		return nil, err
	}
	return &Worker{noun: "worker", engine: newEngine, store: store, source: source, config: config, wall: time.Now}, nil
}

// A stepper decides what to do next: an engine.Engine, or an engine.Session.
type stepper interface {
	Step(now engine.Moment, in engine.Input) (out []engine.Output, wake engine.Instant)
	Done() bool
	Status() engine.Status
}

func newEngine(c engine.Config, now engine.Moment) stepper { return engine.New(c, now) }

// Run claims shards and calls handler for each of them, until ctx is cancelled. It then
// shuts down gracefully and returns nil: it waits up to [Config.Drain] for other workers to
// request its shards, then up to Drain for handlers to return. So the contexts of the
// handlers end at most twice Drain after ctx. Writes that the table has not answered a
// lease time later are abandoned; other workers then claim the shards that these writes
// would have released, as after a crash.
//
// A failure of the store, of a shard or of a handler is reported as an event and does not
// end Run. Run returns when everything that it started has ended. It waits for handlers
// that ignore their contexts, and so may return late or never.
//
// A Worker runs once. Without a context or a handler, Run returns a [*ConfigError] and starts
// nothing. In a group of sessions ([NewSession]), Run claims nothing and returns a
// [*GroupError].
func (w *Worker) Run(ctx context.Context, handler Handler) error {
	switch {
	case isNil(ctx):
		return &ConfigError{Field: "ctx", Rule: "must be given: its end stops the worker" + nilOf(ctx)}
	case handler == nil:
		return &ConfigError{Field: "handler", Rule: "must be given: Run calls it for each shard"}
	}
	if !w.ran.CompareAndSwap(false, true) {
		return ErrRunning
	}
	r := newRun(ctx, w, handler)
	defer r.finish()
	r.loop(ctx)
	return r.foreign()
}
