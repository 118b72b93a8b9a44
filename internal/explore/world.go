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
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
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
	// For is how long the fleet is followed.
	For time.Duration

	Wish     []lease.Wish   // the wishes that an operator may make
	Lists    map[int]string // what the sources of some workers list; the others list all shards
	Prelude  func(*Prelude) // what happens before the exploration begins, after the first workers settled
	Sessions *Sessions      // what may happen to sessions; nil: the engines are workers
	Watchful bool           // workers have a deathwatch
	Planner  bool           // workers have a planner of the user, which plans as rebalance.Even does
	Goal     bool           // the goal has to be reached from every state
}

// A state is a fleet at a moment. It is cloned for each thing that may happen next.
type state struct {
	story         *Story
	now           engine.Instant
	until         engine.Instant
	store         *virtual.Deletable
	table         virtual.Table  // of that store
	records       []record       // what stands in the table, sorted by key, as hashes
	stands        []lease.Record // the records themselves, in the same order
	nodes         []node
	calls         []call                 // under way, in the order they were sent
	left          Story                  // what may still happen
	wanted        map[engine.Tenure]bool // what some seat has requested
	highest       int64                  // the highest revision of a plan
	sessionRecord                        // only in stories of sessions
	fault         error
}

// A record is what stands in the table, as a hash.
type record struct {
	key  lease.Key
	hash uint64
}

// A node is one worker, and the shell around its engine. It has no engine until it comes in.
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
}

// A call is on its way to the store.
type call struct {
	node     int
	out      engine.Output
	text     string
	answered bool // its node was told that the outcome is unknown

	due engine.Instant // of a planner that takes long: when its node is told that there is no plan; 0: it is quick
}

const ttl = 9 * time.Second

var errSilence = errors.New("no answer")

func newState(s *Story) *state {
	w := &state{story: s, store: virtual.NewDeletable(), wanted: map[engine.Tenure]bool{}, left: *s, nodes: make([]node, s.Workers)}
	if s.Sessions != nil {
		w.sessionRecord = newSessionRecord()
	}
	w.bind()
	for i := range w.nodes {
		w.nodes[i].Wake = engine.Never
		if i < s.Settled || s.Settled == 0 {
			w.enter(i)
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

func (w *state) enter(i int) {
	n := &w.nodes[i]
	c := engine.Config{
		Group: "g", Name: n.name(), TTL: ttl, Drain: 6 * time.Second,
		Handoff: w.story.Mode, MaxMoves: 100,
		Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Hour, Poll: time.Hour,
		Order: checkpoint.Decimal, Commits: checkpoint.Policy{Every: -1},
	}
	if w.story.Watchful {
		c.Deathwatch, c.Address = true, n.name()
	}
	if w.story.Planner {
		c.Planner = "user"
	}
	n.Engine = w.maker()(c, n.Moment())
	w.step(i, engine.Tick{})
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
	c.calls, c.wanted = slices.Clone(w.calls), maps.Clone(w.wanted)
	c.nodes, c.sessionRecord = slices.Clone(w.nodes), w.sessionRecord.clone()
	for i := range c.nodes {
		n := &c.nodes[i]
		n.Host, n.wait = n.Host.Clone(), slices.Clone(n.wait)
	}
	c.bind()
	return &c
}

// step gives a node an input.
func (w *state) step(i int, in engine.Input) {
	n := &w.nodes[i]
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
		n.w.step(n.i, n.w.table.Serve(n.sender(), o))
		return
	}
	n.w.calls = append(n.w.calls, call{node: n.i, out: o, text: describe(o)})
}

func (n *node) sender() virtual.Sender { return virtual.Sender{Name: n.name()} }

// Poll lists the shards at once.
func (n *node) Poll() {
	n.w.step(n.i, engine.Source{Shards: n.w.source(n.i), Complete: true})
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
		shards = append(shards, engine.Shard{Name: fmt.Sprintf("s%d", s)})
	}
	return shards
}

// Plan puts a question to the planner on its way, like a call.
func (n *node) Plan(o engine.Plan) {
	n.w.calls = append(n.w.calls, call{node: n.i, out: o, text: "the planner"})
}

// Start begins a handler, which knows its position.
func (n *node) Start(h *virtual.Handler, o engine.Start) {
	for _, other := range n.Handlers {
		if other.Shard == h.Shard {
			n.w.blame("%s starts %v while its handler of %v runs", n.name(), o.Tenure, other.Tenure)
		}
	}
	h.Script = position(o.Checkpoint.Position)
	n.checkStart(o)
}

// Drain and Over leave it open when the handler returns. A living owner is stopped for another
// worker only if a seat has requested the shard.
func (n *node) Drain(_ *virtual.Handler, o engine.Drain) { n.given(o.Tenure, o.Cause) }
func (n *node) Over(_ *virtual.Handler, o engine.Over) {
	n.given(o.Tenure, o.Cause)
	n.checkOver(o)
}

func (n *node) given(t engine.Tenure, cause event.Cause) {
	if cause == event.CauseHandedOff && !n.w.wanted[t] {
		n.w.blame("%s gives %v to another worker, and no seat has requested it", n.name(), t)
	}
	if cause == event.CauseStopped && !n.stopped {
		n.w.blame("%s stops %v, and was not asked to stop", n.name(), t)
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
	if o, asks := c.out.(engine.Plan); asks {
		return engine.Planned{Ask: o.Ask, To: rebalance.Even{}.Plan(o.View)}
	}
	return w.table.Serve(w.nodes[c.node].sender(), c.out)
}

// Accepted checks a write that the table has accepted, and notes it.
func (w *state) Accepted(by virtual.Sender, write lease.Write, after lease.Record) {
	before := w.put(write.Key(), after)
	if seat, ok := before.(lease.Seat); ok && after == nil && w.story.Sessions != nil {
		w.deletedAt[seat.Incarnation] = w.now
	}
	w.advises(by, before, after)
	next, ok := after.(lease.Row)
	if !ok {
		return
	}
	old, _ := before.(lease.Row)
	accepted := judge.Accepted{Before: old, After: next, Write: write, By: by.Name}
	if err := accepted.Check(checkpoint.Decimal); err != nil {
		w.blame("%w", err)
	}
	w.checkSessionWrite(accepted)
	if next.Last.Reason == lease.ReasonExpired && next.Generation > old.Generation {
		w.expired(old)
	}
}

// advises checks the records that are no rows, and notes what they request.
func (w *state) advises(by virtual.Sender, before, after lease.Record) {
	switch after := after.(type) {
	case lease.Seat:
		for _, want := range after.Wants {
			w.wanted[engine.Tenure{Shard: want.Shard, Generation: want.Generation}] = true
		}
	case lease.Plan:
		if old, ok := before.(lease.Plan); (!ok || old.Revision != after.Revision) && after.Revision <= w.highest {
			w.blame("%s opens revision %d, and there was revision %d", by.Name, after.Revision, w.highest)
		}
		w.highest = max(w.highest, after.Revision)
	case lease.Target:
		if old, ok := before.(lease.Target); ok && old.Revision >= after.Revision {
			w.blame("%s writes a target of revision %d over one of revision %d", by.Name, after.Revision, old.Revision)
		}
	}
}

// expired: when a shard is claimed as a dead owner's, the owner is dead, or paused,
// or has ended its tenure by itself.
func (w *state) expired(old lease.Row) {
	i := int(old.Owner.Name[0] - 'a')
	n := &w.nodes[i]
	if n.dead || n.paused || n.lied {
		return
	}
	h := n.Handlers.Of(engine.Tenure{Shard: old.Shard, Generation: old.Generation})
	if h != nil && !h.Over && w.now < n.Engine.Status().Trust {
		w.blame("%s was taken from %s, who is well and holds it", old.Shard, n.name())
	}
}

// put notes what stands in the table, nothing after a deletion, and returns what stood there.
func (w *state) put(key lease.Key, r lease.Record) (before lease.Record) {
	at, found := slices.BinarySearchFunc(w.records, key, func(r record, key lease.Key) int {
		return strings.Compare(r.key.String(), key.String())
	})
	if found {
		before = w.stands[at]
	}
	switch {
	case r == nil && found:
		w.records, w.stands = slices.Delete(w.records, at, at+1), slices.Delete(w.stands, at, at+1)
	case r != nil && found:
		w.records[at], w.stands[at] = record{key, digest.Of(nil, 0, r)}, r
	case r != nil:
		w.records = slices.Insert(w.records, at, record{key, digest.Of(nil, 0, r)})
		w.stands = slices.Insert(w.stands, at, r)
	}
	return before
}

// counts is how often what may still happen.
func (s *Story) counts() []int {
	counts := []int{s.Crashes, s.Pauses, s.Faults, s.Marks, s.Stops, s.Fails, s.Deletes, s.Wishes, s.Proofs}
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
	}{table: w.records, left: w.left.counts(), spent: time.Duration(w.now), command: w.command}
	for i := range w.nodes {
		n := &w.nodes[i]
		k := known{dead: true}
		if n.Engine != nil && !n.dead {
			k = known{n.thought(), false, n.paused, len(n.wait), n.Handlers, w.since(n.Wake), n.caller, n.wired}
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
