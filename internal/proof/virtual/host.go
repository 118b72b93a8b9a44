package virtual

import (
	"cmp"
	"slices"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// An Engine makes the decisions of one worker. The methods are those of [engine.Engine].
type Engine interface {
	Step(now engine.Moment, in engine.Input) (out []engine.Output, wake engine.Instant)
	Done() bool
	Status() engine.Status
	Clone() Engine
	Hash() uint64
}

// A Maker makes the engine of a worker that has done nothing yet.
type Maker func(engine.Config, engine.Moment) Engine

// New makes the engine of the library.
func New(c engine.Config, now engine.Moment) Engine { return own{engine.New(c, now)} }

// NewSession makes the engine of a session.
func NewSession(c engine.Config, now engine.Moment) Engine { return session{engine.NewSession(c, now)} }

type session struct{ *engine.Session }

func (s session) Clone() Engine { return session{s.Session.Clone()} }

type own struct{ *engine.Engine }

func (o own) Clone() Engine { return own{o.Engine.Clone()} }

// A Shell is what surrounds the engine of a [Host]. Each method carries out the output of that
// name, and may step the host. The handler is nil if it has returned; its fields are as they were
// before the output.
type Shell interface {
	// Moment returns the time and the chance of the next step.
	Moment() engine.Moment
	// Stepped is called after each step, before its outputs are carried out. Wake is set.
	Stepped(in engine.Input, out []engine.Output)
	// Call sends a List, Get, Send or Verify to the table. Host.Step receives the answer.
	Call(o engine.Output)
	Poll()
	// Plan asks the planner. Host.Step receives the answer.
	Plan(o engine.Plan)
	// Start calls a handler. The handler is not in Handlers yet, so an earlier handler of the same
	// shard can be found there.
	Raise(o engine.RaiseAgain)
	Start(h *Handler, o engine.Start)
	Drain(h *Handler, o engine.Drain)
	Over(h *Handler, o engine.Over)
	Committed(h *Handler, o engine.Committed)
	Confirmed(h *Handler, o engine.Confirmed)
	Prepare(o engine.Prepare)
	// Wire carries out an Answer, a Link, a Knock or an Unlink. Process has this method.
	Wire(o engine.Output)
	Tell(e event.Event)
}

// Quiet has methods of a Shell that do nothing. A shell that does not need them embeds Quiet.
type Quiet struct{}

func (Quiet) Stepped(engine.Input, []engine.Output) {}
func (Quiet) Committed(*Handler, engine.Committed)  {}
func (Quiet) Confirmed(*Handler, engine.Confirmed)  {}
func (Quiet) Plan(engine.Plan)                      {} // an engine without a planner does not ask
func (Quiet) Prepare(engine.Prepare)                {}
func (Quiet) Raise(engine.RaiseAgain)               {} // nor does one without targets
func (Quiet) Tell(event.Event)                      {}

// A Host runs one engine: it gives it inputs, carries out its outputs, and knows its handlers. It
// has no clock: it is a plain value, apart from its shell and its engine.
type Host struct {
	Shell    Shell
	Engine   Engine
	Wake     engine.Instant // when the engine wants a Tick at the latest
	Handlers Handlers
	todo     []engine.Output // room for the outputs of a step
}

// Step gives the engine an input, and carries out its outputs. It may be called while the outputs
// of another step are carried out.
func (h *Host) Step(in engine.Input) {
	out, wake := h.Engine.Step(h.Shell.Moment(), in)
	h.Wake = wake
	h.Shell.Stepped(in, out)
	todo := append(h.todo[:0], out...) // the engine overwrites out in the next step
	h.todo = nil
	for _, o := range todo {
		h.CarryOut(o)
	}
	clear(todo) // the outputs refer to much memory
	h.todo = todo
}

// CarryOut carries out one output.
func (h *Host) CarryOut(o engine.Output) {
	switch o := o.(type) {
	case engine.List, engine.Get, engine.Send, engine.Verify:
		h.Shell.Call(o)
	case engine.Poll:
		h.Shell.Poll()
	case engine.Plan:
		h.Shell.Plan(o)
	case engine.Start:
		t := &Handler{Tenure: o.Tenure}
		h.Shell.Start(t, o)
		h.Handlers.add(t)
		h.Shell.Tell(o.Event)
	case engine.Drain:
		t := h.Handlers.Of(o.Tenure)
		h.Shell.Drain(t, o)
		if t != nil {
			t.Soft = true
		}
	case engine.Over:
		t := h.Handlers.Of(o.Tenure)
		h.Shell.Over(t, o)
		if t != nil {
			t.Over = true
		}
	case engine.Committed:
		h.Shell.Committed(h.Handlers.Of(o.Tenure), o)
	case engine.Confirmed:
		h.Shell.Confirmed(h.Handlers.Of(o.Tenure), o)
	case engine.Prepare:
		h.Shell.Prepare(o)
	case engine.RaiseAgain:
		h.Shell.Raise(o)
	case engine.Answer, engine.Link, engine.Knock, engine.Unlink:
		h.Shell.Wire(o)
	case engine.Tell:
		h.Shell.Tell(o.Event)
	}
}

// Clone returns a host in the same state, with the same shell. Script is copied as it is.
func (h *Host) Clone() Host {
	c := *h
	c.todo = nil
	if h.Engine != nil {
		c.Engine = h.Engine.Clone()
	}
	c.Handlers = slices.Clone(h.Handlers)
	for i, t := range h.Handlers {
		c.Handlers[i] = new(*t)
	}
	return c
}

// A Handler is one call of a handler.
type Handler struct {
	engine.Tenure
	Soft   bool   // its soft context has ended
	Over   bool   // its hard context has ended
	Marks  uint64 // how many marks it has made
	Script any    // what the shell notes about it
}

// Handlers are the handlers of a host that have not returned, sorted by tenure.
type Handlers []*Handler

// Of returns the handler of a tenure, or nil if it has returned.
func (hs Handlers) Of(id engine.Tenure) *Handler {
	if i, ok := hs.find(id); ok {
		return hs[i]
	}
	return nil
}

func (hs *Handlers) add(h *Handler) {
	i, _ := hs.find(h.Tenure)
	*hs = slices.Insert(*hs, i, h)
}

// Remove removes a handler that returns, and reports whether it was there.
func (hs *Handlers) Remove(id engine.Tenure) bool {
	i, ok := hs.find(id)
	if ok {
		*hs = slices.Delete(*hs, i, i+1)
	}
	return ok
}

func (hs Handlers) find(id engine.Tenure) (int, bool) {
	return slices.BinarySearchFunc(hs, id, func(h *Handler, id engine.Tenure) int {
		return cmp.Or(cmp.Compare(h.Shard, id.Shard), cmp.Compare(h.Generation, id.Generation))
	})
}
