package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
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

// A clinic is a fleet in virtual time some of whose workers are sick: they send heartbeats, and
// their handlers fail. It counts for how long each shard is not processed.
type clinic struct {
	testing.TB
	virtual.Time
	table  virtual.Table
	chance *rand.Rand
	config engine.Config
	source engine.Source
	nodes  []*patient

	commits bool                                         // handlers that do not fail commit
	fails   func(worker, shard string) bool              // what fails now
	lasts   func(worker, shard string) (d time.Duration) // how long a handler works before it fails; nil: 50 ms

	counting time.Duration            // since when it counts
	lost     map[string]time.Duration // for how long each shard was not processed since
}

// A patient is one worker of a clinic.
type patient struct {
	virtual.Process
	virtual.Quiet
	of     *clinic
	steps  int
	told   []event.Event
	starts []string // the shards of the handlers that were called
	most   int      // how many handlers have run at a time
}

func newClinic(t testing.TB, shards int, maxAttempts int64, commits bool) *clinic {
	c := &clinic{TB: t, chance: rand.New(rand.NewPCG(7, 7)), commits: commits, lost: map[string]time.Duration{}}
	check := judge.NewStore(new(memstore.Store), checkpoint.Decimal)
	t.Cleanup(func() {
		if err := check.Err(); err != nil {
			t.Error(err)
		}
	})
	c.table.Store, c.table.Time = check, &c.Time
	for i := range shards {
		c.source.Shards = append(c.source.Shards, engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	c.source.Complete, c.source.Answered = true, true
	c.fails = func(string, string) bool { return false }
	c.config = engine.Config{
		Group: "g", TTL: 10 * time.Second, Drain: 20 * time.Second, Handoff: rebalance.Eager,
		MaxMoves: 100, MaxAttempts: maxAttempts, Backoff: time.Second, MaxBackoff: time.Minute,
		Audit: time.Minute, Poll: 30 * time.Second, Order: checkpoint.Decimal,
	}
	return c
}

func (c *clinic) join(names string) {
	for _, name := range names {
		n := &patient{of: c, Process: virtual.Process{Time: &c.Time, Name: string(name)}}
		n.Shell = n
		config := c.config
		config.Name = n.Name
		c.nodes = append(c.nodes, n)
		n.Boot(0, func() virtual.Engine { return virtual.New(config, n.Moment()) })
	}
}

func (c *clinic) latency() time.Duration {
	return time.Millisecond + time.Duration(c.chance.IntN(4000))*time.Microsecond
}

// run lets so much time pass, and counts the time in which shards are not processed.
func (c *clinic) run(d time.Duration) {
	const step = 100 * time.Millisecond
	for end := c.Now() + d; c.Now() < end; {
		c.Run(step)
		busy := c.processed()
		for _, s := range c.source.Shards {
			if !busy[s.Name] {
				c.lost[s.Name] += step
			}
		}
	}
}

// count begins to count again.
func (c *clinic) count() { c.counting, c.lost = c.Now(), map[string]time.Duration{} }

// processed are the shards that a handler processes that does not fail.
func (c *clinic) processed() map[string]bool {
	busy := map[string]bool{}
	for _, n := range c.nodes {
		if !n.Up() {
			continue
		}
		for _, h := range n.Handlers {
			if !h.Over && !h.Soft && !c.fails(n.Name, h.Shard) {
				busy[h.Shard] = true
			}
		}
	}
	return busy
}

// until lets time pass until all shards are processed, and returns how much.
func (c *clinic) until(limit time.Duration) time.Duration {
	c.Helper()
	from := c.Now()
	for len(c.processed()) < len(c.source.Shards) {
		if c.Now()-from > limit {
			c.Fatalf("after %v only %d shards are processed", limit, len(c.processed()))
		}
		c.run(100 * time.Millisecond)
	}
	return c.Now() - from
}

func (c *clinic) rows() (rows []lease.Row) {
	for _, r := range c.table.Records("g", lease.KindLease) {
		rows = append(rows, r.(lease.Row))
	}
	return rows
}

func (c *clinic) row(shard string) lease.Row {
	for _, r := range c.rows() {
		if r.Shard == shard {
			return r
		}
	}
	return lease.Row{}
}

// plan returns the plan, which a listing of the seats contains.
func (c *clinic) plan() (plan lease.Plan) {
	for _, r := range c.table.Records("g", lease.KindSeat) {
		if of, ok := r.(lease.Plan); ok {
			plan = of
		}
	}
	return plan
}

// noneAside checks that no shard was set aside.
func (c *clinic) noneAside() {
	c.Helper()
	n := 0
	for _, row := range c.rows() {
		if row.Quarantined {
			n++
		}
	}
	if n > 0 {
		c.Errorf("%d of %d shards were quarantined", n, len(c.source.Shards))
	}
}

// lostAtMost checks that no shard was unprocessed for longer than that in sum since count.
func (c *clinic) lostAtMost(limit time.Duration) {
	c.Helper()
	most, which := time.Duration(0), ""
	for shard, d := range c.lost {
		if d > most {
			most, which = d, shard
		}
	}
	c.Logf("in %v, %s was unprocessed for %v, longer than all others", c.Now()-c.counting, which, most)
	if most > limit {
		c.Errorf("in %v, %s was unprocessed for %v in sum, want at most %v", c.Now()-c.counting, which, most, limit)
	}
}

// seat returns the seat of a worker.
func (c *clinic) seat(name string) (seat lease.Seat) {
	for _, r := range c.table.Records("g", lease.KindSeat) {
		if of, ok := r.(lease.Seat); ok && of.Name == name {
			seat = of
		}
	}
	return seat
}

// events returns the events that say that a worker is unwell, or is it no more.
func (c *clinic) events(name string) (events []event.Event) {
	for _, n := range c.nodes {
		if n.Name == name {
			events = append(events, c.of(n, event.Unwell)...)
		}
	}
	return events
}

// of returns the events of one kind.
func (c *clinic) of(n *patient, kind event.Kind) (events []event.Event) {
	for _, e := range n.told {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// diagnosed checks that events say of exactly these workers that they are unwell.
func (c *clinic) diagnosed(names ...string) {
	c.Helper()
	sick := map[string]bool{}
	for _, name := range names {
		sick[name] = true
	}
	for _, n := range c.nodes {
		events, all := c.events(n.Name), false
		if sick[n.Name] != (len(events) > 0) {
			c.Errorf("worker %s: events %v, is it unwell: %v", n.Name, events, sick[n.Name])
		}
		for _, e := range events {
			few := len(c.source.Shards) < 5 && len(e.Shards) > 0 // not three of them have failed under one worker
			if all = !e.Over && strings.Contains(e.Err.Error(), "every worker is unwell"); e.Over || len(e.Shards) != 3 && !few {
				c.Errorf("worker %s: %v", n.Name, e)
			}
		}
		if all != (len(events) > 0 && len(names) == len(c.nodes)) {
			c.Errorf("worker %s, %d of %d are sick: events %v", n.Name, len(names), len(c.nodes), events)
		}
	}
}

func (n *patient) Moment() engine.Moment {
	n.steps++
	return n.MomentOf(n.Name + "-" + strconv.Itoa(n.steps))
}

func (n *patient) Call(o engine.Output) {
	from := n.Sender()
	n.of.After(n.of.latency(), func() {
		in := n.of.table.Serve(from, o)
		n.Answer(n.of.latency(), in)
	})
}

func (n *patient) Poll() { n.Answer(n.of.latency(), n.of.source) }

// Start calls a handler, which processes its shard until it fails.
func (n *patient) Start(h *virtual.Handler, o engine.Start) {
	n.starts, n.most = append(n.starts, o.Shard.Name), max(n.most, len(n.Handlers)+1)
	n.Later(0, func() { n.work(h.Tenure, 0) })
}

// work is one round of a handler, after so many others.
func (n *patient) work(id engine.Tenure, rounds uint64) {
	h := n.Handlers.Of(id)
	if h == nil {
		return
	}
	if n.of.fails(n.Name, id.Shard) {
		d := 50 * time.Millisecond
		if n.of.lasts != nil {
			d = n.of.lasts(n.Name, id.Shard)
		}
		n.Later(d, func() { n.ret(id, true) })
		return
	}
	if n.of.commits && !h.Over && rounds > 0 {
		n.Step(engine.Marks{Tenure: id, Seq: rounds, Mark: checkpoint.Mark{Position: strconv.FormatInt(n.of.Now().Milliseconds(), 10)}})
	}
	n.Later(time.Second, func() { n.work(id, rounds+1) })
}

func (n *patient) ret(id engine.Tenure, failed bool) {
	if n.Handlers.Remove(id) {
		n.Step(engine.Returned{Tenure: id, Failed: failed})
	}
}

func (n *patient) Drain(_ *virtual.Handler, o engine.Drain) {
	n.Later(20*time.Millisecond, func() { n.ret(o.Tenure, false) })
}

func (n *patient) Over(h *virtual.Handler, o engine.Over) {
	if h != nil {
		n.Later(time.Millisecond, func() { n.ret(o.Tenure, false) })
	}
}

func (n *patient) Prepare(o engine.Prepare) { n.Answer(0, engine.Prepared{Shard: o.Shard.Name}) }

func (n *patient) Tell(e event.Event) { n.told = append(n.told, e) }

// sick makes all handlers of these workers fail.
func sick(names ...string) func(worker, shard string) bool {
	is := map[string]bool{}
	for _, name := range names {
		is[name] = true
	}
	return func(worker, _ string) bool { return is[worker] }
}

// kinds calls a story for each kind of fleet.
func kinds(t *testing.T, story func(t *testing.T, maxAttempts int64, commits bool)) {
	type kind struct {
		maxAttempts int64
		commits     bool
	}
	for _, k := range fixture.Sample(2, []kind{{5, true}, {0, true}, {5, false}, {0, false}}) {
		t.Run(fmt.Sprintf("attempts=%d,commits=%v", k.maxAttempts, k.commits), func(t *testing.T) {
			t.Parallel()
			story(t, k.maxAttempts, k.commits)
		})
	}
}
