package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A fleet has workers in virtual time, and counts what each of them asks the table. When the test
// ends, no write may have broken a promise.
type fleet struct {
	testing.TB
	virtual.Time
	table  virtual.Table
	store  *judge.Store
	hand   *virtual.Deletable // the same without the judge: what is deleted by hand
	chance *rand.Rand
	config engine.Config
	source engine.Source
	nodes  []*member

	planner rebalance.Planner                   // which config names; it answers at once
	planned func(n *member, o engine.Plan) bool // what happens instead; nil or false: nothing does
	stamps  int
	starts  int                                            // tenures that began
	begins  func(engine.Start)                             // called with each of them; nil: nothing is called
	calls   map[string]int                                 // what was asked of the table
	deaf    func(n *member, o engine.Output) bool          // such a call is not answered; nil: each is
	slow    func(n *member, o engine.Output) time.Duration // how long a call takes in addition; nil: none does
	polled  func(n *member)                                // answers a poll of the source; nil: each worker sees what source lists
	quick   bool                                           // calls and answers take no time
	wires   *virtual.Wires                                 // nil: workers have no deathwatch
}

// A member is one worker of a fleet.
type member struct {
	virtual.Process
	virtual.Quiet
	of     *fleet
	calls  map[string]int
	polls  int
	events []event.Event
	steps  int
	winds  time.Duration // how long its handlers take to wind down
	stuck  bool          // its handlers do not return
	wired  []engine.Output
}

func newFleet(t testing.TB, shards, workers int, mode rebalance.Mode) *fleet {
	f := &fleet{TB: t, chance: rand.New(rand.NewPCG(1, 1)), calls: map[string]int{}, hand: virtual.NewDeletable()}
	f.store = judge.NewStore(f.hand, checkpoint.Decimal)
	f.table.Restore(f.store)
	t.Cleanup(func() {
		if err := f.store.Err(); err != nil {
			t.Error(err)
		}
	})
	f.config = engine.Config{
		Group: "g", TTL: 10 * time.Second, Drain: 20 * time.Second, Handoff: mode,
		MaxMoves: 100, Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Minute, Poll: 30 * time.Second,
	}
	for i := range shards {
		f.source.Shards = append(f.source.Shards, engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	f.source.Complete = true
	for range workers {
		f.join()
	}
	if workers > 0 {
		f.until(30*time.Second, f.even)
		f.Run(20 * time.Second)
	}
	return f
}

func (f *fleet) join() *member {
	n := &member{of: f, calls: map[string]int{}, Process: virtual.Process{Time: &f.Time, Name: fmt.Sprintf("w%03d", len(f.nodes))}}
	n.Shell = n
	f.nodes = append(f.nodes, n)
	c := f.config
	c.Name = n.Name
	if f.wires != nil {
		f.wires.Join(&n.Process)
		c.Deathwatch, c.Address = true, n.Name
	}
	n.Boot(0, func() virtual.Engine { return virtual.New(c, n.Moment()) })
	return n
}

// until lets time pass until cond holds, and returns how much.
func (f *fleet) until(limit time.Duration, cond func() bool) time.Duration {
	f.Helper()
	from := f.Now()
	for !cond() {
		if f.Now()-from > limit {
			f.Fatalf("not within %v; held %v", limit, f.counts())
		}
		f.Run(10 * time.Millisecond)
	}
	return f.Now() - from
}

// up returns the workers that live and do not leave.
func (f *fleet) up() (up []*member) {
	for _, n := range f.nodes {
		if n.Up() && !n.Engine.Status().Leaving && !n.Engine.Done() {
			up = append(up, n)
		}
	}
	return up
}

// counts returns how many shards each worker processes.
func (f *fleet) counts() map[string]int {
	counts := map[string]int{}
	for _, n := range f.up() {
		counts[n.Name] = len(n.Handlers)
	}
	return counts
}

// even reports whether every shard is processed once, and the counts differ by at most one.
func (f *fleet) even() bool {
	least, most, sum := len(f.source.Shards), 0, 0
	for _, n := range f.counts() {
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	return sum == len(f.source.Shards) && most-least <= 1 && f.held()
}

// held reports whether every shard is processed.
func (f *fleet) held() bool {
	names := map[string]bool{}
	for _, n := range f.nodes {
		for _, h := range n.Handlers {
			names[h.Shard] = names[h.Shard] || n.Up()
		}
	}
	return len(names) == len(f.source.Shards)
}

// plan returns the plan as stored.
func (f *fleet) plan() (plan lease.Plan) {
	for _, r := range f.table.Records("g", lease.KindSeat) {
		if p, ok := r.(lease.Plan); ok {
			plan = p
		}
	}
	return plan
}

// seat returns the seat of a worker.
func (f *fleet) seat(n *member) (seat lease.Seat) {
	for _, r := range f.table.Records("g", lease.KindSeat) {
		if s, ok := r.(lease.Seat); ok && s.Incarnation == n.Engine.Status().Incarnation {
			seat = s
		}
	}
	return seat
}

// watchers returns the living workers that the plan names, in its order.
func (f *fleet) watchers() (named []*member) {
	for _, inc := range f.plan().Watchers {
		for _, n := range f.up() {
			if n.Engine.Status().Incarnation == inc {
				named = append(named, n)
			}
		}
	}
	return named
}

// others returns the living workers that no plan names.
func (f *fleet) others() []*member {
	named := f.watchers()
	return slices.DeleteFunc(f.up(), func(n *member) bool { return slices.Contains(named, n) })
}

// reset starts the counts over.
func (f *fleet) reset() {
	f.starts = 0
	clear(f.calls)
	for _, n := range f.nodes {
		clear(n.calls)
		n.polls = 0
	}
}

func (n *member) Moment() engine.Moment {
	n.steps++
	return n.MomentOf(n.Name + "-" + strconv.Itoa(n.steps))
}

func (n *member) Call(o engine.Output) {
	what := "verify"
	switch o := o.(type) {
	case engine.List:
		if what = "list " + o.Query.Kind.String(); o.Query.Limit > 0 {
			what = "page of " + o.Query.Kind.String()
		}
		if !o.Query.Eventually {
			what += ", consistent"
		}
	case engine.Get:
		what = "get " + o.Key.Kind.String()
	case engine.Send:
		what = o.Write.Key().Kind.String() + " " + o.Write.Op.String()
	}
	n.calls[what]++
	n.of.calls[what]++
	if n.of.deaf != nil && n.of.deaf(n, o) {
		return
	}
	n.Deliver(n.latency(), n.latency()+n.late(o), func() engine.Input { return n.of.table.Serve(n.Sender(), o) })
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
	n.Answer(10*time.Millisecond, n.of.source)
}

func (n *member) Plan(o engine.Plan) {
	if n.of.planned == nil || !n.of.planned(n, o) {
		n.Answer(0, engine.Planned{Ask: o.Ask, To: n.of.planner.Plan(o.View)})
	}
}

// plansBy gives a planner of the user to the workers that join from now on.
func (f *fleet) plansBy(p rebalance.Planner) { f.planner, f.config.Planner = p, p.Name() }

func (n *member) Start(_ *virtual.Handler, o engine.Start) {
	if n.of.starts++; n.of.begins != nil {
		n.of.begins(o)
	}
}

func (n *member) Drain(_ *virtual.Handler, o engine.Drain) {
	n.Later(max(n.winds, 20*time.Millisecond), func() { n.ret(o.Tenure) })
}

func (n *member) Over(_ *virtual.Handler, o engine.Over) {
	n.Later(time.Millisecond, func() { n.ret(o.Tenure) })
}

func (n *member) ret(id engine.Tenure) {
	if !n.stuck && n.Handlers.Remove(id) {
		n.Input(engine.Returned{Tenure: id})
	}
}

func (n *member) Prepare(o engine.Prepare) {
	n.Answer(50*time.Millisecond, engine.Prepared{Shard: o.Shard.Name})
}

// Wire notes which links are asked for.
func (n *member) Wire(o engine.Output) {
	n.wired = append(n.wired, o)
	n.Process.Wire(o)
}

func (n *member) Tell(e event.Event) {
	if e.Kind == event.Restored && !e.Over && e.Err == nil {
		n.of.Errorf("%s reports %v without its reason", n.Name, e)
	}
	n.events = append(n.events, e)
}

func (n *member) kill() {
	n.Kill()
	n.Handlers = nil
}

// holds reports whether the worker processes the shard.
func (n *member) holds(shard string) bool {
	return slices.ContainsFunc(n.Handlers, func(h *virtual.Handler) bool { return h.Shard == shard && !h.Over })
}

func (f *fleet) stamp() protocol.Stamp {
	f.stamps++
	return protocol.Stamp{ID: lease.WriteID(fmt.Sprint("by-hand-", f.stamps)), At: virtual.Epoch().Add(f.Now())}
}

// write makes a write that nobody but the test makes.
func (f *fleet) write(w lease.Write, err error) {
	f.Helper()
	if err == nil {
		_, err = f.table.Write(virtual.Sender{}, w)
	}
	if err != nil {
		f.Fatal(err)
	}
}

// release takes a shard from its owner by hand.
func (f *fleet) release(shard string) {
	f.Helper()
	r, err := f.store.Get(f.Context(), lease.Key{Group: "g", Kind: lease.KindLease, Name: shard})
	if err != nil {
		f.Fatal(err)
	}
	row := r.(lease.Row)
	f.write(protocol.ForceRelease(row, protocol.Command{Seen: row.Generation, By: "operator"}, f.stamp()))
}

// target returns the target of a worker, which has one page.
func (f *fleet) target(n *member) lease.Target {
	for _, r := range f.table.Records("g", lease.KindTarget) {
		if of, ok := r.(lease.Target); ok && of.Incarnation == n.Engine.Status().Incarnation {
			return of
		}
	}
	f.Fatalf("%s has no target", n.Name)
	return lease.Target{}
}

// put writes a page of a target over what is there.
func (f *fleet) put(next lease.Target) {
	f.Helper()
	old, _ := f.store.Get(f.Context(), next.Key())
	was, _ := old.(lease.Target)
	f.write(protocol.WriteTarget(was, next, f.stamp()))
}

// open opens the next revision in the name of the planner of the last one.
func (f *fleet) open() int64 {
	f.Helper()
	p := f.plan()
	f.write(protocol.OpenPlan(p, protocol.Opening{By: p.By, Planner: p.Planner}, f.stamp()))
	return f.plan().Revision
}

// finish finishes the open revision, with the inputs of the one before, so that no plan is due.
func (f *fleet) finish() {
	f.Helper()
	p := f.plan()
	f.write(protocol.ClosePlan(p, p.Revision, p.By.Incarnation, p.Finding, f.stamp()))
}

// assign writes a revision that moves shards to these workers. With hints, the targets of their
// owners say so.
func (f *fleet) assign(to map[string]*member, hints bool) {
	f.Helper()
	targets := map[*member]lease.Target{}
	for _, n := range f.up() {
		of := f.target(n)
		of.Give = nil
		for shard, successor := range to {
			had := len(of.Hold)
			of.Hold = slices.DeleteFunc(slices.Clone(of.Hold), func(a lease.Assigned) bool { return a.Shard == shard })
			if len(of.Hold) < had && hints {
				of.Give = append(of.Give, lease.Give{Shard: shard, To: successor.Engine.Status().Incarnation})
			}
			if n == successor {
				of.Hold = append(of.Hold, lease.Assigned{Shard: shard})
			}
		}
		slices.SortFunc(of.Hold, func(a, b lease.Assigned) int { return strings.Compare(a.Shard, b.Shard) })
		targets[n] = of
	}
	revision := f.open()
	for _, n := range f.up() {
		of := targets[n]
		of.Revision = revision
		f.put(of)
	}
	f.finish()
}
