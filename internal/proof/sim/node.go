package sim

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A node is a machine on which one worker runs, as one process after another. It
// is the shell around an engine, without goroutines.
type node struct {
	virtual.Process
	w      *world
	config engine.Config
	done   bool // its engine has given everything up
	leaves time.Duration
	leaver bool // it was told to stop
	due    bool // the next process is to come

	resumes uint64 // counts, so that one pause does not end another
	resumed time.Duration
	blocked [2]bool                  // its reads, its writes
	mute    bool                     // its writes of rows go unanswered
	denied  func(engine.Output) bool // until trouble ends, such calls of it go unanswered; nil: none does
	lacks   map[string]bool          // what its source does not list
	absent  map[string]int           // complete listings in a row that lacked a shard
	heard   time.Duration            // when a write of a row was last answered

	ticked   time.Duration
	ticks    int // steps at this instant
	second   time.Duration
	inSecond int

	me       lease.Incarnation
	opened   lease.WriteID  // the latest write of its seat
	sent     engine.Instant // when that was first sent
	trusted  engine.Instant // when the last confirmed beat was first sent
	wallSent time.Duration  // sent and trusted by the wall clock
	wallTrue time.Duration
	sending  map[string]lease.WriteID // for each shard, the write that was last sent
	believed engine.Instant           // trusted, as it was before this step
	seated   bool
	dirty    []*handler // the handlers that have something to report
	calls    int        // calls of the store, without commits
	host     host
}

// bootAfter starts the next process after d, or later when the present one has ended. A process that is
// told twice to stop, before it takes the first of these inputs, has one successor.
func (n *node) bootAfter(d time.Duration) {
	w := n.w
	n.due = true
	w.After(d, func() {
		switch {
		case !n.due: // it was started meanwhile
			return
		case n.Up():
			n.bootAfter(w.set.ttl / 2)
			return
		}
		n.Clock.Rate = 1000
		if !w.set.exact && w.likely(0.3) {
			w.stats.Faults[ClockRate]++
			n.Clock.Rate = 960 + w.Int64N(81)
		}
		n.boot()
	})
}

// boot starts a process.
func (n *node) boot() {
	c := n.w.set.config(n.w.chance)
	c.Name = n.Name
	if n.w.watchful {
		c.Deathwatch, c.Address = true, n.Name
	}
	n.w.silence.disturb()
	*n = node{w: n.w, Process: n.Process, config: c, calls: n.calls, resumes: n.resumes, blocked: n.blocked, mute: n.mute, denied: n.denied, sending: map[string]lease.WriteID{}, host: n.w.drawHost()}
	n.Boot(n.w.Now(), func() virtual.Engine {
		e := n.w.make(c, n.Moment())
		n.w.trace("boot", n.Name, nil)
		return e
	})
}

// crash ends the process without a word.
func (n *node) crash() {
	n.w.trace("crash", n.Name, nil)
	n.w.silence.ended(n)
	ended := n.running()
	n.Kill()
	for _, h := range ended {
		n.w.promises.gone(h)
	}
}

// stop tells the worker to shut down gracefully.
func (n *node) stop() {
	if !n.Up() || n.leaver {
		return
	}
	n.w.trace("stop", n.Name, nil)
	n.Later(0, func() {
		n.Input(engine.Stop{})
	})
}

// step gives the engine an input. Like the shell, it first reports what handlers have marked.
func (n *node) step(in engine.Input) {
	for _, h := range n.dirty {
		if m, ok := h.report(); ok && !n.done {
			n.Host.Step(m)
		}
	}
	n.dirty = n.dirty[:0]
	if _, stops := in.(engine.Stop); stops && !n.leaver {
		n.leaver, n.leaves = true, n.w.Now()
	}
	// A busy engine takes this report late. Until then it may release the tenure because of the earlier failure.
	if raised, ok := in.(engine.Raised); ok {
		if t := n.Handlers.Of(raised.Tenure); t != nil {
			t.Script.(*handler).unraised = false
		}
	}
	n.Host.Step(in)
	n.notBusy(in)
	n.Arm()
	if n.Engine.Done() && !n.done {
		n.finish()
	}
}

// Stepped notes what a step has changed.
func (n *node) Stepped(in engine.Input, _ []engine.Output) {
	n.w.stats.Steps++
	n.believed = n.trusted
	if settled, ok := in.(engine.Settled); ok {
		n.settled(settled)
	}
	n.w.mix(uint64(n.Wake))
}

// Call sends a call to the table.
func (n *node) Call(o engine.Output) {
	w := n.w
	switch o := o.(type) {
	case engine.List:
		w.note(n.Name, "asks for %v", o.Query)
		n.calls++
	case engine.Get:
		w.note(n.Name, "asks for %v", o.Key)
		n.calls++
	case engine.Send:
		w.note(n.Name, "sends %v", o.Write)
		n.noteSeat(o.Write)
		w.promises.doubt(n, o.Write)
	}
	w.net.carry(n, o)
}

// Tell notes an event.
func (n *node) Tell(ev event.Event) {
	n.w.mix(uint64(ev.Kind))
	n.w.silence.reported(n, ev)
	switch ev.Kind {
	case event.Joined:
		n.seated = true
	case event.Lost:
		n.seated = false
		if n.w.strict {
			n.w.blame("S4: %s lost its seat in calm: %+v", n.Name, ev)
		}
	}
	n.w.note(n.Name, "tells %+v", ev)
}

// Prepare calls the hook, which at random fails or takes too long. The engine gets only the end of the call; a
// call that takes too long ends at its deadline.
func (n *node) Prepare(o engine.Prepare) {
	d := n.w.between(0, o.For/2)
	if n.w.likely(n.w.set.hook) {
		f := pick(n.w.chance, PrepareSlow, PrepareFailed)
		n.w.stats.Faults[f]++
		if f == PrepareSlow {
			d = o.For
		}
	}
	n.Answer(d, engine.Prepared{Shard: o.Shard.Name})
}

// Plan asks the planner. It may take up to a third of the lease time; if it fails, or takes longer, there is no plan.
func (n *node) Plan(o engine.Plan) {
	limit := n.config.TTL / 3
	in, d := engine.Planned{Ask: o.Ask, To: rebalance.Even{}.Plan(o.View)}, n.w.between(0, limit/100)
	if n.w.likely(n.w.set.hook) {
		d = n.w.between(0, limit)
		if n.w.likely(0.5) {
			n.w.stats.Faults[PlannerFailed]++
			in.To = nil
		}
	}
	n.Answer(d, in)
}

// Poll asks the source.
func (n *node) Poll() {
	w := n.w
	n.Later(w.between(time.Millisecond, 50*time.Millisecond), func() {
		in := engine.Source{Shards: w.streams.listing(w.Now(), w.set.retention), Complete: true}
		in.Shards = slices.DeleteFunc(in.Shards, func(s engine.Shard) bool { return n.lacks[s.Name] && w.streams.of(s.Name).ended == 0 })
		if len(in.Shards) == 0 {
			in.Complete, in.Err = false, errSource
		}
		if w.likely(w.set.source) {
			w.stats.Faults[SourceFault]++
			in.Complete, in.Err = false, errSource
			in.Shards = in.Shards[:w.IntN(len(in.Shards)+1)]
		}
		n.listed(in)
		n.Input(in)
	})
}

// listed counts which shards a complete listing lacks.
func (n *node) listed(in engine.Source) {
	if n.absent == nil {
		n.absent = map[string]int{}
	}
	if in.Complete {
		for _, s := range n.w.streams.all {
			n.absent[s.name]++
		}
	}
	for _, s := range in.Shards {
		delete(n.absent, s.Name)
	}
}

// noteSeat notes when a heartbeat was first sent, because trust begins then.
func (n *node) noteSeat(w lease.Write) {
	n.count(w)
	if w.Key().Kind != lease.KindSeat || w.Op == lease.OpDelete || w.ID() == n.opened {
		return
	}
	if w.Op == lease.OpCreate {
		n.me, n.seated = lease.Incarnation(w.Key().Name), false
	}
	n.opened, n.sent, n.wallSent = w.ID(), n.Mono(), n.w.Now()+n.Clock.Wall
}

func (n *node) count(w lease.Write) {
	if w.Key().Kind == lease.KindSeat || w.Op != lease.OpSwap {
		n.calls++
	}
}

// settled notes which beat was confirmed.
func (n *node) settled(in engine.Settled) {
	if verdict, _ := protocol.Settle(n.me, in.Write, in.Record, in.Err); verdict != protocol.Unknown && in.Write.Key().Kind == lease.KindLease {
		n.heard = n.w.Now()
	}
	if in.Write.Key().Kind != lease.KindSeat || in.Write.Op == lease.OpDelete || in.Write.ID() != n.opened {
		return
	}
	if verdict, _ := protocol.Settle(n.me, in.Write, in.Record, in.Err); verdict == protocol.Stored && in.Write.Op == lease.OpSwap {
		n.trusted, n.wallTrue = n.sent, n.wallSent
	}
}

// finish does what Run does when its engine is done: it waits for handlers that still run, and ends the
// process.
func (n *node) finish() {
	n.done = true
	n.w.trace("done", n.Name, nil)
	n.w.promises.done(n)
	for _, h := range n.running() {
		h.end(event.CauseStopped)
	}
	if len(n.Handlers) == 0 {
		n.exit()
	}
}

func (n *node) exit() {
	n.w.trace("exit", n.Name, nil)
	n.w.silence.ended(n)
	n.Kill()
}

// running are the handlers that have not returned.
func (n *node) running() (all []*handler) {
	for _, t := range n.Handlers {
		if h, ok := t.Script.(*handler); ok { // otherwise it is the holder of a lease by name
			all = append(all, h)
		}
	}
	return all
}

// trusts reports whether the worker has a seat that it may trust, by its clock.
func (n *node) trusts() bool {
	return n.seated && n.Mono() < n.trusted.Add(n.config.TTL-n.config.TTL/10)
}

// well reports whether the process works without hindrance: it runs, has not just been resumed, and has no
// inputs that wait.
func (n *node) well() bool {
	return n.Up() && !n.Paused() && len(n.host.queue) == 0 && n.w.Now()-n.resumed > 10*time.Millisecond
}
