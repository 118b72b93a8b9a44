package explore

import (
	"fmt"
	"maps"
	"slices"

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
	n.Raise(engine.RaiseAgain{Tenure: h.Tenure})
	if how == engine.RaiseFirst {
		n.w.waits[h.Tenure] = true
	}
}

// Raise puts the raises that an engine wants once more on their way.
func (n *node) Raise(o engine.RaiseAgain) {
	n.w.calls = append(n.w.calls, call{node: n.i, out: o, text: fmt.Sprintf("raise for %v, round %d", o.Tenure, o.Round)})
}

// raise lets a raise pass: the sink refuses every lower generation from then on.
func (w *state) raise(o engine.RaiseAgain) engine.Input {
	id := o.Tenure
	w.fences[id.Shard] = max(w.fences[id.Shard], id.Generation)
	delete(w.waits, id)
	return engine.Raised{Tenure: id, All: true, Round: o.Round}
}

// fenced returns the fences of the sink, in the order of the shards.
func (w *state) fenced() (all []int64) {
	for _, shard := range slices.Sorted(maps.Keys(w.fences)) {
		all = append(all, w.fences[shard])
	}
	return all
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
