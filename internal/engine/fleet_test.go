package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A fleet has workers in virtual time, with a story that a test writes down. It counts what each worker asks the table.
// When the test ends, no write may have broken a promise.
type fleet struct {
	testing.TB
	virtual.Time
	operator
	advice
	table  virtual.Table
	store  *judge.Store       // of the table
	hand   *virtual.Deletable // the same without the judge: what is deleted by hand
	chance *rand.Rand
	config engine.Config // of workers that join
	source engine.Source
	nodes  []*member

	planner rebalance.Planner                              // which config names; it answers at once
	planned func(n *member, o engine.Plan) bool            // what happens instead; nil or false: nothing does
	starts  int                                            // tenures that began
	begins  func(n *member, o engine.Start)                // called with each of them; nil: nothing is called
	calls   map[string]int                                 // what was asked of the table
	down    bool                                           // the table does not answer
	deaf    func(n *member, o engine.Output) bool          // such a call is not answered; nil: each is
	slow    func(n *member, o engine.Output) time.Duration // how long a call takes in addition; nil: none does
	polled  func(n *member)                                // answers a poll of the source; nil: each worker sees what source lists
	quick   bool                                           // calls and answers take no time
	twins   bool                                           // engines are compared with their clones
	wires   *virtual.Wires                                 // nil: workers have no deathwatch
}

// newFleet returns a fleet that has settled, or one without workers. The edits change the configuration of the workers.
func newFleet(t testing.TB, shards, workers int, mode rebalance.Mode, edits ...func(c *engine.Config)) *fleet {
	f := &fleet{TB: t, chance: rand.New(rand.NewPCG(1, 1)), calls: map[string]int{}, hand: virtual.NewDeletable(), config: config(mode)}
	f.operator, f.advice = operator{TB: t, table: &f.table, now: f.Now}, advice{f}
	f.use(judge.NewStore(f.hand, checkpoint.Decimal))
	for i := range shards {
		f.source.Shards = append(f.source.Shards, engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	f.source.Complete = true
	for _, edit := range edits {
		edit(&f.config)
	}
	for range workers {
		f.join()
	}
	if workers > 0 {
		f.until(30*time.Second, f.even)
		f.Run(20 * time.Second)
	}
	return f
}

// newTwins returns a fleet without workers, whose engines are compared with their clones.
func newTwins(t testing.TB, shards int) *fleet {
	f := newFleet(t, shards, 0, rebalance.Eager)
	f.twins = true
	return f
}

func config(mode rebalance.Mode) engine.Config {
	return engine.Config{
		Group: "g", TTL: leaseTime, Drain: 20 * time.Second, Handoff: mode,
		MaxMoves: 100, Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Minute, Poll: 30 * time.Second,
	}
}

// use makes this the store of the table.
func (f *fleet) use(s *judge.Store) {
	f.store = s
	f.table.Restore(s)
	t, of := f.TB, s // package testing keeps the function until all subtests are over: it must not refer to the fleet
	t.Cleanup(func() {
		if err := of.Err(); err != nil {
			t.Error(err)
		}
		of = nil
	})
}

// join lets another worker join.
func (f *fleet) join() *member { return f.enter(fmt.Sprintf("w%03d", len(f.nodes)), f.config) }

// enter lets a worker of that name join.
func (f *fleet) enter(name string, c engine.Config) *member {
	n := f.newMember(name, c)
	n.Shell = n
	f.nodes = append(f.nodes, n)
	c.Name = name
	if f.wires != nil {
		f.wires.Join(&n.Process)
		c.Deathwatch, c.Address = true, name
	}
	n.Boot(0, func() virtual.Engine {
		e := virtual.New(c, n.Moment())
		if f.twins {
			e = twinned{e, f}
		}
		return e
	})
	return n
}

// enterAll lets workers of these names, a letter each, join.
func (f *fleet) enterAll(names string, c engine.Config) (nodes []*member) {
	for _, name := range names {
		nodes = append(nodes, f.enter(string(name), c))
	}
	return nodes
}

// follow lets a worker of that name join, and waits until the plan that it causes is followed.
func (f *fleet) follow(name string) *member {
	n := f.enter(name, f.config)
	f.Run(20 * time.Second)
	return n
}

// until lets time pass until cond holds, and returns how much.
func (f *fleet) until(limit time.Duration, cond func() bool) time.Duration {
	f.Helper()
	took, ok := f.Until(limit, 10*time.Millisecond, cond)
	if !ok {
		f.Fatalf("not within %v; held %v", limit, f.counts())
	}
	return took
}

// named returns the worker of that name that lives.
func (f *fleet) named(name string) *member {
	return f.nodes[slices.IndexFunc(f.nodes, func(n *member) bool { return n.Name == name && n.Up() })]
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
			names[h.Shard] = true
		}
	}
	return len(names) == len(f.source.Shards)
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

// unreadable makes these records, and no others, unreadable.
func (f *fleet) unreadable(keys ...lease.Key) {
	f.table.Unreadable = map[lease.Key]bool{}
	for _, k := range keys {
		f.table.Unreadable[k] = true
	}
}

// fail makes some calls fail after a while.
func (f *fleet) fail(after time.Duration, which func(n *member, o engine.Output) bool) {
	f.deaf = func(n *member, o engine.Output) bool {
		fails := which(n, o)
		if fails {
			n.Answer(after, unanswered(o))
		}
		return fails
	}
}

// delay makes the answers to some calls late.
func (f *fleet) delay(by time.Duration, which func(n *member, o engine.Output) bool) {
	f.slow = func(n *member, o engine.Output) time.Duration {
		if which(n, o) {
			return by
		}
		return 0
	}
}

// plansBy gives a planner of the user to the workers that join from now on.
func (f *fleet) plansBy(p rebalance.Planner) { f.planner, f.config.Planner = p, p.Name() }

// lists makes the source list these shards too from now on.
func (f *fleet) lists(shards ...engine.Shard) {
	f.source.Shards = append(slices.Clip(f.source.Shards), shards...)
}

// without returns what the source lists without some shards.
func (f *fleet) without(names ...string) engine.Source {
	s := f.source
	s.Shards = slices.DeleteFunc(slices.Clone(s.Shards), func(s engine.Shard) bool { return slices.Contains(names, s.Name) })
	return s
}

// lacks makes the source of one worker lack some shards.
func (f *fleet) lacks(n *member, names ...string) {
	f.polled = func(of *member) {
		if of == n {
			of.Answer(listing, f.without(names...))
		} else {
			of.Answer(listing, f.source)
		}
	}
}

// processed reports whether a worker processes the shard.
func (f *fleet) processed(shard string) bool {
	return slices.ContainsFunc(f.up(), func(n *member) bool { return n.holds(shard) })
}

// end makes the worker that processes the shard come to its end.
func (f *fleet) end(shard string) {
	for _, n := range f.up() {
		for _, h := range slices.Clone(n.Handlers) {
			if h.Shard == shard {
				n.end(h)
			}
		}
	}
}
