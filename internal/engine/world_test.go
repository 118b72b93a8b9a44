package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A world is a fleet of engines on one store, in virtual time, with a story that a test writes
// down. A judge checks every write that the store accepts.
type world struct {
	testing.TB
	virtual.Time
	table  virtual.Table
	store  lease.Store // of the table
	chance *rand.Rand
	nodes  []*node
	shards []engine.Shard
	source engine.Source
	down   bool   // the store does not answer
	steps  int    // of all engines
	salt   string // of the chance of every step: another one is another seed
	calls  map[string]int
	server *server        // nil: it has time for everybody
	polled time.Duration  // how long the source takes
	wires  *virtual.Wires // nil: workers have no deathwatch
	links  int            // how many links were asked for
}

// A node is one worker of the world.
type node struct {
	virtual.Process
	virtual.Quiet
	w      *world
	told   []told
	sent   []sent                              // what it has sent
	slow   func(o engine.Output) time.Duration // how much later than usual it is answered
	mute   lease.WriteID                       // this write of it is never answered
	noTake bool                                // its transfers get lost
	deaf   bool                                // its handlers ignore their contexts
	winds  time.Duration                       // how long its handlers take to wind down

	patience time.Duration // how long it waits for an answer
}

type told struct {
	event.Event
	at time.Duration
}

type sent struct {
	engine.Output
	at time.Duration
}

func newWorld(t testing.TB, shards int) *world {
	w := &world{TB: t, chance: rand.New(rand.NewPCG(1, 1)), calls: map[string]int{}}
	w.use(new(memstore.Store))
	for i := range shards {
		w.shards = append(w.shards, engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	w.source = engine.Source{Shards: w.shards, Complete: true}
	return w
}

// use makes this the store of the table. When the test ends, no write may have broken a promise.
func (w *world) use(s lease.Store) {
	w.store = s
	if _, benchmark := w.TB.(*testing.B); !benchmark {
		check, is := s.(*judge.Store)
		if !is {
			check = judge.NewStore(s, checkpoint.Decimal)
		}
		w.store = check
		w.Cleanup(func() {
			if err := check.Err(); err != nil {
				w.Error(err)
			}
		})
	}
	w.table.Restore(w.store)
}

func config(mode rebalance.Mode) engine.Config {
	return engine.Config{
		Group: "g", TTL: 10 * time.Second, Drain: 20 * time.Second, Handoff: mode,
		MaxMoves: 100, Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Minute, Poll: 30 * time.Second,
		Commits: checkpoint.Policy{},
	}
}

func (w *world) latency() time.Duration {
	return time.Millisecond + time.Duration(w.chance.IntN(4000))*time.Microsecond
}

// run lets so much time pass.
func (w *world) run(d time.Duration) { w.Run(d) }

// until lets time pass until cond holds, and reports how much.
func (w *world) until(limit time.Duration, cond func() bool) time.Duration {
	w.Helper()
	from := w.Now()
	for !cond() {
		if w.Now()-from > limit {
			w.Fatalf("not within %v; held %v", limit, w.counts())
		}
		w.run(5 * time.Millisecond)
	}
	return w.Now() - from
}

func (w *world) join(name string, c engine.Config) *node {
	n := &node{w: w, Process: virtual.Process{Time: &w.Time, Name: name}}
	n.Shell = n
	n.enter(c)
	return n
}

// enter starts the worker.
func (n *node) enter(c engine.Config) {
	c.Name, n.patience = n.Name, c.TTL/4
	n.w.nodes = append(n.w.nodes, n)
	if wires := n.w.wires; wires != nil {
		wires.Join(&n.Process)
		c.Deathwatch, c.Address = true, n.Name
	}
	n.Boot(0, func() virtual.Engine { return twinned{virtual.New(c, n.Moment()), n.w} })
}

// fleet lets workers of these names, a letter each, join.
func (w *world) fleet(names string, c engine.Config) (nodes []*node) {
	for _, name := range names {
		nodes = append(nodes, w.join(string(name), c))
	}
	return nodes
}

func rowKey(shard string) lease.Key {
	return lease.Key{Group: "g", Kind: lease.KindLease, Name: shard}
}

// unreadable makes these records, and no others, unreadable.
func (w *world) unreadable(keys ...lease.Key) {
	w.table.Unreadable = map[lease.Key]bool{}
	for _, k := range keys {
		w.table.Unreadable[k] = true
	}
}

// seatsOf returns the keys of the seats of workers with these names; of all workers if there are
// none.
func (w *world) seatsOf(names ...string) (keys []lease.Key) {
	for _, r := range w.table.Records("g", lease.KindSeat) {
		if seat, ok := r.(lease.Seat); ok && (len(names) == 0 || slices.Contains(names, seat.Name)) {
			keys = append(keys, r.Key())
		}
	}
	return keys
}

// finish lets whoever holds a shard come to its end.
func (w *world) finish(shard string) {
	for _, n := range w.nodes {
		for _, id := range n.tenures() {
			if id.Shard == shard {
				n.finish(id)
			}
		}
	}
}

// finish lets a handler come to the end of its shard.
func (n *node) finish(id engine.Tenure) {
	n.step(engine.Marks{Tenure: id, Finish: true})
	n.w.run(20 * time.Millisecond)
	n.ret(id)
}

// processed is how many of these shards a handler processes at the moment.
func (w *world) processed(shards ...string) (n int) {
	for _, node := range w.nodes {
		for _, id := range node.tenures() {
			if slices.Contains(shards, id.Shard) {
				n++
			}
		}
	}
	return n
}

func (n *node) Moment() engine.Moment {
	n.w.steps++
	return n.MomentOf(n.Name + "-" + strconv.Itoa(n.w.steps) + n.w.salt)
}

// step gives the engine an input, unless it is paused: then later.
func (n *node) step(in engine.Input) { n.Step(in) }

// tenures returns the tenures of the handlers that run.
func (n *node) tenures() (all []engine.Tenure) {
	for _, h := range n.Handlers {
		all = append(all, h.Tenure)
	}
	return all
}

// A twinned engine is compared, now and then, with its clone: an engine is a value, so the clone
// does the same, and has the same hash before and after.
type twinned struct {
	virtual.Engine
	w *world
}

func (e twinned) Step(now engine.Moment, in engine.Input) ([]engine.Output, engine.Instant) {
	if _, test := e.w.TB.(*testing.T); !test || e.w.chance.IntN(fixture.Size(100, 30)) > 0 {
		return e.Engine.Step(now, in)
	}
	twin := e.Clone()
	outs, wake := e.Engine.Step(now, in)
	e.compare(twin, now, in, outs)
	return outs, wake
}

func (e twinned) compare(twin virtual.Engine, now engine.Moment, in engine.Input, outs []engine.Output) {
	w, before := e.w, twin.Hash()
	if again := twin.Clone().Hash(); again != before {
		w.Errorf("a clone hashes to %x, the original to %x", again, before)
	}
	theirs, _ := twin.Step(now, in)
	if len(theirs) != len(outs) || len(outs) > 0 && !reflect.DeepEqual(theirs, outs) {
		w.Errorf("a clone does %v, the original %v", theirs, outs)
	}
	if twin.Hash() != e.Hash() {
		w.Error("after one step a clone hashes differently")
	}
	if len(outs) > 0 && before == twin.Hash() {
		w.Errorf("%T changed nothing, and yet there was %v to do", in, outs)
	}
}

// Stepped notes what the engine wants to have done.
func (n *node) Stepped(_ engine.Input, outs []engine.Output) {
	for _, o := range outs {
		n.sent = append(n.sent, sent{o, n.w.Now()})
	}
}

// Call makes one call of the store: it is on the way, served, and answered.
func (n *node) Call(o engine.Output) {
	w := n.w
	switch o := o.(type) {
	case engine.List:
		w.calls["list "+o.Query.Kind.String()]++
	case engine.Get:
		w.calls["get"]++
	case engine.Verify:
		w.After(0, func() { n.step(w.table.Serve(n.Sender(), o)) })
		return
	case engine.Send:
		w.calls[o.Write.Key().Kind.String()+" "+o.Write.Op.String()]++
		switch {
		case n.noTake && o.Write.Op == lease.OpTransfer:
			return
		case n.mute != "" && o.Write.ID() == n.mute:
			n.Answer(time.Second, unanswered(o))
			return
		}
	}
	if w.server != nil {
		w.server.call(n, o)
		return
	}
	extra := time.Duration(0)
	if n.slow != nil {
		extra = n.slow(o)
	}
	from := n.Sender()
	w.After(w.latency(), func() {
		if w.down {
			n.Answer(time.Second, unanswered(o))
			return
		}
		in := w.table.Serve(from, o)
		n.Answer(w.latency()+extra, in)
	})
}

func unanswered(o engine.Output) engine.Input {
	return virtual.Unanswered(o, context.DeadlineExceeded)
}

// Poll asks the source.
func (n *node) Poll() { n.Answer(n.w.polled, n.w.source) }

// Start calls a handler, which does nothing.
func (n *node) Start(*virtual.Handler, engine.Start) {}

// Drain lets a handler wind down.
func (n *node) Drain(h *virtual.Handler, o engine.Drain) {
	if h == nil {
		n.w.Errorf("%s: a handler is told to wind down that does not run: %v", n.Name, o.Tenure)
	}
	n.Later(n.winds, func() { n.wound(o.Tenure) })
}

// Over lets a handler return.
func (n *node) Over(h *virtual.Handler, o engine.Over) {
	if h != nil && !h.Over {
		n.Later(time.Millisecond, func() { n.wound(o.Tenure) })
	}
}

// Prepare prepares a shard.
func (n *node) Prepare(o engine.Prepare) {
	n.Answer(100*time.Millisecond, engine.Prepared{Shard: o.Shard.Name})
}

// Wire notes that a link is asked for.
func (n *node) Wire(o engine.Output) {
	if _, link := o.(engine.Link); link {
		n.w.links++
	}
	n.Process.Wire(o)
}

// Tell notes an event.
func (n *node) Tell(e event.Event) { n.told = append(n.told, told{e, n.w.Now()}) }

func (n *node) wound(id engine.Tenure) {
	if !n.deaf {
		n.ret(id)
	}
}

// ret makes a handler return, if it runs.
func (n *node) ret(id engine.Tenure) {
	if n.Handlers.Remove(id) {
		n.step(engine.Returned{Tenure: id})
	}
}

// fail makes a handler return an error.
func (n *node) fail(id engine.Tenure) {
	n.Handlers.Remove(id)
	n.step(engine.Returned{Tenure: id, Failed: true})
}

// counts is how many shards each live worker's handlers process.
func (w *world) counts() map[string]int {
	counts := map[string]int{}
	for _, n := range w.nodes {
		if n.Up() && !n.Engine.Done() {
			counts[n.Name] = len(n.Handlers)
		}
	}
	return counts
}

// even reports whether every shard is processed once, and the counts differ by at
// most one.
func (w *world) even() bool {
	least, most, sum := len(w.shards), 0, 0
	for _, n := range w.counts() {
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	return sum == len(w.shards) && most-least <= 1
}

// held reports whether every shard is processed.
func (w *world) held() bool {
	sum := 0
	for _, n := range w.counts() {
		sum += n
	}
	return sum == len(w.shards)
}
