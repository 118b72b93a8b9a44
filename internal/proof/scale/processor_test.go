package scale

import (
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The prices are processor time of a whole core. setting.request is the price of a request over HTTP: half to send
// it, half to take the answer. TestProcessorTimeOfCalls of integration/store measures requests and records, and the
// benchmarks of internal/engine steps.
const (
	recordPrice = 15 * time.Microsecond // a record of a listing
	stepPrice   = 10 * time.Microsecond // a step of an engine
	outputPrice = 5 * time.Microsecond  // what a step puts out: the goroutine of a call, or a handler
	givenUp     = 20 * time.Microsecond // a request that is not answered, or a call that is not admitted, in time
	slice       = 10 * time.Millisecond // for so long one goroutine runs before others do
)

// A processor is what all workers of a fleet share that are goroutines of one process. A goroutine that is ready to
// run waits behind all that were ready before. If it is nil, nothing takes time.
type processor struct {
	f     *fleet
	share float64 // of a core
	queue []func() time.Duration
	busy  bool
}

// run runs a task, which returns how much time of a whole core it takes.
func (p *processor) run(task func() time.Duration) {
	if p == nil {
		task()
		return
	}
	p.queue = append(p.queue, task)
	if !p.busy {
		p.busy = true
		p.next()
	}
}

func (p *processor) next() {
	if p.busy = len(p.queue) > 0; !p.busy {
		return
	}
	task := p.queue[0]
	p.queue[0], p.queue = nil, p.queue[1:]
	p.f.After(time.Duration(float64(task())/p.share), p.next)
}

// An inbox has what the loop of a worker has not taken yet, as in package shardlease: answers about seats come first.
type inbox struct {
	urgent, arrived []engine.Input
	tick            bool // the timer of the loop has fired
	woken           bool // the loop is ready to run
}

// urgent reports whether the loop takes this input, which is no listing, before others.
func urgent(in engine.Input) bool {
	switch in := in.(type) {
	case engine.Settled:
		return in.Write.Key().Kind == lease.KindSeat
	case engine.Verified, engine.Stop:
		return true
	}
	return false
}

// step gives the engine an input.
func (n *node) step(in engine.Input) { n.put(in, urgent(in)) }

// put gives the engine an input when the loop of the worker has the processor.
func (n *node) put(in engine.Input, urgent bool) {
	b := &n.inbox
	switch _, tick := in.(engine.Tick); {
	case n.f.cpu == nil:
		n.turn(in)
		return
	case tick:
		b.tick = true
	case urgent:
		b.urgent = append(b.urgent, in)
	default:
		b.arrived = append(b.arrived, in)
	}
	n.wake()
}

func (n *node) wake() {
	if b := &n.inbox; !b.woken {
		b.woken = true
		n.f.cpu.run(n.loop)
	}
}

// loop takes inputs until there are none, or others have to run.
func (n *node) loop() (took time.Duration) {
	b := &n.inbox
	b.woken = false
	if len(b.urgent)+len(b.arrived) == 0 && b.tick && n.Up() && (n.Wake == engine.Never || n.Mono() >= n.Wake) {
		took = n.turn(engine.Tick{})
	}
	b.tick = false
	for n.Up() && len(b.urgent)+len(b.arrived) > 0 {
		if took >= slice {
			n.wake()
			break
		}
		from := &b.arrived
		if len(b.urgent) > 0 {
			from = &b.urgent
		}
		in := (*from)[0]
		*from = (*from)[1:]
		took += n.turn(in)
	}
	return took
}

// turn gives the engine an input, and returns the processor time that this takes.
func (n *node) turn(in engine.Input) time.Duration {
	n.Step(in)
	if n.leaving && n.Up() && n.Engine.Done() && len(n.Handlers) == 0 {
		n.kill()
		if !n.last {
			n.f.join()
		}
	}
	return stepPrice + time.Duration(n.outputs)*outputPrice
}
