package explore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A move is one thing that may happen next.
type move struct {
	name string
	do   func(w *state)
}

// A Report is how far an exploration went.
type Report struct {
	States, Depth int
	Complete      bool
}

// Explore visits at most limit states of a story, nearest first. The error is the
// first broken promise, with the moves that led there.
func Explore(s Story, limit int) (Report, error) {
	start := newState(&s)
	start.settle()
	known := newGoals()
	start.until = start.now.Add(s.For)
	type visit struct {
		*state
		from *visit
		by   string
	}
	path := func(v *visit) string {
		var moves []string
		for ; v.from != nil; v = v.from {
			moves = append(moves, v.by)
		}
		slices.Reverse(moves)
		return strings.Join(moves, "\n  ")
	}
	seen := map[uint64]bool{start.hash(): true}
	level, depth := []*visit{{state: start}}, 0
	for len(level) > 0 {
		var next []*visit
		for _, v := range level {
			for _, m := range v.moves() {
				w := v.clone()
				m.do(w)
				h := w.hash()
				if s.Goal && w.fault == nil && !seen[h] {
					w.fault = known.reach(w)
				}
				if w.fault != nil {
					last := &visit{from: v, by: m.name}
					return Report{len(seen), depth + 1, false}, fmt.Errorf("%s: %w\n  %s\n%v", s.Name, w.fault, path(last), w)
				}
				if !seen[h] {
					seen[h] = true
					next = append(next, &visit{w, v, m.name})
				}
				if len(seen) >= limit {
					return Report{len(seen), depth + 1, false}, nil
				}
			}
			v.state = &state{} // of a visit that is over only the way is kept
		}
		level = next
		depth++
	}
	return Report{len(seen), depth, true}, nil
}

// settle lets the first workers come to rest in calm weather, then brings in the
// others.
func (w *state) settle() {
	if w.story.Settled == 0 {
		return
	}
	for w.now < engine.Instant(20*time.Second) {
		w.quiet()
	}
	if w.story.Prelude != nil {
		w.story.Prelude(&Prelude{w})
		return
	}
	for i := w.story.Settled; i < w.story.Workers; i++ {
		w.nodes[i].enter()
	}
}

// quiet lets the next thing happen in calm weather.
func (w *state) quiet() {
	if i := slices.IndexFunc(w.calls, func(c call) bool { return !c.answered }); i >= 0 {
		w.complete(i)
	} else {
		w.pass()
	}
}

// A Prelude is what happens in calm weather before the exploration begins.
type Prelude struct{ w *state }

// Join brings in a worker.
func (p *Prelude) Join(i int) { p.w.nodes[i].enter() }

// Stop tells a worker to stop.
func (p *Prelude) Stop(i int) { p.w.nodes[i].stop() }

// Pause pauses a worker; Die ends it. The calls that it has sent are under way.
func (p *Prelude) Pause(i int) { p.w.nodes[i].pause() }
func (p *Prelude) Die(i int)   { p.w.nodes[i].dead = true }

// Wish makes wishes in the place of all that stand, as an operator does.
func (p *Prelude) Wish(list ...lease.Wish) { operator{p.w}.rewish(operator{p.w}.wishID(), list) }

// Late makes the calls that a worker has sent arrive at any later time, without an answer.
func (p *Prelude) Late(i int) {
	for at := range p.w.calls {
		if c := &p.w.calls[at]; c.node == i && !c.answered {
			c.answered = true
			p.w.nodes[i].give(virtual.Unanswered(c.out, errSilence))
		}
	}
}

// Again makes each call that a worker has sent arrive a second time, at any later time, without an answer.
func (p *Prelude) Again(i int) {
	for _, c := range p.w.calls {
		if c.node == i && !c.answered {
			c.answered = true // of the copy: nobody waits for its answer
			p.w.calls = append(p.w.calls, c)
		}
	}
}

// Until lets the fleet go on until a worker sends a write that the text describes, and returns
// the worker. Anybody is any worker.
func (p *Prelude) Until(i int, write string) (by int) {
	for range 100_000 {
		for _, c := range p.w.calls {
			if (c.node == i || i == Anybody) && strings.Contains(c.text, write) {
				return c.node
			}
		}
		p.w.quiet()
	}
	p.w.blame("nobody sends %q", write)
	return 0
}

// Rest lets the fleet go on for so long.
func (p *Prelude) Rest(d time.Duration) {
	for until := p.w.now.Add(d); p.w.now < until; {
		p.w.quiet()
	}
}

// Anybody is any worker.
const Anybody = -1

// moves are the things that may happen next, in the state as it is.
func (w *state) moves() []move {
	if w.now > w.until {
		return nil
	}
	var all []move
	for i := range w.calls {
		all = append(all, w.callMoves(i)...)
	}
	if len(w.calls) == 0 || w.onlyAnswered() {
		// Time passes when nothing else is to be done: a call is quick. One that
		// is not is a fault, and costs one.
		all = append(all, move{"time passes", (*state).pass})
	}
	for i := range w.nodes {
		all = append(all, w.nodes[i].moves()...)
		all = append(all, w.nodes[i].wireMoves()...)
	}
	by := operator{w}
	return slices.Concat(all, w.mends(), by.deletions(), by.wishes(), by.commands())
}

func (w *state) onlyAnswered() bool {
	return !slices.ContainsFunc(w.calls, func(c call) bool { return !c.answered && c.due == 0 })
}

func (w *state) callMoves(i int) []move {
	c := w.calls[i]
	name := string(rune('a'+c.node)) + ": " + c.text
	if c.answered {
		return []move{{name + " arrives late", func(w *state) { w.overdue(i) }}}
	}
	if o, is := c.out.(engine.RaiseAgain); is {
		return w.raiseMoves(i, name, o.Tenure)
	}
	moves := []move{{name, func(w *state) { w.complete(i) }}}
	if w.left.Faults == 0 || c.due > 0 {
		return moves
	}
	if _, asks := c.out.(engine.Plan); asks {
		return append(moves, move{name + " takes long", func(w *state) {
			w.left.Faults--
			w.calls[i].due = w.now.Add(TTL / 3)
		}})
	}
	if _, write := c.out.(engine.Send); write {
		moves = append(moves,
			move{name + ", and the reply is lost", func(w *state) {
				w.left.Faults--
				c := w.calls[i]
				w.drop(i)
				w.serve(c)
				w.nodes[c.node].give(virtual.Unanswered(c.out, errSilence))
			}},
			move{name + " is on its way for long", func(w *state) {
				w.left.Faults--
				w.calls[i].answered = true
				w.nodes[w.calls[i].node].give(virtual.Unanswered(w.calls[i].out, errSilence))
			}})
	}
	return append(moves, move{name + " is lost", func(w *state) {
		w.left.Faults--
		c := w.calls[i]
		w.drop(i)
		w.nodes[c.node].give(virtual.Unanswered(c.out, errSilence))
	}})
}

func (w *state) drop(i int) { w.calls = slices.Delete(w.calls, i, i+1) }

// overdue serves a call late. Nobody waits for its answer; that of a planner or of a raise comes all the same.
func (w *state) overdue(i int) {
	c := w.calls[i]
	w.drop(i)
	switch in := w.serve(c).(type) {
	case engine.Planned, engine.Raised:
		w.nodes[c.node].give(in)
	}
}

// complete serves a call and answers it.
func (w *state) complete(i int) {
	c := w.calls[i]
	w.drop(i)
	w.nodes[c.node].give(w.serve(c))
}

// pass lets time go on until somebody has something to do, or the time of a planner is over.
func (w *state) pass() {
	next := engine.Never
	for _, c := range w.calls {
		if c.due > 0 && !c.answered {
			next = min(next, c.due)
		}
	}
	for _, n := range w.nodes {
		if n.Engine != nil && !n.dead && !n.paused {
			next = min(next, n.Wake)
		}
	}
	if next == engine.Never {
		return
	}
	w.now = max(w.now, next)
	for i := range w.calls {
		if c := w.calls[i]; c.due > 0 && !c.answered && c.due <= w.now {
			w.calls[i].answered = true
			w.nodes[c.node].give(virtual.Unanswered(c.out, nil))
		}
	}
	for i := range w.nodes {
		if n := &w.nodes[i]; n.Engine != nil && !n.dead && !n.paused && n.Wake <= w.now {
			n.give(engine.Tick{})
		}
	}
}

// moves are what may happen to a node.
func (n *node) moves() []move {
	if n.dead || n.Engine == nil {
		return nil
	}
	var moves []move
	left, i := &n.w.left, n.i
	add := func(allowed bool, name string, do func(*node)) {
		if allowed {
			moves = append(moves, move{n.name() + " " + name, func(w *state) { do(&w.nodes[i]) }})
		}
	}
	add(left.Crashes > 0, "dies", func(n *node) { n.w.left.Crashes--; n.dead = true })
	add(left.Pauses > 0 && !n.paused, "is paused", func(n *node) { n.w.left.Pauses--; n.pause() })
	add(n.paused, "wakes up", (*node).resume)
	add(left.Stops > 0 && !n.paused, "is stopped", func(n *node) { n.w.left.Stops--; n.stop() })
	for t, h := range n.Handlers {
		add(!n.paused && (h.Soft || h.Over), "returns from "+h.Shard, func(n *node) { n.ret(t, false) })
		if n.w.waits[h.Tenure] {
			continue // it is not called yet
		}
		add(!n.paused && !h.Over && left.Fails > 0, "fails "+h.Shard, func(n *node) { n.w.left.Fails--; n.ret(t, true) })
		add(!n.paused && !h.Over && left.Marks > 0, "commits "+h.Shard, func(n *node) { n.w.left.Marks--; n.mark(t) })
	}
	if left.Sessions != nil && !n.paused && !n.stopped {
		n.callerMoves(add)
	}
	return moves
}

func (n *node) stop() { n.stopped = true; n.give(engine.Stop{}) }

func (n *node) pause() { n.paused, n.slept = true, n.w.story.Sessions != nil }

func (n *node) resume() {
	wait := n.wait
	n.paused, n.wait = false, nil
	n.give(engine.Tick{})
	for _, in := range wait {
		n.give(in)
	}
}

// ret lets a handler return.
func (n *node) ret(t int, failed bool) {
	id := n.Handlers[t].Tenure
	n.Handlers.Remove(id)
	delete(n.w.waits, id)
	n.give(engine.Returned{Tenure: id, Failed: failed})
}

func (n *node) mark(t int) {
	h := n.Handlers[t]
	at := h.Script.(int) + 1
	h.Marks, h.Script = h.Marks+1, at
	n.give(engine.Marks{Tenure: h.Tenure, Mark: checkpoint.Mark{Position: strconv.Itoa(at)}, Seq: h.Marks, Flush: h.Marks})
}
