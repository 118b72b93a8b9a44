package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A fleet comes to rest after a change, and then nothing more is planned.

// TestOnePlanForALeave: the plan that gives away what a leaving worker has is the only one. When its
// seat goes, nothing is planned and nothing is late, although the next watcher has not seen it leave.
func TestOnePlanForALeave(t *testing.T) {
	t.Parallel()
	for workers, lists := range map[int]string{4: "page of seat", 12: "list seat"} {
		for _, unseen := range []bool{false, true} {
			f := newFleet(t, 24, workers, rebalance.Eager)
			before, leaver, next := f.plan(), f.watchers()[0], f.watchers()[1]
			if unseen {
				f.slowLists(next)
			}
			f.deaf = func(n *member, o engine.Output) bool { // nor does it read the plan alone
				list, ok := o.(engine.List)
				return ok && n == next && list.Query.Limit == 1
			}
			f.reset()
			f.until(10*time.Second, func() bool { return next.calls[lists] > 0 })
			leaver.Input(engine.Stop{})
			f.slow = nil
			f.until(30*time.Second, f.even)
			f.Run(time.Minute)
			p := f.plan()
			if p.Revision != before.Revision+1 || p.Members != int64(workers-1) || p.Late {
				t.Errorf("%d workers, the leave is unseen: %t: revision %d became %d, with %d workers, late: %t", workers, unseen, before.Revision, p.Revision, p.Members, p.Late)
			}
		}
	}
}

// TestOnePlanForALeaveWithoutRoom: nobody has room for what a leaving worker has. The plan says so at
// once, and not only when its seat goes.
func TestOnePlanForALeaveWithoutRoom(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 2*workers, workers, rebalance.Eager, func(c *engine.Config) { c.MaxShards = 2 })
		f.Run(40 * time.Second)
		before, leaver := f.plan(), f.nodes[1]
		began := f.Now()
		leaver.Input(engine.Stop{})
		f.until(time.Minute, leaver.Engine.Done)
		took := f.Now() - began
		f.Run(time.Minute)
		if p := f.plan(); p.Revision != before.Revision+1 || p.Unplaced != 2 || took > 2*beat {
			t.Errorf("%d workers: the leave took %v; revision %d became %d, and %d shards have no worker", workers, took, before.Revision, p.Revision, p.Unplaced)
		}
	}
}

// TestLeaveWithoutShards: a worker that holds nothing leaves a small fleet. It writes the plan itself, so
// the others neither wait for one nor look for it.
func TestLeaveWithoutShards(t *testing.T) {
	f := newFleet(t, 2, 4, rebalance.Eager)
	before := f.plan()
	leaver := f.nodes[slices.IndexFunc(f.nodes, func(n *member) bool { return len(n.Handlers) == 0 })]
	me := f.seat(leaver).Incarnation
	leaver.Input(engine.Stop{})
	f.until(time.Minute, leaver.Engine.Done)
	f.Run(time.Second)
	if p := f.plan(); p.Revision != before.Revision+1 || p.By.Incarnation != me || p.Members != 3 {
		t.Errorf("revision %d by %s became %d by %s with %d workers", before.Revision, before.By.Name, p.Revision, p.By.Name, p.Members)
	}
	f.reset()
	f.Run(beat)
	for _, n := range f.up() {
		if n.calls["page of seat"]+n.calls["list seat"] > 2 {
			t.Errorf("%s still looks for a plan: %v", n.Name, n.calls)
		}
	}
}

// TestPauseAndALeave: while moves are paused, the plan leaves what a leaving worker has with it. When its
// seat goes, the next plan gives it to others.
func TestPauseAndALeave(t *testing.T) {
	f := newFleet(t, 8, 2, rebalance.Eager)
	f.wish(lease.Wish{Kind: lease.WishPause, By: "operator"})
	f.Run(20 * time.Second)
	f.nodes[1].Input(engine.Stop{})
	f.until(time.Minute, func() bool { return len(f.nodes[0].Handlers) == 8 })
}

// TestOldRowsTakeNoChildOutOfThePlan: a planner that has read the rows before a parent came to its end
// leaves the child where another planner has assigned it since; also if the workers are full, and the plan says that shards
// have no worker.
func TestOldRowsTakeNoChildOutOfThePlan(t *testing.T) {
	for _, full := range []bool{false, true} {
		f := newFleet(t, 0, 0, rebalance.Eager)
		f.lists(engine.Shard{Name: "parent"}, engine.Shard{Name: "child", Parents: []string{"parent"}}, engine.Shard{Name: "x"}, engine.Shard{Name: "y"})
		if f.config.MaxShards = 2; full {
			f.lists(engine.Shard{Name: "z"}, engine.Shard{Name: "more"})
		}
		f.join()
		f.join()
		f.Run(80 * time.Second)
		at := slices.IndexFunc(f.nodes, func(n *member) bool { return n.holds("parent") })
		other := f.nodes[1-at]
		f.delay(9*time.Second, func(n *member, o engine.Output) bool { return n == other && lists(o, lease.KindSeat) })
		f.reset()
		f.until(10*time.Second, func() bool { return other.calls["page of seat"] > 0 })
		f.slow = nil
		f.end("parent")
		f.until(8*time.Second, func() bool { return f.processed("child") })
		f.Run(9 * time.Second)
		before := f.plan()
		for _, h := range slices.Clone(other.Handlers) {
			f.end(h.Shard)
		}
		f.until(beat, func() bool { p := f.plan(); return p.Revision > before.Revision && !p.Open })
		assigned := slices.ContainsFunc(f.up(), func(n *member) bool {
			return slices.ContainsFunc(f.target(n).Hold, func(a lease.Assigned) bool { return a.Shard == "child" })
		})
		if !assigned || full != (before.Unplaced > 0) {
			t.Errorf("full: %t: the plan was %v, and is %v; the child is assigned: %t", full, before, f.plan(), assigned)
		}
	}
}

// TestRemovedShardStaysOutOfThePlan: an operator removes the row of a finished shard. A planner whose
// listing of the source is older, and whose next listing of the rows lacks the shard, does not take it
// for a new one.
func TestRemovedShardStaysOutOfThePlan(t *testing.T) {
	f := newFleet(t, 0, 0, rebalance.Eager)
	x, y, z := engine.Shard{Name: "x"}, engine.Shard{Name: "y"}, engine.Shard{Name: "z"}
	f.lists(x, y, z)
	f.config.Poll = time.Hour
	f.join()
	f.join()
	f.Run(time.Minute)
	f.end("x")
	f.Run(10 * time.Second) // both have listed the source once more
	f.source.Shards = []engine.Shard{y, z}
	f.Run(2 * time.Minute) // and the rows
	before := f.plan()
	f.write(protocol.Remove(f.row("x"), seen(f.row("x")), f.stamp()))
	f.Run(5 * time.Minute)
	if got := f.plan(); got.Revision != before.Revision {
		t.Errorf("the plan was %v, and is %v", before, got)
	}
}

// TestNewShardIsNotRemoved: a shard is new, and is processed to its end before the first watcher lists the
// source again. That two older listings lack it does not show that the source has ceased to list it.
func TestNewShardIsNotRemoved(t *testing.T) {
	for _, polls := range [][]time.Duration{{time.Second, 30 * time.Second}, {30 * time.Second, time.Second}} {
		f := newFleet(t, 0, 0, rebalance.Eager)
		f.lists(engine.Shard{Name: "x"}, engine.Shard{Name: "y"})
		for _, f.config.Poll = range polls {
			f.join()
		}
		f.Run(100 * time.Second)
		f.lists(engine.Shard{Name: "new"})
		f.until(10*time.Second, func() bool { return f.processed("new") })
		f.end("new")
		for end := f.Now() + 70*time.Second; f.Now() < end; f.Run(time.Second) {
			if f.row("new").Removed {
				t.Fatalf("polls every %v: the source lists the shard, and its row is removed", polls)
			}
		}
		f.source.Shards = f.source.Shards[:2]
		f.until(2*time.Minute, func() bool { return f.row("new").Removed })
	}
}

// TestOldListingRevivesNothing: a plan that somebody has written by hand assigns a shard that was
// removed meanwhile. The worker's last listing of the source has the shard, but it is older than what
// the worker knows of the tombstone: it asks the source again, which omits the shard.
func TestOldListingRevivesNothing(t *testing.T) {
	f := newFleet(t, 0, 0, rebalance.Eager)
	x, y := engine.Shard{Name: "x"}, engine.Shard{Name: "y"}
	f.lists(x, y)
	f.config.Poll = time.Hour
	of := f.join()
	f.Run(time.Minute)
	f.end("x")
	f.Run(10 * time.Second) // it has listed the source once more
	f.source.Shards = []engine.Shard{y}
	f.write(protocol.Remove(f.row("x"), seen(f.row("x")), f.stamp()))
	polls := of.polls
	f.assign(map[string]*member{"x": of}, false)
	f.Run(2 * time.Minute)
	if row := f.row("x"); !row.Removed || of.polls == polls {
		t.Errorf("the source was listed %d times since, and the row is %v", of.polls-polls, row)
	}
}

// TestTombstonesAreNotReadAgain: listings skip tombstones. A worker that knows one does not read its row after every audit.
func TestTombstonesAreNotReadAgain(t *testing.T) {
	f := newFleet(t, 4, 0, rebalance.Eager)
	f.join()
	f.join()
	f.until(time.Minute, f.even)
	kept := f.source.Shards[2:]
	for _, s := range f.source.Shards[:2] {
		f.end(s.Name)
	}
	f.Run(time.Minute)
	f.source.Shards = kept
	f.until(5*time.Minute, func() bool { return f.row("shard-000").Removed && f.row("shard-001").Removed })
	f.lists(engine.Shard{Name: "new"}) // the next plan, and the last
	f.Run(4*f.config.Poll + 2*f.config.Audit)
	f.reset()
	f.Run(10 * f.config.Audit)
	if n := f.calls["get lease"]; n > 0 || f.calls["list lease, consistent"] == 0 {
		t.Errorf("%d reads of rows, %v", n, f.calls)
	}
}
