package explore

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Workers whose reads are denied while their writes are stored, as by a wrong policy. The denial lasts until the reads
// of all workers pass again (Mends), also while the goal is looked for.

// A denial is what a worker cannot read: single records, and listings, of these kinds.
type denial struct {
	gets, lists []lease.Kind
	kept        []engine.Tenure // what the worker held when the denial began
}

// Deny lets reads of a worker fail: single records, and listings, of these kinds.
func (p *Prelude) Deny(i int, gets, lists []lease.Kind) {
	n := &p.w.nodes[i]
	n.denial = denial{gets: gets, lists: lists}
	for _, h := range n.Handlers {
		n.kept = append(n.kept, h.Tenure)
	}
}

// denied reports whether any reads fail.
func (d denial) denied() bool { return len(d.gets)+len(d.lists) > 0 }

// denies reports whether the call fails.
func (d denial) denies(o engine.Output) bool {
	switch o := o.(type) {
	case engine.Get:
		return slices.Contains(d.gets, o.Key.Kind)
	case engine.List:
		return slices.Contains(d.lists, o.Query.Kind)
	}
	return false
}

// mends are how the denials end.
func (w *state) mends() []move {
	if w.left.Mends == 0 {
		return nil
	}
	return []move{{"all reads pass again", func(w *state) {
		w.left.Mends--
		for i := range w.nodes {
			w.nodes[i].denial = denial{}
		}
	}}}
}
