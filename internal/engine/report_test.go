package engine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestOneWorkerReportsForAll: the worker that reports for the fleet pauses for less than its lease time. No other
// worker reports the same meanwhile, because it would have to take that back.
func TestOneWorkerReportsForAll(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{3, 12} {
		f := newFleet(t, 2*workers+2, 0, rebalance.Eager)
		f.config.MaxShards, f.config.KeepUnlisted, f.config.Poll = 2, true, 2*time.Second
		for range workers {
			f.join()
		}
		f.Run(time.Minute)
		n := f.watchers()[0]
		f.source = f.without(n.Handlers[0].Shard)
		f.Run(time.Minute)
		n.Pause()
		f.Run(leaseTime * 65 / 100)
		n.Resume(nil)
		f.Run(time.Minute)
		for _, of := range f.up() {
			for _, kind := range []event.Kind{event.Full, event.Unlisted} {
				if all := of.reports(kind); (len(all) > 0) != (of == n) || len(all) > 0 && all[len(all)-1].Over {
					t.Errorf("%d workers: %s has told %v", workers, of.Name, all)
				}
			}
		}
	}
}

// replace makes the source list other shards, and ends those that it listed before.
func (f *fleet) replace(round, shards int) {
	old := f.source.Shards
	f.source.Shards = nil
	for i := range shards {
		f.lists(engine.Shard{Name: fmt.Sprintf("shard-%02d-%d", round, i)})
	}
	for _, s := range old {
		f.end(s.Name)
	}
}

// TestGoneShardsAreForgotten: the source replaces all shards again and again. The workers forget the old ones.
func TestGoneShardsAreForgotten(t *testing.T) {
	t.Parallel()
	const shards = 8
	f := newFleet(t, 0, 2, rebalance.Eager)
	f.config.Poll = 10 * time.Second
	for round := range 20 {
		f.replace(round, shards)
		f.Run(time.Minute)
	}
	for _, n := range f.up() {
		known := reflect.ValueOf(n.Engine)
		listed, rows := known.FieldByName("feed").FieldByName("shards").Len(), known.FieldByName("facts").FieldByName("all").Len()
		if len(n.Handlers) != shards/2 || listed > 4*shards || rows > 4*shards {
			t.Errorf("%s processes %d shards, and knows %d of the source and %d rows", n.Name, len(n.Handlers), listed, rows)
		}
	}
}

// TestShardsThatWereGivenUpAreForgotten: each handler gives its shard up once, another worker takes it over, and later
// the shard ends. The workers forget it.
func TestShardsThatWereGivenUpAreForgotten(t *testing.T) {
	t.Parallel()
	const shards = 8
	f := newFleet(t, 0, 2, rebalance.Eager)
	f.config.Poll = 10 * time.Second
	for round := range fixture.Size(12, 40) {
		f.replace(round, shards)
		f.Run(30 * time.Second)
		for _, n := range f.up() {
			for _, h := range slices.Clone(n.Handlers) {
				n.Input(engine.Marks{Tenure: h.Tenure, Release: true})
			}
		}
		f.Run(2 * time.Minute)
	}
	for _, n := range f.up() {
		if known := reflect.ValueOf(n.Engine).FieldByName("shards").FieldByName("all").Len(); len(n.Handlers) != shards/2 || known > 4*shards {
			t.Errorf("%s processes %d shards and knows %d", n.Name, len(n.Handlers), known)
		}
	}
}

// TestStoreFaultEndsWithAListing: the reads of a row fail until a listing shows the row, which is then not read by itself
// again. The fault ends all the same.
func TestStoreFaultEndsWithAListing(t *testing.T) {
	f := newFleet(t, 6, 3, rebalance.Eager)
	f.fail(50*time.Millisecond, func(_ *member, o engine.Output) bool { return gets(o, lease.KindLease) })
	f.up()[2].Kill()
	f.until(3*leaseTime+f.config.Audit, f.even)
	f.deaf = nil
	f.Run(3 * leaseTime)
	for _, n := range f.up() {
		if all := n.reports(event.StoreFault); len(all) == 0 || !all[len(all)-1].Over {
			t.Errorf("%s reports %v", n.Name, all)
		}
	}
}

// TestStoreFaultOfRowReads: reads of single rows fail all the time, and listings do not. A worker that requests a shard, and
// reads its row again and again, reports one fault that lasts.
func TestStoreFaultOfRowReads(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 6, 3, rebalance.Eager)
	f.config.Handoff = rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}
	f.fail(50*time.Millisecond, func(_ *member, o engine.Output) bool { return gets(o, lease.KindLease) })
	for _, n := range f.up() {
		n.Stuck = true
	}
	n := f.join()
	f.Run(fixture.Size(8*time.Minute, 20*time.Minute))
	if all := n.reports(event.StoreFault); len(all) == 0 || slices.ContainsFunc(all, func(e told) bool { return e.Over }) {
		t.Errorf("%s reports %v", n.Name, all)
	}
}

// TestStoreFaultOfASeatRead: the reads of an owner's seat fail, and the next plan takes the shard away from the worker that
// has read it. The fault ends, because nobody repeats the read.
func TestStoreFaultOfASeatRead(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 14*4, 14, rebalance.Eager)
	n, owner := f.others()[0], f.others()[1]
	name := owner.Handlers[0].Shard
	f.fail(4*time.Second, func(m *member, o engine.Output) bool { return m == n && gets(o, lease.KindSeat) })
	f.assign(map[string]*member{name: n}, true)
	f.until(20*time.Second, func() bool { return len(n.reports(event.StoreFault)) > 0 })
	f.assign(map[string]*member{name: owner}, true)
	f.until(20*time.Second, func() bool { return n.Engine.Status().Revision == f.plan().Revision })
	f.Run(3 * leaseTime)
	if all := n.reports(event.StoreFault); !all[len(all)-1].Over {
		t.Errorf("%s last reports %v", n.Name, all[len(all)-1])
	}
}

// TestStoreFaultOfAListingEnds: single reads of a row fail, and so does the listing of all rows that replaces them. Then
// single reads pass again, and a worker of a large fleet that does not plan lists no rows. The fault ends.
func TestStoreFaultOfAListingEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 14*4, 14, rebalance.Eager)
	n, owner := f.others()[0], f.others()[1]
	name, failed := owner.Handlers[0].Shard, false
	f.fail(50*time.Millisecond, func(m *member, o engine.Output) bool {
		failed = failed || m == n && lists(o, lease.KindLease)
		return m == n && (gets(o, lease.KindLease) || lists(o, lease.KindLease))
	})
	owner.Stuck = true
	f.assign(map[string]*member{name: n}, true)
	f.until(20*time.Second, func() bool { return failed })
	f.Run(time.Second)
	f.deaf = nil
	f.Run(2 * time.Minute)
	if all := n.reports(event.StoreFault); len(all) == 0 || !all[len(all)-1].Over {
		t.Errorf("%s reports %v", n.Name, all)
	}
}

// TestMissingPlanIsReported: each worker reports that no plan is complete, if that lasts, and that it is over. The plan
// cannot be read, and no worker is left that lists the seats; or no target can be written; or no plan.
func TestMissingPlanIsReported(t *testing.T) {
	t.Parallel()
	noWrites := func(kind lease.Kind) func(*fleet) {
		return func(f *fleet) {
			f.fail(50*time.Millisecond, func(_ *member, o engine.Output) bool { return sends(o, kind) })
		}
	}
	for name, story := range map[string]struct {
		begin func(f *fleet)
		why   string
	}{
		"unreadable":     {func(f *fleet) { f.unreadable(f.plan().Key()) }, "the plan cannot be read"},
		"never complete": {noWrites(lease.KindTarget), "the plan is open"},
		"never begun":    {noWrites(lease.KindPlan), "a plan is due"},
	} {
		for _, workers := range []int{4, 12} {
			t.Run(fmt.Sprint(name, ", ", workers, " workers"), func(t *testing.T) {
				f := newFleet(t, 3*workers, workers, rebalance.Eager)
				story.begin(f)
				if f.up()[workers-1].Kill(); name == "unreadable" && workers > 8 {
					for _, n := range f.watchers() {
						n.Kill()
					}
				}
				f.Run(50 * time.Second) // the death is noticed after 12 s, and a plan is missing 30 s later
				reports := 0
				for _, n := range f.up() {
					if all := n.reports(event.PlanStale); len(all) > 0 {
						reports++
						if e := all[0]; e.Over || e.Err == nil || !strings.HasPrefix(e.Err.Error(), story.why) || e.Lasted < 30*time.Second {
							t.Errorf("%s reports %v, lasted %v, %v", n.Name, e, e.Lasted, e.Err)
						}
					}
				}
				if all := len(f.up()); reports == 0 || reports < all && workers <= 8 {
					t.Errorf("%d of %d workers report that no plan is complete", reports, all)
				}
				f.deaf, f.table.Unreadable = nil, nil
				f.until(40*time.Second, f.even)
				f.Run(leaseTime)
				for _, n := range f.up() {
					if all := n.reports(event.PlanStale); len(all) > 0 && !all[len(all)-1].Over {
						t.Errorf("%s last reports %v", n.Name, all[len(all)-1])
					}
				}
			})
		}
	}
}

// TestPlansThatFollowEachOther: the wishes change so often that a plan is due all the time, and each is completed. None
// is reported as missing.
func TestPlansThatFollowEachOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 24, 12, rebalance.Eager)
	revision := f.plan().Revision
	for i := range 2500 {
		f.wish(lease.Wish{Kind: lease.WishPin, Subject: "shard-000", To: fmt.Sprint("nobody-", i), By: "operator", Why: "test"})
		f.Run(20 * time.Millisecond)
	}
	if n := f.plan().Revision - revision; n < 20 {
		t.Errorf("%d plans in 50 s", n)
	}
	for _, n := range f.nodes {
		n.never(event.PlanStale)
	}
}

// TestFaultOfTicksLasts: in a large fleet every swap of the plan fails, and nothing else. The worker that ticks reports
// that once while it lasts, although the table answers its other calls.
func TestFaultOfTicksLasts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 24, 12, rebalance.Eager)
	f.fail(50*time.Millisecond, func(_ *member, o engine.Output) bool { return sends(o, lease.KindPlan) })
	n := f.watchers()[0]
	f.Run(time.Minute)
	if all := n.reports(event.StoreFault); len(all) == 0 || slices.ContainsFunc(all, func(e told) bool { return e.Over }) {
		t.Errorf("%s reports %v", n.Name, all)
	}
	f.deaf = nil
	f.Run(2 * leaseTime)
	if all := n.reports(event.StoreFault); !all[len(all)-1].Over {
		t.Errorf("%s last reports %v", n.Name, all[len(all)-1])
	}
}
