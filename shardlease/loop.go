package shardlease

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/deathwatch"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// A run is one call of Run: the shell around the engine. The goroutine that called Run owns
// all fields except the inbox and the queue of the observer. It waits only for the inbox
// and the clock. Everything that may take time runs on other goroutines, which put their
// results into the inbox.
type run struct {
	worker   *Worker
	handler  Handler
	config   Config
	order    checkpoint.Order // Config.Order, wrapped for the handlers
	engine   stepper
	start    time.Time
	inbox    *inbox
	observer *observer

	values      context.Context // the context of Run without its end: the parent of the handlers' contexts
	calls       context.Context // the parent of the contexts of all calls except the handlers'
	cancelCalls context.CancelFunc
	started     sync.WaitGroup // the goroutines that do has started
	idle        chan func()    // hands calls to the goroutines that wait for one
	free        atomic.Int64   // how many goroutines wait for a call
	episode     map[engine.Tenure]*episode
	handlers    int            // how many handlers have not returned
	held        int            // how many ends of tenures are not reported yet, because the handler has not returned
	hangs       engine.Instant // when to report next the handlers that hang; Never: the worker does not shut down
	reminder    reminder       // names wishes that stand
	late        engine.Instant // when the first of these ends is reported even if the handler has not returned
	prepare     map[string]*preparation
	deadlines   map[time.Duration]deadline // by limit
	flights     flights
	planning    atomic.Bool        // a call of the user's planner has not returned
	answers     *deathwatch.Server // nil: this worker does not listen
	links       *deathwatch.Links  // nil: there is no deathwatch
	slow        slowness
	raiser      raiser
	ends        ends
	marks       engine.Batch   // the marks of a turn of the loop; empty between turns
	sourceDue   engine.Instant // until when the source may take to answer
	wake        engine.Instant // when the engine has something to do next
}

func newRun(ctx context.Context, w *Worker, handler Handler) *run {
	r := &run{
		worker: w, handler: handler, config: w.config, start: time.Now(), inbox: newInbox(w.config.Commit.Marks), idle: make(chan func()),
		observer: newObserver(w.config), values: context.WithoutCancel(ctx),
		episode: map[engine.Tenure]*episode{}, prepare: map[string]*preparation{}, deadlines: map[time.Duration]deadline{}, sourceDue: engine.Never, late: engine.Never, hangs: engine.Never, reminder: reminder{next: engine.Instant(remindLook)},
		flights: newFlights(), raiser: newRaiser(w.config),
	}
	r.inbox.worker = w
	r.calls, r.cancelCalls = context.WithCancel(r.values)
	r.raiser.do, r.raiser.inbox, r.raiser.fault = r.do, r.inbox, r.hookFault
	r.ends.init(r.values, r.config.Group, w.store, r.emit)
	r.order = guarded(r.config.Order, r.hookFault)
	c := r.config.engine(r.hookFault)
	if c.Deathwatch {
		c.Address = r.listen(ctx)
		r.watch(c.Address)
	}
	r.engine = w.engine(c, r.moment())
	w.begin(r.start)
	return r
}

// do runs f on a new goroutine. It is the only place that starts one, except for the
// observer's, which must outlive all others.
func (r *run) do(f func()) { r.started.Go(f) }

// call runs f on a goroutine that has made a call before, if one is free, because growing a
// new stack for every write would cost more than the write.
func (r *run) call(f func()) {
	select {
	case r.idle <- f:
	default:
		r.do(func() { r.makeCalls(f) })
	}
}

// makeCalls makes calls, and waits for further calls if few other goroutines do.
func (r *run) makeCalls(f func()) {
	const few = 16 // few idle stacks cost little memory; those of a burst would cost much
	for {
		f()
		if r.free.Add(1) > few {
			r.free.Add(-1)
			return
		}
		select {
		case f = <-r.idle:
			r.free.Add(-1)
		case <-r.calls.Done():
			return
		}
	}
}

// loop runs the engine until it has stopped. The end of ctx stops it.
func (r *run) loop(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { r.inbox.put(arrival{input: engine.Stop{}, urgent: true}) })()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var b batch
	for {
		r.worker.turned.Store(int64(r.mono()))
		b = r.inbox.take(b)
		r.advance(b)
		if r.engine.Done() {
			return
		}
		timer.Reset(max(0, min(r.wake, r.flights.next, r.hangs, r.ends.due).Sub(r.mono())))
		select {
		case <-r.inbox.wake:
		case <-timer.C:
		}
	}
}

// advance passes a batch to the engine: the marks first and in one step, so that all decisions
// use the latest marks. Urgent arrivals are handled before each step. Heartbeats are sent on time
// even during a long batch, because every step of the engine sends what is due.
func (r *run) advance(b batch) {
	idle := r.handleUrgent() == 0 && len(b.arrived)+len(b.marked) == 0
	for _, t := range b.marked {
		if in, news := t.report(); news {
			r.marks = append(r.marks, in)
		}
	}
	if len(r.marks) > 0 {
		r.step(r.marks)
		r.handleUrgent()
		clear(r.marks) // frees the marks; the memory is used again
		r.marks = r.marks[:0]
	}
	for _, a := range b.arrived {
		r.take(a)
		r.handleUrgent()
	}
	if idle && r.mono() >= r.wake { // otherwise something arrived, or the wake-up was for the previous batch
		r.step(engine.Tick{})
	}
	r.abandonCalls()
	r.reportHeld()
	r.reportHangs()
	r.reportSilentSource()
	r.ends.begin(r.mono(), r.worker.wall, r.do)
	if now := r.mono(); now >= r.reminder.next {
		r.reminder.keep(now, r.engine.Status().Wishes, r.emit)
	}
	r.worker.publish(r.engine.Status())
}

// handleUrgent handles the urgent arrivals, and returns their number.
func (r *run) handleUrgent() int {
	urgent := r.inbox.takeUrgent()
	for _, a := range urgent {
		r.take(a)
	}
	if len(urgent) > 0 {
		r.worker.publish(r.engine.Status())
	}
	return len(urgent)
}

func (r *run) take(a arrival) {
	if r.admit(a) {
		r.step(a.input)
	}
}

// admit records what only the shell needs to know of an arrival. It returns false if the
// engine must not get the input any more.
func (r *run) admit(a arrival) bool {
	if a.flight != nil && !r.flights.end(a.flight) {
		return false // the engine got another answer to this call, and has perhaps repeated it
	}
	switch in := a.input.(type) {
	case engine.Prepared:
		if r.prepare[in.Shard] != a.from {
			return false // this preparation was called off, and perhaps another one is running
		}
		a.from.cancel()
		delete(r.prepare, in.Shard)
	case engine.Returned:
		r.returned(in.Tenure, a)
	case engine.Settled:
		r.ends.settled(in, r.mono)
	case engine.Source:
		r.sourceDue = engine.Never
	case engine.Stop:
		r.hangs = r.mono()
	}
	return true
}

func (r *run) step(in engine.Input) {
	now := r.moment()
	r.worker.turned.Store(int64(now.Mono)) // here too, because a batch may be long
	out, wake := r.engine.Step(now, in)
	for _, o := range out {
		r.carryOut(o)
	}
	r.wake = wake
}

func (r *run) mono() engine.Instant { return engine.Instant(time.Since(r.start)) }

// moment reads the clocks and a random text. Round removes the monotonic reading from the
// wall clock: the engine has a monotonic clock of its own, and recognizes from the
// difference that the machine was suspended.
func (r *run) moment() engine.Moment {
	return engine.Moment{Mono: r.mono(), Wall: r.worker.wall().Round(0), Chance: rand.Text()}
}

// carryOut carries out an output of the engine, without waiting for anything.
func (r *run) carryOut(o engine.Output) {
	switch o := o.(type) {
	case engine.List:
		r.list(o)
	case engine.Get:
		r.get(o)
	case engine.Send:
		r.send(o)
	case engine.Verify:
		r.verify(o)
	case engine.Poll:
		r.poll()
	case engine.Plan:
		r.plan(o)
	case engine.Prepare:
		r.prepareFor(o)
	case engine.CallOff:
		if p := r.prepare[o.Shard]; p != nil {
			p.cancel()
			delete(r.prepare, o.Shard)
		}
	case engine.Start:
		r.begin(o)
	case engine.RaiseAgain:
		if e := r.episode[o.Tenure]; e != nil {
			r.raiser.again(e.tenure, o.Round)
		}
	case engine.Drain:
		if e := r.episode[o.Tenure]; e != nil {
			end := e.tenure.end(o.Cause)
			end.soft = true
			e.tenure.drain(end)
		}
	case engine.Committed:
		if e := r.episode[o.Tenure]; e != nil {
			e.tenure.settle(o.Seq, int64(o.Oldest), o.Err)
		}
	case engine.Confirmed:
		if e := r.episode[o.Tenure]; e != nil {
			e.tenure.confirmed(o)
		}
	case engine.Over:
		r.over(o)
	case engine.Unavailable:
		r.worker.refuse(o)
	case engine.Answer:
		if r.answers != nil {
			r.answers.Answer(string(o.Incarnation))
		}
	case engine.Link:
		r.links.Watch(string(o.Peer), o.Address)
	case engine.Knock:
		r.links.Knock(string(o.Peer))
	case engine.Unlink:
		r.links.Drop(string(o.Peer))
	case engine.Tell:
		r.report(o.Event)
	}
}

// begin calls the handler when the fences are raised. The goroutine of the handler reports the event Started, because on a
// busy machine it may have to wait for a processor.
func (r *run) begin(o engine.Start) {
	o.Hold.Order = r.order // handlers call it, so a runtime.Goexit in it ends only the handler's goroutine
	values := fence.NewContext(r.values, fence.Token{Group: o.Hold.Key.Group, Shard: o.Hold.Key.Name, Generation: o.Hold.Generation})
	soft, drain := context.WithCancelCause(values)
	hard, cancel := context.WithCancelCause(values)
	t := &Tenure{
		shard: Shard{Name: o.Shard.Name, Parents: o.Shard.Parents, Weight: o.Shard.Weight},
		hold:  o.Hold, start: o.Checkpoint, attempt: int(o.Attempt),
		acquire: o.Acquire, inbox: r.inbox, soft: soft, hard: hard, drain: drain, cancel: cancel, last: o.Checkpoint.Mark,
	}
	if o.Acquire != 0 {
		t.released = make(chan struct{})
	}
	r.episode[o.Tenure] = &episode{tenure: t}
	r.worker.add(t)
	r.handlers++
	r.do(func() { r.handle(t, o.Raise, o.Event) })
}

// over ends a tenure for its handler.
func (r *run) over(o engine.Over) {
	if e := r.episode[o.Tenure]; e != nil {
		end := e.tenure.end(o.Cause)
		stale, _ := errors.AsType[*checkpoint.StaleError](o.Err)
		end.Err, end.OutcomeUnknown = o.Err, o.Open || stale != nil && stale.OutcomeUnknown
		e.tenure.conclude(end)
		r.worker.remove(e.tenure)
	}
}

// finish waits for everything that the run has started. The engine has given up all shards by
// now, so no answer of the store is needed any more.
//
// The contexts of all handlers end here however the loop ended, even by a panic, because
// nobody renews their leases from here on.
func (r *run) finish() {
	r.worker.end(waiting)
	r.cancelCalls()
	r.do(r.endWatch)
	r.do(func() { r.ends.finish(r.config.TTL, r.worker.wall) })
	for _, e := range r.episode {
		end := e.tenure.end(event.CauseStopped)
		e.tenure.conclude(end)
		e.tenure.stop(end) // ends also the contexts of a handler that has finished its shard and not returned
	}
	r.awaitHandlers()
	r.started.Wait()
	r.observer.close()
	r.worker.end(over)
}

// awaitHandlers waits for the handlers that have not returned, and reports tenures whose
// handlers do not return in time.
func (r *run) awaitHandlers() {
	late := r.mono().Add(r.config.TTL / 3) // by then the end of every tenure is reported
	timer := time.NewTimer(0)
	defer timer.Stop()
	for r.hangs = min(r.hangs, r.mono().Add(hangsAfter)); ; {
		for _, a := range r.inbox.take(batch{}).arrived {
			if in, ok := a.input.(engine.Returned); ok {
				r.returned(in.Tenure, a)
			}
		}
		if r.handlers == 0 {
			return
		}
		r.reportHangs()
		if r.mono() >= late {
			r.reportHeld()
			late = engine.Never
		}
		timer.Reset(max(0, min(late, r.hangs).Sub(r.mono())))
		select {
		case <-r.inbox.wake:
		case <-timer.C:
		}
	}
}

// foreign returns an error if the run has ended because its group is of the other kind.
func (r *run) foreign() error {
	if !r.engine.Status().Foreign {
		return nil
	}
	return &GroupError{Group: r.config.Group, Sessions: r.worker.noun == "worker", Unclear: r.engine.Status().Unclear}
}

// hookFault reports a fault of a hook. It may be called from any goroutine, also in the
// middle of a step.
func (r *run) hookFault(shard string, err error) {
	r.emit(event.Event{Kind: event.HookFault, Shard: shard, Err: err})
}
