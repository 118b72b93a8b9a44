// Package explore visits, breadth-first, every state that a small fleet of real engines can
// reach. Whatever may happen in any order is tried in every order: which call is served next,
// which is lost, late or answered with silence, when time passes, who crashes and who is paused.
// Each state is visited once. The engines are those of workers, or those of sessions that all
// want the same lease by name.
package explore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/digest"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
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
	Fails   int // handlers that return with an error
	Deletes int // deletions of the plan or of a target by hand
	Wishes  int // how often an operator makes or lifts one of Wish
	Proofs  int // how often a worker is told that a peer is dead that lives
	Raises  int // raises of a fence that fail; handlers have a target if Targets is set
	Mends   int // how often the reads of all workers pass again, if some were denied
	// For is how long the fleet is followed.
	For time.Duration

	Wish     []lease.Wish   // the wishes that an operator may make
	Lists    map[int]string // what the sources of some workers list; the others list all shards
	Prelude  func(*Prelude) // what happens before the exploration begins, after the first workers settled
	Sessions *Sessions      // what may happen to sessions; nil: the engines are workers
	Watchful bool           // workers have a deathwatch
	Targets  bool           // handlers change a sink whose fence is raised
	Planner  bool           // workers have a planner of the user, which plans as rebalance.Even does
	Goal     bool           // the goal has to be reached from every state
	Within   time.Duration  // how long that may take; 0: patience
	Waits    bool           // while reads of all workers are denied, the goal is only that they keep what they hold
}

// A state is a fleet at a moment. It is cloned for each thing that may happen next.
type state struct {
	story   *Story
	now     engine.Instant
	until   engine.Instant
	store   *virtual.Deletable
	table   virtual.Table  // of that store
	records []record       // what stands in the table, sorted by key, as hashes
	stands  []lease.Record // the records themselves, in the same order
	nodes   []node
	calls   []call // under way, in the order they were sent
	left    Story  // what may still happen
	promises
	command lease.Write            // the operator's command that has not arrived; zero: there is none
	fences  map[string]int64       // of the sink, by shard
	waits   map[engine.Tenure]bool // their handlers are not called before a raise passes
	fault   error
}

// A record is what stands in the table, as a hash.
type record struct {
	key  string
	hash uint64
}

// A node is one worker, and the shell around its engine. It has no engine until it comes in.
//
// It is a virtual.Host and no virtual.Process. A process puts what will happen to it into a queue, as functions with their
// times. Here every order is tried, and states are cloned and compared. So the calls that are under way, the inputs of a
// paused worker, its connections, and the handlers that may return are plain values of the state, and the moves are made
// from these.
type node struct {
	virtual.Host
	virtual.Quiet
	w       *state
	i       int
	hash    uint64 // of the engine; 0: not since its last step
	ids     int    // steps of it that made writes: their ids do not depend on what others did meanwhile
	chance  string // of its last step
	dead    bool
	stopped bool
	paused  bool
	wait    []engine.Input // what arrives while it is paused
	caller                 // only of a session
	wired                  // only of a worker with a deathwatch
	denial                 // only of a worker whose reads are denied
}

// A call is on its way to the store.
type call struct {
	node     int
	out      engine.Output
	text     string
	answered bool // its node was told that the outcome is unknown

	due engine.Instant // of a planner that takes long: when its node is told that there is no plan; 0: it is quick
}

const (
	TTL   = 9 * time.Second // of every worker
	drain = 6 * time.Second
)

var errSilence = errors.New("no answer")

func newState(s *Story) *state {
	w := &state{story: s, store: virtual.NewDeletable(), fences: map[string]int64{}, waits: map[engine.Tenure]bool{}, promises: newPromises(), left: *s, nodes: make([]node, s.Workers)}
	w.bind()
	for i := range w.nodes {
		w.nodes[i].Wake = engine.Never
		if i < s.Settled || s.Settled == 0 {
			w.nodes[i].enter()
		}
	}
	return w
}

// bind makes the table and the nodes those of this state.
func (w *state) bind() {
	w.table = virtual.Table{Store: w.store, Watcher: w}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.w, n.i, n.Shell = w, i, n
	}
}

func (n *node) enter() {
	w := n.w
	c := engine.Config{
		Group: "g", Name: n.name(), TTL: TTL, Drain: drain,
		Handoff: w.story.Mode, MaxMoves: 100,
		Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Hour, Poll: time.Hour,
		Order: checkpoint.Decimal, Commits: checkpoint.Policy{Every: -1}, Targets: w.story.Targets,
	}
	if w.story.Watchful {
		c.Deathwatch, c.Address = true, n.name()
	}
	if w.story.Planner {
		c.Planner = "user"
	}
	n.Engine = w.maker()(c, n.Moment())
	n.give(engine.Tick{})
}

func (n *node) name() string { return string(rune('a' + n.i)) }

// Moment returns the present moment. The wall clock goes in steps of ten seconds: nothing may depend
// on it but the revision of a plan that replaces a deleted one.
func (n *node) Moment() engine.Moment {
	n.chance = n.name() + strconv.Itoa(n.ids)
	return engine.Moment{Mono: n.w.now, Wall: n.w.wall(), Chance: n.chance}
}

func (w *state) wall() time.Time {
	return virtual.Epoch().Add(time.Duration(w.now).Truncate(10 * time.Second))
}

func (w *state) clone() *state {
	c := *w
	c.store, c.records, c.stands = w.store.Clone(), slices.Clone(w.records), slices.Clone(w.stands)
	c.fences, c.waits = maps.Clone(w.fences), maps.Clone(w.waits)
	c.calls, c.nodes, c.promises = slices.Clone(w.calls), slices.Clone(w.nodes), w.promises.clone()
	for i := range c.nodes {
		n := &c.nodes[i]
		n.Host, n.wait = n.Host.Clone(), slices.Clone(n.wait)
	}
	c.bind()
	return &c
}

// give gives a node an input.
func (n *node) give(in engine.Input) {
	switch {
	case n.dead || n.Engine == nil:
	case n.paused:
		n.wait = append(n.wait, in)
	default:
		n.Step(in)
		n.checkTrust()
	}
}

// Stepped notes whether the step made writes of its own.
func (n *node) Stepped(_ engine.Input, out []engine.Output) {
	n.hash = 0
	n.checkRefusals(out)
	if slices.ContainsFunc(out, func(o engine.Output) bool {
		send, ok := o.(engine.Send)
		id, _, _ := strings.Cut(string(send.Write.ID()), ".")
		return ok && id == n.chance
	}) {
		n.ids++
	}
}

// Call puts a call on its way. The store proves at once that it is the same table.
func (n *node) Call(o engine.Output) {
	if _, verify := o.(engine.Verify); verify {
		n.give(n.w.table.Serve(n.sender(), o))
		return
	}
	n.w.calls = append(n.w.calls, call{node: n.i, out: o, text: describe(o)})
}

func (n *node) sender() virtual.Sender { return virtual.Sender{Name: n.name()} }

// Poll lists the shards at once.
func (n *node) Poll() {
	n.give(engine.Source{Shards: n.w.source(n.i), Complete: true})
}

// source is what the source of a worker lists.
func (w *state) source(i int) (shards []engine.Shard) {
	if names, ok := w.story.Lists[i]; ok {
		for name := range strings.FieldsSeq(names) {
			shards = append(shards, engine.Shard{Name: name})
		}
		return shards
	}
	for s := range w.story.Shards {
		shards = append(shards, engine.Shard{Name: "s" + strconv.Itoa(s)})
	}
	return shards
}

// Plan puts a question to the planner on its way, like a call.
func (n *node) Plan(o engine.Plan) {
	n.w.calls = append(n.w.calls, call{node: n.i, out: o, text: "the planner"})
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
	switch o := c.out.(type) {
	case engine.Plan:
		return engine.Planned{Ask: o.Ask, To: rebalance.Even{}.Plan(o.View)}
	case engine.RaiseAgain:
		return w.raise(o)
	}
	n := &w.nodes[c.node]
	if n.denies(c.out) {
		return virtual.Unanswered(c.out, errSilence)
	}
	return w.table.Serve(n.sender(), c.out)
}

// put notes what stands in the table, nothing after a deletion, and returns what stood there.
func (w *state) put(key lease.Key, r lease.Record) (before lease.Record) {
	name := key.String()
	at, found := slices.BinarySearchFunc(w.records, name, func(r record, name string) int { return strings.Compare(r.key, name) })
	if found {
		before = w.stands[at]
	}
	switch {
	case r == nil && found:
		w.records, w.stands = slices.Delete(w.records, at, at+1), slices.Delete(w.stands, at, at+1)
	case r != nil && found:
		w.records[at], w.stands[at] = record{name, digest.Of(nil, 0, r)}, r
	case r != nil:
		w.records = slices.Insert(w.records, at, record{name, digest.Of(nil, 0, r)})
		w.stands = slices.Insert(w.stands, at, r)
	}
	return before
}

// counts is how often what may still happen.
func (s *Story) counts() []int {
	counts := []int{s.Crashes, s.Pauses, s.Faults, s.Marks, s.Stops, s.Fails, s.Deletes, s.Wishes, s.Proofs, s.Raises, s.Mends}
	if s.Sessions != nil {
		counts = append(counts, s.Sessions.Acquires, s.Sessions.Forgoes, s.Sessions.Releases, s.Sessions.Commands)
	}
	return counts
}

// hash tells states apart.
func (w *state) hash() uint64 {
	type known struct {
		engine uint64
		dead   bool
		paused bool
		wait   int
		active virtual.Handlers
		wake   time.Duration
		caller caller
		wired  wired
		denial denial
	}
	type sent struct {
		node     int
		text     string
		answered bool
		due      time.Duration
	}
	all := struct {
		table   []record
		nodes   []known
		calls   []sent
		left    []int
		spent   time.Duration
		command lease.Write
		waits   int
		fences  []int64
	}{table: w.records, fences: w.fenced(), left: w.left.counts(), waits: len(w.waits), spent: time.Duration(w.now), command: w.command}
	for i := range w.nodes {
		n := &w.nodes[i]
		k := known{dead: true}
		if n.Engine != nil && !n.dead {
			k = known{n.thought(), false, n.paused, len(n.wait), n.Handlers, w.since(n.Wake), n.caller, n.wired, n.denial}
		}
		all.nodes = append(all.nodes, k)
	}
	for _, c := range w.calls {
		all.calls = append(all.calls, sent{c.node, c.text, c.answered, w.since(c.due)})
	}
	return digest.Of(nil, 0, all)
}

// thought is the hash of the engine.
func (n *node) thought() uint64 {
	if n.hash == 0 {
		n.hash = n.Engine.Hash()
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
		return fmt.Sprintf("%v of %v (write %q)", o.Write.Op, o.Write.Key(), o.Write.ID())
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
		for _, h := range n.Handlers {
			fmt.Fprintf(&b, " runs %s@%d", h.Shard, h.Generation%1000)
		}
	}
	return b.String()
}
