package scale

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A node is one process.
type node struct {
	f       *fleet
	engine  *engine.Engine
	client  client
	wake    time.Duration // when the engine has something to do next
	dead    bool
	leaving bool
	last    bool // no other process replaces it
	active  map[engine.Tenure]*handler
}

// A handler commits at regular intervals, and winds down when its ctx ends.
type handler struct {
	n    *node
	id   engine.Tenure
	seq  uint64
	over bool
}

// join starts a process.
func (f *fleet) join() *node {
	c := f.config()
	c.Name = workerName(f.born)
	f.born++
	n := &node{f: f, active: map[engine.Tenure]*handler{}, wake: -1}
	n.client = client{n: n, limit: firstFew}
	n.engine = engine.New(c, n.moment())
	f.nodes = append(f.nodes, n)
	n.step(engine.Tick{})
	return n
}

// kill ends a process. Requests that it has sent still arrive.
func (n *node) kill() {
	n.dead = true
	for _, h := range n.active {
		h.gone()
	}
	clear(n.active)
	n.f.nodes = slices.DeleteFunc(n.f.nodes, func(o *node) bool { return o == n })
}

// stop shuts a process down. When it has ended, another one replaces it, unless it is the
// last.
func (n *node) stop() {
	n.leaving = true
	n.step(engine.Stop{})
}

func (n *node) moment() engine.Moment {
	return engine.Moment{Mono: engine.Instant(n.f.now), Wall: n.f.wall(), Chance: n.f.id()}
}

func (n *node) step(in engine.Input) {
	if n.dead {
		return
	}
	outs, wake := n.engine.Step(n.moment(), in)
	for _, o := range slices.Clone(outs) {
		n.do(o)
	}
	if n.leaving && n.engine.Done() && len(n.active) == 0 {
		n.kill()
		if !n.last {
			n.f.join()
		}
		return
	}
	if wake == engine.Never {
		n.wake = -1
		return
	}
	if at := max(time.Duration(wake), n.f.now); at != n.wake {
		n.wake = at
		n.f.at(at, func() {
			if n.wake == at {
				n.wake = -1
				n.step(engine.Tick{})
			}
		})
	}
}

func (n *node) do(o engine.Output) {
	f := n.f
	switch o := o.(type) {
	case engine.List:
		n.client.list(o)
	case engine.Get:
		n.client.get(o)
	case engine.Send:
		n.client.write(o)
	case engine.Verify:
		n.client.verify(o)
	case engine.Poll:
		f.after(0, func() { n.step(f.source) })
	case engine.Start:
		h := &handler{n: n, id: o.Tenure}
		n.active[o.Tenure] = h
		f.starts++
		at := f.index[o.Tenure.Shard]
		if f.serving[at]++; f.serving[at] == 1 {
			f.held++
			f.gaps++
			f.longest = max(f.longest, f.now-max(f.freed[at], f.meter.from))
		}
		if f.commit > 0 {
			f.after(time.Duration(f.chance.Int64N(int64(f.commit))), h.commit)
		}
	case engine.Drain:
		n.ends(o.Tenure, 50*time.Millisecond)
	case engine.Over:
		n.ends(o.Tenure, time.Millisecond)
	case engine.Tell:
		if o.Event.Kind == event.Lost {
			f.lost++
		}
		if o.Event.Kind == event.Contended || o.Event.Kind == event.Requested {
			f.meter.count([...]string{event.Contended: "contended", event.Requested: "requested"}[o.Event.Kind], 1)
		}
	}
}

// ends makes a handler return after d.
func (n *node) ends(id engine.Tenure, d time.Duration) {
	if h := n.active[id]; h != nil {
		n.f.after(d, func() { h.ret() })
	}
}

// commit is the handler's regular commit.
func (h *handler) commit() {
	if h.over || h.n.dead {
		return
	}
	f := h.n.f
	f.after(f.commit, h.commit)
	if f.idle {
		return
	}
	h.seq++
	h.n.step(engine.Marks{Tenure: h.id, Mark: checkpoint.Mark{Position: position(uint64(f.now))}, Seq: h.seq, Flush: h.seq})
}

func (h *handler) ret() {
	if h.over || h.n.dead {
		return
	}
	delete(h.n.active, h.id)
	h.gone()
	h.n.step(engine.Returned{Tenure: h.id})
}

// gone records that the handler has ended.
func (h *handler) gone() {
	h.over = true
	f := h.n.f
	at := f.index[h.id.Shard]
	if f.serving[at]--; f.serving[at] == 0 {
		f.held--
		f.freed[at] = f.now
	}
}
