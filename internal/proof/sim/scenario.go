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
}

// Scenarios are all of them: one for each fault of a worker without a deathwatch.
func Scenarios() (list []Scenario) {
	for f, k := range kinds() {
		if k.in != watchful {
			list = append(list, Scenario{k.name, Fault(f)})
		}
	}
	return list
}

// Run simulates the scenario in a mode: so much trouble, and then the same as after
// every trouble.
func (s Scenario) Run(mode rebalance.Mode, seed uint64, length time.Duration, log func(string)) Result {
	w := newWorld(seed, log)
	w.set = settings{
		ttl: 3 * time.Second, drain: 3 * time.Second, pace: 200 * time.Millisecond, wind: 100 * time.Millisecond,
		retention: time.Minute, nodes: 4, streams: 8, every: 50 * time.Millisecond, commits: time.Second, flush: 0.05,
		backoff: 200 * time.Millisecond, audit: time.Minute, handoff: mode, rest: min(length, time.Minute), exact: s.Fault != ClockRate,
	}
	t := trouble{kinds: []Fault{s.Fault}, mean: 4 * time.Second}
	if alone := w.faults.table[s.Fault].alone; alone != nil {
		alone(s.Fault, &w.set, &t)
	}
	if w.set.prepare > 0 {
		w.set.handoff = rebalance.Terms{Mode: mode, Prepare: w.set.prepare}
	}
	w.populate()
	if s.Fault == SkewedRestore {
		w.skew(time.Hour)
	}
	w.faults.begin(t, length)
	w.run(length)
	rest{w}.settle()
	life{rest{w}}.all()
	r := w.result()
	if r.Err != nil {
		r.Err = fmt.Errorf("%s, %v: %w", s.Name, mode, r.Err)
	}
	return r
}

// The settings and the trouble of scenarios.

// amongCrashes shows what begins with a process.
func amongCrashes(_ Fault, _ *settings, t *trouble) { t.kinds = []Fault{Crash} }

// amongResharding shows what concerns parents that nobody holds or can read, new rows, and changes of hands.
func amongResharding(_ Fault, _ *settings, t *trouble) { t.kinds = append(t.kinds, Split, Crash) }

// withNames has names that can be used again.
func withNames(_ Fault, s *settings, t *trouble) {
	s.retention, s.poll = time.Second, time.Second
	t.kinds = append(t.kinds, Split, Merge)
}

func inHandlers(f Fault, s *settings, _ *trouble) { s.tempers, s.temper = 0.5, f }

func onNetwork(f Fault, _ *settings, t *trouble) {
	t.rates = map[Fault]rates{
		Lost: {lost: 0.3}, ReplyLost: {replyLost: 0.3}, Late: {late: 0.3}, Twin: {twin: 0.5},
		LateReply: {lateReply: 0.3}, Throttled: {throttled: 0.5}, ReadLost: {readLost: 0.3}, Stale: {stale: 0.9},
	}[f]
}

func inHooks(f Fault, s *settings, t *trouble) {
	t.kinds = []Fault{Crash}
	switch f {
	case SourceFault:
		s.source = 0.6
	case PlannerFailed:
		s.hook, s.planner = 0.6, "user"
	case RaiseFailed, RaiseSlow, RaiseHung:
		s.hook, s.targets = 0.6, true
	default:
		s.hook, s.prepare = 0.9, time.Second
	}
}

func withTargets(_ Fault, s *settings, t *trouble) {
	s.targets, t.kinds = true, append(t.kinds, Crash)
}

func onHosts(f Fault, s *settings, t *trouble) {
	t.kinds = []Fault{Crash}
	if f == SickHost {
		s.sick = 0.5
	} else {
		s.busy = 0.5
	}
}
