package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestChildrenInALargeFleet: a worker that does not watch processes the parent. Only what it reports
// on its seat shows the others that the parent is finished.
func TestChildrenInALargeFleet(t *testing.T) {
	f := newFleet(t, 24, 12, rebalance.Eager)
	parent := f.others()[0].Handlers[0].Shard
	f.lists(engine.Shard{Name: "child", Parents: []string{parent}})
	f.Run(time.Minute)
	f.end(parent)
	f.until(beat+2*time.Second, func() bool { return f.processed("child") })
}

// TestManyParentsFinishAtOnce: a worker, which watches or does not, finishes more shards at once than its seat has room
// for. The children of all of them begin soon. Before, the children of those without room waited for an audit.
func TestManyParentsFinishAtOnce(t *testing.T) {
	t.Parallel()
	const workers = 12
	each := fixture.Size(lease.MaxNews+10, 150)
	for _, watches := range []bool{true, false} {
		f := newFleet(t, workers*each, workers, rebalance.Eager)
		n := f.others()[0]
		if watches {
			n = f.watchers()[0]
		}
		parents, known := slices.Clone(n.Handlers), len(f.source.Shards)
		for _, h := range parents {
			f.source.Shards = append(slices.Clip(f.source.Shards), engine.Shard{Name: "child of " + h.Shard, Parents: []string{h.Shard}})
		}
		f.Run(time.Minute)
		n.end(parents...)
		f.until(2*(beat+2*time.Second), func() bool {
			return !slices.ContainsFunc(f.source.Shards[known:], func(child engine.Shard) bool { return !f.processed(child.Name) })
		})
	}
}

// TestNewsEnds: a worker that does not watch finishes more shards than its seat has room for, but one after the other. The
// plans are not made from listings of the rows for that, and the audits go on.
func TestNewsEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 12*20, 12, rebalance.Eager)
	n := f.others()[0]
	f.reset()
	for range lease.MaxNews + 30 {
		f.Run(fixture.Size(9*time.Second, 15*time.Second))
		n.end(n.Handlers[0])
	}
	f.Run(10 * time.Second)
	if s := f.seat(n); len(s.News) > 3 || s.NewsLeft > 0 || f.calls["list lease, consistent"] > 10 || f.calls["page of lease"] < 20 {
		t.Errorf("the seat says %d, and %d more; %v", len(s.News), s.NewsLeft, f.calls)
	}
}

// TestPlansWithoutRows: the rows cannot be listed. A worker has finished more shards than its seat has room for, and another
// dies. Its shards are processed as soon as otherwise.
func TestPlansWithoutRows(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 12*fixture.Size(lease.MaxNews+10, 150), 12, rebalance.Eager)
	n, dies := f.others()[0], f.others()[1]
	f.fail(leaseTime, func(_ *member, o engine.Output) bool {
		list, is := o.(engine.List)
		return is && list.Query.Kind == lease.KindLease && list.Query.Limit == 0
	})
	lost := slices.Clone(dies.Handlers)
	n.end(slices.Clone(n.Handlers)...)
	dies.Kill()
	f.until(2*leaseTime+5*time.Second, func() bool {
		return !slices.ContainsFunc(lost, func(h *virtual.Handler) bool { return !f.processed(h.Shard) })
	})
}

// TestWeightOfAChild: a handler learns the weight that the source lists, for a child too.
func TestWeightOfAChild(t *testing.T) {
	f := newFleet(t, 2, 2, rebalance.Eager)
	f.lists(engine.Shard{Name: "child", Parents: []string{"shard-000"}, Weight: 7})
	weight := 0
	f.begins = func(_ *member, o engine.Start) { weight = o.Shard.Weight }
	f.Run(time.Minute)
	f.end("shard-000")
	f.until(beat+2*time.Second, func() bool { return f.processed("child") })
	if weight != 7 {
		t.Errorf("weight %d, want 7", weight)
	}
}

// TestChildTooEarlyInATarget: a target has a child whose parent may not be processed. Its worker
// leaves the child alone, whatever the plan says.
func TestChildTooEarlyInATarget(t *testing.T) {
	parent, other := engine.Shard{Name: "parent"}, engine.Shard{Name: "other"}
	for _, c := range []struct {
		name   string
		source engine.Source
	}{
		{"the parent is held", engine.Source{Shards: []engine.Shard{other, parent}, Complete: true}},
		{"the parent is listed and has no row", engine.Source{Shards: []engine.Shard{other, parent}, Complete: true}},
		{"no complete listing has lacked the parent", engine.Source{Shards: []engine.Shard{other}, Answered: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(t, 0, 0, rebalance.Eager)
			f.source = c.source
			if c.name == "the parent is listed and has no row" {
				f.deaf = func(_ *member, o engine.Output) bool {
					send, ok := o.(engine.Send)
					return ok && send.Write.Key().Name == "parent"
				}
			}
			a := f.join()
			f.join()
			f.Run(20 * time.Second)
			f.give(a, lease.Assigned{Shard: "child", Parents: []string{"parent"}})
			f.Run(20 * time.Second)
			if row := f.row("child"); row.Generation > 0 {
				t.Errorf("the child has a row: %v", row)
			}
		})
	}
}

// TestParentIsRewound: one parent of a child is finished, and is rewound while the child waits for
// the other. The child waits for both.
func TestParentIsRewound(t *testing.T) {
	for _, rewound := range []bool{false, true} {
		f := newFleet(t, 0, 0, rebalance.Eager)
		f.lists(engine.Shard{Name: "left"}, engine.Shard{Name: "right"})
		a := f.join()
		f.join()
		f.Run(20 * time.Second)
		f.end("left")
		f.Run(5 * time.Second)
		f.give(a, lease.Assigned{Shard: "child", Parents: []string{"left", "right"}})
		// no plan leaves the child out
		f.deaf = func(_ *member, o engine.Output) bool { return sends(o, lease.KindPlan) }
		f.Run(5 * time.Second)
		if left := f.row("left"); rewound {
			f.write(protocol.Rewind(left, seen(left), checkpoint.Mark{}, f.stamp()))
		}
		f.Run(10 * time.Second)
		f.end("right")
		f.Run(10 * time.Second)
		if began := f.processed("child"); began == rewound {
			t.Errorf("one parent is rewound: %t; the child is processed: %t", rewound, began)
		}
	}
}
