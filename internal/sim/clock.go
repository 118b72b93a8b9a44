package sim

import (
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// A clock is how time passes for one machine.
type clock struct {
	base  time.Duration // when its monotonic clock stood at zero
	rate  int64         // how fast that runs, in thousandths
	slept time.Duration // how long it stood still
	wall  time.Duration // how far the wall clock is off
}

// pause stops the process for d; with its monotonic clock, if the whole machine
// sleeps.
func (n *node) pause(d time.Duration, suspended bool) {
	if n.paused || !n.up {
		return
	}
	n.w.trace("pause", n.name, func() string { return d.String() })
	n.paused = true
	n.resumes++
	mine, from := n.resumes, n.w.now
	n.w.after(d, func() {
		if n.resumes == mine && n.paused {
			if suspended {
				n.clock.slept += n.w.now - from
			}
			n.resume()
		}
	})
}

// resume goes on with what has come meanwhile. In what order its goroutines get
// to run is anybody's guess.
func (n *node) resume() {
	n.w.trace("resume", n.name, nil)
	n.paused, n.resumed = false, n.w.now
	for _, f := range n.backlog {
		n.later(n.w.between(0, 2*time.Millisecond), f)
	}
	n.backlog = nil
}

// later makes f happen on this node, in this process; after a pause, if there is
// one.
func (n *node) later(d time.Duration, f func()) {
	epoch := n.epoch
	n.w.after(d, func() {
		switch {
		case n.epoch != epoch || !n.up:
		case n.paused:
			n.backlog = append(n.backlog, f)
		default:
			f()
		}
	})
}

func (n *node) mono() engine.Instant {
	return engine.Instant(int64(n.w.now-n.clock.base-n.clock.slept) * n.clock.rate / 1000)
}

// at is when the monotonic clock will show i.
func (n *node) at(i engine.Instant) time.Duration {
	return n.clock.base + n.clock.slept + time.Duration((int64(i)*1000+n.clock.rate-1)/n.clock.rate)
}

func (n *node) moment() engine.Moment {
	n.w.seq++
	return engine.Moment{
		Mono: n.mono(), Wall: epoch().Add(n.w.now + n.clock.wall),
		Chance: n.ticket(),
	}
}

// ticket is unique to one step.
func (n *node) ticket() string {
	var room [40]byte
	b := strconv.AppendUint(room[:0], 1<<32|uint64(n.w.chance.Uint32()), 16)[1:] // eight digits
	b = append(b, n.name...)
	return string(strconv.AppendUint(b, n.w.seq, 16))
}

// arm sets the timer. One that is set too early is left: it sets the next.
func (n *node) arm() {
	if n.wake == engine.Never {
		return
	}
	at := max(n.at(n.wake), n.w.now)
	if n.armed > n.w.now && n.armed <= at {
		return
	}
	n.armed = at
	n.timer++
	mine := n.timer
	n.later(at-n.w.now, func() {
		if n.timer != mine {
			return
		}
		n.armed = 0
		if n.wake == engine.Never || n.done {
			return
		}
		if n.mono() < n.wake {
			n.arm()
			return
		}
		n.step(engine.Tick{})
	})
}

// notBusy holds that an engine that was called has done what it wanted to be
// called for.
func (n *node) notBusy() {
	now := n.w.now
	if n.ticked != now {
		n.ticked, n.ticks = now, 0
	}
	if n.ticks++; n.ticks > 100 {
		n.w.fault("%s: busy: %d steps at one instant", n.name, n.ticks)
	}
	if now-n.second >= time.Second {
		n.second, n.inSecond = now, 0
	}
	if n.inSecond++; n.inSecond > 3000 {
		n.w.fault("%s: busy: %d steps in one second", n.name, n.inSecond)
	}
}
