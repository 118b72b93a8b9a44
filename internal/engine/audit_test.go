package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestOldPageOfAnAudit: the answer to the page of an audit is late. Meanwhile two shards have changed places, and a
// revision is abandoned, so that the next plan is made from the rows. It moves nothing, whether the rows are listed before
// that answer comes or after it.
func TestOldPageOfAnAudit(t *testing.T) {
	t.Parallel()
	for _, last := range []lease.Kind{lease.KindTarget, lease.KindLease} { // the listing for which the plan waits
		f := newFleet(t, 48, 12, rebalance.Eager)
		first, revision := f.watchers()[0], int64(0)
		f.slow = func(n *member, o engine.Output) time.Duration {
			list, is := o.(engine.List)
			switch {
			case is && n == first && list.Query.Kind == lease.KindLease && list.Query.Limit > 0:
				return 25 * time.Second
			case is && revision > 0 && list.Query.Kind == last:
				return 20 * time.Second
			}
			return 0
		}
		f.reset()
		f.until(2*f.config.Audit, func() bool { return first.calls["page of lease"] > 0 })
		f.Run(100 * time.Millisecond)
		one, other := f.others()[0], f.others()[1]
		given, taken := one.Handlers[0].Shard, other.Handlers[0].Shard
		f.assign(map[string]*member{given: other, taken: one}, true)
		f.until(beat+2*time.Second, func() bool { return other.holds(given) && one.holds(taken) })
		f.Run(beat)
		f.reset()
		revision = f.open()
		f.until(time.Minute, func() bool { return f.plan().Revision > revision && !f.plan().Open })
		f.Run(2 * beat)
		if f.starts > 0 || !f.held() {
			t.Errorf("%v are listed last: %d tenures began; %v", last, f.starts, f.counts())
		}
	}
}

// TestAuditBeforeAPlanIsFollowed: audits find shards of a dead worker without an owner, because the workers to which the
// plan gives them read their targets slowly. Nobody plans again for that.
func TestAuditBeforeAPlanIsFollowed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 48, 12, rebalance.Eager, func(c *engine.Config) { c.Audit = beat })
	f.delay(9*time.Second, func(_ *member, o engine.Output) bool { return gets(o, lease.KindTarget) })
	revision := f.plan().Revision
	f.others()[0].Kill()
	f.until(leaseTime, func() bool { return !f.held() })
	f.until(2*leaseTime+beat, f.held)
	f.Run(2 * leaseTime)
	if plans := f.plan().Revision - revision; plans != 1 {
		t.Errorf("%d plans", plans)
	}
}

// TestRowsOfALightWorkerGrowOld: single reads of rows fail in a worker that does not watch, so it lists all rows. Later a
// shard comes and ends that the source still lists, and then all watchers die. The plan that this worker makes does not
// rest on the rows of then: it leaves the finished shard out.
func TestRowsOfALightWorkerGrowOld(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 48, 12, rebalance.Eager)
	n, other := f.others()[0], f.others()[1]
	f.fail(10*time.Millisecond, func(of *member, o engine.Output) bool { return of == n && gets(o, lease.KindLease) })
	f.reset()
	f.assign(map[string]*member{other.Handlers[0].Shard: n}, true)
	f.until(4*beat, func() bool { return n.calls["list lease, consistent"] > 0 })
	f.Run(beat)
	f.deaf = nil
	f.Run(2 * f.config.Audit) // it may list them once more
	f.lists(engine.Shard{Name: "short"})
	f.until(2*f.config.Poll, func() bool { return f.processed("short") })
	ends := f.up()[slices.IndexFunc(f.up(), func(of *member) bool { return of.holds("short") })]
	f.end("short")
	f.Run(time.Minute)
	ends.Kill() // its seat may say that the shard is finished
	f.Run(time.Minute)
	revision := f.plan().Revision
	for _, of := range f.up() {
		if of != n {
			of.Kill()
		}
	}
	f.until(time.Minute, func() bool { return f.plan().Revision > revision && !f.plan().Open })
	if shards := f.plan().Shards; shards != 48 {
		t.Errorf("the plan has %d shards: %v", shards, f.target(n).Hold)
	}
}
