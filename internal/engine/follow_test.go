package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestStray: a shard is taken by hand from a worker of a large fleet that has nothing to
// commit. The audit finds its row without an owner, and the worker reads it again.
func TestStray(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	n := f.others()[0]
	h := n.Handlers[0]
	f.release(h.Shard)
	f.reset()
	f.until(2*time.Minute, func() bool {
		again := slices.IndexFunc(n.Handlers, func(o *virtual.Handler) bool { return o.Shard == h.Shard && o.Generation > h.Generation })
		return again >= 0
	})
	f.Run(3 * time.Minute)
	if f.starts != 1 || f.calls["plan swap"] > 200 {
		t.Errorf("%d tenures began; %v", f.starts, f.calls)
	}
	revision := f.plan().Revision
	f.Run(3 * time.Minute)
	if f.plan().Revision != revision {
		t.Error("the audit goes on to find a stray")
	}
}

// TestOwnerWithoutAHint: a plan moves a shard, and the target of its owner does not say to whom. The
// owner lists the seats once per heartbeat to find out who requests it.
func TestOwnerWithoutAHint(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	from, to := f.others()[0], f.others()[1]
	shard := from.Handlers[0].Shard
	f.delay(3*beat, func(n *member, o engine.Output) bool { return n == to && gets(o, lease.KindTarget) })
	f.assign(map[string]*member{shard: to}, false)
	f.reset()
	f.Run(3 * beat)
	if n := from.calls["list seat"]; n == 0 || n > 4 {
		t.Errorf("the owner has listed the seats %d times in three heartbeats", n)
	}
	f.until(3*beat, func() bool { return to.holds(shard) && !from.holds(shard) })
	f.Run(beat)
	f.reset()
	f.Run(3 * beat)
	if from.calls["list seat"] > 0 {
		t.Error("the former owner goes on to list the seats")
	}
}

// TestOwnerWithAHint: the owner looks at the seat of the successor alone.
func TestOwnerWithAHint(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	from, to := f.others()[0], f.others()[1]
	shard := from.Handlers[0].Shard
	f.assign(map[string]*member{shard: to}, true)
	f.reset()
	f.until(beat+2*time.Second, func() bool { return to.holds(shard) && !from.holds(shard) })
	if from.calls["list seat"] > 0 || from.calls["get seat"] == 0 {
		t.Errorf("the owner has looked at the seats like this: %v", from.calls)
	}
}

// TestOwnerReadsTheRowOfAnOffer: the successor of a shard in a large fleet is slow to read the offer. Its owner reads
// the row again and again, and the successor's seat once per heartbeat.
func TestOwnerReadsTheRowOfAnOffer(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	from, to := f.others()[0], f.others()[1]
	shard := from.Handlers[0].Shard
	f.delay(2*time.Second, func(n *member, o engine.Output) bool { return n == to && gets(o, lease.KindLease) })
	f.reset()
	f.assign(map[string]*member{shard: to}, true)
	f.until(beat+4*time.Second, func() bool { return from.calls["lease swap"] > 0 }) // the offer
	f.reset()
	f.until(beat+4*time.Second, func() bool { return to.holds(shard) && !from.holds(shard) })
	if rows, seats := from.calls["get lease"], from.calls["get seat"]; rows < 3 || seats > 1 || !to.holds(shard) {
		t.Errorf("the owner has read the row %d times, and the seat of the successor %d times", rows, seats)
	}
}

// TestOwnerWithAnOldHint: a plan moves a shard from a to b, and the next one to c before b has requested it.
// The target of a, which is not written again, still names b.
func TestOwnerWithAnOldHint(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	a, b, c := f.others()[0], f.others()[1], f.others()[2]
	shard := a.Handlers[0].Shard
	f.assign(map[string]*member{shard: b}, true)
	of, to := f.target(b), f.target(c)
	is := func(a lease.Assigned) bool { return a.Shard == shard }
	at := slices.IndexFunc(of.Hold, is)
	to.Hold = slices.SortedFunc(slices.Values(append(slices.Clone(to.Hold), of.Hold[at])), func(a, b lease.Assigned) int { return strings.Compare(a.Shard, b.Shard) })
	of.Hold = slices.DeleteFunc(slices.Clone(of.Hold), is)
	of.Revision = f.open()
	to.Revision = of.Revision
	f.put(of)
	f.put(to)
	f.finish()
	f.until(3*beat, func() bool { return c.holds(shard) && !a.holds(shard) })
	f.Run(beat)
	f.reset()
	f.Run(3 * beat)
	if a.calls["list seat"] > 0 {
		t.Error("the former owner goes on to list the seats")
	}
}

// TestYieldToAWorkerThatLostInterest: b requests a shard of a, and the plan gives it to c before a has
// seen that b requests it no more. So a hands it to b, which does not know. When c
// requests it from b, b serves the request.
func TestYieldToAWorkerThatLostInterest(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Eager)
	a, b, c := f.others()[0], f.others()[1], f.others()[2]
	shard := a.Handlers[0].Shard
	a.Winds = 5 * time.Second
	f.assign(map[string]*member{shard: b}, true)
	f.until(2*beat, func() bool {
		return len(a.Handlers) > 0 && a.Handlers[slices.IndexFunc(a.Handlers, func(h *virtual.Handler) bool { return h.Shard == shard })].Soft
	})
	// a does not see that b requests it no more
	f.deaf = func(n *member, o engine.Output) bool { return n == a && gets(o, lease.KindSeat) }
	f.assign(map[string]*member{shard: c}, false)
	f.until(30*time.Second, func() bool { return c.holds(shard) })
	f.deaf = nil
}

// TestMixedPages: pages of different revisions are not acted on, until they are whole.
func TestMixedPages(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	n, other := f.others()[0], f.others()[1]
	shard := n.Handlers[0].Shard
	whole := f.target(n)
	without := whole
	without.Hold = slices.DeleteFunc(slices.Clone(whole.Hold), func(a lease.Assigned) bool { return a.Shard == shard })
	without.Give = []lease.Give{{Shard: shard, To: other.Engine.Status().Incarnation}}
	theirs := f.target(other)
	theirs.Hold = slices.SortedFunc(slices.Values(append(slices.Clone(theirs.Hold), lease.Assigned{Shard: shard})), func(a, b lease.Assigned) int { return strings.Compare(a.Shard, b.Shard) })

	revision := f.open()
	pages := []lease.Target{theirs, theirs}
	pages[0].Hold, pages[1].Hold = theirs.Hold[:5], theirs.Hold[5:]
	for i := range pages {
		pages[i].Page, pages[i].Pages, pages[i].Revision = int64(i), 2, revision
	}
	f.put(pages[0])
	old := pages[1]
	old.Revision--
	f.put(old) // the second page is of another revision
	without.Revision = revision
	f.put(without)
	f.finish()
	f.Run(3 * beat)
	if !n.holds(shard) || other.holds(shard) {
		t.Fatal("a worker acts on pages of different revisions")
	}
	f.put(pages[1])
	f.until(2*beat, func() bool { return other.holds(shard) })
}

// TestPagesThatStayMixed: a planner has died over the pages of a target, and the next one has finished the
// revision without them. The worker reads them again with growing pauses, and then says that it
// misses its target. Then the plan writes it again.
func TestPagesThatStayMixed(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 10*workers, workers, rebalance.Cooperative)
		of := f.up()[workers-1]
		if workers > 8 {
			of = f.others()[0]
		}
		page := f.target(of)
		revision := f.open()
		page.Revision, page.Pages = revision, 2 // and there is no second page
		f.put(page)
		for _, n := range f.up() { // no plan is due for another reason
			if other := f.target(n); n != of {
				other.Revision = revision
				f.put(other)
			}
		}
		f.finish()
		f.reset()
		took := f.until(6*beat, func() bool { now := f.target(of); return now.Pages == 1 && now.Revision > revision })
		f.Run(2 * beat)
		reads := of.calls["get target"]
		t.Logf("%d workers: whole after %v and %d reads", workers, took, reads)
		if reads > 2*8+1 { // both pages, until they count as none, and then the one of the plan
			t.Errorf("%d workers: the target was whole after %v and %d reads", workers, took, reads)
		}
		revision = f.plan().Revision
		f.reset()
		f.Run(5 * time.Minute)
		if plans := f.plan().Revision - revision; plans != 0 || f.calls["get target"] > 0 || f.starts != 0 || !f.held() {
			t.Errorf("%d workers: at rest there were %d plans and %d reads of targets; %d tenures began", workers, plans, f.calls["get target"], f.starts)
		}
	}
}

// A redirect is a planner that moves the shards of the first worker to the ninth, and those to the
// second when there are ten workers.
type redirect struct{ rebalance.Even }

func (p redirect) Plan(v rebalance.View) []int {
	place := func(name string) int {
		return slices.IndexFunc(v.Workers, func(w rebalance.Worker) bool { return w.Name == name })
	}
	plan := p.Even.Plan(v)
	first, second, ninth, tenth := place("w000"), place("w001"), place("w008"), place("w009")
	for i, s := range v.Shards {
		switch {
		case s.Owner == rebalance.Nobody:
		case s.Owner == ninth && tenth >= 0:
			plan[i] = second
		case s.Owner == first && ninth >= 0 && tenth < 0:
			plan[i] = ninth
		default:
			plan[i] = s.Owner
		}
	}
	return plan
}

// TestGivenAlthoughItAsksNoMore: an owner hands its shards to a worker that has called off its
// requests because of a later plan. The owner is the first watcher, does not see that in time, and
// does not make that plan either.
func TestGivenAlthoughItAsksNoMore(t *testing.T) {
	f := newFleet(t, 24, 0, rebalance.Eager)
	f.plansBy(redirect{})
	for range 8 {
		f.join()
	}
	f.until(30*time.Second, f.held)
	f.Run(time.Minute)
	owner := f.nodes[0]
	owner.Winds = 12 * time.Second
	ninth := f.join()
	f.until(30*time.Second, func() bool { return len(owner.reports(event.Draining)) > 0 })
	f.slowLists(owner)
	f.join()
	f.Run(13 * time.Second)
	if len(ninth.reports(event.Retired)) == 0 || len(owner.Handlers) > 0 {
		t.Fatalf("it called %d off, and the owner kept %d", len(ninth.reports(event.Retired)), len(owner.Handlers))
	}
	f.slow = nil
	t.Logf("held again after %v", f.until(10*time.Second, f.held))
	f.until(10*time.Second, func() bool { return len(f.nodes[1].Handlers) > 3 && f.held() })
}
