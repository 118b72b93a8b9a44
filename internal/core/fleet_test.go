package core_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/memstore"
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
	chance *rand.Rand
	config engine.Config
	source engine.Source
	nodes  []*member
	starts int                                   // tenures that began
	calls  map[string]int                        // what was asked of the table
	deaf   func(n *member, o engine.Output) bool // such a call is not answered; nil: each is
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
}

func newFleet(t testing.TB, shards, workers int, mode rebalance.Mode) *fleet {
	f := &fleet{TB: t, chance: rand.New(rand.NewPCG(1, 1)), calls: map[string]int{}, store: judge.NewStore(new(memstore.Store), checkpoint.Decimal)}
	f.table.Restore(f.store)
	t.Cleanup(func() {
		if err := f.store.Err(); err != nil {
			t.Error(err)
		}
	})
	f.config = engine.Config{
		Group: "g", TTL: 10 * time.Second, Drain: 20 * time.Second, Handoff: mode, Planner: rebalance.Even{},
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
	n.Boot(0, func() virtual.Engine { return virtual.Next(c, n.Moment()) })
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
	latency := func() time.Duration { return time.Duration(1000+n.of.chance.IntN(4000)) * time.Microsecond }
	n.Deliver(latency(), latency(), func() engine.Input { return n.of.table.Serve(n.Sender(), o) })
}

func (n *member) Poll() {
	n.polls++
	n.Answer(10*time.Millisecond, n.of.source)
}

func (n *member) Start(*virtual.Handler, engine.Start) { n.of.starts++ }

func (n *member) Drain(_ *virtual.Handler, o engine.Drain) {
	n.Later(20*time.Millisecond, func() { n.ret(o.Tenure) })
}

func (n *member) Over(_ *virtual.Handler, o engine.Over) {
	n.Later(time.Millisecond, func() { n.ret(o.Tenure) })
}

func (n *member) ret(id engine.Tenure) {
	if n.Handlers.Remove(id) {
		n.Input(engine.Returned{Tenure: id})
	}
}

func (n *member) Prepare(o engine.Prepare) {
	n.Answer(50*time.Millisecond, engine.Prepared{Shard: o.Shard.Name})
}

func (n *member) Tell(e event.Event) { n.events = append(n.events, e) }

func (n *member) kill() {
	n.Kill()
	n.Handlers = nil
}
