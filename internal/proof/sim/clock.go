package sim

import (
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// pause stops the process for d, and also its monotonic clock if the whole machine sleeps. It reports
// whether the process was running.
func (n *node) pause(d time.Duration, suspended bool) bool {
	if n.Paused() || !n.Up() {
		return false
	}
	n.w.trace("pause", n.Name, func() string { return d.String() })
	n.Pause()
	n.resumes++
	mine, from := n.resumes, n.w.Now()
	n.w.After(d, func() {
		if n.resumes == mine && n.Paused() {
			if suspended {
				n.Clock.Slept += n.w.Now() - from
			}
			n.resume()
		}
	})
	return true
}

// resume continues a process. The inputs that have waited come in a random order, because the
// goroutines of a process that wakes up run in any order.
func (n *node) resume() {
	n.w.trace("resume", n.Name, nil)
	n.resumed = n.w.Now()
	n.w.silence.disturb()
	n.Resume(func() time.Duration { return n.w.between(0, 2*time.Millisecond) })
}

// Moment returns the moment of the next step.
func (n *node) Moment() engine.Moment { return n.MomentOf(n.ticket()) }

// ticket returns a text that is unique to one step.
func (n *node) ticket() string {
	var room [40]byte
	number := n.w.Unique()
	b := strconv.AppendUint(room[:0], 1<<32|uint64(n.w.Uint32()), 16)[1:] // eight digits
	b = append(b, n.Name...)
	return string(strconv.AppendUint(b, number, 16))
}

// notBusy checks that an engine does not ask again and again to be called at once. A host that was busy
// takes many inputs at one instant (seed 101073).
func (n *node) notBusy(in engine.Input) {
	now := n.w.Now()
	if _, tick := in.(engine.Tick); !tick || len(n.host.queue) > 0 || n.ticked != now {
		n.ticked, n.ticks = now, 0
	}
	if n.ticks++; n.ticks > 100 {
		n.w.blame("%s: busy: %d steps at one instant", n.Name, n.ticks)
	}
	if now-n.second >= time.Second {
		n.second, n.inSecond = now, 0
	}
	if n.inSecond++; n.inSecond > 3000 {
		n.w.blame("%s: busy: %d steps in one second", n.Name, n.inSecond)
	}
}
