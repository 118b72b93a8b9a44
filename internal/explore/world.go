// Package explore goes breadth-first through everything that a small fleet of real
// engines can come to. Whatever may happen in any order is tried in every order: which
// call is served next, which is lost, late or answered with silence, when time passes,
// who crashes and who is paused. Each state is visited once.
package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Story is a small fleet, what may go wrong in it, and how often.
type Story struct {
	Name    string
	Workers int
	Shards  int
	Mode    rebalance.Mode
	// Settle runs the first so many workers without any trouble for so long, before
	// the exploration begins.
	Settled int
	Crashes int // workers that die
	Pauses  int // workers that are paused, and woken up at any later time
	Faults  int // calls that are lost, late, or stored without an answer
	Marks   int // marks with a commit that is waited for
	Stops   int // clean stops
	// For is how long the fleet is followed.
	For   time.Duration
	Reads int // reads that are answered late
}

// A state is a fleet at a moment. It is cloned for each thing that may happen next.
type state struct {
	story *Story
	now   engine.Instant
	until engine.Instant
	store *memstore.Store
	table []record
	nodes []node
	calls []call // under way, in the order they were sent
	left  Story  // what may still happen
	fault error
}

// A record is what stands in the table, as a hash.
type record struct {
	key  lease.Key
	hash uint64
}

type node struct {
	engine *engine.Engine
	hash   uint64 // of the engine; 0: not since its last step
	ids    int    // steps of it that made writes: their ids do not depend on what others did meanwhile
	wake   engine.Instant
	dead   bool
	paused bool
	wait   []engine.Input // what arrives while it is paused
	active []tenure
}

// A tenure is a handler that has not returned.
type tenure struct {
	id       engine.Tenure
	soft     bool // told to wind down
	over     bool // its context has ended
	marks    uint64
	position int
}

// A call is on its way to the store.
type call struct {
	node     int
	out      engine.Output
	text     string
	answered bool // its node was told that the outcome is unknown
}

var errSilence = errors.New("no answer")

func newState(s *Story) *state {
	w := &state{story: s, store: new(memstore.Store), left: *s}
	for i := range s.Workers {
		w.nodes = append(w.nodes, node{wake: engine.Never})
		if i < s.Settled || s.Settled == 0 {
			w.enter(i)
		}
	}
	return w
}

func (w *state) enter(i int) {
	c := engine.Config{
		Group: "g", Name: string(rune('a' + i)), TTL: 9 * time.Second, Drain: 6 * time.Second,
		Handoff: w.story.Mode, Planner: rebalance.Even{}, MaxMoves: 100,
		Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Hour, Poll: time.Hour,
		Order: checkpoint.Decimal, Commits: checkpoint.Policy{Every: -1},
	}
	w.nodes[i].engine = engine.New(c, w.moment(i))
	w.step(i, engine.Tick{})
}

func (w *state) moment(i int) engine.Moment {
	wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // stands still: nothing may depend on it
	return engine.Moment{Mono: w.now, Wall: wall, Chance: fmt.Sprintf("%c%d", 'a'+i, w.nodes[i].ids)}
}

func (w *state) clone() *state {
	c := *w
	c.store, c.table = w.store.Clone(), slices.Clone(w.table)
	c.calls = slices.Clone(w.calls)
	c.nodes = slices.Clone(w.nodes)
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.engine != nil {
			n.engine = n.engine.Clone()
		}
		n.wait, n.active = slices.Clone(n.wait), slices.Clone(n.active)
	}
	return &c
}

// step gives a node an input.
func (w *state) step(i int, in engine.Input) {
	n := &w.nodes[i]
	switch {
	case n.dead || n.engine == nil:
		return
	case n.paused:
		n.wait = append(n.wait, in)
		return
	}
	now := w.moment(i)
	out, wake := n.engine.Step(now, in)
	n.wake, n.hash = wake, 0
	made := func(o engine.Output) bool {
		send, ok := o.(engine.Send)
		id, _, _ := strings.Cut(string(send.Write.ID()), ".")
		return ok && id == now.Chance
	}
	if slices.ContainsFunc(out, made) {
		n.ids++
	}
	for _, o := range slices.Clone(out) {
		w.carryOut(i, o)
	}
}

func (w *state) carryOut(i int, o engine.Output) {
	n := &w.nodes[i]
	switch o := o.(type) {
	case engine.Send, engine.List, engine.Get:
		w.calls = append(w.calls, call{node: i, out: o, text: describe(o)})
	case engine.Verify:
		w.step(i, engine.Verified{Read: o.Read})
	case engine.Poll:
		shards := make([]engine.Shard, w.story.Shards)
		for s := range shards {
			shards[s].Name = fmt.Sprintf("s%d", s)
		}
		w.step(i, engine.Source{Shards: shards, Complete: true})
	case engine.Start:
		for _, t := range n.active {
			if t.id.Shard == o.Tenure.Shard {
				w.blame("%c starts %v while its handler of %v runs", 'a'+i, o.Tenure, t.id)
			}
		}
		n.active = append(n.active, tenure{id: o.Tenure, position: position(o.Checkpoint.Position)})
	case engine.Drain:
		for t := range n.active {
			n.active[t].soft = n.active[t].soft || n.active[t].id == o.Tenure
		}
	case engine.Over:
		for t := range n.active {
			n.active[t].over = n.active[t].over || n.active[t].id == o.Tenure
		}
	}
}

func position(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

func (w *state) blame(format string, args ...any) {
	if w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

// serve lets a call take effect, and gives the answer.
func (w *state) serve(c call) engine.Input {
	ctx := context.Background()
	switch o := c.out.(type) {
	case engine.Send:
		before, _ := w.store.Get(ctx, o.Write.Key())
		r, err := w.store.Write(ctx, o.Write)
		if err == nil {
			w.judge(c.node, o.Write, before, r)
			w.put(o.Write.Key(), r)
		}
		return engine.Settled{Write: o.Write, Record: r, Err: err}
	case engine.Get:
		r, err := w.store.Get(ctx, o.Key)
		if errors.Is(err, lease.ErrNotFound) {
			err = nil
		}
		return engine.Got{Read: o.Read, Key: o.Key, Record: r, Err: err}
	case engine.List:
		in := engine.Listed{Read: o.Read}
		for r := range w.store.List(ctx, o.Query) {
			in.Records = append(in.Records, r)
		}
		return in
	}
	return nil
}

// unknown is what a node is told of a call that was not answered.
func unknown(o engine.Output) engine.Input {
	switch o := o.(type) {
	case engine.Send:
		return engine.Settled{Write: o.Write, Err: errSilence}
	case engine.Get:
		return engine.Got{Read: o.Read, Key: o.Key, Err: errSilence}
	case engine.List:
		return engine.Listed{Read: o.Read, Err: errSilence}
	}
	return nil
}

// judge checks an accepted write.
func (w *state) judge(i int, write lease.Write, before, after lease.Record) {
	next, ok := after.(lease.Row)
	if !ok {
		return
	}
	old, _ := before.(lease.Row)
	accepted := judge.Accepted{Before: old, After: next, Write: write, By: string(rune('a' + i))}
	if err := accepted.Check(checkpoint.Decimal); err != nil {
		w.blame("%w", err)
	}
	if next.Last.Reason == lease.ReasonExpired && next.Generation > old.Generation {
		w.expired(old)
	}
}

// expired: when a shard is claimed as a dead owner's, the owner is dead, or paused,
// or has ended its tenure by itself.
func (w *state) expired(old lease.Row) {
	i := int(old.Owner.Name[0] - 'a')
	n := &w.nodes[i]
	if n.dead || n.paused {
		return
	}
	for _, t := range n.active {
		if t.id.Shard == old.Shard && t.id.Generation == old.Generation && !t.over && w.now < engine.Instant(n.engine.Status().Trust) {
			w.blame("%s was taken from %c, who is well and holds it", old.Shard, 'a'+i)
		}
	}
}

// put notes what stands in the table; nothing, after a deletion.
func (w *state) put(key lease.Key, r lease.Record) {
	at, found := slices.BinarySearchFunc(w.table, key, func(r record, key lease.Key) int {
		return strings.Compare(r.key.String(), key.String())
	})
	switch {
	case r == nil && found:
		w.table = slices.Delete(w.table, at, at+1)
	case r != nil && found:
		w.table[at].hash = engine.HashOf(r)
	case r != nil:
		w.table = slices.Insert(w.table, at, record{key, engine.HashOf(r)})
	}
}

// hash tells states apart.
func (w *state) hash() uint64 {
	type known struct {
		engine uint64
		dead   bool
		paused bool
		wait   int
		active []tenure
		wake   time.Duration
	}
	type sent struct {
		node     int
		text     string
		answered bool
	}
	all := struct {
		table []record
		nodes []known
		calls []sent
		left  Story
		spent time.Duration
	}{table: w.table, left: w.left, spent: time.Duration(w.now)}
	for i := range w.nodes {
		n := &w.nodes[i]
		k := known{dead: true}
		if n.engine != nil && !n.dead {
			k = known{n.thought(), false, n.paused, len(n.wait), n.active, w.since(n.wake)}
		}
		all.nodes = append(all.nodes, k)
	}
	for _, c := range w.calls {
		all.calls = append(all.calls, sent{c.node, c.text, c.answered})
	}
	return engine.HashOf(all)
}

// thought is the hash of the engine.
func (n *node) thought() uint64 {
	if n.hash == 0 {
		n.hash = n.engine.Hash()
	}
	return n.hash
}

func (w *state) since(i engine.Instant) time.Duration {
	if i == engine.Never {
		return -1
	}
	return max(i.Sub(w.now), 0)
}

func describe(o engine.Output) string {
	switch o := o.(type) {
	case engine.Send:
		return o.Write.String()
	case engine.Get:
		return o.Key.String()
	case engine.List:
		return o.Query.String()
	}
	return ""
}

// String is the fleet in a line, for the report of a fault.
func (w *state) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %v", time.Duration(w.now))
	for i, n := range w.nodes {
		fmt.Fprintf(&b, "; %c", 'a'+i)
		if n.dead {
			b.WriteString(" is dead")
		}
		if n.paused {
			b.WriteString(" is paused")
		}
		for _, t := range n.active {
			fmt.Fprintf(&b, " runs %s@%d", t.id.Shard, t.id.Generation%1000)
		}
	}
	return b.String()
}
