package shardlease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An observer delivers events on a goroutine of its own, to Observe and to the
// logger: either may block.
type observer struct {
	observe func(event.Event)
	log     *slog.Logger
	limit   int
	wake    chan struct{}
	gone    sync.WaitGroup

	mu      sync.Mutex
	queue   []event.Event
	dropped uint64 // since an event was last delivered
	closed  bool
}

func newObserver(c Config) *observer {
	o := &observer{observe: c.Observe, log: c.Logger, limit: c.EventQueue, wake: make(chan struct{}, 1)}
	o.gone.Go(o.deliverAll)
	return o
}

func (o *observer) put(e event.Event) {
	o.mu.Lock()
	if len(o.queue) < o.limit {
		o.queue = append(o.queue, e)
	} else {
		o.dropped++
	}
	o.mu.Unlock()
	o.signal()
}

func (o *observer) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close waits until everything in the queue is delivered.
func (o *observer) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
	o.gone.Wait()
}

func (o *observer) deliverAll() {
	for range o.wake {
		for {
			e, some, last := o.next()
			if last {
				return
			}
			if !some {
				break
			}
			o.deliver(e)
		}
	}
}

// next takes the oldest event, which carries how many were dropped before it was
// delivered.
func (o *observer) next() (e event.Event, some, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.queue = nil // a burst should not be remembered by its memory
		return event.Event{}, false, o.closed
	}
	e, o.queue = o.queue[0], o.queue[1:]
	e.Dropped, o.dropped = o.dropped, 0
	return e, true, false
}

// deliver calls the logger and Observe. A panic of one of them is reported to the other.
func (o *observer) deliver(e event.Event) {
	fault := func(hook string, err error) event.Event {
		return event.Event{Kind: event.HookFault, At: e.At, Group: e.Group, Worker: e.Worker, Err: &HookError{Hook: hook, Err: err}}
	}
	err := apart(func() { o.write(e) })
	if o.observe == nil {
		return
	}
	if err != nil {
		_ = apart(func() { o.observe(fault("Logger", err)) })
	}
	if err := apart(func() { o.observe(e) }); err != nil {
		_ = apart(func() { o.write(fault("Observe", err)) })
	}
}

func (o *observer) write(e event.Event) {
	level := e.Level()
	if !o.log.Enabled(context.Background(), level) {
		return
	}
	attrs := e.LogValue().Group()[1:] // the first is the message
	// A stack is for the log alone: events go to dashboards, and notes to the table.
	if p, ok := errors.AsType[*panicError](e.Err); ok && p.stack != nil {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	o.log.LogAttrs(context.Background(), level, e.Kind.String(), attrs...)
}

// An episode is a tenure as the loop sees it: from the call of the handler to its
// return and the end of the tenure, in whichever order these come.
type episode struct {
	tenure   *Tenure
	returned time.Time    // the handler has; by the wall clock, as overlaps are
	err      error        // … with this
	ended    *event.Event // to be told when the handler has returned, …
	until    engine.Instant
	told     bool // … and was
}

// emit hands an event to the observer. It may be called from anywhere.
func (r *run) emit(e event.Event) {
	if e.At.IsZero() {
		e.At = r.worker.wall().Round(0)
	}
	e.Group, e.Worker = r.config.Group, r.config.Name
	r.observer.put(e)
}

// tell passes on what the engine tells.
//
// The end of a tenure waits for its handler, so that one event says it all: why,
// how long, with which error, and for how long two were at it. It does not wait for
// ever: a handler that does not return is an incident of its own.
func (r *run) tell(e event.Event) {
	e.At = r.worker.wall().Round(0)
	switch e.Kind {
	case event.Started:
		e.Gap = gap(e.Transfer, e.At)
	case event.Ended:
		if ep := r.episode[engine.Tenure{Shard: e.Shard, Generation: e.Generation}]; ep != nil {
			r.hold(ep, e)
			return
		}
	}
	r.emit(e)
}

// hold keeps the end of a tenure until its handler has returned.
func (r *run) hold(ep *episode, e event.Event) {
	ep.ended, ep.until = &e, r.mono().Add(r.config.TTL/3)
	r.late = min(r.late, ep.until)
	r.held++
	if !ep.returned.IsZero() {
		r.tellEnd(ep)
	}
}

// returned notes that a handler has returned, and tells the end of its tenure if
// that waits for it.
func (r *run) returned(id engine.Tenure, err error) {
	r.handlers--
	ep := r.episode[id]
	if ep == nil {
		return
	}
	// Rows keep milliseconds, and this is to be compared with a time in a row.
	ep.returned, ep.err = r.worker.wall().Truncate(time.Millisecond), err
	switch {
	case ep.told:
		delete(r.episode, id)
	case ep.ended != nil:
		r.tellEnd(ep)
	}
}

// tellHeld tells the ends that have waited long enough for a handler.
func (r *run) tellHeld() {
	now := r.mono()
	if r.held == 0 || now < r.late {
		return
	}
	r.late = engine.Never
	for _, ep := range r.episode {
		switch {
		case ep.ended == nil:
		case now >= ep.until:
			r.tellEnd(ep)
		default:
			r.late = min(r.late, ep.until)
		}
	}
}

func (r *run) tellEnd(ep *episode) {
	e := *ep.ended
	ep.ended, ep.told = nil, true
	r.held--
	until := ep.returned
	if e.Running = until.IsZero(); e.Running {
		until = r.worker.wall().Truncate(time.Millisecond)
	} else {
		delete(r.episode, ep.tenure.id())
	}
	e.Overlap = overlap(e, until)
	if e.Cause != event.CauseHandedOff || !errors.Is(ep.err, checkpoint.ErrStale) { // else a sink has refused a late write, as in any such move
		e.Err = errors.Join(e.Err, ep.err)
	}
	r.emit(e)
}

// gap is how long nobody had the shard before it came here: an owner that hands
// over does so when its handler has returned. A shard that was taken from an owner
// was served until then.
func gap(t lease.Transfer, started time.Time) time.Duration {
	planned := t.Reason == lease.ReasonHandoff || t.Reason == lease.ReasonDrainTimeout || t.Reason == lease.ReasonReleased
	if !planned || t.From == "" || t.From != t.By || t.At.IsZero() {
		return 0
	}
	return max(0, started.Sub(t.At))
}

// overlap is how long the handler went on after another worker had taken over.
func overlap(e event.Event, until time.Time) time.Duration {
	if e.Peer == "" || e.Transfer.Generation <= e.Generation || e.Transfer.At.IsZero() {
		return 0 // nobody has taken it, as far as is known
	}
	return max(0, until.Sub(e.Transfer.At))
}
