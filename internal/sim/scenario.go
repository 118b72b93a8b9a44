package sim

import (
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A Scenario is a fleet of four workers that suffers one kind of trouble, and
// nothing else.
type Scenario struct {
	Name  string
	Fault Fault
	rates rates
	set   func(*settings)
}

// Scenarios are all of them: one for each fault.
func Scenarios() []Scenario {
	all := []Scenario{
		{Fault: Lost, rates: rates{lost: 0.3}},
		{Fault: ReplyLost, rates: rates{replyLost: 0.3}},
		{Fault: Late, rates: rates{late: 0.3}},
		{Fault: Twin, rates: rates{twin: 0.5}},
		{Fault: LateReply, rates: rates{lateReply: 0.3}},
		{Fault: Throttled, rates: rates{throttled: 0.5}},
		{Fault: ReadLost, rates: rates{readLost: 0.3}},
		{Fault: Stale, rates: rates{stale: 0.9}},
		{Fault: SourceFault, set: func(s *settings) { s.source = 0.6 }},
		{Fault: PrepareSlow, set: func(s *settings) { s.hook, s.prepare = 0.9, time.Second }},
		{Fault: PrepareFailed, set: func(s *settings) { s.hook, s.prepare = 0.9, time.Second }},
		{Fault: PlannerFailed, set: func(s *settings) { s.hook, s.planner = 0.6, "user" }},
	}
	for f := HandlerError; f <= HandlerRelease; f++ {
		all = append(all, Scenario{Fault: f, set: func(s *settings) { s.tempers, s.temper = 0.5, f }})
	}
	for _, f := range []Fault{
		Crash, Stop, PauseHalf, PauseEdge, PauseLong, PauseVeryLong, Suspend, WallJump, ClockRate, ReadsOnly, WritesOnly, BeatsOnly,
		Outage, Split, Merge, ModeChange, ForcedRelease, Restore, SkewedRestore, MalformedRow, MalformedSeat, Deploy,
		Advice, AdviceDeleted, Wished, PlannerPaused, RackCrash, MalformedPlan, MalformedTarget, SourceLacks,
	} {
		all = append(all, Scenario{Fault: f})
	}
	all = append(all, Scenario{Fault: Rebirth, set: func(s *settings) { s.retention, s.poll = time.Second, time.Second }})
	all = append(all, Scenario{Fault: SickHost, set: func(s *settings) { s.sick = 0.5 }}, Scenario{Fault: BusyHost, set: func(s *settings) { s.busy = 0.5 }})
	for i := range all {
		all[i].Name = all[i].Fault.String()
	}
	return all
}

// Run simulates the scenario in a mode: so much trouble, and then the same as after
// every trouble.
func (s Scenario) Run(mode rebalance.Mode, seed uint64, length time.Duration, log func(string)) Result {
	w := newWorld(seed)
	w.log = log
	w.set = settings{
		ttl: 3 * time.Second, drain: 3 * time.Second, pace: 200 * time.Millisecond, wind: 100 * time.Millisecond,
		retention: time.Minute, nodes: 4, streams: 8, every: 50 * time.Millisecond, commits: time.Second, flush: 0.05,
		backoff: 200 * time.Millisecond, audit: time.Minute, handoff: mode, rest: min(length, time.Minute), exact: s.Fault != ClockRate,
	}
	if s.set != nil {
		s.set(&w.set)
	}
	if w.set.prepare > 0 {
		w.set.handoff = rebalance.Terms{Mode: mode, Prepare: w.set.prepare}
	}
	w.populate()
	if s.Fault == SkewedRestore {
		w.skew(time.Hour)
	}
	t := trouble{kinds: []Fault{s.Fault}, mean: 4 * time.Second, rates: s.rates}
	if s.Fault == ClockRate || s.Fault >= PrepareSlow && s.Fault <= SourceFault || s.Fault >= SickHost {
		t.kinds = []Fault{Crash} // what these are seen by
	}
	switch s.Fault {
	case Rebirth:
		t.kinds = append(t.kinds, Split, Merge) // names to be used again
	case MalformedRow, PlannerPaused, MalformedPlan, MalformedTarget:
		t.kinds = append(t.kinds, Split, Crash) // parents that nobody holds and nobody can read
	case SkewedRestore:
		t.kinds = append(t.kinds, Split, Crash) // new rows, and changes of hands to be lost
	}
	w.rage(t, length)
	w.run(length)
	w.settle()
	w.calmLife()
	r := w.result()
	if r.Err != nil {
		r.Err = fmt.Errorf("%s, %v: %w", s.Name, mode, r.Err)
	}
	return r
}
