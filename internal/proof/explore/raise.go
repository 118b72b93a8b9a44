package explore

import (
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
)

// Raises of the fence of a sink. A raise is on its way like a call: it passes, or it fails, and then passes at any later
// time or never. A handler that waits for a raise marks nothing.

// raises puts the raise of a tenure on its way, if the engine wants one.
func (n *node) raises(h *virtual.Handler, how engine.Raise) {
	if how == engine.RaiseNothing {
		return
	}
	n.again(h.Tenure)
	if how == engine.RaiseFirst {
		n.w.waits[h.Tenure] = true
	}
}

// Raise puts the raises that an engine wants once more on their way.
func (n *node) Raise(o engine.RaiseAgain) { n.again(o.Tenure) }

// again puts a raise on its way.
func (n *node) again(id engine.Tenure) {
	n.w.calls = append(n.w.calls, call{node: n.i, out: engine.RaiseAgain{Tenure: id}, text: "raise for " + id.Shard})
}

// raise lets a raise pass: the sink refuses every lower generation from then on.
func (w *state) raise(id engine.Tenure) engine.Input {
	w.fences[id.Shard] = max(w.fences[id.Shard], id.Generation)
	delete(w.waits, id)
	return engine.Raised{Tenure: id, All: true}
}

// raiseMoves are what may happen to a raise that has not failed yet.
func (w *state) raiseMoves(i int, name string, id engine.Tenure) []move {
	moves := []move{{name, func(w *state) { w.complete(i) }}}
	if w.left.Raises == 0 {
		return moves
	}
	return append(moves, move{name + " fails", func(w *state) {
		w.left.Raises--
		w.calls[i].answered = true
		w.nodes[w.calls[i].node].give(engine.Unraised{Tenure: id, Target: "sink", Err: errSilence})
	}})
}
