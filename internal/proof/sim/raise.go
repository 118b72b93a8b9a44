package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// In some fleets handlers change a sink whose fence is raised when a tenure begins. A raise fails, takes longer than the
// engine waits before it reports that, or is not answered and arrives at the sink later. As in the shell, it is repeated until
// it passes, or until the context of the handler ends.
//
// Whether a handler may be called before the raise has passed does not follow from what the engine says, but from the rows:
// only if the owner before had offered the shard.

var errRaise = errors.New("the sink refuses connections")

// consented notes a change of hands in which the owner before had offered the shard to the new one.
func (p *promises) consented(before, after lease.Row) {
	if before.OfferedTo != "" && before.OfferedTo == after.Owner.Incarnation {
		p.consents[engine.Tenure{Shard: after.Shard, Generation: after.Generation}] = true
	}
}

// called notes that a handler is called. From now on the sink may accept no effect of an earlier generation, unless
// the owner before has offered the shard.
func (p *promises) called(h *handler) {
	if p.w.set.targets && !p.consents[h.Tenure] {
		p.closed[h.s.name] = max(p.closed[h.s.name], h.Generation)
	}
}

// call calls the handler.
func (h *handler) call() {
	h.n.w.promises.called(h)
	h.n.Later(h.n.w.between(0, h.pace), h.work)
}

// raises raises the fence for a tenure that begins.
func (h *handler) raises(how engine.Raise) {
	if how == engine.RaiseNothing {
		return
	}
	h.shut = how == engine.RaiseFirst || h.n.config.Before
	h.raise(0, firstPause)
}

// Raise raises the fence once more.
func (n *node) Raise(o engine.RaiseAgain) {
	if t := n.Handlers.Of(o.Tenure); t != nil {
		t.Script.(*handler).raise(o.Round, firstPause)
	}
}

// firstPause is the pause after the first raise that fails.
const firstPause = 100 * time.Millisecond

// cancelled reports whether the context of the raises has ended.
func (h *handler) cancelled() bool { return h.returned || h.Over || h.Soft && h.shut }

// raise makes one raise, and the next one after a pause if it fails.
func (h *handler) raise(round int, pause time.Duration) {
	if h.cancelled() {
		return
	}
	h.raising = true
	w, ttl := h.n.w, h.n.config.TTL
	d, arrives, err := w.between(0, 20*time.Millisecond), time.Duration(0), error(nil)
	if w.faults.down["*"] || w.faults.down[h.n.Name] {
		err = errRaise
	} else if w.likely(w.set.hook) {
		f := pick(w.chance, RaiseFailed, RaiseSlow, RaiseHung)
		w.stats.Faults[f]++
		switch f {
		case RaiseFailed:
			err = errRaise
		case RaiseSlow:
			d = w.between(ttl/3, ttl)
		case RaiseHung:
			d, arrives, err = ttl, w.between(0, 3*ttl), errRaise
		}
	}
	over := false
	if d > ttl/3 {
		h.n.Later(ttl/3, func() {
			if !over {
				h.fails(errRaise)
			}
		})
	}
	if arrives > 0 {
		w.After(arrives, func() { h.s.sink.Raise(judge.Tenure(h.Tenure)) })
	}
	w.After(d, func() { // the sink serves it also while the process is paused
		if err == nil && !h.s.sink.Raise(judge.Tenure(h.Tenure)) {
			err = &checkpoint.StaleError{Shard: h.Shard, Mine: h.Generation, Observed: h.s.sink.Generation}
		}
		if h.returned { // perhaps with its process
			return
		}
		h.n.Later(0, func() {
			if over = true; h.cancelled() {
				return
			}
			if err == nil {
				h.passes(round)
				return
			}
			h.fails(err)
			h.n.Later(min(pause, ttl/3), func() { h.raise(round, min(2*pause, ttl)) })
		})
	})
}

// fails tells the engine that a raise fails. It does so again for each raise that fails; the shell tells it once.
func (h *handler) fails(err error) {
	if h.cancelled() {
		return
	}
	h.unraised = true
	h.n.Input(engine.Unraised{Tenure: h.Tenure, Target: "sink", Err: err})
}

// passes calls the handler if it has waited for the raise.
func (h *handler) passes(round int) {
	h.raising = false
	if h.shut {
		h.shut = false
		h.call()
	}
	h.n.Input(engine.Raised{Tenure: h.Tenure, All: true, Round: round})
}

// raises reports whether a fence is not raised yet.
func (w rest) raises() bool {
	return slices.ContainsFunc(w.live(), func(n *node) bool {
		return slices.ContainsFunc(n.running(), func(h *handler) bool { return h.raising && !h.cancelled() })
	})
}

// breakTarget keeps a node from raising the fence of the sink, or all nodes.
func breakTarget(f *faults, _ Fault, n *node) (time.Duration, bool) {
	name := pick(f.w.chance, n.Name, n.Name, "*")
	if f.down[name] {
		return 0, false
	}
	f.down[name] = true
	return f.upTo(10), true
}

func mendTarget(f *faults, n *node) {
	delete(f.down, n.Name)
	delete(f.down, "*")
}
