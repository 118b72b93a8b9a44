package explore

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The connections of workers with a deathwatch. An attempt takes no time. A worker learns at any later time that
// a peer is dead, and may be told so about a peer that lives. Then it learns at any later time that the peer lives.

// A wired is what a worker answers, and its connections to others.
type wired struct {
	answers lease.Incarnation
	lied    bool // somebody was told that this worker is dead, and it was not
	wires   []wire
}

// A wire is a connection to a peer.
type wire struct {
	engine.Link
	told bool // the worker was told that the peer is dead
}

// Wire carries out an Answer, a Link, a Knock or an Unlink.
func (n *node) Wire(o engine.Output) {
	switch o := o.(type) {
	case engine.Answer:
		n.answers = o.Incarnation
	case engine.Link:
		n.wires = append(n.wires, wire{Link: o})
		if n.w.reaches(o) {
			n.give(engine.Linked{Peer: o.Peer, Address: o.Address, Shows: engine.Answers})
			n.w.nodes[o.Address[0]-'a'].give(engine.Visited{})
		}
	case engine.Knock: // only in large fleets, which no story has
	case engine.Unlink:
		n.wires = slices.DeleteFunc(slices.Clone(n.wires), func(l wire) bool { return l.Peer == o.Peer })
	}
}

// reaches reports whether the peer answers at that address.
func (w *state) reaches(link engine.Link) bool {
	to := &w.nodes[link.Address[0]-'a']
	return !to.dead && to.answers == link.Peer
}

// asks reports whether a refusal of a peer counts: another peer answers, or there is none.
func (n *node) asks(at int) bool {
	return len(n.wires) == 1 || slices.ContainsFunc(n.wires, func(l wire) bool {
		return l.Peer != n.wires[at].Peer && n.w.reaches(l.Link)
	})
}

// wireMoves are what a worker may be told about its peers.
func (n *node) wireMoves() (all []move) {
	i := n.i
	if n.dead || n.paused {
		return nil
	}
	for at, l := range n.wires {
		reaches, name := n.w.reaches(l.Link), n.name()
		switch {
		case l.told && reaches:
			all = append(all, move{name + " learns that " + l.Address + " lives", func(w *state) { w.nodes[i].tell(at, engine.Answers) }})
		case l.told:
		case !reaches && !n.asks(at):
		case !reaches:
			all = append(all, move{name + " learns that " + l.Address + " is dead", func(w *state) { w.nodes[i].tell(at, engine.Refuses) }})
		case n.w.left.Proofs > 0:
			all = append(all, move{name + " is told that " + l.Address + " is dead", func(w *state) {
				w.left.Proofs--
				w.nodes[l.Address[0]-'a'].lied = true
				w.nodes[i].tell(at, engine.Replies)
			}})
		}
	}
	return all
}

// tell gives a worker what an attempt has shown.
func (n *node) tell(at int, shows engine.Shown) {
	n.wires = slices.Clone(n.wires)
	n.wires[at].told = shows != engine.Answers
	l := n.wires[at].Link
	n.give(engine.Linked{Peer: l.Peer, Address: l.Address, Shows: shows})
}

// nextWire lets a worker learn the truth about a peer, and reports whether there was anything to learn.
func (w *state) nextWire() bool {
	left := w.left
	w.left.Proofs = 0
	defer func() { w.left = left }()
	for i := range w.nodes {
		if moves := w.nodes[i].wireMoves(); len(moves) > 0 {
			moves[0].do(w)
			return true
		}
	}
	return false
}
