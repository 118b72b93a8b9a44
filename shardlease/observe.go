package shardlease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An observer delivers events to Observe and to the logger, on a goroutine of its own
// because either may block.
type observer struct {
	observe func(event.Event)
	log     *slog.Logger
	limit   int
	wake    chan struct{}
	gone    sync.WaitGroup

	mu      sync.Mutex
	queue   []event.Event
	dropped uint64 // the events dropped since one was last delivered
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

// next removes the oldest event from the queue, and stores in it how many events were
// dropped.
func (o *observer) next() (e event.Event, some, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.queue = nil // frees the memory that a burst needed
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
	attrs := e.LogValue().Group()
	// A stack is written to the log alone: events are sent to dashboards, and notes to the
	// table.
	if p, _ := errors.AsType[*panicError](e.Err); p != nil && p.stack != nil {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	o.log.LogAttrs(context.Background(), level, e.Message(), attrs...)
}

// An episode is a tenure as the loop knows it: from the call of the handler until the
// handler has returned and the tenure has ended, in either order.
type episode struct {
	tenure   *Tenure
	returned int64          // when the handler returned, in Unix milliseconds; 0: it has not
	err      error          // the error or the panic of the handler
	ended    *event.Event   // the Ended event while it waits for the handler to return
	until    engine.Instant // when ended is reported even if the handler has not returned
	reported bool           // the Ended event was reported
}

// emit passes an event to the observer. It may be called from any goroutine.
func (r *run) emit(e event.Event) {
	if e.At.IsZero() {
		e.At = r.worker.wall().Round(0)
	}
	e.Group, e.Worker = r.config.Group, r.config.Name
	r.observer.put(e)
}

// report reports an event of the engine.
//
// The end of a tenure is reported when its handler has returned, so that one event has
// everything: the cause, the durations, the handler's error, and for how long the handler continued.
// The report does not wait forever: if the handler does not return, the event says so.
func (r *run) report(e event.Event) {
	e.At = r.worker.wall().Round(0)
	if e.Kind == event.Ended {
		r.worker.ended(e.Cause)
		if ep := r.episode[engine.Tenure{Shard: e.Shard, Generation: e.Generation}]; ep != nil {
			r.hold(ep, e)
			return
		}
	}
	r.emit(e)
}

// reportStart reports that the handler is called, at the moment of the call.
func (r *run) reportStart(e event.Event) {
	e.At = r.worker.wall().Round(0)
	e.Gap, e.Delay = gap(e.Transfer, e.At), delay(e.Transfer, e.At)
	r.emit(e)
}

// hold keeps an Ended event until the handler has returned.
func (r *run) hold(ep *episode, e event.Event) {
	ep.ended, ep.until = &e, r.mono().Add(r.config.TTL/3)
	r.late = min(r.late, ep.until)
	r.held++
	if ep.returned != 0 {
		r.reportEnd(ep)
	}
}

// returned records that a handler has returned, and reports the end of its tenure if that
// was waiting for it.
func (r *run) returned(id engine.Tenure, a arrival) {
	r.handlers--
	ep := r.episode[id]
	if ep == nil {
		return
	}
	ep.returned, ep.err = a.at, a.err
	switch {
	case ep.reported:
		delete(r.episode, id)
		r.worker.abandon(-1)
	case ep.ended != nil:
		r.reportEnd(ep)
	}
}

// reportHeld reports the ends of tenures whose handlers have not returned in time.
func (r *run) reportHeld() {
	now := r.mono()
	if r.held == 0 || now < r.late {
		return
	}
	r.late = engine.Never
	for _, ep := range r.episode {
		switch {
		case ep.ended == nil:
		case now >= ep.until:
			r.reportEnd(ep)
		default:
			r.late = min(r.late, ep.until)
		}
	}
}

const (
	hangsAfter = 500 * time.Millisecond // after the end of its tenure a handler hangs
	hangsEvery = time.Minute
	mostHangs  = 10 // how many shards a report names
)

// reportHangs reports the handlers that have not returned although their tenures have ended, while the worker shuts down:
// the process cannot end before they return.
func (r *run) reportHangs() {
	now := r.mono()
	if now < r.hangs {
		return
	}
	e := event.Event{Kind: event.Hangs}
	for _, ep := range r.episode {
		if over := ep.until.Add(-r.config.TTL / 3); ep.returned == 0 && (ep.ended != nil || ep.reported) && now >= over.Add(hangsAfter) {
			e.Shards, e.Lasted = append(e.Shards, ep.tenure.shard.Name), max(e.Lasted, now.Sub(over))
		}
	}
	if e.Count = len(e.Shards); e.Count == 0 {
		r.hangs = now.Add(hangsAfter)
		return
	}
	slices.Sort(e.Shards)
	if e.Count == 1 {
		e.Shard = e.Shards[0]
	}
	e.Shards = e.Shards[:min(e.Count, mostHangs)]
	r.emit(e)
	r.hangs = now.Add(hangsEvery)
}

func (r *run) reportEnd(ep *episode) {
	e := *ep.ended
	ep.ended, ep.reported = nil, true
	r.held--
	until := ep.returned
	if e.Running = until == 0; e.Running {
		until = r.worker.wall().UnixMilli()
		r.worker.abandon(1)
	} else {
		delete(r.episode, ep.tenure.id())
	}
	e.Continued = continued(e, time.UnixMilli(until))
	// In a planned move a sink may refuse the late writes of the handler: that is no fault.
	if e.Cause != event.CauseHandedOff || !onlyStale(ep.err) {
		e.Err = errors.Join(e.Err, ep.err)
	}
	r.emit(e)
}

// onlyStale reports whether err is a stale write and nothing else.
func onlyStale(err error) bool {
	for err != nil {
		switch of := err.(type) {
		case *panicError:
			return false
		case *givenError:
			is := false
			_ = apart(func() { is = onlyStale(of.err) })
			return is
		case *checkpoint.StaleError:
			return true
		case *EndError: // what the calls of a tenure return
			return errors.Is(of, checkpoint.ErrStale)
		}
		err = errors.Unwrap(err)
	}
	return false
}

// gap returns for how long nobody processed the shard before it moved to this worker. It is
// zero unless the owner itself gave the shard up, which it does after its handler has
// returned. If this worker took the shard over, see delay.
func gap(t lease.Transfer, started time.Time) time.Duration {
	ended := protocol.EndingOf(t.Reason)
	if ended != protocol.GivenUp && ended != protocol.Moved || t.From == "" || t.From != t.By || t.At.IsZero() {
		return 0
	}
	return max(0, started.Sub(t.At))
}

// delay returns how long after the takeover of an offered shard this worker called its handler.
func delay(t lease.Transfer, started time.Time) time.Duration {
	if t.Mode != rebalance.Cooperative || t.From == "" || t.From == t.By || t.At.IsZero() {
		return 0
	}
	return max(0, started.Sub(t.At))
}

// continued returns how long the handler continued after another worker had taken the shard
// over.
func continued(e event.Event, until time.Time) time.Duration {
	if e.Peer == "" || e.Transfer.Generation <= e.Generation || e.Transfer.At.IsZero() {
		return 0 // no other worker is known to hold the shard
	}
	return max(0, until.Sub(e.Transfer.At))
}
