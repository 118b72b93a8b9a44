package scale

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A node is one process.
type node struct {
	virtual.Process
	virtual.Quiet
	f       *fleet
	client  client
	inbox   inbox
	outputs int // of the latest step
	leaving bool
	last    bool // no other process replaces it
}

// A handler commits at regular intervals, and winds down when its ctx ends.
type handler struct {
	*virtual.Handler
	n    *node
	gone bool // it has returned, or its process has ended
}

// join starts a process.
func (f *fleet) join() *node {
	c := f.config()
	c.Name = f.name(f.born)
	f.born++
	n := &node{f: f, Process: virtual.Process{Time: &f.Time, Name: c.Name}}
	n.Shell, n.Input = n, n.step
	n.client = client{n: n, limit: firstFew}
	f.nodes = append(f.nodes, n)
	n.Boot(0, func() virtual.Engine { return virtual.New(c, n.Moment()) })
	return n
}

// kill ends a process. Requests that it has sent still arrive.
func (n *node) kill() {
	for _, h := range n.Handlers {
		h.Script.(*handler).ends()
	}
	n.Kill()
	n.f.nodes = slices.DeleteFunc(n.f.nodes, func(o *node) bool { return o == n })
}

// stop shuts a process down. When it has ended, another one replaces it, unless it is the
// last.
func (n *node) stop() {
	n.leaving = true
	n.step(engine.Stop{})
}

// Moment returns the moment of the next step.
func (n *node) Moment() engine.Moment { return n.MomentOf(n.f.id()) }

// Stepped notes how much a step has put out.
func (n *node) Stepped(_ engine.Input, out []engine.Output) { n.outputs = len(out) }

// Call makes a call of the table.
func (n *node) Call(o engine.Output) {
	switch o := o.(type) {
	case engine.List:
		n.client.list(o)
	case engine.Get:
		n.client.get(o)
	case engine.Send:
		n.client.write(o)
	case engine.Verify:
		n.client.verify(o)
	}
}

// Poll lists the source.
func (n *node) Poll() { n.Answer(0, n.f.source) }

// Start begins a handler.
func (n *node) Start(t *virtual.Handler, _ engine.Start) {
	h, f := &handler{Handler: t, n: n}, n.f
	t.Script = h
	f.starts++
	at := f.index[h.Shard]
	if f.serving[at]++; f.serving[at] == 1 {
		f.held++
		f.gaps++
		f.longest = max(f.longest, f.Now()-max(f.freed[at], f.meter.from))
	}
	if f.commit > 0 {
		n.Later(time.Duration(f.chance.Int64N(int64(f.commit))), h.commit)
	}
}

// Drain lets a handler wind down.
func (n *node) Drain(h *virtual.Handler, _ engine.Drain) { n.end(h, 50*time.Millisecond) }

// Over lets a handler return.
func (n *node) Over(h *virtual.Handler, _ engine.Over) { n.end(h, time.Millisecond) }

// end makes a handler return after d, if it has not returned yet.
func (n *node) end(h *virtual.Handler, d time.Duration) {
	if h != nil {
		n.Later(d, h.Script.(*handler).ret)
	}
}

// Tell counts events.
func (n *node) Tell(e event.Event) {
	switch e.Kind {
	case event.Lost:
		n.f.lost++
	case event.Contended:
		n.f.meter.count("contended", 1)
	case event.Requested:
		n.f.meter.count("requested", 1)
	}
}

// commit is the handler's regular commit.
func (h *handler) commit() {
	if h.gone {
		return
	}
	f := h.n.f
	h.n.Later(f.commit, h.commit)
	if f.idle {
		return
	}
	h.Marks++
	h.n.step(engine.Marks{Tenure: h.Tenure, Mark: checkpoint.Mark{Position: position(uint64(f.Now()))}, Seq: h.Marks, Flush: h.Marks})
}

func (h *handler) ret() {
	if h.gone {
		return
	}
	h.ends()
	h.n.Return(h.Tenure, false)
}

// ends records that the handler has ended.
func (h *handler) ends() {
	h.gone = true
	f := h.n.f
	at := f.index[h.Shard]
	if f.serving[at]--; f.serving[at] == 0 {
		f.held--
		f.freed[at] = f.Now()
	}
}
