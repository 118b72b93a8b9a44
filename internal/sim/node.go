package sim

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A node is a machine on which one worker runs, as one process after another. It
// is the shell around an engine, without goroutines.
type node struct {
	w      *world
	name   string
	config engine.Config
	clock  clock
	engine *engine.Engine
	epoch  int  // which of its processes this is
	up     bool // it runs
	done   bool // its engine has given everything up
	leaves time.Duration
	leaver bool // it was told to stop
	due    bool // the next process is to come

	paused  bool
	resumes uint64 // counts, so that one pause does not end another
	resumed time.Duration
	backlog []func()      // what came while it was paused
	blocked [2]bool       // its reads, its writes
	mute    bool          // its writes of rows go unanswered
	heard   time.Duration // when a write of a row was last answered

	wake     engine.Instant
	armed    time.Duration
	timer    uint64 // the timer that counts
	ticked   time.Duration
	ticks    int // at this very instant
	second   time.Duration
	inSecond int

	me       lease.Incarnation
	opened   lease.WriteID // of its seat
	sent     engine.Instant
	trusted  engine.Instant // when the last confirmed beat was first sent
	wallSent time.Duration  // when the beat under way was first sent, and the last confirmed one, by the wall clock
	wallTrue time.Duration
	sending  map[string]lease.WriteID // the write that was last sent, of each shard
	believed engine.Instant           // the same, as it was before this step
	seated   bool
	handlers []*handler // one for each shard at most
	dirty    []*handler
	calls    int // of the store, but for commits
}

func (w *world) addNode(name string) *node {
	n := &node{w: w, name: name}
	n.clock.rate = 1000
	w.nodes = append(w.nodes, n)
	return n
}

// boot starts a process.
func (n *node) boot(c engine.Config) {
	c.Name = n.name
	n.epoch++
	rate, wall := n.clock.rate, n.clock.wall
	*n = node{w: n.w, name: n.name, config: c, epoch: n.epoch, up: true, calls: n.calls, resumes: n.resumes, blocked: n.blocked, mute: n.mute, sending: map[string]lease.WriteID{}}
	n.clock = clock{base: n.w.now, rate: rate, wall: wall}
	n.engine = engine.New(c, n.moment())
	n.w.trace("boot", n.name, nil)
	n.step(engine.Tick{})
}

// crash ends the process without a word.
func (n *node) crash() {
	n.w.trace("crash", n.name, nil)
	n.epoch++
	n.up, n.paused, n.backlog = false, false, nil
	for _, h := range slices.Clone(n.handlers) {
		n.w.gone(h)
	}
	n.handlers = nil
}

// stop asks for a clean end.
func (n *node) stop() {
	if !n.up || n.leaver {
		return
	}
	n.w.trace("stop", n.name, nil)
	n.later(0, func() {
		if !n.leaver {
			n.leaver, n.leaves = true, n.w.now
			n.step(engine.Stop{})
		}
	})
}

// step takes the engine one step on: what was marked first, as the shell does.
func (n *node) step(in engine.Input) {
	for _, h := range n.dirty {
		if m, ok := h.report(); ok && !n.done {
			n.feed(m)
		}
	}
	n.dirty = n.dirty[:0]
	n.feed(in)
	n.notBusy()
	n.arm()
	if n.engine.Done() && !n.done {
		n.finish()
	}
}

func (n *node) feed(in engine.Input) {
	n.w.stats.Steps++
	out, wake := n.engine.Step(n.moment(), in)
	n.believed = n.trusted
	if settled, ok := in.(engine.Settled); ok {
		n.settled(settled)
	}
	n.wake = wake
	n.w.mix(uint64(wake))
	for _, o := range out {
		n.do(o)
	}
}

// do carries out what the engine says.
func (n *node) do(o engine.Output) {
	w := n.w
	switch o := o.(type) {
	case engine.List:
		w.note(n.name, "asks for %v", o.Query)
		w.net.list(n, o)
	case engine.Get:
		w.note(n.name, "asks for %v", o.Key)
		w.net.get(n, o)
	case engine.Send:
		w.note(n.name, "sends %v", o.Write)
		n.noteSeat(o.Write)
		w.witnessDoubt(n, o.Write)
		w.net.send(n, o)
	case engine.Verify:
		w.net.verify(n, o)
	case engine.Poll:
		n.poll()
	case engine.Start:
		n.begin(o)
	case engine.Drain:
		n.drain(o)
	case engine.Over:
		n.over(o)
	case engine.Committed:
		n.committed(o)
	case engine.Prepare:
		n.prepare(o)
	case engine.Tell:
		n.tell(o.Event)
	}
}

func (n *node) tell(ev event.Event) {
	n.w.mix(uint64(ev.Kind))
	switch ev.Kind {
	case event.Joined:
		n.seated = true
	case event.Lost:
		n.seated = false
		if n.w.strict {
			n.w.fault("S4: %s lost its seat in calm: %+v", n.name, ev)
		}
	}
	n.w.note(n.name, "tells %+v", ev)
}

// prepare is the hook. It fails or takes too long as chance has it; the engine
// hears of the end alone, and the shell calls one off at its deadline.
func (n *node) prepare(o engine.Prepare) {
	d := n.w.between(0, o.For/2)
	if n.w.likely(n.w.set.hook) {
		f := pick(n.w, PrepareSlow, PrepareFailed)
		n.w.stats.Faults[f]++
		if f == PrepareSlow {
			d = o.For
		}
	}
	n.later(d, func() { n.step(engine.Prepared{Shard: o.Shard.Name}) })
}

// poll asks the source.
func (n *node) poll() {
	w := n.w
	n.later(w.between(time.Millisecond, 50*time.Millisecond), func() {
		in := engine.Source{Shards: w.listing(), Complete: true}
		if w.likely(w.set.source) {
			w.stats.Faults[SourceFault]++
			in.Complete, in.Err = false, errSource
			in.Shards = in.Shards[:w.chance.IntN(len(in.Shards)+1)]
		}
		n.step(in)
	})
}

// noteSeat notes when the bytes of a beat were first sent: trust counts from there.
func (n *node) noteSeat(w lease.Write) {
	n.count(w)
	if w.Key().Kind != lease.KindSeat || w.Op == lease.OpDelete || w.ID() == n.opened {
		return
	}
	if w.Op == lease.OpCreate {
		n.me, n.seated = lease.Incarnation(w.Key().Name), false
	}
	n.opened, n.sent, n.wallSent = w.ID(), n.mono(), n.w.now+n.clock.wall
}

func (n *node) count(w lease.Write) {
	if w.Key().Kind == lease.KindSeat || w.Op != lease.OpSwap {
		n.calls++
	}
}

// settled notes which beat was confirmed.
func (n *node) settled(in engine.Settled) {
	if verdict, _ := protocol.Settle(n.me, in.Write, in.Record, in.Err); verdict != protocol.Unknown && in.Write.Key().Kind == lease.KindLease {
		n.heard = n.w.now
	}
	if in.Write.Key().Kind != lease.KindSeat || in.Write.Op == lease.OpDelete || in.Write.ID() != n.opened {
		return
	}
	if verdict, _ := protocol.Settle(n.me, in.Write, in.Record, in.Err); verdict == protocol.Stored && in.Write.Op == lease.OpSwap {
		n.trusted, n.wallTrue = n.sent, n.wallSent
	}
}

// finish is what Run does when its engine is done: it waits for handlers that
// still run, and ends.
func (n *node) finish() {
	n.done = true
	n.w.trace("done", n.name, nil)
	n.w.witnessDone(n)
	for _, h := range slices.Clone(n.handlers) {
		h.end(event.CauseStopped)
	}
	if len(n.handlers) == 0 {
		n.exit()
	}
}

func (n *node) exit() {
	n.w.trace("exit", n.name, nil)
	n.epoch++
	n.up = false
}

func (n *node) handler(id engine.Tenure) *handler {
	for _, h := range n.handlers {
		if h.id == id {
			return h
		}
	}
	return nil
}

// well reports whether nothing keeps this node from hearing and being heard. The
// moment after a pause counts with it.
func (n *node) well() bool {
	return n.up && !n.paused && n.w.now-n.resumed > 10*time.Millisecond
}
