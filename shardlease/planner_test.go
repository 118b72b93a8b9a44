package shardlease_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A wayward planner misbehaves until it is healed. Each worker has its own.
type wayward struct {
	rebalance.Even
	deed   string
	healed chan struct{} // closed when it is
	calls  atomic.Int64
	busy   atomic.Int64 // calls that have not returned
	most   atomic.Int64 // the most of them at a time
}

func (p *wayward) Name() string { return "wayward/1" }

func (p *wayward) Plan(v rebalance.View) []int {
	p.calls.Add(1)
	p.most.Store(max(p.most.Load(), p.busy.Add(1)))
	defer p.busy.Add(-1)
	select {
	case <-p.healed:
		return p.Even.Plan(v)
	default:
	}
	switch p.deed {
	case "slow":
		time.Sleep(15 * time.Second)
	case "hangs":
		<-p.healed
	case "panics":
		panic("no plan")
	case "ends its goroutine":
		runtime.Goexit()
	case "plans too little":
		return []int{0}
	case "plans too high":
		return slices.Repeat([]int{len(v.Workers)}, len(v.Shards))
	case "plans too low":
		return slices.Repeat([]int{-2}, len(v.Shards))
	case "places nothing":
		return slices.Repeat([]int{rebalance.Nobody}, len(v.Shards))
	}
	return p.Even.Plan(v)
}

// faults returns the reports about the planner of a worker.
func (d *diary) plannerFaults() []event.Event {
	return slices.DeleteFunc(d.of(event.HookFault), func(e event.Event) bool {
		of, ok := errors.AsType[*shardlease.HookError](e.Err)
		return !ok || of.Hook != "Planner" || !strings.Contains(e.Err.Error(), "rebalance.Even makes this plan")
	})
}

// TestWaywardPlanner: whatever the planner of every worker does, no worker loses its seat, and each plan is made:
// rebalance.Even makes it at most a third of the lease time later. Every plan that is made without the planner is
// reported. When the planner is well again, it plans.
func TestWaywardPlanner(t *testing.T) {
	t.Parallel()
	for _, deed := range []string{
		"slow", "hangs", "panics", "ends its goroutine", "plans too little", "plans too high", "plans too low", "places nothing",
	} {
		subtest(t, deed, func(t *testing.T) { testWaywardPlanner(t, deed) })
	}
}

func testWaywardPlanner(t *testing.T, deed string) {
	s, healed := newStage(t, 9), make(chan struct{})
	var planners []*wayward
	enter := func(name string) *actor {
		p := &wayward{deed: deed, healed: healed}
		planners = append(planners, p)
		return s.enter(name, shardlease.Config{Planner: p}, plodding)
	}
	a, b := enter("a"), enter("b")
	s.shared(2*beat+1500*time.Millisecond, "a", "b")
	pass(fixture.Size(2*time.Minute, 10*time.Minute))
	s.shared(0, "a", "b")
	c := enter("c")
	if deed != "places nothing" { // that plan leaves held shards where they are, as it may
		s.shared(3*beat+1500*time.Millisecond, "a", "b", "c")
	}
	pass(time.Minute)
	a.die()
	s.shared(ttl+3*beat, "b", "c")
	for i, of := range []*actor{a, b, c} {
		of.never(t, event.Lost)
		if most := planners[i].most.Load(); most > 1 {
			t.Errorf("%d calls of the planner of %s were under way", most, of.name)
		}
		allowed := deed == "places nothing" && of == c
		if calls := planners[i].calls.Load(); calls > 0 && len(of.plannerFaults()) == 0 && !allowed {
			t.Errorf("%s has called its planner %d times, and reports %v", of.name, calls, of.events)
		}
		if deed == "hangs" && planners[i].calls.Load() > 1 {
			t.Errorf("%s has called a planner again that has not returned", of.name)
		}
	}
	close(healed)
	pass(15 * time.Second) // the calls that are under way return
	reported := len(c.plannerFaults()) + len(b.plannerFaults())
	enter("d")
	s.shared(beat+1500*time.Millisecond, "b", "c", "d")
	if now := len(c.plannerFaults()) + len(b.plannerFaults()); now > reported {
		t.Errorf("a planner that is well again is reported: %v %v", b.plannerFaults(), c.plannerFaults())
	}
}

// TestHangingPlannerIsReportedWithEachPlan, until it returns, and Run waits for it as for a handler.
func TestHangingPlannerIsReportedWithEachPlan(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s, healed := newStage(t, 4), make(chan struct{})
		p := &wayward{deed: "hangs", healed: healed}
		a := s.enter("a", shardlease.Config{Planner: p}, nil)
		s.shared(beat+time.Second, "a")
		for plans, name := range []string{"b", "c", "d"} { // each dies, and a makes the next plan
			if faults := a.plannerFaults(); len(faults) != plans+1 {
				t.Errorf("after %d plans: %v", plans+1, faults)
			}
			dies := s.enter(name, shardlease.Config{}, nil)
			s.shared(beat+1500*time.Millisecond, "a", name)
			dies.die()
			s.shared(ttl+beat, "a")
		}
		done := make(chan error, 1)
		go func() { done <- a.stop() }()
		pass(time.Minute)
		select {
		case err := <-done:
			t.Errorf("Run has returned before the planner: %v", err)
		default:
		}
		close(healed)
		check(t, <-done)
	})
}

// TestSlowPlannerPlans: the plan of a planner counts that takes up to a third of the lease time.
func TestSlowPlannerPlans(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 6)
		a := s.enter("a", shardlease.Config{Planner: patient{}}, nil)
		s.within(beat+time.Second, "a holds all", func() bool { return s.running()["a"] == 6 })
		s.enter("b", shardlease.Config{Planner: patient{}}, nil)
		pass(time.Minute)
		if n := s.running(); n["a"] != 5 || n["b"] != 1 || len(a.plannerFaults()) > 0 {
			t.Errorf("the workers process %v; reported %v", n, a.plannerFaults())
		}
	})
}

// A patient planner takes nearly a third of the lease time. It gives the first shard to worker b, if there is one, and
// all others to a.
type patient struct{ rebalance.Even }

func (patient) Name() string { return "patient/1" }

func (patient) Plan(v rebalance.View) []int {
	time.Sleep(beat - 100*time.Millisecond)
	at := func(name string) int {
		return max(0, slices.IndexFunc(v.Workers, func(w rebalance.Worker) bool { return w.Name == name }))
	}
	plan := slices.Repeat([]int{at("a")}, len(v.Shards))
	if len(plan) > 0 {
		plan[0] = at("b")
	}
	return plan
}
