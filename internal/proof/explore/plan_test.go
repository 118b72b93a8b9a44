package explore_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/explore"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	a = iota
	b
	c
)

// TestPlans goes through what fleets come to whose workers write plans. From every state the fleet
// reaches its goal, if nothing more goes wrong: a living worker serves every shard, the targets
// are what the workers hold, no revision is open, and no plan follows.
func TestPlans(t *testing.T) {
	for _, s := range planStories() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Goal = true
			visit(t, s, max(states()/8, 12))
		})
	}
}

// TestTwoPlanners: two workers that may both plan, and one shard that one of them holds. These
// stories are explored to their end; the goal is looked for from each state of a sample, and if more than 3,000 states are asked for.
func TestTwoPlanners(t *testing.T) {
	deep := states() > 3000 || !fixture.Long()
	for _, s := range []explore.Story{
		{Name: "both begin", Workers: 2, Shards: 1, For: 4 * time.Second},
		{Name: "both begin, and one dies", Workers: 2, Shards: 1, Crashes: 1, For: 4 * time.Second},
		{Name: "one joins, and one dies", Workers: 2, Shards: 1, Settled: 1, Crashes: 1, For: 8 * time.Second},
		{Name: "one joins, and a call fails", Workers: 2, Shards: 1, Settled: 1, Faults: 1, For: 5 * time.Second},
		{Name: "one joins, and the plan is deleted", Workers: 2, Shards: 1, Settled: 1, Deletes: 1, For: 5 * time.Second},
		{Name: "one joins, and one is paused", Workers: 2, Shards: 1, Settled: 1, Pauses: 1, For: 4 * time.Second},
		{Name: "one is paused after it opened a revision", Workers: 2, Shards: 1, Settled: 1, For: 8 * time.Second,
			Prelude: func(p *explore.Prelude) { p.Join(b); p.Until(b, "swap of plan"); p.Pause(b) }},
	} {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Goal, s.Mode = deep, rebalance.Eager
			if s.Pauses > 0 && states() <= 3000 { // 150,000 states
				visit(t, s, states())
				return
			}
			toTheEnd(t, s)
		})
	}
}

// TestLargeFleets: not every worker lists the seats, so a worker has to learn in another way that
// the owner of a shard of its target has died.
func TestLargeFleets(t *testing.T) {
	const k = 10 // the eleventh worker
	for _, s := range []explore.Story{
		{Name: "the first worker dies", Prelude: func(p *explore.Prelude) { p.Die(a); p.Until(explore.Anybody, "delete of seat") }},
		{Name: "the last worker dies", Prelude: func(p *explore.Prelude) { p.Die(k - 1); p.Until(explore.Anybody, "delete of seat") }},
		{Name: "the planner of a death dies", Prelude: func(p *explore.Prelude) { p.Die(k - 1); p.Die(p.Until(explore.Anybody, "swap of plan")) }},
		{Name: "one joins", Prelude: func(p *explore.Prelude) { p.Join(k); p.Until(explore.Anybody, "of target") }},
	} {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Workers, s.Settled, s.Shards, s.For = k+1, k, k+2, 15*time.Second
			s.Goal, s.Mode = true, rebalance.Eager
			visit(t, s, max(states()/30, 15))
		})
	}
}

// TestWishes goes through what fleets come to while an operator makes and lifts wishes. From every
// state, a living worker serves every shard if nothing more goes wrong, whatever wishes stand, and the
// drains and pins that can be obeyed are obeyed. This includes the death of the worker that writes the
// plan for the wish.
func TestWishes(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		for _, s := range wishStories() {
			t.Run(mode.String()+": "+s.Name, func(t *testing.T) {
				t.Parallel()
				s.Mode, s.Goal, s.For = mode, true, 12*time.Second
				visit(t, s, max(states()/8, 12))
			})
		}
	}
}

// TestDeathwatch goes through what fleets come to whose workers keep connections to each other, and are told at
// any time that a peer is dead. From every state the fleet reaches its goal, if nothing more goes wrong.
func TestDeathwatch(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		for _, s := range []explore.Story{
			{Name: "a crash and a fault", Workers: 2, Shards: 1, Settled: 2, Crashes: 1, Faults: 1},
			{Name: "a crash of two, and a mark", Workers: 3, Shards: 2, Settled: 3, Crashes: 2, Marks: 1},
			{Name: "a wrong proof", Workers: 2, Shards: 1, Settled: 2, Proofs: 1},
			{Name: "two wrong proofs", Workers: 2, Shards: 2, Settled: 2, Proofs: 2},
			{Name: "a wrong proof, a fault and a mark", Workers: 2, Shards: 1, Settled: 2, Proofs: 1, Faults: 1, Marks: 1},
			{Name: "a wrong proof and a pause", Workers: 2, Shards: 1, Settled: 2, Proofs: 1, Pauses: 1},
			{Name: "a wrong proof and a stop", Workers: 2, Shards: 1, Settled: 2, Proofs: 1, Stops: 1},
			{Name: "a wrong proof and a join", Workers: 3, Shards: 2, Settled: 2, Proofs: 1},
		} {
			t.Run(mode.String()+": "+s.Name, func(t *testing.T) {
				t.Parallel()
				s.Mode, s.Goal, s.Watchful, s.For = mode, true, true, 12*time.Second
				visit(t, s, max(states()/16, 8))
			})
		}
	}
}

func wishStories() []explore.Story {
	wish := func(kind lease.WishKind, subject, to string) lease.Wish {
		return lease.Wish{Kind: kind, Subject: subject, To: to, By: "operator"}
	}
	drain, pause := wish(lease.WishDrain, "a", ""), wish(lease.WishPause, "", "")
	cordon, pin, move := wish(lease.WishCordon, "b", ""), wish(lease.WishPin, "s0", "b"), wish(lease.WishMove, "s0", "b")
	return []explore.Story{
		{Name: "a drain and a crash", Workers: 2, Shards: 2, Settled: 2, Crashes: 1, Wishes: 2, Wish: []lease.Wish{drain}},
		{Name: "a drain and a fault", Workers: 2, Shards: 2, Settled: 2, Faults: 1, Wishes: 1, Wish: []lease.Wish{drain}},
		{Name: "a drain, and a pause of a worker", Workers: 2, Shards: 2, Settled: 2, Pauses: 1, Wishes: 1, Wish: []lease.Wish{drain}},
		{Name: "a pause, a join and a crash", Workers: 2, Shards: 2, Settled: 1, Crashes: 1, Wishes: 2, Wish: []lease.Wish{pause}},
		{Name: "a move and a crash", Workers: 2, Shards: 2, Settled: 2, Crashes: 1, Wishes: 2, Wish: []lease.Wish{move, wish(lease.WishMove, "s1", "b")}},
		{Name: "a pin and a crash", Workers: 2, Shards: 2, Settled: 2, Crashes: 1, Wishes: 2, Wish: []lease.Wish{pin, wish(lease.WishPin, "s1", "b")}},
		{Name: "all fences are raised again, one raise fails, and a crash", Workers: 2, Shards: 2, Settled: 2, Crashes: 1, Raises: 1, Wishes: 1,
			Targets: true, Wish: []lease.Wish{{Kind: lease.WishRaise, By: "operator", Number: 7}}},
		{Name: "nobody is open, and a crash", Workers: 2, Shards: 2, Settled: 2, Crashes: 1, Wishes: 2, Wish: []lease.Wish{drain, cordon}},
		{Name: "all wishes, and a crash", Workers: 3, Shards: 3, Settled: 3, Crashes: 1, Wishes: 3, Wish: []lease.Wish{drain, pause, cordon, pin}},
		{Name: "an owner dies under all wishes", Workers: 3, Shards: 3, Settled: 3, Wishes: 2, Wish: []lease.Wish{drain, pause, cordon, pin},
			Prelude: func(p *explore.Prelude) {
				p.Wish(drain, pause, cordon, pin)
				p.Die(c)
				p.Until(explore.Anybody, "delete of seat")
			}},
		{Name: "the planner of a drain dies", Workers: 3, Shards: 3, Settled: 3, Faults: 1,
			Prelude: func(p *explore.Prelude) { p.Wish(drain); p.Die(p.Until(explore.Anybody, "swap of plan")) }},
		{Name: "the planner of a drain dies with half a plan", Workers: 3, Shards: 3, Settled: 3, Faults: 1,
			Prelude: func(p *explore.Prelude) { p.Wish(drain); p.Die(p.Until(explore.Anybody, "of target")) }},
	}
}

// TestEveryWishIsExplored: some story has a wish of each kind.
func TestEveryWishIsExplored(t *testing.T) {
	explored := map[lease.WishKind]bool{}
	for _, s := range wishStories() {
		for _, wish := range s.Wish {
			explored[wish.Kind] = true
		}
	}
	for _, kind := range lease.WishKinds() {
		if !explored[kind] {
			t.Errorf("no story has the wish %q: add one to wishStories, and what the wish demands to state.obeys", kind)
		}
	}
}

func planStories() []explore.Story {
	var all []explore.Story
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		for _, s := range []explore.Story{
			{Name: "two planners begin", Workers: 2, Shards: 1, For: 4 * time.Second},
			{Name: "two planners begin, and a fault", Workers: 2, Shards: 1, Faults: 1, For: 4 * time.Second},
			{Name: "a join, a crash and a fault", Workers: 2, Shards: 2, Settled: 1, Crashes: 1, Faults: 1, For: 15 * time.Second},
			{Name: "a planner is paused while another joins", Workers: 3, Shards: 2, Settled: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(b); p.Until(b, "swap of plan"); p.Pause(b); p.Join(c) }},
			{Name: "a slow planner is overtaken", Workers: 2, Shards: 2, Settled: 1, Faults: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) {
					p.Join(b)
					p.Until(b, "of target")
					p.Late(b)
					p.Pause(b)
					p.Rest(time.Second)
				}},
			{Name: "the plan is deleted while a planner is paused", Workers: 2, Shards: 2, Settled: 1, Deletes: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(b); p.Until(b, "swap of plan"); p.Pause(b) }},
			{Name: "the plan is deleted under late targets", Workers: 2, Shards: 2, Settled: 1, Deletes: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(b); p.Until(b, "of target"); p.Late(b) }},
			{Name: "a joiner opens a revision and dies", Workers: 2, Shards: 2, Settled: 1, Faults: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(b); p.Until(b, "swap of plan"); p.Die(b) }},
			{Name: "a joiner writes half a plan and dies", Workers: 2, Shards: 2, Settled: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(b); p.Until(b, "of target"); p.Die(b) }},
			{Name: "targets of a dead planner are late", Workers: 2, Shards: 2, Settled: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(b); p.Until(b, "of target"); p.Late(b); p.Die(b) }},
			{Name: "a start fails while the request stands", Workers: 3, Shards: 3, Settled: 1, Fails: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(b); p.Join(c); p.Until(b, "swap of plan") }},
			{Name: "a handler fails", Workers: 2, Shards: 2, Settled: 2, Fails: 2, For: 12 * time.Second},
			{Name: "an owner dies, and its successor pauses", Workers: 3, Shards: 3, Settled: 3, Pauses: 1, For: 12 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Die(a); p.Until(explore.Anybody, "delete of seat") }},
			{Name: "the seat of a dead worker is created again, and its evictor may die", Workers: 3, Shards: 3, Settled: 2, Crashes: 1, For: 12 * time.Second,
				Prelude: func(p *explore.Prelude) {
					p.Join(c)
					p.Until(c, "create of seat")
					p.Again(c)
					p.Rest(6 * time.Second)
					p.Die(c)
					p.Until(explore.Anybody, "delete of seat")
				}},
			{Name: "two sources", Workers: 2, Shards: 2, Settled: 2, Crashes: 1, Lists: map[int]string{a: "s0", b: "s1"}, For: 15 * time.Second},
			{Name: "two sources, and a join", Workers: 2, Shards: 2, Settled: 1, Faults: 1, Lists: map[int]string{a: "s0", b: "s1"}, For: 15 * time.Second},
			{Name: "a slow planner and a crash", Workers: 2, Shards: 2, Settled: 2, Planner: true, Faults: 1, Crashes: 1, For: 15 * time.Second},
			{Name: "a worker dies while the planner thinks", Workers: 3, Shards: 3, Settled: 2, Planner: true, Faults: 2, Crashes: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(c); p.Until(c, "the planner") }},
			{Name: "the planner thinks, and another worker plans", Workers: 3, Shards: 3, Settled: 2, Planner: true, Faults: 1, For: 15 * time.Second,
				Prelude: func(p *explore.Prelude) { p.Join(c); p.Until(c, "the planner"); p.Pause(c); p.Rest(3 * time.Second) }},
			{Name: "a stop and a deleted plan", Workers: 2, Shards: 2, Settled: 2, Stops: 1, Deletes: 1, For: 10 * time.Second},
		} {
			s.Name, s.Mode = mode.String()+": "+s.Name, mode
			all = append(all, s)
		}
	}
	return all
}
