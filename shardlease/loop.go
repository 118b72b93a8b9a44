package shardlease

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A run is one call of Run: the shell around the engine. The goroutine that called
// Run owns everything here but the inbox and the observer's queue. It never waits
// but for the inbox and the clock; whatever may take time runs beside it and
// answers into the inbox.
type run struct {
	worker   *Worker
	handler  Handler
	config   Config
	order    checkpoint.Order // Config.Order as handlers call it
	engine   *engine.Engine
	start    time.Time
	inbox    *inbox
	observer *observer

	values    context.Context // what Run was given, without its end: the parent of handlers' contexts
	calls     context.Context // of everything but handlers
	hangUp    context.CancelFunc
	beside    sync.WaitGroup // everything started by do
	idle      chan func()    // to goroutines that wait for a call to make
	free      atomic.Int64   // how many these are
	episode   map[engine.Tenure]*episode
	handlers  int            // how many have not returned
	held      int            // episodes whose end is not reported yet, because their handler has not returned
	late      engine.Instant // when the first of these is reported although its handler has not returned
	prepare   map[string]*preparation
	deadlines map[time.Duration]deadline // by limit
	slow      slowness
	patient   engine.Instant // until when the source may take to answer
	wake      engine.Instant
}

func newRun(ctx context.Context, w *Worker, handler Handler) *run {
	r := &run{
		worker: w, handler: handler, config: w.config, start: time.Now(), inbox: newInbox(), idle: make(chan func()),
		observer: newObserver(w.config), values: context.WithoutCancel(ctx),
		episode: map[engine.Tenure]*episode{}, prepare: map[string]*preparation{}, deadlines: map[time.Duration]deadline{}, patient: engine.Never, late: engine.Never,
	}
	r.calls, r.hangUp = context.WithCancel(r.values)
	r.order = guarded(r.config.Order, r.hookFault)
	r.engine = engine.New(r.config.engine(r.hookFault), r.moment())
	w.begin(r.start)
	return r
}

// do runs f beside the loop. It is the only place that starts a goroutine, but for
// the observer's, which has to outlive all others.
func (r *run) do(f func()) { r.beside.Go(f) }

// call runs f on a goroutine that has made a call before, if one is free: to grow a
// new stack for every write would cost more than the write.
func (r *run) call(f func()) {
	select {
	case r.idle <- f:
	default:
		r.do(func() { r.answer(f) })
	}
}

// answer makes calls, and stays for more if few others do.
func (r *run) answer(f func()) {
	const few = 16 // their stacks are small, and bursts are not
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

// loop runs the engine until it has stopped. The end of ctx makes it stop.
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
		// The loop turns once in a while though nothing is due: see Worker.live.
		timer.Reset(max(0, min(r.wake.Sub(r.mono()), r.config.TTL/4)))
		select {
		case <-r.inbox.wake:
		case <-timer.C:
		}
	}
}

// advance takes the engine through a batch: first what was marked, so that
// everything else is decided in the light of the latest marks. Urgent arrivals are handled
// before each step. Heartbeats are sent on time meanwhile, because every step of the engine
// sends what is due.
func (r *run) advance(b batch) {
	idle := r.hurry() == 0 && len(b.arrived)+len(b.marked) == 0
	for _, t := range b.marked {
		if in, news := t.report(); news {
			r.step(in)
			r.hurry()
		}
	}
	for _, a := range b.arrived {
		r.take(a)
		r.hurry()
	}
	if idle && r.mono() >= r.wake { // else woken for what the batch before had
		r.step(engine.Tick{})
	}
	r.tellHeld()
	r.complain()
	r.worker.publish(r.engine.Status())
}

// hurry handles the urgent arrivals, and returns how many there were.
func (r *run) hurry() int {
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

// admit notes what only the shell knows of an arrival; false: it is not for the
// engine any more.
func (r *run) admit(a arrival) bool {
	switch in := a.input.(type) {
	case engine.Prepared:
		if r.prepare[in.Shard] != a.from {
			return false // called off, and perhaps another one is under way
		}
		a.from.cancel()
		delete(r.prepare, in.Shard)
	case engine.Returned:
		r.returned(in.Tenure, a.err)
	case engine.Source:
		r.patient = engine.Never
	}
	return true
}

func (r *run) step(in engine.Input) {
	now := r.moment()
	r.worker.turned.Store(int64(now.Mono)) // a batch may be long
	out, wake := r.engine.Step(now, in)
	for _, o := range out {
		r.carryOut(o)
	}
	r.wake = wake
}

func (r *run) mono() engine.Instant { return engine.Instant(time.Since(r.start)) }

// moment reads the clocks, and draws. Round takes the monotonic reading away:
// the engine has its own, and tells from the difference that the machine slept.
func (r *run) moment() engine.Moment {
	return engine.Moment{Mono: r.mono(), Wall: r.worker.wall().Round(0), Chance: rand.Text()}
}

// carryOut does what the engine says, without waiting for anything.
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
	case engine.Prepare:
		r.prepareFor(o)
	case engine.CallOff:
		if p := r.prepare[o.Shard]; p != nil {
			p.cancel()
			delete(r.prepare, o.Shard)
		}
	case engine.Start:
		r.begin(o)
	case engine.Drain:
		if e := r.episode[o.Tenure]; e != nil {
			e.tenure.drain(e.tenure.end(o.Cause))
		}
	case engine.Committed:
		if e := r.episode[o.Tenure]; e != nil {
			e.tenure.settle(o.Seq, o.Err)
		}
	case engine.Over:
		r.over(o)
	case engine.Tell:
		r.tell(o.Event)
	}
}

// begin calls the handler.
func (r *run) begin(o engine.Start) {
	o.Hold.Order = r.order // a runtime.Goexit in it may end the handler's goroutine
	soft, drain := context.WithCancelCause(r.values)
	hard, cancel := context.WithCancelCause(r.values)
	t := &Tenure{
		shard: Shard{Name: o.Shard.Name, Parents: o.Shard.Parents, Weight: o.Shard.Weight},
		hold:  o.Hold, start: o.Checkpoint, attempt: int(o.Attempt), marks: uint64(max(r.config.Commit.Marks, 0)),
		inbox: r.inbox, soft: soft, hard: hard, drain: drain, cancel: cancel, last: o.Checkpoint.Mark,
	}
	r.episode[o.Tenure] = &episode{tenure: t}
	r.worker.add(t)
	r.handlers++
	r.do(func() { r.handle(t) })
}

// over ends the tenure for its handler.
func (r *run) over(o engine.Over) {
	if e := r.episode[o.Tenure]; e != nil {
		end := e.tenure.end(o.Cause)
		stale, _ := errors.AsType[*checkpoint.StaleError](o.Err)
		end.Err, end.OutcomeUnknown = o.Err, o.Open || stale != nil && stale.OutcomeUnknown
		e.tenure.conclude(end)
		r.worker.remove(e.tenure)
	}
}

// finish waits for what the run has started. The engine has given everything up
// by now, so nobody needs an answer of the store any more.
//
// No matter how the loop ended, a panic of a planner included, handlers hear of it:
// nobody renews their leases from here on.
func (r *run) finish() {
	r.worker.end()
	r.hangUp()
	for _, e := range r.episode {
		end := e.tenure.end(event.CauseStopped)
		e.tenure.conclude(end)
		e.tenure.stop(end) // also of a handler that lingers after it has finished its shard
	}
	r.attend()
	r.beside.Wait()
	r.observer.close()
}

// attend waits for the handlers that are still there, and tells of those that take
// their time.
func (r *run) attend() {
	late := time.NewTimer(r.config.TTL / 3) // the end of no tenure is held back for longer
	defer late.Stop()
	for {
		for _, a := range r.inbox.take(batch{}).arrived {
			if in, ok := a.input.(engine.Returned); ok {
				r.returned(in.Tenure, a.err)
			}
		}
		if r.handlers == 0 {
			return
		}
		select {
		case <-r.inbox.wake:
		case <-late.C:
			r.tellHeld()
		}
	}
}

// hookFault reports a hook that misbehaved. Any goroutine may call it, also in the middle of
// a step.
func (r *run) hookFault(shard string, err error) {
	r.emit(event.Event{Kind: event.HookFault, Shard: shard, Err: err})
}
