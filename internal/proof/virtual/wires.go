package virtual

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Wires are the connections that processes keep to each other: what package deathwatch does with sockets.
// The address of a process is its name. When a process ends, its connections break at once, and its address
// refuses others until the next process of the machine answers there.
type Wires struct {
	// Lie replaces what an attempt shows; nil: it shows the truth. A lie about a connection that is already
	// made begins when Cut breaks the connection.
	Lie func(from, to *Process, truth engine.Shown) engine.Shown

	all []*Process // all that have joined
}

// A wire is the connection that a process keeps to a peer, or tries to make.
type wire struct {
	link   engine.Link
	made   bool
	serial uint64 // the number of the latest attempt; earlier ones do not count
	pause  time.Duration
}

const (
	wireDelay  = time.Millisecond // until an attempt, or a break, is noticed
	firstPause = 20 * time.Millisecond
	longPause  = 30 * time.Second
)

var errWire = errors.New("no connection")

// Join makes a process reachable at its name.
func (w *Wires) Join(p *Process) {
	p.wires = w
	w.all = append(w.all, p)
}

// Wire carries out an Answer, a Link, a Knock or an Unlink.
func (p *Process) Wire(o engine.Output) {
	if p.wires == nil {
		return
	}
	switch o := o.(type) {
	case engine.Answer:
		if p.answers != o.Incarnation {
			p.answers = o.Incarnation
			p.wires.Cut(p)
		}
	case engine.Link:
		l := &wire{link: o, pause: firstPause}
		p.links[o.Peer] = l
		p.attempt(l, wireDelay)
	case engine.Knock:
		if l := p.links[o.Peer]; l != nil && l.made {
			l.made = false
			p.attempt(l, wireDelay)
		}
	case engine.Unlink:
		delete(p.links, o.Peer)
	}
}

// Cut breaks all connections to a process. Their other ends try at once to make new ones.
func (w *Wires) Cut(to *Process) {
	for _, p := range w.all {
		for _, peer := range slices.Sorted(maps.Keys(p.links)) {
			if l := p.links[peer]; l.made && l.link.Address == to.Name {
				l.made = false
				p.attempt(l, wireDelay)
			}
		}
	}
}

// attempt tries to reach the peer until it succeeds.
func (p *Process) attempt(l *wire, after time.Duration) {
	l.serial++
	mine := l.serial
	p.Later(after, func() {
		if p.links[l.link.Peer] != l || l.serial != mine {
			return
		}
		in := engine.Linked{Peer: l.link.Peer, Address: l.link.Address, Shows: p.wires.show(p, l.link), Err: errWire}
		if l.made = in.Shows == engine.Answers; l.made {
			in.Err, l.pause = nil, firstPause
			p.wires.visit(l.link.Address)
		} else {
			p.attempt(l, l.pause)
			l.pause = min(2*l.pause, longPause)
		}
		p.Input(in)
	})
}

// visit tells the process at that address that somebody has connected.
func (w *Wires) visit(address string) {
	for _, p := range w.all {
		if p.Name == address && p.up {
			p.Answer(0, engine.Visited{})
		}
	}
}

// show returns what an attempt shows. As in package deathwatch, a refusal shows nothing unless another peer answers. If
// there is no other peer, it shows nothing while the peer has a connection to this process. The other peer is not visited:
// the connection to it ends at once, and a deathwatch.Server reports only connections that stand.
func (w *Wires) show(from *Process, to engine.Link) engine.Shown {
	shown := w.look(from, to)
	if shown == engine.Refuses && !w.confirmed(from, to) {
		return engine.Silent
	}
	return shown
}

// confirmed reports whether a refusal counts.
func (w *Wires) confirmed(from *Process, refused engine.Link) bool {
	for _, peer := range slices.Sorted(maps.Keys(from.links)) {
		if peer != refused.Peer && w.look(from, from.links[peer].link) == engine.Answers {
			return true
		}
	}
	return from.Peers() == 1 && !slices.ContainsFunc(w.all, func(p *Process) bool {
		return p.Name == refused.Address && slices.ContainsFunc(slices.Collect(maps.Values(p.links)), func(l *wire) bool {
			return l.made && l.link.Address == from.Name
		})
	})
}

// Peers returns how many peers the process keeps connections to, or tries to.
func (p *Process) Peers() int { return len(p.links) }

// look returns what a dial shows.
func (w *Wires) look(from *Process, to engine.Link) (shown engine.Shown) {
	for _, p := range w.all {
		if p.Name != to.Address {
			continue
		}
		switch {
		case !p.up:
			shown = engine.Refuses
		case p.paused || p.answers == "":
			shown = engine.Silent
		case p.answers == to.Peer:
			shown = engine.Answers
		default:
			shown = engine.Replies
		}
		if w.Lie != nil {
			shown = w.Lie(from, p, shown)
		}
	}
	return shown
}

// answering is the part of a process that concerns wires.
type answering struct {
	wires   *Wires
	answers lease.Incarnation
	links   map[lease.Incarnation]*wire
}
