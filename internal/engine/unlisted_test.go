package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// causes returns why tenures of a shard have ended.
func (f *fleet) causes(shard string) (causes []event.Cause) {
	for _, n := range f.nodes {
		for _, ev := range n.told {
			if ev.Kind == event.Ended && ev.Shard == shard {
				causes = append(causes, ev.Cause)
			}
		}
	}
	return causes
}

// TestUnlistedShardIsWoundDown: the source lists a held shard no more. Its handler winds down after two
// listings, and the row stays with its checkpoint. Nobody claims the shard until the source lists it again, also
// after workers have died, joined and planned.
func TestUnlistedShardIsWoundDown(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4, 12} {
		f := newFleet(t, 2*workers, workers, rebalance.Eager)
		all := f.source
		n := f.up()[len(f.up())-1]
		name := n.Handlers[0].Shard
		n.Input(engine.Marks{Tenure: n.Handlers[0].Tenure, Mark: mark("7"), Seq: 1, Made: n.Moment().Mono})
		f.Run(10 * time.Second)
		f.source = f.without(name)
		limit := 2*f.config.Poll + time.Second
		if workers > 8 {
			limit += f.config.Audit + 2*beat
		}
		f.until(limit, func() bool { return !f.processed(name) })
		f.Run(2 * time.Second)
		row := f.row(name)
		if row.Last.Reason != lease.ReasonUnlisted || !row.Owner.IsZero() || row.Attempts() > 0 || string(row.Checkpoint.Position) != "7" {
			t.Errorf("%d workers: the row is %v", workers, row)
		}
		if causes := f.causes(name); causes[len(causes)-1] != event.CauseUnlisted {
			t.Errorf("%d workers: the tenure has ended because of %v", workers, causes)
		}
		generation := row.Generation
		rest := func(what string) {
			t.Helper()
			f.Run(3 * time.Minute)
			if now := f.row(name); now.Generation != generation || !f.even() {
				t.Errorf("%d workers, %s: the row is %v; held %v", workers, what, now, f.counts())
			}
		}
		rest("at rest")
		f.join()
		rest("a worker joins")
		f.watchers()[0].Kill()
		rest("the first watcher dies")
		if told := slices.ContainsFunc(f.watchers()[0].told, func(ev told) bool {
			return ev.Kind == event.Unlisted && !ev.Over && slices.Contains(ev.Shards, name)
		}); !told {
			t.Errorf("%d workers: nobody reports it", workers)
		}
		f.source = all
		f.until(f.config.Poll+beat+2*time.Second, func() bool { return f.processed(name) })
		f.until(time.Minute, f.even)
	}
}

// TestOneWrongSource: the source of one worker lacks shards that the others list. The worker gives up those
// that it holds, others process them, and then nothing moves any more. In a large fleet only the first watcher
// polls: the workers that hold the shards ask their own sources, and only its own shard waits until its source
// is right.
func TestOneWrongSource(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 3*workers, workers, rebalance.Eager)
		n := f.watchers()[0]
		var lacks []string
		for _, of := range f.up() {
			lacks = append(lacks, of.Handlers[0].Shard)
		}
		mine := n.Handlers[0].Shard
		f.lacks(n, lacks...)
		f.Run(4 * time.Minute)
		held := func() bool {
			all := true
			for _, s := range f.source.Shards {
				all = all && (f.processed(s.Name) || workers > 8 && s.Name == mine)
			}
			return all
		}
		if n.holds(mine) || !held() {
			t.Errorf("%d workers: held %v", workers, f.counts())
		}
		f.reset()
		revision := f.plan().Revision
		f.Run(fixture.Size(5*time.Minute, 10*time.Minute))
		if n := f.plan().Revision - revision; f.starts > 0 || n > 0 || !held() {
			t.Errorf("%d workers: %d tenures began and %d plans were made at rest; held %v", workers, f.starts, n, f.counts())
		}
		f.polled = nil
		f.until(2*time.Minute, f.even)
	}
}

// TestKeepUnlisted: with KeepUnlisted the same shards are processed as before.
func TestKeepUnlisted(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 2*workers, 0, rebalance.Eager)
		f.config.KeepUnlisted = true
		for range workers {
			f.join()
		}
		f.until(time.Minute, f.even)
		all := f.source
		f.source = f.without(f.up()[1].Handlers[0].Shard)
		f.reset()
		f.Run(5 * time.Minute)
		if f.source = all; f.starts > 0 || !f.even() {
			t.Errorf("%d workers: %d tenures began; held %v", workers, f.starts, f.counts())
		}
	}
}

// TestChildOfAnUnlistedShard: an unlisted parent counts as finished once nobody processes it.
func TestChildOfAnUnlistedShard(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 2*workers, workers, rebalance.Eager)
		name := f.up()[1].Handlers[0].Shard
		f.lists(engine.Shard{Name: "child", Parents: []string{name}})
		f.Run(2 * time.Minute)
		if f.processed("child") {
			t.Fatalf("%d workers: the child is processed beside its parent", workers)
		}
		f.source = f.without(name)
		f.until(2*f.config.Poll+f.config.Audit+5*beat, func() bool { return f.processed("child") })
		if f.processed(name) {
			t.Errorf("%d workers: the child is processed beside its parent", workers)
		}
	}
}

// TestShardThatOnlyOthersListYet: a worker gets a new shard that its own source does not list yet. One listing
// that lacks it is not enough to give it up, nor are earlier ones, nor are two that do not follow each other.
func TestShardThatOnlyOthersListYet(t *testing.T) {
	f := newFleet(t, 3, 4, rebalance.Eager)
	n := f.up()[slices.IndexFunc(f.up(), func(n *member) bool { return len(n.Handlers) == 0 })]
	f.lists(engine.Shard{Name: "new"})
	polls := 0 // since it holds the shard
	f.polled = func(of *member) {
		if of == n && n.holds("new") {
			polls++
		}
		if of == n && (polls == 0 || polls == 1 || polls == 3) {
			of.Answer(10*time.Millisecond, f.without("new"))
			return
		}
		of.Answer(10*time.Millisecond, f.source)
	}
	f.until(2*time.Minute, func() bool { return n.holds("new") })
	f.Run(5 * time.Minute)
	if causes := f.causes("new"); polls < 4 || len(causes) > 0 {
		t.Errorf("its source was listed %d times; its tenures have ended because of %v", polls, causes)
	}
}

// TestPinnedToAWrongSource: an operator pins a shard to a worker whose source does not list it. The worker does not
// request the shard, so its owner goes on.
func TestPinnedToAWrongSource(t *testing.T) {
	for _, i := range []int{0, 1, 3} {
		f := newFleet(t, 12, 4, rebalance.Eager)
		n := f.up()[i]
		name := f.up()[2].Handlers[0].Shard
		f.lacks(n, name)
		f.Run(3 * f.config.Poll)
		f.wish(lease.Wish{Kind: lease.WishPin, Subject: name, To: n.Name, By: "operator"})
		f.Run(2 * time.Minute)
		if causes := f.causes(name); len(causes) > 0 || !f.up()[2].holds(name) {
			t.Errorf("pinned to %s, its tenures have ended because of %v", n.Name, causes)
		}
	}
}

// A lazy planner moves no shard.
type lazy struct{ rebalance.Even }

func (p lazy) Plan(v rebalance.View) []int {
	to := p.Even.Plan(v)
	for i, s := range v.Shards {
		if pin, ok := v.Pins[i]; ok {
			to[i] = pin
		} else if s.Owner != rebalance.Nobody {
			to[i] = s.Owner
		}
	}
	return to
}

// TestDeclinedBesideAFullWorker: two shards change places by pins, between workers that are full, and the source of
// one lacks what it gets. That shard goes to the third worker, because its owner has no room for both, even if the
// planner would leave it there.
func TestDeclinedBesideAFullWorker(t *testing.T) {
	f := newFleet(t, 8, 0, rebalance.Eager)
	f.config.MaxShards = 3
	f.plansBy(lazy{})
	for range 3 {
		f.join()
	}
	f.settles("three workers", 2, 3, 3)
	n, owner := f.up()[1], f.up()[2]
	gets, gives := owner.Handlers[0].Shard, n.Handlers[0].Shard
	f.lacks(n, gets)
	f.Run(3 * f.config.Poll)
	f.wish(lease.Wish{Kind: lease.WishPin, Subject: gets, To: n.Name, By: "operator"}, lease.Wish{Kind: lease.WishPin, Subject: gives, To: owner.Name, By: "operator"})
	for range 60 {
		f.Run(time.Second)
		for _, m := range f.up() {
			if got := len(f.target(m).Hold); got > 3 {
				t.Fatalf("%s has room for 3 shards and is assigned %d", m.Name, got)
			}
		}
	}
	if !f.held() || !owner.holds(gives) {
		t.Errorf("%s does not process what is pinned to it, or a shard has no handler: %v", owner.Name, f.order())
	}
}

// TestChildWaitsForAnotherSource: the source of the first watcher of a large fleet lacks a parent, so that it gives
// the parent up and plans the child. The worker that gets the child goes by its own source, which lists the parent.
func TestChildWaitsForAnotherSource(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 24, 12, rebalance.Eager)
	n := f.watchers()[0]
	f.wish(lease.Wish{Kind: lease.WishPin, Subject: "child", To: f.others()[0].Name, By: "operator"})
	name := n.Handlers[0].Shard
	f.lists(engine.Shard{Name: "child", Parents: []string{name}})
	f.lacks(n, name)
	f.until(5*time.Minute, func() bool { return !n.holds(name) })
	f.Run(5 * time.Minute)
	if to := f.target(f.others()[0]); !slices.ContainsFunc(to.Hold, func(a lease.Assigned) bool { return a.Shard == "child" }) || f.processed("child") {
		t.Errorf("the child is processed although its parent is listed and not finished, or it is not planned: %v", to)
	}
}

// TestFreeButUnlisted: an operator lifts the quarantine of shards that no source lists any more. One worker writes
// "unlisted" into each row, and all workers learn it from there. No handler of these shards starts, their children
// are processed, and plans leave the shards out. A worker that joins later changes nothing. In a large fleet the
// workers that do not poll start handlers until the first watcher asks them.
func TestFreeButUnlisted(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4, 12} {
		f := newFleet(t, 3*workers, workers, rebalance.Eager)
		names := []string{"shard-000", "shard-002"}
		f.lists(engine.Shard{Name: "child", Parents: names})
		f.Run(f.config.Poll)
		for _, name := range names {
			f.release(name)
			row := f.row(name)
			f.write(protocol.Quarantine(row, seen(row), lease.ReasonForced, f.stamp()))
		}
		f.source = f.without(names...)
		f.Run(4 * f.config.Poll)
		starts := f.starts
		for _, name := range names {
			row := f.row(name)
			f.write(protocol.Unquarantine(row, seen(row), f.stamp()))
		}
		limit, most := f.config.Audit+5*beat, starts+1
		if workers > 8 {
			limit, most = 2*f.config.Audit+10*beat, starts+1+len(names)
		}
		f.until(limit, func() bool { return f.processed("child") && f.even() })
		told := func() bool {
			return slices.ContainsFunc(f.watchers()[0].told, func(ev told) bool {
				return ev.Kind == event.Unlisted && !ev.Over && ev.Count == len(names)
			})
		}
		f.until(time.Minute, told)
		f.Run(time.Minute)
		for _, name := range names {
			if row := f.row(name); row.Last.Reason != lease.ReasonUnlisted || row.Attempts() > 0 || f.starts > most {
				t.Errorf("%d workers: %d tenures began; the row is %v", workers, f.starts-starts, row)
			}
		}
		f.join()
		f.until(time.Minute, f.even)
		revision := f.plan().Revision
		f.reset()
		f.Run(fixture.Size(4*time.Minute, 10*time.Minute))
		if f.starts > 0 || f.plan().Revision > revision+1 || f.calls["get lease"] > 0 {
			t.Errorf("%d workers at rest: %d tenures began, %d plans, %v", workers, f.starts, f.plan().Revision-revision, f.calls)
		}
	}
}

// TestUnlistedChildIsNotBegun: no source lists the child of a shard, which nobody has processed yet. When the parent
// is finished, the row of the child says that it is unlisted, and nobody has begun it.
func TestUnlistedChildIsNotBegun(t *testing.T) {
	f := newFleet(t, 8, 4, rebalance.Eager)
	parent := f.up()[1].Handlers[0].Shard
	f.write(protocol.Begin("g", "child", []string{parent}, "w000", f.stamp()))
	f.Run(4 * f.config.Poll)
	f.end(parent)
	f.until(time.Minute, func() bool { return f.row("child").Last.Reason == lease.ReasonUnlisted })
	for _, n := range f.nodes {
		if slices.ContainsFunc(n.told, func(ev told) bool { return ev.Kind == event.Started && ev.Shard == "child" }) {
			t.Errorf("%s has begun the child", n.Name)
		}
	}
}

// TestOnlyAWrongSourceHasRoom: a worker gives up a shard that the sources of the others list, but these have no room.
// Nobody makes plans without end for that.
func TestOnlyAWrongSourceHasRoom(t *testing.T) {
	t.Parallel()
	for _, wrong := range []int{0, 2} {
		f := newFleet(t, 12, 0, rebalance.Eager)
		f.config.MaxShards = 3
		for range 4 {
			f.join()
		}
		f.until(time.Minute, f.even)
		n := f.up()[wrong]
		name := n.Handlers[0].Shard
		f.lacks(n, name)
		f.until(4*f.config.Poll, func() bool { return !f.processed(name) })
		f.Run(f.config.Audit)
		revision := f.plan().Revision
		f.Run(10 * time.Minute)
		if plans := f.plan().Revision - revision; plans > 2 {
			t.Errorf("worker %d has the wrong source: %d plans in ten minutes", wrong, plans)
		}
		f.polled = nil
		f.until(2*f.config.Poll, f.even)
	}
}

// TestLightWorkerForgets: in a large fleet a worker that does not poll has given a shard up as unlisted. When the source
// lists the shard again, that worker may have it, and declines it no more.
func TestLightWorkerForgets(t *testing.T) {
	t.Parallel()
	for _, pinned := range []bool{true, false} {
		f := newFleet(t, 24, 12, rebalance.Eager)
		n := f.others()[0]
		name := n.Handlers[0].Shard
		if pinned {
			f.wish(lease.Wish{Kind: lease.WishPin, Subject: name, To: n.Name, By: "operator"})
		}
		f.Run(time.Minute)
		all := f.source
		f.source = f.without(name)
		f.until(2*f.config.Poll+2*f.config.Audit, func() bool { return !f.processed(name) })
		f.Run(time.Minute)
		f.source = all
		f.until(2*f.config.Poll+f.config.Audit, func() bool { return n.holds(name) || !pinned && f.processed(name) })
		f.Run(time.Minute)
		if s := f.seat(n); len(s.News) > 0 {
			t.Errorf("it still reports %v", s.News)
		}
	}
}

// TestOrphansOfAWrongPlanner: the source of the first watcher of a large fleet lacks everything but one shard. It does
// not assign to itself what dead workers leave.
func TestOrphansOfAWrongPlanner(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 24, 12, rebalance.Eager)
	n := f.watchers()[0]
	var lacks []string
	for _, s := range f.source.Shards[1:] {
		lacks = append(lacks, s.Name)
	}
	f.lacks(n, lacks...)
	f.Run(4 * time.Minute)
	var orphans []string
	for _, of := range f.up()[5:9] {
		for _, h := range of.Handlers {
			orphans = append(orphans, h.Shard)
		}
		of.Kill()
	}
	f.until(2*leaseTime, func() bool {
		return !slices.ContainsFunc(orphans, func(name string) bool { return !f.processed(name) })
	})
	for _, name := range orphans {
		if reason := f.row(name).Last.Reason; reason != lease.ReasonExpired {
			t.Errorf("%s has changed hands because of %s", name, reason)
		}
	}
}

// TestOwnerIsAskedAgain: the owner of an unlisted shard has not read the plan that asks it. The next plan asks it again.
func TestOwnerIsAskedAgain(t *testing.T) {
	f := newFleet(t, 24, 12, rebalance.Eager)
	n := f.others()[0]
	name, revision := n.Handlers[0].Shard, f.plan().Revision
	f.fail(10*time.Millisecond, func(of *member, o engine.Output) bool { return of == n && gets(o, lease.KindTarget) })
	f.source = f.without(name)
	f.until(2*f.config.Poll+2*f.config.Audit, func() bool { return f.plan().Revision > revision })
	f.Run(time.Second)
	f.wish(lease.Wish{Kind: lease.WishPin, Subject: n.Handlers[1].Shard, To: f.up()[0].Name, By: "operator"})
	f.Run(5 * time.Second)
	f.deaf = nil
	f.until(time.Minute, func() bool { return !f.processed(name) })
}

// TestUnlistedForBoth: a planner that does not know it yet assigns a shard that was given up as unlisted and that no source
// lists. The next plans leave it out, although each worker has reported it already. Before, it went from worker to worker.
func TestUnlistedForBoth(t *testing.T) {
	for i := range 2 {
		f := newFleet(t, 8, 2, rebalance.Eager)
		name := f.up()[0].Handlers[0].Shard
		f.source = f.without(name)
		f.Run(4 * f.config.Poll)
		f.give(f.up()[i], lease.Assigned{Shard: name})
		for range 3 { // each wish makes a plan due
			f.Run(10 * time.Second)
			f.wish(lease.Wish{Kind: lease.WishPin, Subject: "shard-007", To: fmt.Sprint("nobody-", f.Now()), By: "operator", Why: "test"})
		}
		f.Run(10 * time.Second)
		for _, n := range f.up() {
			if slices.ContainsFunc(f.target(n).Hold, func(h lease.Assigned) bool { return h.Shard == name }) {
				t.Errorf("assigned to %d: %s is to hold %s", i, n.Name, name)
			}
		}
		if row := f.row(name); row.Last.Reason != lease.ReasonUnlisted || !f.even() {
			t.Errorf("assigned to %d: %v; even: %t", i, row, f.even())
		}
	}
}
