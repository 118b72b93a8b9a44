package sim

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A world is one fleet, its table and its streams.
//
// Invariant: whatever decides anything has an order (by time, then by when it was put there), and never
// that of a map.
type world struct {
	virtual.Time
	chance
	record
	make     virtual.Maker
	set      settings
	stats    Stats
	table    virtual.Table
	store    *virtual.Deletable // of the table
	net      network
	wires    virtual.Wires
	streams  streams
	nodes    []*node
	faults   faults
	operator operator
	promises *promises
	silence  silence

	watchful  bool          // workers have a deathwatch
	peace     bool          // trouble has ended
	strict    bool          // it has been calm for long enough: bounds hold
	calmSince time.Duration // since when bounds hold
}

func newWorld(seed uint64, log func(string)) *world {
	w := &world{chance: newChance(seed, 0x5eed), make: virtual.New, store: virtual.NewDeletable(), streams: newStreams()}
	w.record = record{time: &w.Time, seed: seed, log: log, hash: 14695981039346656037}
	w.promises, w.net.w, w.operator.w = newPromises(w), w, w
	w.table = virtual.Table{Store: w.store, Watcher: w.promises, Unreadable: map[lease.Key]bool{}, Time: &w.Time}
	w.faults = newFaults(w)
	w.silence = silence{w: w, idle: map[string]time.Duration{}, shards: map[string]time.Duration{}}
	w.After(0, w.silence.check)
	w.watchful = w.apart(0xdea7).IntN(3) == 0
	w.wires.Lie = w.faults.lie
	return w
}

// apart returns another source of chance of the same seed. Numbers drawn from it change nothing else.
func (w *world) apart(what uint64) chance { return newChance(w.seed, what) }

// run lets d pass, or less if a promise is broken.
func (w *world) run(d time.Duration) { w.RunWhile(d, w.sound) }

// until lets time pass until cond holds, and reports whether it did in time.
func (w *world) until(limit time.Duration, cond func() bool) bool {
	for from := w.Now(); !cond(); w.run(max(50*time.Millisecond, w.set.ttl/200)) {
		if w.Now()-from > limit || !w.sound() {
			return false
		}
	}
	return true
}

// populate makes the streams and the nodes, which start at random times within a lease time.
func (w *world) populate() {
	w.net.slow, w.net.timeout = 5*time.Millisecond, w.between(w.set.ttl/10, w.set.ttl/2)
	for i := range w.set.streams {
		w.streams.add(numbered(i), w.set.every, w.Now())
	}
	for i := range w.set.nodes {
		w.addNode(string(rune('a' + i))).bootAfter(w.between(0, w.set.ttl))
	}
}

func (w *world) addNode(name string) *node {
	n := &node{w: w, Process: virtual.Process{Time: &w.Time, Name: name, Clock: virtual.Clock{Rate: 1000}}}
	n.Shell, n.Input = n, n.input
	w.wires.Join(&n.Process)
	w.nodes = append(w.nodes, n)
	return n
}

// newcomer returns a node on which no process runs, and adds one if there is none.
func (w *world) newcomer() *node {
	if i := slices.IndexFunc(w.nodes, func(n *node) bool { return !n.Up() }); i >= 0 {
		return w.nodes[i]
	}
	if w.set.seasonal {
		return w.addNode(string(rune('a' + len(w.nodes))))
	}
	return w.addNode("new")
}

// live returns the nodes whose processes run and were not told to stop.
func (w *world) live() (live []*node) {
	for _, n := range w.nodes {
		if n.Up() && !n.leaver {
			live = append(live, n)
		}
	}
	return live
}

// plan returns the plan that is in the table.
func (w *world) plan() (p lease.Plan, ok bool) {
	p, ok = w.table.Read(planKey()).(lease.Plan)
	return p, ok
}

// sits reports whether that incarnation has a seat.
func (w *world) sits(me lease.Incarnation) bool { return w.table.Read(seatKey(me)) != nil }

const group = "sim"

func planKey() lease.Key { return lease.Plan{Group: group}.Key() }

func rowKey(shard string) lease.Key {
	return lease.Key{Group: group, Kind: lease.KindLease, Name: shard}
}

func seatKey(of lease.Incarnation) lease.Key {
	return lease.Key{Group: group, Kind: lease.KindSeat, Name: string(of)}
}

func targetKey(of lease.Incarnation) lease.Key {
	return lease.Target{Group: group, Incarnation: of}.Key()
}

// quiet ends all trouble. Requests that are on their way still arrive, and a handler that is late already stays late.
func (w *world) quiet() {
	w.trace("calm", "", nil)
	w.peace = true
	w.net.set(rates{})
	w.set.chances = chances{}
	w.faults.end()
	for _, n := range w.nodes {
		for _, h := range n.running() {
			h.mend()
		}
	}
	w.operator.unquarantine()
}
