package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// wish replaces the wishes of operators.
func (f *fleet) wish(list ...lease.Wish) {
	f.Helper()
	f.write(protocol.SetWishes(f.wishes(), list, f.stamp()))
}

func (f *fleet) wishes() lease.Wishes {
	for _, r := range f.table.Records("g", lease.KindSeat) {
		if w, ok := r.(lease.Wishes); ok {
			return w
		}
	}
	return lease.Wishes{Group: "g"}
}

// order returns how many shards each worker processes, in the order in which they joined.
func (f *fleet) order() (counts []int) {
	for _, n := range f.nodes {
		counts = append(counts, len(n.Handlers))
	}
	return counts
}

// settles lets a minute pass, in which the workers come to process so many shards each.
func (f *fleet) settles(what string, want ...int) {
	f.Helper()
	f.Run(time.Minute)
	if got := f.order(); !slices.Equal(got, want) {
		f.Errorf("%s: the workers process %v shards; want %v", what, got, want)
	}
}

// lists makes the source list these shards from now on.
func (f *fleet) lists(shards ...engine.Shard) {
	f.source.Shards = append(slices.Clip(f.source.Shards), shards...)
}

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
	f.nodes[1].kill()
	f.Run(30 * time.Second)
	f.nodes[1].Handlers = nil
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
	f.nodes[1].kill()
	f.Run(30 * time.Second)
	if len(f.nodes[0].Handlers) != 6 {
		t.Errorf("a pin to a worker that is gone keeps shards from the other, which has %d", len(f.nodes[0].Handlers))
	}
}

// TestNoWishKeepsAnOrphan: no wish keeps a worker from claiming new shards and those of a dead worker, even if
// every worker is cordoned or drained.
func TestNoWishKeepsAnOrphan(t *testing.T) {
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
			f.nodes[1].kill()
			f.Run(30 * time.Second)
			f.nodes[1].Handlers = nil
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
				n.Handlers.Remove(id)
				n.Input(engine.Returned{Tenure: id, Failed: true})
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
	f.nodes[1].kill()
	f.nodes[1].Handlers = nil
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

// TestFirstWatcherIsEvictedByHand: workers do not wait for a watcher without a seat to plan. Its shards are
// processed again within a heartbeat interval plus 1.3 s.
func TestFirstWatcherIsEvictedByHand(t *testing.T) {
	for i := range 8 {
		f := newFleet(t, 12, 2, rebalance.Eager)
		f.Run(time.Minute + time.Duration(i)*beat/8)
		first := slices.IndexFunc(f.nodes, func(n *member) bool { return f.seat(n).Incarnation == f.plan().Watchers[0] })
		f.write(protocol.Evict(f.seat(f.nodes[first])))
		f.nodes[first].kill()
		other := f.nodes[1-first]
		if took := f.until(time.Minute, func() bool { return len(other.Handlers) == 12 }); took > beat+1300*time.Millisecond {
			t.Errorf("the other worker has all shards after %v", took)
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
	f.wish(lease.Wish{Kind: lease.WishPause, By: "operator", Until: virtual.Epoch().Add(f.Now() + 3*time.Minute)})
	f.join()
	f.settles("paused", 4, 4, 0)
	f.nodes[1].kill()
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
	f.deaf = func(n *member, o engine.Output) bool { // nobody can remove wishes
		send, ok := o.(engine.Send)
		return ok && send.Write.Key().Kind == lease.KindWishes
	}
	f.wish(lease.Wish{Kind: lease.WishDrain, Subject: "w001", By: "operator", Until: virtual.Epoch().Add(f.Now() + time.Second)})
	f.Run(5 * time.Second)
	f.join()
	f.Run(time.Minute)
	if !f.even() {
		t.Errorf("the workers process %v", f.order())
	}
}

// toFirst is a planner that gives everything to the first worker by name.
type toFirst struct{ rebalance.Even }

func (toFirst) Plan(v rebalance.View) []int {
	first := 0
	for w := range v.Workers {
		if v.Workers[w].Name < v.Workers[first].Name {
			first = w
		}
	}
	return slices.Repeat([]int{first}, len(v.Shards))
}

// TestDeclinedShardIsKeptFromItsDecliner for any planner, while another worker can have it.
func TestDeclinedShardIsKeptFromItsDecliner(t *testing.T) {
	f := newFleet(t, 0, 0, rebalance.Eager)
	f.config.Backoff = 5 * time.Second
	f.plansBy(toFirst{})
	f.lists(engine.Shard{Name: "one"}, engine.Shard{Name: "two"})
	a, b := f.join(), f.join()
	f.settles("all at the first", 2, 0)
	id := a.Handlers[0].Tenure
	a.Handlers.Remove(id)
	a.Step(engine.Returned{Tenure: id, Failed: true})
	f.Run(20 * time.Second)
	if !slices.ContainsFunc(b.events, func(e event.Event) bool { return e.Kind == event.Started && e.Shard == id.Shard }) {
		t.Errorf("the worker that has not failed the shard never had it; the workers process %v", f.order())
	}
}

// idle is a planner that gives everything to nobody.
type idle struct{ rebalance.Even }

func (idle) Plan(v rebalance.View) []int {
	return slices.Repeat([]int{rebalance.Nobody}, len(v.Shards))
}

// TestNoShardWaitsForThePlanner: a shard that has no living owner is placed although the planner gives it to nobody, as
// long as a worker has room. Held shards stay where they are.
func TestNoShardWaitsForThePlanner(t *testing.T) {
	f := newFleet(t, 0, 0, rebalance.Eager)
	f.plansBy(idle{})
	for i := range 6 {
		f.lists(engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	a := f.join()
	f.join()
	f.settles("two workers", 3, 3)
	f.join()
	f.settles("a third one has joined", 3, 3, 0)
	a.kill()
	f.settles("the first one has died", 0, 3, 3)
	if plan := f.plan(); plan.Unplaced > 0 {
		t.Errorf("%d shards are unplaced: %v", plan.Unplaced, plan.Examples)
	}
}

// TestFullFleet: where there is no room, the plan counts and names the shards without a worker, and no
// plan takes a place from a shard that has one.
func TestFullFleet(t *testing.T) {
	f := newFleet(t, 0, 0, rebalance.Eager)
	f.config.MaxShards = 2
	for i := range 7 {
		f.lists(engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	f.join()
	f.join()
	f.settles("two full workers", 2, 2)
	held := func() (names []string) {
		for _, n := range f.nodes {
			for _, h := range n.Handlers {
				names = append(names, h.Shard)
			}
		}
		return names
	}
	before := held()
	for range 3 { // each wish is another plan
		f.wish(lease.Wish{Kind: lease.WishCordon, Subject: "nobody", By: fmt.Sprint(f.Now())})
		f.Run(10 * time.Second)
	}
	if now := held(); !slices.Equal(now, before) {
		t.Errorf("the workers process %v, and after three plans %v", before, now)
	}
	p := f.plan()
	var left []string
	for _, s := range f.source.Shards {
		if !slices.Contains(before, s.Name) {
			left = append(left, s.Name)
		}
	}
	if p.Shards != 7 || p.Unplaced != 3 || !slices.Equal(p.Examples, left) {
		t.Errorf("the plan has %d shards, %d of them unplaced, such as %v; want 7, 3 and %v", p.Shards, p.Unplaced, p.Examples, left)
	}
	f.join()
	f.settles("with a third worker", 2, 2, 2)
	if p := f.plan(); p.Unplaced != 1 || len(p.Examples) != 1 {
		t.Errorf("the plan has %d shards without a worker, such as %v", p.Unplaced, p.Examples)
	}
}

// TestOpenRevision: a revision that stays open is abandoned: at once if its maker has no seat, and
// after three seconds otherwise. The next planner writes all targets again.
func TestOpenRevision(t *testing.T) {
	for _, alive := range []bool{false, true} {
		f := newFleet(t, 6, 3, rebalance.Eager)
		maker := lease.Owner{Name: "x", Incarnation: "stranger"}
		if alive {
			f.nodes[2].Pause()
			maker = lease.Owner{Name: f.nodes[2].Name, Incarnation: f.nodes[2].Engine.Status().Incarnation}
		}
		before := f.plan()
		f.write(protocol.OpenPlan(before, protocol.Opening{By: maker, Planner: before.Planner}, f.stamp()))
		from := f.Now()
		f.until(2*h+openFor, func() bool { return f.plan().Revision > before.Revision+1 && !f.plan().Open })
		took := f.Now() - from
		if alive && took < openFor || !alive && took >= openFor {
			t.Errorf("maker alive %t: the next revision was finished after %v", alive, took)
		}
		for _, n := range f.nodes {
			if got := f.target(n).Revision; got != f.plan().Revision {
				t.Errorf("maker alive %t: the target of %s is of revision %d; want %d", alive, n.Name, got, f.plan().Revision)
			}
		}
	}
}

const openFor = 3 * time.Second

// TestNoPlan: a first plan begins at the clock's revision. After it was deleted by hand the next
// revision is above the highest that any seat knows, all targets are written again, and nothing
// moves.
func TestNoPlan(t *testing.T) {
	f := newFleet(t, 6, 3, rebalance.Eager)
	first := f.plan()
	if low, high := generation.First(virtual.Epoch()), generation.First(virtual.Epoch().Add(f.Now())); first.Revision < low || first.Revision > high+10 {
		t.Errorf("the revision is %d; want about %d", first.Revision, low)
	}
	high := first.Revision + 1<<40
	for _, n := range f.nodes { // the plan goes on at a revision that no clock reaches
		next := f.target(n)
		next.Revision = high
		f.put(next)
	}
	f.write(protocol.OpenPlan(first, protocol.Opening{By: first.By, Planner: first.Planner, Known: high - 1}, f.stamp()))
	f.until(time.Minute, func() bool { return f.plan().Revision > high && !f.plan().Open })
	f.Run(30 * time.Second)
	starts, old := f.starts, f.plan()
	f.hand.Delete(old.Key())
	f.Run(30 * time.Second)
	now := f.plan()
	if now.Revision <= old.Revision || now.Open || f.starts != starts {
		t.Errorf("after %v the plan is %v; %d tenures began", old, now, f.starts-starts)
	}
	for _, n := range f.nodes {
		if got := f.target(n).Revision; got != now.Revision {
			t.Errorf("the target of %s is of revision %d; want %d", n.Name, got, now.Revision)
		}
	}
}

// TestPlanByHand: the plan is deleted, and somebody writes one of a lower revision. No worker follows it,
// so a watcher writes one above the highest that any seat knows. Nothing moves by it, and a newcomer gets
// its share.
func TestPlanByHand(t *testing.T) {
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 10*workers, workers, rebalance.Eager)
		old := f.plan()
		f.hand.Delete(old.Key())
		early := f.stamp()
		early.At = early.At.AddDate(-1, 0, 0)
		f.write(protocol.OpenPlan(lease.Plan{Group: "g"}, protocol.Opening{By: old.By, Planner: old.Planner}, early))
		opened := f.plan()
		f.write(protocol.ClosePlan(opened, opened.Revision, old.By.Incarnation, old.Finding, f.stamp()))
		if f.plan().Revision >= old.Revision {
			t.Fatalf("the plan is %v", f.plan())
		}
		f.reset()
		f.until(2*beat+openFor, func() bool { return f.plan().Revision > old.Revision && !f.plan().Open })
		f.join()
		f.until(2*beat+2*time.Second, f.even)
		if most := (10*workers + workers) / (workers + 1); f.starts > most {
			t.Errorf("%d tenures began, want at most %d", f.starts, most)
		}
	}
}

// TestOnlyTargetsThatDifferAreWritten: one shard more is one target more; and the targets of the dead are
// deleted after all others are written.
func TestOnlyTargetsThatDifferAreWritten(t *testing.T) {
	f := newFleet(t, 8, 4, rebalance.Eager)
	var writes []string
	f.deaf = func(n *member, o engine.Output) bool {
		send, ok := o.(engine.Send)
		if !ok || send.Write.Key().Kind != lease.KindTarget {
			return false
		}
		for _, r := range f.table.Records("g", lease.KindTarget) {
			if send.Write.Op == lease.OpDelete && r.(lease.Target).Revision == f.plan().Revision {
				writes = append(writes, "stored")
			}
		}
		writes = append(writes, send.Write.Op.String())
		return false
	}
	f.lists(engine.Shard{Name: "another"})
	f.Run(time.Minute)
	if !slices.Equal(writes, []string{"swap"}) {
		t.Errorf("for one more shard there were these writes of targets: %v", writes)
	}
	writes = nil
	f.nodes[3].kill()
	f.Run(time.Minute)
	text := strings.Join(writes, " ")
	if swaps := strings.Count(text, "swap"); swaps < 2 || swaps > 3 || strings.Count(text, "stored") != swaps || !strings.HasSuffix(text, "stored delete") {
		t.Errorf("after a death there were these writes of targets: %v", writes)
	}
}

// TestPlannerStops: a planner that meets a target of a revision above its own stops, and does not
// finish its own revision.
func TestPlannerStops(t *testing.T) {
	f := newFleet(t, 6, 2, rebalance.Eager)
	high, mine := int64(0), int64(0)
	f.deaf = func(n *member, o engine.Output) bool {
		send, ok := o.(engine.Send)
		next, is := send.Write.Next.(lease.Target)
		if ok && is && high == 0 { // another planner was faster, and finishes nothing
			mine, high = next.Revision, next.Revision+5
			next.Revision = high
			f.put(next)
		}
		if plan, is := send.Write.Next.(lease.Plan); ok && is && !plan.Open && plan.Revision == mine {
			t.Errorf("the overtaken planner finishes revision %d", mine)
		}
		return false
	}
	f.join()
	f.Run(time.Minute)
	if p := f.plan(); high == 0 || p.Revision <= high || p.Open || !f.even() {
		t.Errorf("after a planner was overtaken by revision %d the plan is %v, and the workers process %v", high, p, f.order())
	}
}

// TestChildInATarget: a plan leaves out a child without a row whose parents are not finished, although the
// targets have it, whether its planner has read the rows since the last plan or not.
func TestChildInATarget(t *testing.T) {
	for _, first := range []time.Duration{20 * time.Second, time.Minute} {
		f := newFleet(t, 0, 0, rebalance.Eager)
		f.lists(engine.Shard{Name: "parent"}, engine.Shard{Name: "child", Parents: []string{"parent"}})
		a := f.join()
		f.join()
		f.Run(first)
		next := f.target(a)
		next.Revision++
		next.Hold = []lease.Assigned{{Shard: "child", Parents: []string{"parent"}}, {Shard: "parent"}}
		f.put(next)
		f.wish(lease.Wish{Kind: lease.WishCordon, Subject: "nobody", By: "operator"})
		f.Run(2 * time.Minute)
		if p := f.plan(); p.Shards != 1 {
			t.Errorf("after %v: the plan has %d shards; want only the parent", first, p.Shards)
		}
	}
}

// TestChildWaitsForAWholeListing: a target names a child whose parent has no row. The source answers
// in part, and so does not show whether it lists the parent too. The child is claimed only when a
// whole listing lacks the parent.
func TestChildWaitsForAWholeListing(t *testing.T) {
	f := newFleet(t, 2, 2, rebalance.Eager)
	a := f.nodes[0]
	child := engine.Shard{Name: "child", Parents: []string{"parent"}}
	f.source = engine.Source{Shards: append(f.source.Shards, child), Answered: true}
	f.assign(map[string]*member{"child": a}, false)
	next := f.target(a)
	f.open()
	next.Revision = f.plan().Revision
	next.Hold[0].Parents = child.Parents
	f.put(next)
	f.finish()
	f.Run(time.Minute)
	if a.holds("child") {
		t.Error("the child was claimed before a whole listing")
	}
	f.source.Complete = true
	f.until(35*time.Second, func() bool { return a.holds("child") })
}

// TestFirstWorkerStartsAtOnce: the first worker of a group holds all shards within half a second,
// on a table as near as can be too: everything that it reads first is then answered in the very
// moment in which its clock starts.
func TestFirstWorkerStartsAtOnce(t *testing.T) {
	for _, quick := range []bool{false, true} {
		f := newFleet(t, 12, 0, rebalance.Eager)
		f.quick = quick
		f.join()
		t.Logf("held after %v", f.until(500*time.Millisecond, f.held))
	}
}

// TestTargetIsMendedMeanwhile: a plan is made while the target of a worker cannot be read, and can be read
// when it is written. Its worker has not noticed, and gets its share.
func TestTargetIsMendedMeanwhile(t *testing.T) {
	f := newFleet(t, 40, 4, rebalance.Eager)
	key := f.target(f.up()[0]).Key()
	f.table.Unreadable = map[lease.Key]bool{key: true}
	f.deaf = func(_ *member, o engine.Output) bool {
		if send, is := o.(engine.Send); is && send.Write.Key() == key {
			f.table.Unreadable = nil
		}
		return false
	}
	f.join()
	f.until(3*beat, f.even)
}

// TestTargetIsMendedUnseen: the target of a worker is spoilt while it reads nothing, and is mended later as it
// was. The worker never learns of it, and gets its share of what the plans have moved meanwhile.
func TestTargetIsMendedUnseen(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 10*workers, workers, rebalance.Eager)
		of := f.up()[0]
		if workers > 8 {
			of = f.others()[0]
		}
		key := f.target(of).Key()
		f.table.Unreadable = map[lease.Key]bool{key: true}
		f.deaf = func(n *member, o engine.Output) bool {
			get, is := o.(engine.Get)
			if is = is && get.Key == key; is {
				n.Answer(time.Second, engine.Got{Read: get.Read, Key: key, Err: errors.New("no answer")})
			}
			return is
		}
		for range 3 {
			f.join()
		}
		f.Run(time.Minute)
		f.table.Unreadable, f.deaf = nil, nil
		if f.even() {
			t.Error("the worker has given its share before")
		}
		f.until(f.config.Poll+3*beat, f.even)
		revision := f.plan().Revision
		if f.Run(5 * time.Minute); f.plan().Revision != revision {
			t.Errorf("%d workers: %d plans at rest", workers, f.plan().Revision-revision)
		}
	}
}

// TestUnreadableTarget: the target of a worker cannot be read from when a plan gives it one shard more.
// The worker reports it and keeps what it holds; what nobody holds goes to the others, and plans are made
// only for what happens. When the target can be read again, the worker gets its share.
func TestUnreadableTarget(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 10*workers, workers, rebalance.Cooperative)
		of := f.up()[workers-1]
		if workers > 8 {
			of = f.others()[0]
		}
		f.deaf = func(n *member, o engine.Output) bool {
			if get, is := o.(engine.Get); is && n == of && get.Key.Kind == lease.KindTarget {
				f.table.Unreadable, f.deaf = map[lease.Key]bool{get.Key: true}, nil
			}
			return false
		}
		add := func() {
			for range workers {
				f.source.Shards = append(f.source.Shards, engine.Shard{Name: fmt.Sprintf("shard-%03d", len(f.source.Shards))})
			}
		}
		add()
		f.until(f.config.Poll+2*beat+3*time.Second, f.held)
		f.Run(20 * time.Second)
		held := len(of.Handlers)
		if held != 10 || slices.IndexFunc(of.events, func(e event.Event) bool { return e.Kind == event.Malformed && !e.Over }) < 0 {
			t.Errorf("%d workers: it has %d shards, and does not report that it cannot read its target: %v", workers, held, of.events)
		}
		add()
		dead := f.up()[1]
		needed := workers + len(dead.Handlers)
		dead.kill()
		f.reset()
		f.until(f.config.Poll+leaseTime+2500*time.Millisecond, f.held)
		revision := f.plan().Revision
		f.Run(5 * time.Minute)
		if len(of.Handlers) != held || f.plan().Revision != revision || f.starts != needed {
			t.Errorf("%d workers: it has %d shards, not %d; there were %d plans at rest; %d tenures began, not %d", workers, len(of.Handlers), held, f.plan().Revision-revision, f.starts, needed)
		}
		f.table.Unreadable = nil
		f.until(f.config.Poll+2*beat+2*time.Second, f.even)
	}
}

// TestUnreadablePlan: nobody can read the plan. Nobody writes another, and the workers read and write as at
// rest. They report it, and that it is over: when somebody mends the plan, or deletes it, plans are made again.
func TestUnreadablePlan(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, fixture.Size(12, 40)} {
		for _, mended := range []bool{true, false} {
			f := newFleet(t, 10*workers, workers, rebalance.Eager)
			f.Run(time.Minute)
			f.reset()
			f.Run(10 * beat)
			requests := func() (n int) {
				for _, of := range f.calls {
					n += of
				}
				return n
			}
			rest := requests()
			f.table.Unreadable = map[lease.Key]bool{f.plan().Key(): true}
			f.Run(5 * beat)
			f.reset()
			f.Run(10 * beat)
			if n := requests(); n > rest+rest/4 || f.calls["plan create"]+f.calls["plan swap"] > 0 {
				t.Errorf("%d workers: %d requests, %d at rest: %v", workers, n, rest, f.calls)
			}
			joined := f.join()
			f.Run(5 * beat)
			f.reset()
			f.Run(10 * beat)
			if n := requests(); n > rest+rest/2 || f.even() {
				t.Errorf("%d workers and one that has joined: %d requests, %d at rest: %v", workers, n, rest, f.calls)
			}
			limit := 4 * beat
			if f.table.Unreadable = nil; !mended {
				if workers > 8 { // and nobody is left who lists the seats
					limit = 3 * leaseTime
					for _, n := range append(f.watchers(), joined) {
						n.kill()
					}
				}
				f.hand.Delete(f.plan().Key())
			}
			f.reset()
			f.Run(beat)
			if n := f.calls["plan swap"] + f.calls["plan create"]; n > 6 {
				t.Errorf("%d workers: they write the plan %d times in a heartbeat", workers, n)
			}
			f.until(limit, f.even)
			f.Run(2 * beat)
			for _, n := range f.up() {
				reports := slices.DeleteFunc(slices.Clone(n.events), func(e event.Event) bool { return e.Kind != event.Malformed })
				if len(reports) > 0 && !reports[len(reports)-1].Over {
					t.Errorf("%d workers: the last report is %v", workers, reports[len(reports)-1])
				}
			}
			if first := f.up()[0]; workers < 8 && !slices.ContainsFunc(first.events, func(e event.Event) bool { return e.Kind == event.Malformed }) {
				t.Error("nothing was reported")
			}
		}
	}
}

// TestFullWhileThePlanIsUnreadable: what the plan has said stands while nobody can read it.
func TestFullWhileThePlanIsUnreadable(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.config.MaxShards = 2
	f.join()
	f.join()
	f.Run(time.Minute)
	f.table.Unreadable = map[lease.Key]bool{f.plan().Key(): true}
	f.Run(time.Minute)
	for _, n := range f.up() {
		full := func(e event.Event) bool { return e.Kind == event.Full && e.Over }
		if n.Engine.Status().Unplaced.Count != 2 || slices.ContainsFunc(n.events, full) {
			t.Errorf("%s: %d shards without room: %v", n.Name, n.Engine.Status().Unplaced.Count, n.events)
		}
	}
}

// TestRoomForUnplacedShards: shards for which there was no room are placed by one plan as soon as a
// worker joins that has room and knows them, and no held shard moves for them. A source that does not
// answer delays the plan by a heartbeat.
func TestRoomForUnplacedShards(t *testing.T) {
	for _, listing := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, time.Hour} {
		f := newFleet(t, 6, 0, rebalance.Eager)
		f.config.MaxShards = 3
		f.join()
		f.Run(time.Minute)
		f.reset()
		first := f.plan().Revision
		f.config.MaxShards, f.polled = 6, func(n *member) { n.Answer(listing, f.source) }
		f.join()
		took := f.until(3*beat, f.held)
		f.Run(10 * time.Second)
		if f.starts != 3 || !f.even() {
			t.Errorf("%d tenures began", f.starts)
		}
		most, plans := 300*time.Millisecond+listing, int64(1)
		if listing > beat {
			most, plans = 2*beat+2*time.Second, 2 // by the other worker, when it has listed the seats
		}
		if made := f.plan().Revision - first; took > most || made > plans {
			t.Errorf("a source that answers after %v: all held after %v, with %d plans; at most %v and %d", listing, took, made, most, plans)
		}
	}
}

// TestNewsEnd: a worker of a large fleet that does not watch says that a shard has finished until plans have
// been made with that. So the plan keeps the shard if it comes back.
func TestNewsEnd(t *testing.T) {
	f := newFleet(t, 24, 12, rebalance.Eager)
	n := f.others()[0]
	f.end(n.Handlers[0].Shard)
	f.until(beat, func() bool { return len(f.seat(n).News) == 1 })
	for range 2 {
		f.Run(20 * time.Second)
		f.join()
	}
	f.until(20*time.Second, func() bool { return len(f.seat(n).News) == 0 })
}

// TestPageBeyondATargetAssignsNothing: a page that an earlier, longer target has left names shards. They are placed
// when the source lists them.
func TestPageBeyondATargetAssignsNothing(t *testing.T) {
	for _, workers := range []int{2, 12} {
		f := newFleet(t, 4*workers, workers, rebalance.Eager)
		page := f.target(f.up()[0])
		page.Page, page.Pages, page.Hold = 2, 3, nil
		for i := range 8 {
			page.Hold = append(page.Hold, lease.Assigned{Shard: fmt.Sprintf("new-%d", i)})
		}
		f.put(page)
		f.join() // who plans now reads the page
		f.Run(20 * time.Second)
		for _, a := range page.Hold {
			f.lists(engine.Shard{Name: a.Shard})
		}
		f.until(f.config.Poll+2*beat, f.even)
	}
}

// TestUnreadablePageBeyondATarget: a page that an earlier, longer target has left cannot be read. Its worker does
// not need it, and gets its share.
func TestUnreadablePageBeyondATarget(t *testing.T) {
	f := newFleet(t, 8, 2, rebalance.Eager)
	page := f.target(f.up()[0])
	page.Page, page.Pages = 1, 2
	f.put(page)
	f.table.Unreadable = map[lease.Key]bool{page.Key(): true}
	for i := range 8 {
		f.lists(engine.Shard{Name: fmt.Sprintf("new-%d", i)})
	}
	f.until(f.config.Poll+2*beat, f.even)
}

// TestMalformedTargetIsReportedWhileItLasts: again and again, and when somebody has mended it. The worker itself may
// make the plan that follows.
func TestMalformedTargetIsReportedWhileItLasts(t *testing.T) {
	f := newFleet(t, 4, 1, rebalance.Eager)
	of := f.up()[0]
	f.table.Unreadable = map[lease.Key]bool{f.target(of).Key(): true}
	f.lists(engine.Shard{Name: "new"})
	f.Run(15 * time.Minute)
	told := func() (all []event.Event) {
		return slices.DeleteFunc(slices.Clone(of.events), func(e event.Event) bool { return e.Kind != event.Malformed })
	}
	if n := len(told()); n < 4 || told()[n-1].Over || !errors.Is(told()[0].Err, lease.ErrMalformed) {
		t.Fatalf("%d reports: %v", n, told())
	}
	f.table.Unreadable = nil
	f.until(2*f.config.Poll, func() bool { return f.even() && told()[len(told())-1].Over })
}

// TestSlowPlans: to write the targets takes longer than others wait for a plan. Each planner that gives up on the
// one before it waits for longer, so that one plan is completed.
func TestSlowPlans(t *testing.T) {
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 2*workers, workers, rebalance.Eager)
		f.slow = func(_ *member, o engine.Output) time.Duration {
			if send, is := o.(engine.Send); is && send.Write.Key().Kind == lease.KindTarget {
				return 10 * time.Second
			}
			return 0
		}
		f.up()[workers-1].kill()
		f.hand.Delete(f.plan().Key())
		t.Logf("%d workers: held after %v", workers, f.until(3*time.Minute, func() bool { return !f.plan().Open && f.held() }))
	}
}

// TestPlansWithAnUnreadableSeat: nobody can read the seat of a worker that lives, or of one that is dead. Some workers
// could read it before, one joins that never has, and the worker itself knows what is in it. They agree about
// plans, and move nothing to and fro.
func TestPlansWithAnUnreadableSeat(t *testing.T) {
	for _, workers := range []int{3, 12} {
		for _, dead := range []bool{false, true} {
			f := newFleet(t, 4*workers, 0, rebalance.Eager)
			for f.config.MaxShards = 100; len(f.up()) < workers; {
				f.join()
			}
			f.until(time.Minute, f.even)
			f.Run(20 * time.Second)
			of := f.up()[0]
			f.table.Unreadable = map[lease.Key]bool{f.seat(of).Key(): true}
			if dead {
				of.Pause()
			}
			f.Run(leaseTime)
			f.join()
			f.watchers()[1].kill() // a newcomer may watch instead
			f.Run(3 * leaseTime)
			f.reset()
			before := f.plan().Revision
			f.Run(5 * leaseTime)
			if n := f.plan().Revision - before; n > 0 || f.starts > 0 || len(of.Handlers) == 0 && !dead {
				t.Errorf("%d workers, dead: %t: %d plans, and %d tenures began; held %v", workers, dead, n, f.starts, f.counts())
			}
		}
	}
}

// TestWorkerGetsItsShareWhenItsSeatIsMended: a worker dies while nobody can read the seat of another, which gets nothing
// of what the dead one had. When the seat can be read again, a plan gives that worker its share.
func TestWorkerGetsItsShareWhenItsSeatIsMended(t *testing.T) {
	for _, workers := range []int{3, 12} {
		f := newFleet(t, 4*workers, workers, rebalance.Eager)
		of := f.up()[0]
		f.table.Unreadable = map[lease.Key]bool{f.seat(of).Key(): true}
		f.Run(leaseTime)
		f.up()[workers-1].kill()
		f.until(time.Minute, f.held)
		if f.Run(leaseTime); len(of.Handlers) > 4 {
			t.Errorf("%d workers: it got more although nobody can read its seat: %v", workers, f.counts())
		}
		f.table.Unreadable = nil
		f.until(2*leaseTime, f.even)
	}
}

// TestUnreadableSeatKeepsItsLimit: a worker that is alone and cannot read its own seat holds no more than MaxShards.
func TestUnreadableSeatKeepsItsLimit(t *testing.T) {
	f := newFleet(t, 4, 0, rebalance.Eager)
	f.config.MaxShards = 4
	of := f.join()
	f.until(time.Minute, f.even)
	f.table.Unreadable = map[lease.Key]bool{f.seat(of).Key(): true}
	for i := range 4 {
		f.lists(engine.Shard{Name: fmt.Sprintf("new-%d", i)})
	}
	f.Run(2 * time.Minute)
	if n := len(of.Handlers); n != 4 || f.plan().Unplaced != 4 {
		t.Errorf("it holds %d shards; %d have no worker", n, f.plan().Unplaced)
	}
}

// TestShardThatComesBackStays: the source of the planner lists a shard again whose row is a tombstone, and
// that of the worker to which the plan assigns it answers later. No plan leaves the shard out when the
// worker has begun it.
func TestShardThatComesBackStays(t *testing.T) {
	for late, most := range map[time.Duration]time.Duration{100 * time.Millisecond: beat + time.Second, 1500 * time.Millisecond: 3*beat + 3*time.Second} {
		f := newFleet(t, 24, 12, rebalance.Eager)
		n := f.others()[0]
		name, all := n.Handlers[0].Shard, f.source.Shards
		f.end(name)
		f.source.Shards = slices.DeleteFunc(slices.Clone(all), func(s engine.Shard) bool { return s.Name == name })
		f.until(5*time.Minute, func() bool { return f.row(name).Removed })
		f.Run(time.Minute)
		f.source.Shards = all
		f.polled = func(of *member) {
			if of == n {
				of.Answer(late, f.source)
			} else {
				of.Answer(10*time.Millisecond, f.source)
			}
		}
		assigned := func() bool {
			return slices.ContainsFunc(f.target(n).Hold, func(a lease.Assigned) bool { return a.Shard == name })
		}
		f.until(f.config.Poll+time.Second, assigned)
		f.until(most, func() bool { return n.holds(name) })
		for range 50 {
			if late < time.Second && !assigned() || !n.holds(name) {
				t.Fatalf("%v: its target has no more than %v, or it has lost the shard", late, f.target(n).Hold)
			}
			f.Run(100 * time.Millisecond)
		}
		f.until(beat, assigned)
	}
}

// TestSpoiltPagesOfATarget: a page is left of an earlier, longer target, or pages are no whole target, which
// nobody reads any more. The next plan moves no shard that they name.
func TestSpoiltPagesOfATarget(t *testing.T) {
	for _, workers := range []int{4, 12} {
		for _, left := range []bool{true, false} {
			f := newFleet(t, 2*workers, workers, rebalance.Eager)
			of, hold := f.up()[1], f.target(f.up()[2]).Hold
			first := f.target(of)
			page := first
			page.Page, page.Pages, page.Hold = 1, 2, hold
			f.put(page)
			if !left {
				first.Pages, first.Revision, first.Hold = 2, first.Revision+1, append(slices.Clone(first.Hold), hold[0])
				for i := range 3 * workers { // of these there are no rows
					first.Hold = append(first.Hold, lease.Assigned{Shard: fmt.Sprintf("gone-%03d", i)})
				}
				slices.SortFunc(first.Hold, func(a, b lease.Assigned) int { return strings.Compare(a.Shard, b.Shard) })
				f.put(first)
			}
			f.Run(time.Minute)
			f.reset()
			f.join()
			f.Run(time.Minute)
			if f.starts > 1 { // the newcomer may have one shard
				t.Errorf("%d workers, left: %t: %d tenures began", workers, left, f.starts)
			}
		}
	}
}

// TestABuildIsNoInputOfAPlan: a deploy changes what seats show for people, and that alone makes no other plan.
func TestABuildIsNoInputOfAPlan(t *testing.T) {
	made := func(shown engine.Config) lease.Plan {
		f := newFleet(t, 12, 0, rebalance.Eager)
		f.config.Build, f.config.Strategy, f.config.Backoff = shown.Build, shown.Strategy, shown.Backoff
		a := f.join()
		f.join()
		f.until(30*time.Second, f.even)
		f.Run(20 * time.Second)
		if seat := f.seat(a); seat.Build != shown.Build || seat.Handoff != shown.Strategy || seat.Backoff != shown.Backoff || seat.Since.IsZero() {
			t.Errorf("the seat shows %+v", seat)
		}
		return f.plan()
	}
	one := made(engine.Config{Build: "v1.4.2", Strategy: "eager", Backoff: time.Minute})
	two := made(engine.Config{Build: "v1.5.0", Strategy: "custom", Backoff: time.Hour})
	if one.Inputs == "" || one.Inputs != two.Inputs || one.Revision != two.Revision {
		t.Errorf("plan %d is made from %q, and plan %d from %q", one.Revision, one.Inputs, two.Revision, two.Inputs)
	}
}
