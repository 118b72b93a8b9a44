package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestEveryWishChangesThePlan: a third worker joins a fleet of two, with and without a wish of each kind. Under the wish
// other workers come to process some shards.
func TestEveryWishChangesThePlan(t *testing.T) {
	after := func(wishes ...lease.Wish) map[string]string {
		f, by := newFleet(t, 6, 2, rebalance.Eager), map[string]string{}
		f.wish(wishes...)
		f.join()
		f.Run(time.Minute)
		for _, n := range f.nodes {
			for _, h := range n.Handlers {
				by[h.Shard] = n.Name
			}
		}
		return by
	}
	usual, names := after(), map[string]string{"worker": "w001"}
	for shard, worker := range usual {
		if worker != "w001" {
			names["shard"] = shard
		}
	}
	for _, kind := range lease.WishKinds() {
		of, to, _ := kind.Names()
		wish := lease.Wish{Kind: kind, Subject: names[of], To: names[to], By: "operator"}
		if kind == lease.WishRaise { // it moves nothing: the plan only names it
			continue
		}
		if maps.Equal(after(wish), usual) {
			t.Errorf("%v changes nothing: see what reads the wishes for a layout", wish)
		}
	}
}

// TestCordon: a cordoned worker keeps what it holds and gets nothing new, unless all workers are
// cordoned.
func TestCordon(t *testing.T) {
	f := newFleet(t, 6, 2, rebalance.Eager)
	f.wish(lease.Wish{Kind: lease.WishCordon, Subject: "w001", By: "operator"})
	f.join()
	f.settles("w001 cordoned", 2, 3, 1)
	f.wish(lease.Wish{Kind: lease.WishCordon, Subject: "w000", By: "operator"},
		lease.Wish{Kind: lease.WishCordon, Subject: "w001", By: "operator"},
		lease.Wish{Kind: lease.WishCordon, Subject: "w002", By: "operator"})
	f.lists(engine.Shard{Name: "another"}, engine.Shard{Name: "more"}, engine.Shard{Name: "one more"})
	f.settles("all cordoned", 3, 3, 3)
	f.nodes[1].Kill()
	f.Run(30 * time.Second)
	if !f.held() {
		t.Errorf("what a dead worker had is processed by %v of cordoned workers", f.order())
	}
}

// TestDrainAndPins: a draining worker keeps no shard while others have room, and a pinned shard moves to
// its worker.
func TestDrainAndPins(t *testing.T) {
	f := newFleet(t, 6, 2, rebalance.Eager)
	f.wish(lease.Wish{Kind: lease.WishDrain, Subject: "w001", By: "operator"})
	f.settles("w001 draining", 6, 0)
	f.wish(lease.Wish{Kind: lease.WishDrain, Subject: "w001", By: "operator"}, lease.Wish{Kind: lease.WishDrain, Subject: "w000", By: "operator"})
	f.settles("both draining", 6, 0)
	f.wish()
	f.settles("no wishes", 3, 3)
	f.wish(lease.Wish{Kind: lease.WishCordon, Subject: "w000", By: "operator"}, lease.Wish{Kind: lease.WishDrain, Subject: "w001", By: "operator"})
	f.settles("w001 draining, w000 cordoned", 3, 3)
	var pins []lease.Wish
	for i := range 4 {
		pins = append(pins, lease.Wish{Kind: lease.WishPin, Subject: fmt.Sprintf("shard-%03d", i), To: "w001", By: "operator"})
	}
	f.wish(pins...)
	f.settles("four pinned to w001", 2, 4)
	for i := range 4 {
		if !f.nodes[1].holds(pins[i].Subject) {
			t.Errorf("%s is not where it is pinned", pins[i].Subject)
		}
	}
	f.wish(append(pins, lease.Wish{Kind: lease.WishDrain, Subject: "w001", By: "operator"})...)
	f.settles("four pinned to w001, which is draining", 6, 0)
	f.wish(pins...)
	f.settles("four pinned to w001 again", 2, 4)
	f.nodes[1].Kill()
	f.Run(30 * time.Second)
	if len(f.nodes[0].Handlers) != 6 {
		t.Errorf("a pin to a worker that is gone keeps shards from the other, which has %d", len(f.nodes[0].Handlers))
	}
}

// TestNoWishKeepsAnOrphan: no wish keeps a worker from claiming new shards and those of a dead worker, even if
// every worker is cordoned or drained.
func TestNoWishKeepsAnOrphan(t *testing.T) {
	t.Parallel()
	for _, kind := range []lease.WishKind{lease.WishCordon, lease.WishDrain} {
		for _, workers := range []int{3, 12} {
			f := newFleet(t, 24, workers, rebalance.Eager)
			var all []lease.Wish
			for _, n := range f.nodes {
				all = append(all, lease.Wish{Kind: kind, Subject: n.Name, By: "operator"})
			}
			f.wish(append(all, lease.Wish{Kind: lease.WishPause, By: "operator"})...)
			f.settles(fmt.Sprint("all wished away: ", kind), slices.Repeat([]int{24 / workers}, workers)...)
			f.lists(engine.Shard{Name: "new"})
			f.nodes[1].Kill()
			f.Run(30 * time.Second)
			if !f.held() {
				t.Errorf("%s of %d workers: not all shards of the dead worker and the new one are processed: %v", kind, workers, f.order())
			}
		}
	}
}

// TestDrainWhereOthersAreFull: a drained worker keeps the shards for which the others have no room. It also
// gets a new shard if they have none.
func TestDrainWhereOthersAreFull(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.config.MaxShards = 4
	f.join()
	f.join()
	f.settles("two workers", 3, 3)
	f.wish(lease.Wish{Kind: lease.WishDrain, Subject: "w001", By: "operator"})
	f.settles("w001 draining, and w000 full", 4, 2)
	f.lists(engine.Shard{Name: "new"})
	f.settles("a new shard", 4, 3)
}

// TestPinToAWorkerThatDeclines: a shard is pinned to a worker on which its handler fails. After each failure
// another worker processes it, as without the pin, until the pinned worker tries it again.
func TestPinToAWorkerThatDeclines(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 6, 3, rebalance.Eager)
	to := f.nodes[1]
	shard, without := to.Handlers[0].Shard, time.Duration(0)
	f.wish(lease.Wish{Kind: lease.WishPin, Subject: shard, To: to.Name, By: "operator"})
	for range 20 * 60 {
		for _, n := range f.nodes {
			i := slices.IndexFunc(n.Handlers, func(h *virtual.Handler) bool { return h.Shard == shard })
			switch {
			case i < 0:
			case n != to:
				n.Input(engine.Marks{Tenure: n.Handlers[i].Tenure, Progress: true})
			default:
				id := n.Handlers[i].Tenure
				n.Return(id, true)
			}
		}
		if f.Run(time.Second); !f.processed(shard) {
			without += time.Second
		}
	}
	if without > 7*time.Minute {
		t.Errorf("nobody processed the shard for %v of 20 minutes", without)
	}
}

// TestPausePinAndLimits: during a pause a shard without an owner is pinned to a worker that is full. Another
// worker gets it.
func TestPausePinAndLimits(t *testing.T) {
	f := newFleet(t, 9, 0, rebalance.Eager)
	f.config.MaxShards = 2
	f.join()
	f.config.MaxShards = 0
	f.join()
	f.join()
	f.until(time.Minute, func() bool { return f.held() && len(f.nodes[0].Handlers) == 2 })
	f.Run(20 * time.Second)
	f.wish(lease.Wish{Kind: lease.WishPause, By: "operator"},
		lease.Wish{Kind: lease.WishPin, Subject: f.nodes[1].Handlers[0].Shard, To: "w000", By: "operator"})
	f.Run(10 * time.Second)
	f.nodes[1].Kill()
	f.until(30*time.Second, f.held)
}

// TestStopOfADrainedFleet: all workers are drained, and one is stopped. Its shards move as in any clean stop.
func TestStopOfADrainedFleet(t *testing.T) {
	f := newFleet(t, 6, 2, rebalance.Cooperative)
	f.wish(lease.Wish{Kind: lease.WishDrain, Subject: "w000", By: "operator"}, lease.Wish{Kind: lease.WishDrain, Subject: "w001", By: "operator"})
	f.settles("all drained", 3, 3)
	f.nodes[1].Input(engine.Stop{})
	for len(f.nodes[0].Handlers) < 6 {
		if f.Run(10 * time.Millisecond); !f.held() {
			t.Fatalf("a shard has no handler: %v", f.order())
		}
	}
}

// TestWishesActSoon: a drain takes effect within a heartbeat interval plus 1.5 s, in small and large fleets, at
// any moment between two heartbeats. The same holds for its end.
func TestWishesActSoon(t *testing.T) {
	t.Parallel()
	const soon = beat + 1500*time.Millisecond
	for _, workers := range []int{3, 12} {
		moments := fixture.Size(3, 8)
		for i := range moments {
			f := newFleet(t, 24, workers, rebalance.Cooperative)
			f.Run(time.Minute + time.Duration(i)*beat/time.Duration(moments))
			drained := f.nodes[i%workers]
			began := f.Now()
			f.wish(lease.Wish{Kind: lease.WishDrain, Subject: drained.Name, By: "operator", Until: virtual.Epoch().Add(began + 20*time.Second)})
			if took := f.until(time.Minute, func() bool { return len(drained.Handlers) == 0 }); took > soon {
				t.Errorf("one of %d workers has no shards after %v", workers, took)
			}
			f.Run(began + 20*time.Second - f.Now())
			if took := f.until(time.Minute, f.even); took > soon {
				t.Errorf("one of %d workers has its shards back %v after the end of the drain", workers, took)
			}
		}
	}
}

// TestPause: during a pause no held shard moves, and the shards of a dead worker are assigned. The
// pause ends by itself, and the planner removes the wish.
func TestPause(t *testing.T) {
	f := newFleet(t, 8, 2, rebalance.Eager)
	f.wish(lease.Wish{Kind: lease.WishPause, By: "operator", Until: f.later(3 * time.Minute)})
	f.join()
	f.settles("paused", 4, 4, 0)
	f.nodes[1].Kill()
	f.settles("paused, and one died", 4, 0, 4)
	f.join()
	f.Run(3 * time.Minute)
	if f.even(); len(f.wishes().List) > 0 || slices.Min(f.order()[2:]) < 2 {
		t.Errorf("after the pause the workers process %v, and the wishes are %v", f.order(), f.wishes())
	}
}

// TestAWishThatHasEndedHasNoEffect, also where nobody has removed it yet.
func TestAWishThatHasEndedHasNoEffect(t *testing.T) {
	f := newFleet(t, 4, 2, rebalance.Eager)
	// nobody can remove wishes
	f.deaf = func(n *member, o engine.Output) bool { return sends(o, lease.KindWishes) }
	f.wish(lease.Wish{Kind: lease.WishDrain, Subject: "w001", By: "operator", Until: f.later(time.Second)})
	f.Run(5 * time.Second)
	f.join()
	f.Run(time.Minute)
	if !f.even() {
		t.Errorf("the workers process %v", f.order())
	}
}
