package engine_test

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A world is a fleet of engines on one store, in a time of its own.
type world struct {
	testing.TB
	store  *memstore.Store
	now    time.Duration
	seq    int
	queue  timers
	chance *rand.Rand
	nodes  []*node
	shards []engine.Shard
	source engine.Source
	down   bool            // the store does not answer
	verify error           // what it says of the table
	broken map[string]bool // the records of these names cannot be read
	calls  map[string]int
	server *server       // nil: it has time for everybody
	polled time.Duration // how long the source takes
}

type timer struct {
	at  time.Duration
	seq int
	do  func()
}

type timers []timer

func (q timers) Len() int { return len(q) }
func (q timers) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q timers) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timers) Push(x any)   { *q = append(*q, x.(timer)) }
func (q *timers) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

// A node is one worker of the world.
type node struct {
	w      *world
	name   string
	engine *engine.Engine
	wake   int // the timer that counts
	dead   bool
	paused []func() // what happens while it is paused; nil when it is not
	pause  bool
	active map[engine.Tenure]*handler
	told   []told
	skew   time.Duration                       // of its wall clock
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

type handler struct {
	began time.Duration
	soft  bool
	hard  bool
}

func newWorld(t testing.TB, shards int) *world {
	w := &world{TB: t, store: new(memstore.Store), chance: rand.New(rand.NewPCG(1, 1)), calls: map[string]int{}}
	for i := range shards {
		w.shards = append(w.shards, engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	w.source = engine.Source{Shards: w.shards, Complete: true}
	return w
}

func config(mode rebalance.Mode) engine.Config {
	return engine.Config{
		Group: "g", TTL: 10 * time.Second, Drain: 20 * time.Second, Handoff: mode, Planner: rebalance.Even{},
		MaxMoves: 100, Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Minute, Poll: 30 * time.Second,
		Commits: checkpoint.Policy{},
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, timer{w.now + d, w.seq, do})
}

func (w *world) latency() time.Duration {
	return time.Millisecond + time.Duration(w.chance.IntN(4000))*time.Microsecond
}

// run lets so much time pass.
func (w *world) run(d time.Duration) {
	until := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= until {
		e := heap.Pop(&w.queue).(timer)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// until lets time pass until cond holds, and reports how much.
func (w *world) until(limit time.Duration, cond func() bool) time.Duration {
	w.Helper()
	from := w.now
	for !cond() {
		if w.now-from > limit {
			w.Fatalf("not within %v; held %v", limit, w.counts())
		}
		w.run(5 * time.Millisecond)
	}
	return w.now - from
}

func (w *world) join(name string, c engine.Config) *node {
	c.Name = name
	n := &node{w: w, name: name, active: map[engine.Tenure]*handler{}}
	n.patience = c.TTL / 4
	n.engine = engine.New(c, n.moment())
	w.nodes = append(w.nodes, n)
	n.step(engine.Tick{})
	return n
}

// fleet lets workers of these names, a letter each, join.
func (w *world) fleet(names string, c engine.Config) (nodes []*node) {
	for _, name := range names {
		nodes = append(nodes, w.join(string(name), c))
	}
	return nodes
}

// finish lets whoever holds a shard come to its end.
func (w *world) finish(shard string) {
	for _, n := range w.nodes {
		for id := range n.active {
			if id.Shard == shard {
				n.step(engine.Marks{Tenure: id, Finish: true})
				w.run(20 * time.Millisecond)
				n.ret(id)
			}
		}
	}
}

// processed is how many of these shards a handler processes at the moment.
func (w *world) processed(shards ...string) (n int) {
	for _, node := range w.nodes {
		for id := range node.active {
			if slices.Contains(shards, id.Shard) {
				n++
			}
		}
	}
	return n
}

func (n *node) moment() engine.Moment {
	n.w.seq++
	return engine.Moment{
		Mono: engine.Instant(n.w.now), Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(n.w.now + n.skew),
		Chance: n.name + "-" + strconv.Itoa(n.w.seq),
	}
}

// step gives the engine an input, unless it is paused: then later.
func (n *node) step(in engine.Input) {
	if n.dead {
		return
	}
	if n.pause {
		n.paused = append(n.paused, func() { n.step(in) })
		return
	}
	now := n.moment()
	var twin *engine.Engine
	if _, test := n.w.TB.(*testing.T); test {
		twin = n.twin()
	}
	outs, wake := n.engine.Step(now, in)
	if twin != nil {
		n.compare(twin, now, in, outs)
	}
	for _, o := range slices.Clone(outs) {
		n.do(o)
	}
	n.wake++
	if mine := n.wake; wake != engine.Never {
		n.w.after(max(time.Duration(wake)-n.w.now, 0), func() {
			if n.wake == mine {
				n.step(engine.Tick{})
			}
		})
	}
}

// twin is, now and then, a copy of the engine as it stands.
func (n *node) twin() *engine.Engine {
	if n.w.chance.IntN(30) > 0 {
		return nil
	}
	return n.engine.Clone()
}

// compare holds the promise that an engine is a value: its clone does the same, and
// has the same hash before and after.
func (n *node) compare(twin *engine.Engine, now engine.Moment, in engine.Input, outs []engine.Output) {
	before := twin.Hash()
	if again := twin.Clone().Hash(); again != before {
		n.w.Errorf("a clone hashes to %x, the original to %x", again, before)
	}
	theirs, _ := twin.Step(now, in)
	if len(theirs) != len(outs) || len(outs) > 0 && !reflect.DeepEqual(theirs, outs) {
		n.w.Errorf("a clone does %v, the original %v", theirs, outs)
	}
	if twin.Hash() != n.engine.Hash() {
		n.w.Error("after one step a clone hashes differently")
	}
	if len(outs) > 0 && before == twin.Hash() {
		n.w.Errorf("%T changed nothing, and yet there was %v to do", in, outs)
	}
}

func (n *node) do(o engine.Output) {
	w := n.w
	n.sent = append(n.sent, sent{o, w.now})
	switch o := o.(type) {
	case engine.List:
		w.calls["list "+o.Query.Kind.String()]++
		n.call(func() engine.Input {
			in := engine.Listed{Read: o.Read}
			for r, err := range w.store.List(context.Background(), o.Query) {
				if err != nil {
					in.Err = err
					break
				}
				if w.broken[r.Key().Name] {
					in.Unreadable = append(in.Unreadable, r.Key())
					continue
				}
				in.Records = append(in.Records, r)
			}
			return in
		}, engine.Listed{Read: o.Read, Err: context.DeadlineExceeded}, o)
	case engine.Get:
		w.calls["get"]++
		n.call(func() engine.Input {
			r, err := w.store.Get(context.Background(), o.Key)
			switch {
			case errors.Is(err, lease.ErrNotFound):
				err = nil
			case w.broken[o.Key.Name]:
				r, err = nil, lease.ErrMalformed
			}
			return engine.Got{Read: o.Read, Key: o.Key, Record: r, Err: err}
		}, engine.Got{Read: o.Read, Key: o.Key, Err: context.DeadlineExceeded}, o)
	case engine.Send:
		w.calls[o.Write.Key().Kind.String()+" "+o.Write.Op.String()]++
		switch {
		case n.noTake && o.Write.Op == lease.OpTransfer:
			return
		case n.mute != "" && o.Write.ID() == n.mute:
			w.after(time.Second, func() { n.step(engine.Settled{Write: o.Write, Err: context.DeadlineExceeded}) })
			return
		}
		n.call(func() engine.Input {
			r, err := w.store.Write(context.Background(), o.Write)
			return engine.Settled{Write: o.Write, Record: r, Err: err}
		}, engine.Settled{Write: o.Write, Err: context.DeadlineExceeded}, o)
	case engine.Verify:
		w.after(0, func() { n.step(engine.Verified{Read: o.Read, Err: w.verify}) })
	case engine.Poll:
		said := w.source
		w.after(w.polled, func() { n.step(said) })
	case engine.Start:
		n.active[o.Tenure] = &handler{began: w.now}
	case engine.Drain:
		n.active[o.Tenure].soft = true
		w.after(n.winds, func() { n.wound(o.Tenure) })
	case engine.Over:
		if h := n.active[o.Tenure]; h != nil && !h.hard {
			h.hard = true
			w.after(time.Millisecond, func() { n.wound(o.Tenure) })
		}
	case engine.Prepare:
		w.after(100*time.Millisecond, func() { n.step(engine.Prepared{Shard: o.Shard.Name}) })
	case engine.Tell:
		n.told = append(n.told, told{o.Event, w.now})
	}
}

// call is one call of the store: on the way, served, and answered.
func (n *node) call(serve func() engine.Input, silent engine.Input, o engine.Output) {
	w := n.w
	if w.server != nil {
		w.server.call(serve, func(in engine.Input) { n.step(in) }, silent, n.patience, o)
		return
	}
	extra := time.Duration(0)
	if n.slow != nil {
		extra = n.slow(o)
	}
	w.after(w.latency(), func() {
		if w.down {
			w.after(time.Second, func() { n.step(silent) })
			return
		}
		in := serve()
		w.after(w.latency()+extra, func() { n.step(in) })
	})
}

func (n *node) wound(id engine.Tenure) {
	if !n.deaf {
		n.ret(id)
	}
}

func (n *node) ret(id engine.Tenure) {
	if n.active[id] == nil {
		return
	}
	delete(n.active, id)
	n.step(engine.Returned{Tenure: id})
}

// counts is how many shards each live worker's handlers process.
func (w *world) counts() map[string]int {
	counts := map[string]int{}
	for _, n := range w.nodes {
		if !n.dead && !n.engine.Done() {
			counts[n.name] = len(n.active)
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
