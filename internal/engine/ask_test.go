package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// asked makes the planner of a fleet answer after so long: with its plan, or with none. It returns the questions so far.
func (f *fleet) asked(after time.Duration, answers bool) *[]engine.Plan {
	all := new([]engine.Plan)
	open := map[*member]bool{}
	f.planned = func(n *member, o engine.Plan) bool {
		if open[n] {
			f.Errorf("%s asks again before it has the answer", n.Name)
		}
		*all, open[n] = append(*all, o), true
		in := engine.Planned{Ask: o.Ask}
		if answers {
			in.To = f.planner.Plan(o.View)
		}
		n.Later(after, func() { open[n] = false; n.Input(in) })
		return true
	}
	return all
}

// keepsSeats reports workers that have lost their seats.
func (f *fleet) keepsSeats() {
	f.Helper()
	for _, n := range f.nodes {
		n.never(event.Lost)
	}
}

// A named planner is one of the user that plans as rebalance.Even does.
type named struct{ rebalance.Even }

func (named) Name() string { return "user/1" }

// TestPlannerThatTakesLong: while the planner of the user thinks, and if there is no plan of it in the end, heartbeats go on, no
// shard waits for longer than the deadline, and plans come out as they do otherwise.
func TestPlannerThatTakesLong(t *testing.T) {
	for _, answers := range []bool{true, false} {
		f := newFleet(t, 9, 0, rebalance.Eager)
		f.plansBy(named{})
		asked, by := f.asked(beat, answers), named{}.Name()
		if !answers {
			by = rebalance.Even{}.Name()
		}
		a, _ := f.join(), f.join()
		f.until(3*beat, f.even)
		f.join()
		f.until(4*beat, f.even)
		a.Kill()
		f.until(f.config.TTL+3*beat, f.even)
		f.keepsSeats()
		if maker := f.plan().Planner; maker != by {
			t.Errorf("the plan names %s instead of %s", maker, by)
		}
		if before := len(*asked); before == 0 {
			t.Error("the planner was not asked")
		} else if f.Run(time.Minute); len(*asked) > before {
			t.Errorf("the fleet rests, and the planner was asked %d times", len(*asked)-before)
		}
	}
}

// TestPausedPlanIsAskedForAgain: if held shards would move and may not, the planner is asked again with these pinned,
// and its second answer is the plan.
func TestPausedPlanIsAskedForAgain(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.plansBy(rebalance.Even{})
	f.join()
	f.settles("one worker", 6)
	f.wish(lease.Wish{Kind: lease.WishPause, By: "operator"})
	asked := f.asked(time.Second, true)
	f.join()
	f.settles("moves are paused", 6, 0)
	if last := (*asked)[len(*asked)-1].View; len(*asked) < 2 || len(last.Pins) != 6 {
		t.Errorf("%d questions; the last has the pins %v", len(*asked), last.Pins)
	}
}

// TestJoinWhileThePlannerIsAsked: the planner was not shown a worker that joins meanwhile. Another plan gives that worker its share.
func TestJoinWhileThePlannerIsAsked(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.plansBy(rebalance.Even{})
	f.join()
	f.settles("one worker", 6)
	asked := f.asked(beat, true)
	f.join()
	f.until(2*beat, func() bool { return len(*asked) > 0 })
	f.join()
	f.settles("another one has joined meanwhile", 2, 2, 2)
}

// TestShardsThatComeWhileThePlannerIsAsked are placed at once, and the planner is asked about them next.
func TestShardsThatComeWhileThePlannerIsAsked(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.config.Poll = time.Second
	f.plansBy(rebalance.Even{})
	f.join() // another one would ask soon after it, and be shown both
	f.settles("one worker", 6)
	asked := f.asked(beat, true)
	f.lists(engine.Shard{Name: "new-1"})
	f.until(2*beat, func() bool { return len(*asked) > 0 })
	f.lists(engine.Shard{Name: "new-2"})
	f.until(3*beat, f.held)
	f.keepsSeats()
	f.Run(time.Minute)
	if last := (*asked)[len(*asked)-1].View; len(last.Shards) != 8 {
		t.Errorf("the planner was shown %d of 8 shards", len(last.Shards))
	}
}

// TestWorkerDiesWhileThePlannerIsAsked: the answer gives everything to a worker that has been evicted meanwhile. Nothing is
// assigned to it.
func TestWorkerDiesWhileThePlannerIsAsked(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.config.Poll = time.Second
	f.plansBy(rebalance.Even{})
	f.join()
	f.join()
	dies := f.join()
	f.settles("three workers", 2, 2, 2)
	dies.Kill()
	f.Run(f.config.TTL - beat)
	f.planner = shift{}
	asked := f.asked(beat, true)
	f.lists(engine.Shard{Name: "new"})
	f.until(2*beat, func() bool { return len(*asked) > 0 })
	f.until(4*beat, f.held)
	f.keepsSeats()
}

// TestForeignAnswers: an answer that comes when nothing is open, or to another question than the open one, changes
// nothing. That of a draft which another planner has overtaken is ignored, and only then the next draft asks.
func TestForeignAnswers(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.plansBy(rebalance.Even{})
	a := f.join()
	f.settles("one worker", 6)
	wrong := engine.Planned{Ask: 1, To: slices.Repeat([]int{rebalance.Nobody}, 6)}
	a.Input(wrong)
	asked := f.asked(beat, true)
	b := f.join()
	f.until(2*beat, func() bool { return len(*asked) > 0 })
	for _, n := range []*member{a, b} {
		for ask := range (*asked)[0].Ask + 3 {
			if !slices.ContainsFunc(*asked, func(o engine.Plan) bool { return o.Ask == ask }) {
				n.Input(engine.Planned{Ask: ask, To: slices.Repeat([]int{1}, 6)})
			}
		}
	}
	f.Run(beat / 2)
	if f.plan().Revision != 0 && f.plan().Members == 2 {
		t.Fatal("the plan was made before the answer")
	}
	f.open() // another planner
	f.settles("two workers", 3, 3)
	f.keepsSeats()
}
