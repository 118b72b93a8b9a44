package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the tests of the plan, of targets and of wishes: the records that advise
// workers, and on which no lease row depends.

// kept makes a write that the store must accept, and returns the record that resulted.
func kept[R lease.Record](b *bench) func(lease.Write, error) R {
	return func(w lease.Write, err error) R {
		b.Helper()
		r, err := b.send(w, err)
		if err != nil {
			b.Fatalf("not stored: %v", err)
		}
		of, ok := r.(R)
		if !ok && w.Op != lease.OpDelete {
			b.Fatalf("%v returned %v", w, r)
		}
		return of
	}
}

func opening(name string) protocol.Opening {
	return protocol.Opening{By: worker(name), Planner: "even"}
}

func finding() lease.Finding {
	return lease.Finding{
		Inputs: "hash of the inputs", Members: 3, Watchers: []lease.Incarnation{"z", "a incarnation", "m"},
		Unplaced: 12, Examples: []string{"shard-1", "shard 2"}, Shards: 64, Raise: 7,
	}
}

func (b *bench) openPlan(p lease.Plan, name string) (lease.Write, error) {
	p.Group = group
	return protocol.OpenPlan(p, opening(name), b.stamp())
}

// plan creates an open plan.
func (b *bench) plan(name string) lease.Plan {
	b.Helper()
	return kept[lease.Plan](b)(b.openPlan(lease.Plan{}, name))
}

func (b *bench) closePlan(p lease.Plan) (lease.Write, error) {
	return protocol.ClosePlan(p, p.Revision, p.By.Incarnation, finding(), b.stamp())
}

func newTarget(name string, revision int64) lease.Target {
	return lease.Target{
		Group: group, Incarnation: worker(name).Incarnation, Pages: 1, Revision: revision,
		Hold:   []lease.Assigned{{Shard: "shard-1"}, {Shard: "shard-12", Parents: []string{"shard-0", "shard-1"}}, {Shard: "size ä"}},
		Give:   []lease.Give{{Shard: "shard-2", To: "x"}, {Shard: "shard-3", To: "x"}},
		Causes: []lease.MoveCause{{Why: rebalance.Drained, Note: "by an operator: why", Shards: []string{"shard-1", "shard-2"}}},
	}
}

func (b *bench) target(name string, revision int64) lease.Target {
	b.Helper()
	return kept[lease.Target](b)(protocol.WriteTarget(lease.Target{}, newTarget(name, revision), b.stamp()))
}

func someWishes() []lease.Wish {
	return []lease.Wish{
		{Kind: lease.WishPin, Subject: shard, To: "a", By: "op", Why: "its cache is warm"},
		{Kind: lease.WishMove, Subject: shard, To: "b", By: "op", Until: clock(), Generation: 41, Lasts: time.Minute},
		{Kind: lease.WishPause, By: "op", Until: clock()},
		{Kind: lease.WishRaise, By: "op", Number: 7},
		{Kind: "of a newer version", Subject: "b", By: "op"},
	}
}

func (b *bench) wishes(list []lease.Wish) lease.Wishes {
	b.Helper()
	return kept[lease.Wishes](b)(protocol.SetWishes(lease.Wishes{Group: group}, list, b.stamp()))
}

// adviceScenes are the writes of planners, watchers and operators.
func adviceScenes() []scene {
	return []scene{
		{"first plan", "a", func(b *bench) (lease.Write, error) { return b.openPlan(lease.Plan{}, "a") }},
		{"sessions", "a", func(b *bench) (lease.Write, error) { return protocol.BeginSessions(group, worker("a"), b.stamp()) }},
		{"open plan", "a", func(b *bench) (lease.Write, error) { return b.openPlan(b.plan("b"), "a") }},
		{"close plan", "a", func(b *bench) (lease.Write, error) { return b.closePlan(b.plan("a")) }},
		{"tick", "a", func(b *bench) (lease.Write, error) { return protocol.TickPlan(b.plan("b"), true, b.stamp()) }},
		{"first target", "a", func(b *bench) (lease.Write, error) {
			return protocol.WriteTarget(lease.Target{}, newTarget("b", 7), b.stamp())
		}},
		{"target", "a", func(b *bench) (lease.Write, error) {
			return protocol.WriteTarget(b.target("b", 7), newTarget("b", 9), b.stamp())
		}},
		{"drop target", "a", func(b *bench) (lease.Write, error) { return protocol.DropTarget(b.target("b", 7), 9) }},
		{"first wishes", "", func(b *bench) (lease.Write, error) {
			return protocol.SetWishes(lease.Wishes{Group: group}, someWishes(), b.stamp())
		}},
		{"wishes", "", func(b *bench) (lease.Write, error) {
			return protocol.SetWishes(b.wishes(nil), someWishes(), b.stamp())
		}},
		{"drop wishes", "", func(b *bench) (lease.Write, error) {
			return protocol.DropWishes(group, b.wishes(someWishes()).WriteID)
		}},
		{"first ends", "a", func(b *bench) (lease.Write, error) { return b.addEnds(lease.Ends{}, 0) }},
		{"ends", "a", func(b *bench) (lease.Write, error) { return b.addEnds(b.ends(lease.Ends{}, 0), 0) }},
	}
}

// overtakeAdvice writes a plan, a target or wishes before another write.
func (b *bench) overtakeAdvice(k lease.Key) {
	b.Helper()
	now := b.look(k)
	switch k.Kind {
	case lease.KindPlan:
		p, _ := now.(lease.Plan)
		kept[lease.Plan](b)(b.openPlan(p, "another"))
	case lease.KindTarget:
		t, _ := now.(lease.Target)
		kept[lease.Target](b)(protocol.WriteTarget(t, newTarget("b", 99), b.stamp()))
	case lease.KindEnds:
		e, _ := now.(lease.Ends)
		b.ends(e, 0)
	default:
		old, _ := now.(lease.Wishes)
		old.Group = group
		kept[lease.Wishes](b)(protocol.SetWishes(old, nil, b.stamp()))
	}
}

// planAndWishesComeWithTheSeats: one listing returns the plan, the wishes and the seats, in this
// order, and nothing else.
func planAndWishesComeWithTheSeats(b *bench) {
	b.free()
	b.target("a", 7)
	low := newSeat("low")
	low.Incarnation = `"lowest`
	first := b.putSeat(protocol.Sit(low, b.stamp()))
	last := b.seat("zz")
	equal(b, "seats alone", b.list(lease.KindSeat), []lease.Record{first, last})
	wishes := b.wishes(someWishes())
	equal(b, "with wishes", b.list(lease.KindSeat), []lease.Record{wishes, first, last})
	plan := b.plan("a")
	equal(b, "with a plan", b.list(lease.KindSeat), []lease.Record{plan, wishes, first, last})
	for _, k := range []lease.Kind{lease.KindPlan, lease.KindWishes} {
		for r, err := range b.store.List(b.Context(), lease.Query{Group: group, Kind: k}) {
			if !errors.Is(err, checkpoint.ErrInvalid) {
				b.Errorf("a listing of the kind %v yields %v, %v", k, r, err)
			}
		}
	}
	b.putSeat(protocol.Evict(first))
	b.putSeat(protocol.Evict(last))
	equal(b, "without seats", b.list(lease.KindSeat), []lease.Record{plan, wishes})
	equal(b, "the plan", b.look(plan.Key()), lease.Record(plan))
	equal(b, "the wishes", b.look(wishes.Key()), lease.Record(wishes))
}

// groupIsOfOneKind: a plan and the record of a group of sessions exclude each other, and neither is
// changed into the other.
func groupIsOfOneKind(b *bench) {
	plan, errPlan := b.openPlan(lease.Plan{}, "a")
	late, errLate := protocol.BeginSessions(group, worker("late"), b.stamp())
	sessions := kept[lease.Plan](b)(protocol.BeginSessions(group, worker("b"), b.stamp()))
	equal(b, "the record", b.list(lease.KindSeat), []lease.Record{sessions})
	b.refuse(plan, errPlan)
	if now := b.refuse(late, errLate); protocol.Decide(worker("late").Incarnation, late, now) != protocol.Stored {
		b.Errorf("another session's record is %v", now)
	}
	over := sessions
	over.Sessions, over.Open, over.Revision, over.WriteID = false, true, sessions.Revision+1, "another"
	if _, err := b.store.Write(b.Context(), lease.Write{Op: lease.OpSwap, Old: sessions, Next: over}); !errors.Is(err, lease.ErrBadWrite) {
		b.Errorf("a plan over the record of sessions: %v", err)
	}
	equal(b, "the record afterwards", b.look(sessions.Key()), lease.Record(sessions))
}

// adviceComesBackAsStored: every field of a plan, a target, wishes and a seat is kept.
func adviceComesBackAsStored(b *bench) {
	plan := b.plan("a")
	equal(b, "an open plan", b.look(plan.Key()), lease.Record(plan))
	plan = kept[lease.Plan](b)(protocol.TickPlan(plan, true, b.stamp()))
	equal(b, "a plan that ticked", b.look(plan.Key()), lease.Record(plan))
	plan = kept[lease.Plan](b)(b.closePlan(plan))
	equal(b, "a finished plan", b.look(plan.Key()), lease.Record(plan))
	equal(b, "its watchers, in order", plan.Watchers, finding().Watchers)

	target := b.target("b", 7)
	equal(b, "a target", b.look(target.Key()), lease.Record(target))
	less := newTarget("b", 8)
	less.Hold, less.Give, less.Causes = less.Hold[:1], nil, nil
	target = kept[lease.Target](b)(protocol.WriteTarget(target, less, b.stamp()))
	equal(b, "a smaller target", b.look(target.Key()), lease.Record(target))

	wishes := b.wishes(someWishes())
	equal(b, "wishes", b.look(wishes.Key()), lease.Record(wishes))
	wishes = kept[lease.Wishes](b)(protocol.SetWishes(wishes, nil, b.stamp()))
	equal(b, "no wishes", b.look(wishes.Key()), lease.Record(wishes))

	full := newSeat("c")
	full.Build, full.Since, full.Handoff, full.Backoff = "v1", clock(), "eager", time.Minute
	seat := b.putSeat(protocol.Sit(full, b.stamp()))
	equal(b, "a seat", b.look(seat.Key()), lease.Record(seat))
	asked := wants(b.free())
	asked[0].Owner, asked[0].Terms.AfterDrain = "the owner", rebalance.Wait
	seat = b.putSeat(protocol.NextBeat(seat, lease.Says{
		Freed: 3, Revision: plan.Revision, Settled: true, Missing: plan.Revision, NewsLeft: 4, Wants: asked,
		News:    []lease.News{{Kind: lease.NewsFinished, Shard: "a b"}, {Kind: "newer", Shard: "c"}},
		Health:  lease.Health{Unwell: "no disk", UnwellSince: clock(), Trial: true, Silent: 2, SilentSince: clock(), NoSource: true},
		Address: "10.0.0.7:7946",
		Waits:   []lease.Wait{{Lease: "a b", Since: clock()}, {Lease: "c", Task: "run/7", Since: clock()}}, WaitsLeft: 5, Raised: 7,
	}, b.stamp()))
	equal(b, "a seat with much to say", b.look(seat.Key()), lease.Record(seat))
	seat = b.putSeat(protocol.NextBeat(seat, lease.Says{}, b.stamp()))
	equal(b, "a seat with nothing to say", b.look(seat.Key()), lease.Record(seat))
}

// targetsAreListedByPage: a listing has the pages of all targets in order, and a page is read
// alone.
func targetsAreListedByPage(b *bench) {
	var want []lease.Record
	for _, name := range []string{"a", "b", "b-more"} {
		whole := newTarget(name, 7)
		for i := range 700 {
			whole.Hold = append(whole.Hold, lease.Assigned{Shard: fmt.Sprintf("t-%06d", i)})
		}
		pages := whole.Split()
		for i := range slices.Backward(pages) {
			pages[i] = kept[lease.Target](b)(protocol.WriteTarget(lease.Target{}, pages[i], b.stamp()))
		}
		for _, page := range pages {
			want = append(want, page)
			equal(b, "one page", b.look(page.Key()), lease.Record(page))
		}
	}
	slices.SortFunc(want, func(x, y lease.Record) int { return strings.Compare(x.Key().Name, y.Key().Name) })
	b.plan("a")
	b.seat("a")
	equal(b, "targets", b.list(lease.KindTarget), want)
}

// onePlannerOpensARevision: of many workers that open the next revision at once, one does, and the
// others learn whose it is.
func onePlannerOpensARevision(b *bench) {
	stored := func() (p lease.Plan) { p, _ = b.look(lease.Plan{Group: group}.Key()).(lease.Plan); return p }
	for _, what := range []string{"the first revision", "the next"} {
		before := stored()
		writes, errs := b.race(func(i int) (lease.Write, error) { return b.openPlan(before, fmt.Sprint("w", i)) })
		now, opened := stored(), 0
		for i, err := range errs {
			verdict, at := protocol.Settle(worker(fmt.Sprint("w", i)).Incarnation, writes[i], writes[i].Next, err)
			if verdict == protocol.Stored {
				opened++
				equal(b, what, now.WriteID, writes[i].ID())
				continue
			}
			equal(b, what+": the verdict", verdict, protocol.Overtaken)
			equal(b, what+" in a refusal", at, lease.Record(now))
		}
		equal(b, what+": openers", opened, 1)
	}
}

// overtakenPlannerWritesNothing: a planner that stops between opening a revision and writing its
// targets, while another plans, changes neither the other's plan nor its targets.
func overtakenPlannerWritesNothing(b *bench) {
	old := b.target("w", 7)
	mine := b.plan("a")
	late, errLate := protocol.WriteTarget(old, newTarget("w", mine.Revision), b.stamp())
	finish, errFinish := b.closePlan(mine)
	tick, errTick := protocol.TickPlan(mine, true, b.stamp())
	drop, errDrop := protocol.DropTarget(old, mine.Revision)

	theirs := kept[lease.Plan](b)(b.openPlan(mine, "b"))
	target := kept[lease.Target](b)(protocol.WriteTarget(old, newTarget("w", theirs.Revision), b.stamp()))

	for _, write := range []struct {
		w   lease.Write
		err error
	}{{late, errLate}, {finish, errFinish}, {tick, errTick}} {
		now := b.refuse(write.w, write.err)
		equal(b, fmt.Sprintf("the verdict on the %v", write.w), protocol.Decide(worker("a").Incarnation, write.w, now), protocol.Overtaken)
	}
	b.refuse(drop, errDrop)
	if _, err := protocol.WriteTarget(target, newTarget("w", mine.Revision), b.stamp()); !errors.Is(err, protocol.ErrOvertaken) {
		b.Errorf("a lower target over a higher one: %v", err)
	}
	equal(b, "the target", b.look(target.Key()), lease.Record(target))
}

// missingAdviceIsNotCreated: a swap or a deletion of a plan, a target or wishes that are gone is
// refused.
func missingAdviceIsNotCreated(b *bench) {
	elsewhere := &bench{T: b.T, open: b.open, store: b.open(b.T), ids: 1000}
	plan, target, wishes := elsewhere.plan("a"), elsewhere.target("a", 7), elsewhere.wishes(nil)
	b.refuse(b.closePlan(plan))
	b.refuse(protocol.TickPlan(plan, true, b.stamp()))
	b.refuse(protocol.WriteTarget(target, newTarget("a", 9), b.stamp()))
	b.refuse(protocol.DropTarget(target, 9))
	b.refuse(protocol.SetWishes(wishes, nil, b.stamp()))
	b.refuse(protocol.DropWishes(group, wishes.WriteID))
	equal(b, "records beside the seats", len(b.list(lease.KindSeat)), 0)
	equal(b, "targets", len(b.list(lease.KindTarget)), 0)
}

// badAdviceWritesNothing: a store refuses plans, targets and wishes that no transition writes.
func badAdviceWritesNothing(b *bench) {
	plan, target, wishes := b.plan("a"), b.target("a", 7), b.wishes(nil)
	renamed := func(p lease.Plan) lease.Plan { p.WriteID = "new"; return p }
	sunk, same := newTarget("a", 6), newTarget("a", 7)
	sunk.WriteID, same.WriteID = "new", "new"
	for name, w := range map[string]lease.Write{
		"a plan is deleted":       {Op: lease.OpDelete, Old: plan},
		"wishes are deleted":      {Op: lease.OpDelete, Old: wishes},
		"a plan deleted unread":   {Op: lease.OpDelete, Old: plan, Spoilt: true},
		"a target deleted unread": {Op: lease.OpDelete, Old: target, Spoilt: true},
		"wishes swapped unread":   {Op: lease.OpSwap, Old: wishes, Next: func() lease.Wishes { w := wishes; w.WriteID = "new"; return w }(), Spoilt: true},
		"a plan is transferred":   {Op: lease.OpTransfer, Old: plan, Next: renamed(plan)},
		"a plan does not change":  {Op: lease.OpSwap, Old: plan, Next: renamed(plan)},
		"a lower target":          {Op: lease.OpSwap, Old: target, Next: sunk},
		"the same target":         {Op: lease.OpSwap, Old: target, Next: same},
		"a target of nobody":      {Op: lease.OpCreate, Next: lease.Target{Group: group, Pages: 1, Revision: 1, WriteID: "w"}},
		"a plan becomes wishes":   {Op: lease.OpSwap, Old: plan, Next: lease.Wishes{Group: group, WriteID: "new"}},
		"a plan as a pointer":     {Op: lease.OpSwap, Old: &plan, Next: &plan},
		"a finished plan is made": {Op: lease.OpCreate, Next: func() lease.Plan { p := renamed(plan); p.Open = false; return p }()},
	} {
		if _, err := b.store.Write(b.Context(), w); !errors.Is(err, lease.ErrBadWrite) && !errors.Is(err, checkpoint.ErrInvalid) {
			b.Errorf("%s: got %v", name, err)
		}
	}
	for _, k := range []lease.Key{
		{Group: group, Kind: lease.KindPlan, Name: "plan"}, {Group: group, Kind: lease.KindSeat, Name: plan.Key().Name},
		{Group: group, Kind: lease.KindWishes, Name: plan.Key().Name}, {Group: group, Kind: lease.KindTarget, Name: "a"},
	} {
		if _, err := b.store.Get(b.Context(), k); !errors.Is(err, checkpoint.ErrInvalid) {
			b.Errorf("Get of %v: got %v", k, err)
		}
	}
	equal(b, "the records beside the seats", b.list(lease.KindSeat), []lease.Record{plan, wishes})
	equal(b, "the targets", b.list(lease.KindTarget), []lease.Record{target})
}

// adviceIsNotShared: a caller can change the records that it passed or received.
func adviceIsNotShared(b *bench) {
	w, err := b.closePlan(b.plan("a"))
	plan := kept[lease.Plan](b)(w, err)
	w.Next.(lease.Plan).Watchers[0], plan.Watchers[1] = "changed", "changed"
	b.list(lease.KindSeat)[0].(lease.Plan).Watchers[2] = "changed"
	equal(b, "watchers", b.look(plan.Key()).(lease.Plan).Watchers, finding().Watchers)

	whole := newTarget("a", 7)
	target := kept[lease.Target](b)(protocol.WriteTarget(lease.Target{}, whole, b.stamp()))
	whole.Hold[1].Parents[0], target.Hold[1].Parents[1], target.Give[0].Shard = "changed", "changed", "changed"
	b.list(lease.KindTarget)[0].(lease.Target).Hold[0].Shard = "changed"
	equal(b, "names to hold", b.look(target.Key()).(lease.Target).Hold, newTarget("a", 7).Hold)
	equal(b, "names to give", b.look(target.Key()).(lease.Target).Give, newTarget("a", 7).Give)

	wishes := b.wishes(someWishes())
	want := slices.Clone(wishes.List)
	wishes.List[0].By = "changed"
	equal(b, "wishes", b.look(wishes.Key()).(lease.Wishes).List, want)

	news := []lease.News{{Kind: lease.NewsFinished, Shard: "a"}}
	seat := b.putSeat(protocol.NextBeat(b.seat("a"), lease.Says{News: news}, b.stamp()))
	seat.News[0].Shard = "changed"
	equal(b, "news", b.look(seat.Key()).(lease.Seat).News, news)
}
