package engine_test

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A member is one worker of a fleet.
type member struct {
	virtual.Worker
	of       *fleet
	calls    map[string]int // what it has asked of the table
	polls    int
	sent     []sent                     // what its engine wanted to have done
	told     []told                     // what its engine has reported
	writing  map[writing]lease.WriteID  // the writes that are under way
	mute     func(o engine.Output) bool // such a call of it does not arrive; nil: each does
	alter    func(s *lease.Seat)        // what its build writes otherwise to its seat; nil: nothing
	patience time.Duration              // how long it waits for an answer
}

type told struct {
	event.Event
	at time.Duration
}

type sent struct {
	engine.Output
	at time.Duration
}

const listing = 10 * time.Millisecond // of the source

func (f *fleet) newMember(name string, c engine.Config) *member {
	n := &member{of: f, calls: map[string]int{}, writing: map[writing]lease.WriteID{}, patience: c.TTL / 4}
	n.Process = virtual.Process{Time: &f.Time, Name: name}
	n.Winds = 20 * time.Millisecond
	return n
}

// Stepped notes what the engine wants to have done.
func (n *member) Stepped(in engine.Input, out []engine.Output) {
	n.oneAtATime(in, out)
	for _, o := range out {
		n.sent = append(n.sent, sent{o, n.of.Now()})
	}
}

// A writing is what a worker has at most one write of under way.
type writing struct {
	lease.Key
	ticks bool // a tick of the plan may be under way beside a write of a draft
}

func writingOf(w lease.Write) writing {
	old, _ := w.Old.(lease.Plan)
	next, is := w.Next.(lease.Plan)
	return writing{w.Key(), is && next.Tick > old.Tick}
}

// oneAtATime checks that no write is sent while it is under way, and no other one of the same row or seat, nor another tick.
// A draft that was dropped may still have a write under way. Deletions have no write id, and are not checked.
func (n *member) oneAtATime(in engine.Input, out []engine.Output) {
	if in, is := in.(engine.Settled); is && n.writing[writingOf(in.Write)] == in.Write.ID() {
		delete(n.writing, writingOf(in.Write))
	}
	for _, o := range out {
		send, is := o.(engine.Send)
		if !is || send.Write.Op == lease.OpDelete {
			continue
		}
		of, id := writingOf(send.Write), send.Write.ID()
		if of.Kind == lease.KindSeat && send.Write.Op == lease.OpCreate {
			clear(n.writing) // another incarnation, which does not wait for the answers to the one before
		}
		if open, is := n.writing[of]; is && (open == id || of.ticks || of.Kind == lease.KindLease || of.Kind == lease.KindSeat) {
			n.of.Errorf("%s sends %v while a write of the same record is under way", n.Name, send.Write)
		}
		n.writing[of] = id
	}
}

// Call makes one call of the table: it is on the way, served, and answered.
func (n *member) Call(o engine.Output) {
	f, from := n.of, n.Sender()
	what := described(o)
	n.calls[what]++
	f.calls[what]++
	switch {
	case f.deaf != nil && f.deaf(n, o):
	case f.down, n.mute != nil && n.mute(o):
		n.Answer(n.patience, unanswered(o))
	default:
		n.Deliver(n.latency(), n.latency()+n.late(o), func() engine.Input { return n.serve(from, o) })
	}
}

// serve carries out a call. A worker of another build writes another seat.
func (n *member) serve(from virtual.Sender, o engine.Output) engine.Input {
	if send, is := o.(engine.Send); is && n.alter != nil {
		if seat, is := send.Write.Next.(lease.Seat); is {
			w := send.Write
			n.alter(&seat)
			w.Next = seat
			settled := n.of.table.Serve(from, engine.Send{Write: w}).(engine.Settled)
			settled.Write = send.Write
			return settled
		}
	}
	return n.of.table.Serve(from, o)
}

// described returns what is counted of a call.
func described(o engine.Output) string {
	switch o := o.(type) {
	case engine.List:
		what := "list " + o.Query.Kind.String()
		if o.Query.Limit > 0 {
			what = "page of " + o.Query.Kind.String()
		}
		if !o.Query.Eventually {
			what += ", consistent"
		}
		return what
	case engine.Get:
		return "get " + o.Key.Kind.String()
	case engine.Send:
		return o.Write.Key().Kind.String() + " " + o.Write.Op.String()
	}
	return "verify"
}

func unanswered(o engine.Output) engine.Input {
	return virtual.Unanswered(o, context.DeadlineExceeded)
}

// gets, sends and lists report whether a call is about records of that kind.
func gets(o engine.Output, kind lease.Kind) bool {
	get, is := o.(engine.Get)
	return is && get.Key.Kind == kind
}

func sends(o engine.Output, kind lease.Kind) bool {
	send, is := o.(engine.Send)
	return is && send.Write.Key().Kind == kind
}

func lists(o engine.Output, kind lease.Kind) bool {
	list, is := o.(engine.List)
	return is && list.Query.Kind == kind
}

// latency returns how long a message takes one way.
func (n *member) latency() time.Duration {
	if n.of.quick {
		return 0
	}
	return time.Duration(1000+n.of.chance.IntN(4000)) * time.Microsecond
}

// late returns how much longer the answer to a call takes.
func (n *member) late(o engine.Output) time.Duration {
	if n.of.slow == nil {
		return 0
	}
	return n.of.slow(n, o)
}

func (n *member) Poll() {
	n.polls++
	if n.of.polled != nil {
		n.of.polled(n)
		return
	}
	n.Answer(listing, n.of.source)
}

func (n *member) Plan(o engine.Plan) {
	if n.of.planned == nil || !n.of.planned(n, o) {
		n.Answer(0, engine.Planned{Ask: o.Ask, To: n.of.planner.Plan(o.View)})
	}
}

func (n *member) Start(_ *virtual.Handler, o engine.Start) {
	if n.of.starts++; n.of.begins != nil {
		n.of.begins(n, o)
	}
}

func (n *member) Prepare(o engine.Prepare) {
	n.Answer(50*time.Millisecond, engine.Prepared{Shard: o.Shard.Name})
}

func (n *member) Tell(e event.Event) {
	if e.Kind == event.Restored && !e.Over && e.Err == nil {
		n.of.Errorf("%s reports %v without its reason", n.Name, e)
	}
	n.told = append(n.told, told{e, n.of.Now()})
}

// reports returns the events of a kind.
func (n *member) reports(kind event.Kind) []told {
	return slices.DeleteFunc(slices.Clone(n.told), func(e told) bool { return e.Kind != kind })
}

// never reports events of these kinds.
func (n *member) never(kinds ...event.Kind) {
	n.of.Helper()
	for _, kind := range kinds {
		if all := n.reports(kind); len(all) > 0 {
			n.of.Errorf("%s: %d events of the kind %v: %v", n.Name, len(all), kind, all)
		}
	}
}

// writes returns the writes of a kind that it has sent since.
func (n *member) writes(kind lease.Kind, since time.Duration) []sent {
	return slices.DeleteFunc(slices.Clone(n.sent), func(s sent) bool { return s.at < since || !sends(s.Output, kind) })
}

// holds reports whether the worker processes the shard.
func (n *member) holds(shard string) bool {
	return slices.ContainsFunc(n.Handlers, func(h *virtual.Handler) bool { return h.Shard == shard && !h.Over })
}

// tenures returns the tenures of the handlers that run.
func (n *member) tenures() (all []engine.Tenure) {
	for _, h := range n.Handlers {
		all = append(all, h.Tenure)
	}
	return all
}

// mark lets a handler mark its next position.
func (n *member) mark(h *virtual.Handler) {
	h.Marks++
	n.Step(engine.Marks{Tenure: h.Tenure, Mark: checkpoint.Mark{Position: strconv.FormatUint(h.Marks, 10)}, Seq: h.Marks})
}

// end makes a worker finish some of its shards at once.
func (n *member) end(all ...*virtual.Handler) {
	for _, h := range all {
		n.Input(engine.Marks{Tenure: h.Tenure, Finish: true})
	}
	n.of.Run(50 * time.Millisecond)
	for _, h := range all {
		n.Return(h.Tenure, false)
	}
}
