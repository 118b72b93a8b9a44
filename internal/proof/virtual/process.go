package virtual

import (
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Clock is how time passes on one machine.
type Clock struct {
	Base  time.Duration // when the monotonic clock stood at zero
	Rate  int64         // how fast the monotonic clock runs, in thousandths
	Slept time.Duration // for how long the monotonic clock stood still
	Wall  time.Duration // how far the wall clock is ahead
}

// Mono returns what the monotonic clock shows at that time.
func (c Clock) Mono(now time.Duration) engine.Instant {
	return engine.Instant(int64(now-c.Base-c.Slept) * c.Rate / 1000)
}

// When returns when the monotonic clock will show i.
func (c Clock) When(i engine.Instant) time.Duration {
	return c.Base + c.Slept + time.Duration((int64(i)*1000+c.Rate-1)/c.Rate)
}

// A Process is a host in virtual time. Boot starts it, and may start the next process of the same
// machine.
//
// Invariant: what one process has put into the queue with Later never happens in the next process
// of the machine.
type Process struct {
	Host
	Time  *Time
	Name  string
	Clock Clock
	// Input gives an input to the engine. It is Step, unless a shell adds something of its own.
	Input func(engine.Input)

	life    int // counts the processes of this machine and their ends
	up      bool
	paused  bool
	backlog []func()      // what waits for the end of the pause
	armed   time.Duration // when the latest timer fires; earlier ones that are left do nothing
	timer   uint64        // the number of the latest timer
	answering
}

// Boot starts a process with the engine that create returns. Its monotonic clock starts at base.
func (p *Process) Boot(base time.Duration, create func() Engine) {
	input := p.Input
	if input == nil {
		input = p.Step
	}
	*p = Process{
		Host: Host{Shell: p.Shell, Wake: engine.Never}, Time: p.Time, Name: p.Name, Input: input,
		Clock: Clock{Base: base, Rate: p.Clock.Rate, Wall: p.Clock.Wall}, life: p.life + 1, up: true, timer: p.timer,
		answering: answering{wires: p.wires, links: map[lease.Incarnation]*wire{}},
	}
	if p.Clock.Rate == 0 {
		p.Clock.Rate = 1000
	}
	p.Engine = create()
	p.Input(engine.Tick{})
}

// Kill ends the process at once. Calls that it has sent may still reach the table; no answer reaches it. It has no
// handlers any more.
func (p *Process) Kill() {
	p.life++
	p.up, p.paused, p.backlog, p.links, p.Handlers = false, false, nil, nil, nil
	if p.wires != nil {
		p.wires.Cut(p)
	}
}

// Up reports whether the process runs, or is paused.
func (p *Process) Up() bool { return p.up }

// Sender identifies the process to the table.
func (p *Process) Sender() Sender { return Sender{p.Name, p.life} }

// MomentOf returns the present moment by the machine's clocks. Chance must be unique to the step.
func (p *Process) MomentOf(chance string) engine.Moment {
	return engine.Moment{Mono: p.Mono(), Wall: Epoch().Add(p.Time.Now() + p.Clock.Wall), Chance: chance}
}

// Mono returns what the monotonic clock shows.
func (p *Process) Mono() engine.Instant { return p.Clock.Mono(p.Time.Now()) }

// Step gives the engine an input, and sets the timer. A paused process gets the input after the pause.
func (p *Process) Step(in engine.Input) {
	switch {
	case !p.up:
	case p.paused:
		p.backlog = append(p.backlog, func() { p.Input(in) })
	default:
		p.Host.Step(in)
		p.Arm()
	}
}

// Arm sets the timer for the next Tick. If the latest timer fires no later than that, Arm keeps it,
// and that timer sets the next one.
func (p *Process) Arm() {
	now := p.Time.Now()
	if p.Wake == engine.Never {
		return
	}
	at := max(p.Clock.When(p.Wake), now)
	if p.armed > now && p.armed <= at {
		return
	}
	p.armed = at
	p.timer++
	mine := p.timer
	p.Later(at-now, func() {
		if p.timer == mine {
			p.armed = 0
			p.ring()
		}
	})
}

// ring gives the engine its Tick, if it is time for it.
func (p *Process) ring() {
	switch {
	case p.Wake == engine.Never:
	case p.Mono() < p.Wake:
		p.Arm()
	default:
		p.Input(engine.Tick{})
	}
}

// Later makes f happen in this process d from now, or after the pause if the process is paused then.
func (p *Process) Later(d time.Duration, f func()) {
	life := p.life
	p.Time.After(d, func() {
		switch {
		case p.life != life || !p.up:
		case p.paused:
			p.backlog = append(p.backlog, f)
		default:
			f()
		}
	})
}

// Deliver carries a call to the table, which serves it after the time out, and its answer back
// to this process.
func (p *Process) Deliver(out, back time.Duration, serve func() engine.Input) {
	life := p.life
	p.Time.After(out, func() {
		if in := serve(); p.life == life {
			p.Answer(back, in)
		}
	})
}

// Answer gives the process an answer after that time.
func (p *Process) Answer(d time.Duration, in engine.Input) { p.Later(d, func() { p.Input(in) }) }

// Return ends the call of a handler and gives the engine its Returned. It reports false if the handler had returned.
func (p *Process) Return(id engine.Tenure, failed bool) bool {
	if !p.Handlers.Remove(id) {
		return false
	}
	p.Input(engine.Returned{Tenure: id, Failed: failed})
	return true
}

// Pause stops the process: everything that would happen in it waits.
func (p *Process) Pause() { p.paused = true }

// Paused reports whether the process is paused.
func (p *Process) Paused() bool { return p.paused }

// Resume ends a pause. Each thing that has waited happens after a delay, which delay returns for it;
// if delay is nil, all of them happen at once, in order.
func (p *Process) Resume(delay func() time.Duration) {
	late := p.backlog
	p.paused, p.backlog = false, nil
	for _, f := range late {
		if delay == nil {
			f()
		} else {
			p.Later(delay(), f)
		}
	}
}
