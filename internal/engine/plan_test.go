package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

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

// TestFirstWatcherIsEvictedByHand: workers do not wait for a watcher without a seat to plan. Its shards are
// processed again within a heartbeat interval plus 1.3 s.
func TestFirstWatcherIsEvictedByHand(t *testing.T) {
	for i := range 8 {
		f := newFleet(t, 12, 2, rebalance.Eager)
		f.Run(time.Minute + time.Duration(i)*beat/8)
		first := slices.IndexFunc(f.nodes, func(n *member) bool { return f.seat(n).Incarnation == f.plan().Watchers[0] })
		f.write(protocol.Evict(f.seat(f.nodes[first])))
		f.nodes[first].Kill()
		other := f.nodes[1-first]
		if took := f.until(time.Minute, func() bool { return len(other.Handlers) == 12 }); took > beat+1300*time.Millisecond {
			t.Errorf("the other worker has all shards after %v", took)
		}
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
	a.Return(id, true)
	f.Run(20 * time.Second)
	if !slices.ContainsFunc(b.told, func(e told) bool { return e.Kind == event.Started && e.Shard == id.Shard }) {
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
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.plansBy(idle{})
	a := f.join()
	f.join()
	f.settles("two workers", 3, 3)
	f.join()
	f.settles("a third one has joined", 3, 3, 0)
	a.Kill()
	f.settles("the first one has died", 0, 3, 3)
	if plan := f.plan(); plan.Unplaced > 0 {
		t.Errorf("%d shards are unplaced: %v", plan.Unplaced, plan.Examples)
	}
}

// TestFullFleet: where there is no room, the plan counts and names the shards without a worker, and no
// plan takes a place from a shard that has one.
func TestFullFleet(t *testing.T) {
	f := newFleet(t, 7, 0, rebalance.Eager)
	f.config.MaxShards = 2
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
		f.until(2*beat+openFor, func() bool { return f.plan().Revision > before.Revision+1 && !f.plan().Open })
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
	t.Parallel()
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
	f.nodes[3].Kill()
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

// TestLateAnswerToAPlan: the answer to the end of a plan comes when its planner follows the plan of another worker. The
// planner does not follow its own plan again.
func TestLateAnswerToAPlan(t *testing.T) {
	f := newFleet(t, 6, 2, rebalance.Eager)
	var planner *member
	f.delay(8*time.Second, func(n *member, o engine.Output) bool {
		send, ok := o.(engine.Send)
		plan, is := send.Write.Next.(lease.Plan)
		if ok = ok && is && !plan.Open && planner == nil; ok {
			planner = n
		}
		return ok
	})
	before := f.plan().Revision
	f.join()
	f.until(time.Minute, func() bool { return f.plan().Revision > before && !f.plan().Open })
	other := f.up()[slices.IndexFunc(f.up(), func(n *member) bool { return n != planner })]
	by := f.seat(other).Owner()
	f.write(protocol.OpenPlan(f.plan(), protocol.Opening{By: by, Planner: f.plan().Planner}, f.stamp()))
	f.write(protocol.ClosePlan(f.plan(), f.plan().Revision, by.Incarnation, f.plan().Finding, f.stamp()))
	f.until(2*beat, func() bool { return f.seat(planner).Revision == f.plan().Revision })
	f.reset()
	f.Run(10 * time.Second)
	if n := planner.calls["get target"]; n > 0 {
		t.Errorf("the planner has left the last plan, and read its target %d times more", n)
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

// TestWorkerKeepsItsLimit: a plan assigns more shards to a worker than its limit, or does not know that the worker holds one. At
// no time does the worker hold more than its limit; the next plans give the rest to others, or to nobody.
func TestWorkerKeepsItsLimit(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{3, 12} {
		for _, forgotten := range []bool{false, true} {
			f := newFleet(t, 2*workers+2, 0, rebalance.Eager)
			for f.config.MaxShards = 2; len(f.up()) < workers; {
				f.join()
			}
			full := func() bool { return !slices.ContainsFunc(f.up(), func(n *member) bool { return len(n.Handlers) != 2 }) }
			f.until(time.Minute, full)
			of, free := f.up()[1], f.plan().Examples
			f.revise(func(n *member, target *lease.Target) {
				switch {
				case n != of:
				case forgotten:
					target.Hold[0] = lease.Assigned{Shard: free[0]}
				default:
					target.Hold = append(target.Hold, lease.Assigned{Shard: free[0]}, lease.Assigned{Shard: free[1]})
				}
			})
			before := f.plan().Revision
			for range 600 {
				if f.Run(100 * time.Millisecond); len(of.Handlers) > 2 {
					t.Fatalf("%d workers, forgotten %t: it holds %d shards, and may hold 2", workers, forgotten, len(of.Handlers))
				}
			}
			settled := f.plan().Revision
			f.Run(3 * time.Minute)
			if p := f.plan(); !full() || p.Unplaced != 2 || settled == before || p.Revision != settled {
				t.Errorf("%d workers, forgotten %t: %v, and a minute later revision %d; they hold %v", workers, forgotten, p, settled, f.counts())
			}
		}
	}
}

// TestParentThatIsBackWhenAllAreFull: a parent is quarantined, so its children are placed, and one of them finds no room. Then an
// operator releases the parent, before the worker of the other child has begun it. Now only the parent can be processed: it
// takes the place of the child, although the plan counts as many shards as before.
func TestParentThatIsBackWhenAllAreFull(t *testing.T) {
	f := newFleet(t, 0, 0, rebalance.Eager)
	of := []string{"parent"}
	f.lists(engine.Shard{Name: "parent"}, engine.Shard{Name: "child-1", Parents: of}, engine.Shard{Name: "child-2", Parents: of}, engine.Shard{Name: "x"})
	f.config.MaxShards = 2
	f.join()
	f.until(time.Minute, func() bool { return f.processed("parent") && f.processed("x") })
	f.deaf = func(n *member, o engine.Output) bool {
		send, ok := o.(engine.Send)
		return ok && strings.HasPrefix(send.Write.Key().Name, "child")
	}
	f.quarantine("parent")
	f.until(2*time.Minute, func() bool { return f.plan().Unplaced == 1 && f.plan().Shards == 3 })
	f.write(protocol.Unquarantine(f.row("parent"), seen(f.row("parent")), f.stamp()))
	f.Run(2 * beat)
	f.deaf = nil
	f.until(2*f.config.Audit, func() bool { return f.processed("parent") })
}

// TestForgottenShardOfAFullWorker: a plan forgets a shard that a full worker holds, and assigns another to it. Shards without a
// worker were listed since. The worker has its shard in the next plans again; no plan has a shard that its worker declines
// for good, and none says of a shard that somebody processes that it has no worker.
func TestForgottenShardOfAFullWorker(t *testing.T) {
	t.Parallel()
	for hold := range 2 {
		f := newFleet(t, 4, 0, rebalance.Eager)
		f.config.MaxShards = 2
		f.join()
		of := f.join()
		f.until(time.Minute, f.even)
		for i := range 6 {
			f.lists(engine.Shard{Name: fmt.Sprintf("a-%02d", i)})
		}
		f.until(time.Minute, func() bool { return f.plan().Unplaced == 6 })
		f.Run(20 * time.Second)
		free := f.plan().Examples[0]
		f.revise(func(n *member, target *lease.Target) {
			if n == of {
				target.Hold[hold] = lease.Assigned{Shard: free}
			}
		})
		f.Run(7 * time.Minute)
		for _, name := range f.plan().Examples {
			if f.processed(name) {
				t.Errorf("the plan says that nobody processes %s", name)
			}
		}
		for _, n := range f.up() {
			for _, a := range f.target(n).Hold {
				if !n.holds(a.Shard) {
					t.Errorf("%s is assigned %s and declines it; settled: %t", n.Name, a.Shard, f.seat(n).Settled)
				}
			}
		}
	}
}

// TestFullWorkersWithDifferentSources: two workers are full. The source of each lists a shard that was given up as unlisted, and
// that the source of the other does not list. They do not replace each other's plans.
func TestFullWorkersWithDifferentSources(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4, 0, rebalance.Eager)
	for f.config.MaxShards = 1; len(f.up()) < 4; {
		f.join()
	}
	f.until(time.Minute, f.even)
	f.Run(20 * time.Second)
	p, q, c, d := f.nodes[0], f.nodes[1], f.nodes[2], f.nodes[3]
	ofC, ofD, all := c.Handlers[0].Shard, d.Handlers[0].Shard, f.source
	f.source = f.without(ofC, ofD)
	f.Run(3 * time.Minute)
	c.Kill()
	d.Kill()
	f.Run(time.Minute)
	f.source = all
	f.polled = func(of *member) {
		switch of {
		case p:
			of.Answer(listing, f.without(ofD))
		case q:
			of.Answer(listing, f.without(ofC))
		}
	}
	f.Run(3 * time.Minute)
	before := f.plan().Revision
	if f.Run(10 * time.Minute); f.plan().Revision > before {
		t.Errorf("%d plans in ten minutes", f.plan().Revision-before)
	}
}

// TestRoomAfterAHandOver: a worker is full by a shard that a plan gives to another one, without saying so to its owner. So the
// owner declines a new shard. When it has handed over the other one, it takes the new shard, although no plan follows.
func TestRoomAfterAHandOver(t *testing.T) {
	f := newFleet(t, 3, 0, rebalance.Eager)
	f.config.MaxShards = 2
	f.join()
	f.join()
	f.until(time.Minute, f.even)
	f.Run(20 * time.Second)
	of := f.nodes[0]
	if len(of.Handlers) < 2 {
		of = f.nodes[1]
	}
	moves := f.target(of).Hold[1]
	f.lists(engine.Shard{Name: "new"})
	f.revise(func(n *member, target *lease.Target) {
		if n == of {
			target.Hold[1] = lease.Assigned{Shard: "new"}
		} else {
			target.Hold = append(target.Hold, moves)
		}
	})
	f.until(time.Minute, f.even)
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
	t.Parallel()
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

// TestSlowPlans: to write the targets takes longer than others wait for a plan. Each planner that gives up on the
// one before it waits for longer, so that one plan is completed.
func TestSlowPlans(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 2*workers, workers, rebalance.Eager)
		f.delay(10*time.Second, func(_ *member, o engine.Output) bool { return sends(o, lease.KindTarget) })
		f.up()[workers-1].Kill()
		f.hand.Delete(f.plan().Key())
		t.Logf("%d workers: held after %v", workers, f.until(3*time.Minute, func() bool { return !f.plan().Open && f.held() }))
	}
}

// TestShardThatComesBackStays: the source of the planner lists a shard again whose row is a tombstone, and
// that of the worker to which the plan assigns it answers later. No plan leaves the shard out when the
// worker has begun it.
func TestShardThatComesBackStays(t *testing.T) {
	t.Parallel()
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
