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
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A workload is what the handlers of a fleet do. Some workers are sick: they send heartbeats, and their handlers fail. It
// counts for how long each shard is not processed.
type workload struct {
	*fleet
	commits bool                                         // handlers that do not fail commit
	fails   func(worker, shard string) bool              // what fails now
	lasts   func(worker, shard string) (d time.Duration) // how long a handler works before it fails; nil: 50 ms
	began   map[string][]string                          // by worker: the shards of the handlers that were called
	most    map[string]int                               // by worker: how many handlers have run at a time

	counting time.Duration            // since when it counts
	lost     map[string]time.Duration // for how long each shard was not processed since
}

func newWorkload(t testing.TB, shards int, maxAttempts int64, commits bool) *workload {
	c := &workload{fleet: newFleet(t, shards, 0, rebalance.Eager), commits: commits, began: map[string][]string{}, most: map[string]int{}, lost: map[string]time.Duration{}}
	c.chance = rand.New(rand.NewPCG(7, 7))
	c.source.Answered = true
	c.fails = func(string, string) bool { return false }
	c.config.MaxAttempts, c.config.Order = maxAttempts, checkpoint.Decimal
	c.begins = c.begin
	return c
}

func (c *workload) join(names string) { c.enterAll(names, c.config) }

// begin calls a handler, which processes its shard until it fails.
func (c *workload) begin(n *member, o engine.Start) {
	c.began[n.Name], c.most[n.Name] = append(c.began[n.Name], o.Shard.Name), max(c.most[n.Name], len(n.Handlers)+1)
	n.Later(0, func() { c.work(n, o.Tenure, 0) })
}

// work is one round of a handler, after so many others.
func (c *workload) work(n *member, id engine.Tenure, rounds uint64) {
	h := n.Handlers.Of(id)
	if h == nil {
		return
	}
	if c.fails(n.Name, id.Shard) {
		d := 50 * time.Millisecond
		if c.lasts != nil {
			d = c.lasts(n.Name, id.Shard)
		}
		n.Later(d, func() { n.Return(id, true) })
		return
	}
	if c.commits && !h.Over && rounds > 0 {
		n.Step(engine.Marks{Tenure: id, Seq: rounds, Mark: mark(strconv.FormatInt(c.Now().Milliseconds(), 10))})
	}
	n.Later(time.Second, func() { c.work(n, id, rounds+1) })
}

// run lets so much time pass, and counts the time in which shards are not processed.
func (c *workload) run(d time.Duration) {
	const step = 100 * time.Millisecond
	for end := c.Now() + d; c.Now() < end; {
		c.Run(step)
		busy := c.busy()
		for _, s := range c.source.Shards {
			if !busy[s.Name] {
				c.lost[s.Name] += step
			}
		}
	}
}

// count begins to count again.
func (c *workload) count() { c.counting, c.lost = c.Now(), map[string]time.Duration{} }

// busy are the shards that a handler processes that does not fail.
func (c *workload) busy() map[string]bool {
	busy := map[string]bool{}
	for _, n := range c.nodes {
		for _, h := range n.Handlers {
			if !h.Over && !h.Soft && !c.fails(n.Name, h.Shard) {
				busy[h.Shard] = true
			}
		}
	}
	return busy
}

// recovers lets time pass until all shards are processed, and returns how much.
func (c *workload) recovers(limit time.Duration) time.Duration {
	c.Helper()
	from := c.Now()
	for len(c.busy()) < len(c.source.Shards) {
		if c.Now()-from > limit {
			c.Fatalf("after %v only %d shards are processed", limit, len(c.busy()))
		}
		c.run(100 * time.Millisecond)
	}
	return c.Now() - from
}

func (c *workload) rows() (rows []lease.Row) {
	for _, r := range c.table.Records("g", lease.KindLease) {
		rows = append(rows, r.(lease.Row))
	}
	return rows
}

// noneAside checks that no shard was set aside.
func (c *workload) noneAside() {
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
func (c *workload) lostAtMost(limit time.Duration) {
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

// diagnosed checks that events say of exactly these workers that they are unwell.
func (c *workload) diagnosed(names ...string) {
	c.Helper()
	sick := map[string]bool{}
	for _, name := range names {
		sick[name] = true
	}
	for _, n := range c.nodes {
		events, all := n.reports(event.Unwell), false
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
