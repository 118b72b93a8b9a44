package sim

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A host is the machine on which one process runs. On a sick host, every handler fails at once, hangs or
// marks nothing. On a busy host, each step takes a while, and inputs queue meanwhile. The answer to
// a heartbeat does not wait behind other inputs. When trouble has ended, queued inputs are taken at once.
type host struct {
	sick  temper        // good: it is well
	cost  time.Duration // of each step
	free  time.Duration // when the last step is done
	queue []engine.Input
	armed bool // a timer will take the next input
}

// drawHost draws the machine of the next process.
func (w *world) drawHost() (h host) {
	if w.likely(w.set.sick) {
		w.stats.Faults[SickHost]++
		h.sick = pick(w.chance, failing, stuck, silent)
	}
	if w.likely(w.set.busy) {
		w.stats.Faults[BusyHost]++
		h.cost = pick(w.chance, time.Millisecond, 5*time.Millisecond, 20*time.Millisecond)
	}
	return h
}

// input takes an input, at once or when the host has done what came before.
func (n *node) input(in engine.Input) {
	h := &n.host
	if h.cost == 0 || n.w.peace && len(h.queue) == 0 {
		n.step(in)
		return
	}
	at := len(h.queue)
	if settled, ok := in.(engine.Settled); ok && settled.Write.Key().Kind == lease.KindSeat {
		at = 0
	}
	h.queue = slices.Insert(h.queue, at, in)
	n.serve()
}

// serve takes the next input when the host is free.
func (n *node) serve() {
	if n.host.armed || len(n.host.queue) == 0 {
		return
	}
	n.host.armed = true
	n.Later(n.host.free-n.w.Now(), func() {
		h := &n.host
		in := h.queue[0]
		if h.queue, h.armed = h.queue[1:], false; !n.w.peace {
			h.free = n.w.Now() + h.cost
		}
		n.step(in)
		n.serve()
	})
}
