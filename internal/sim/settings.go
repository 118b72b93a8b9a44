package sim

import (
	"cmp"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
)

// Settings are what a round is like, beside its trouble.
type settings struct {
	ttl, drain time.Duration
	pace       time.Duration // of handlers
	wind       time.Duration // how long good ones take to wind down
	retention  time.Duration // how long the source lists what is finished
	nodes      int
	streams    int
	every      time.Duration // between records
	marks      int
	commits    time.Duration
	flush      float64 // the chance that a mark is waited for
	limit      int
	stall      time.Duration
	attempts   int64
	backoff    time.Duration
	cooldown   time.Duration
	audit      time.Duration
	prepare    time.Duration
	handoff    rebalance.Handoff // nil: each process draws one
	planner    string            // of the user, which plans as rebalance.Even does; empty: there is none

	// Of seasons. What is zero in a round is what config and handlers say.
	seasonal   bool
	kinds      []Fault // the faults of all its spells
	maxBackoff time.Duration
	poll       time.Duration
	faster     int64 // so many times as fast as records come handlers read; 0: four times

	temper Fault         // the only one of handlers; 0: any
	rest   time.Duration // how long nothing may move in a fleet at rest
	exact  bool          // no clock runs at a rate of its own

	chances
}

// Chances are those of what goes wrong outside the network.
type chances struct {
	tempers, hook, source float64
	sick, busy            float64 // of a process, when it starts
}

// drawRound draws what a round is like.
func drawRound(c chance) settings {
	ttl := pick(c, 2*time.Second, 3*time.Second, 5*time.Second, 10*time.Second)
	s := settings{
		ttl: ttl, drain: ttl * time.Duration(pick(c, 1, 2)), pace: pick(c, 100*time.Millisecond, 400*time.Millisecond, time.Second),
		wind: pick(c, 0, 100*time.Millisecond, 300*time.Millisecond), retention: pick(c, 20*time.Second, time.Minute),
		nodes: 2 + c.IntN(5), streams: 1 + c.IntN(12), every: pick(c, 20*time.Millisecond, 100*time.Millisecond),
		marks: pick(c, 0, 0, 1, 5), commits: pick(c, 0, time.Second, -1), flush: pick(c, 0, 0.02, 0.3),
		backoff: pick(c, 200*time.Millisecond, time.Second), cooldown: pick(c, 0, ttl), audit: pick(c, 20*time.Second, time.Minute),
	}
	if c.likely(0.2) {
		s.stall = ttl
	}
	if c.likely(0.2) {
		s.attempts = 3
	}
	if c.likely(0.5) {
		s.prepare = c.between(100*time.Millisecond, 2*time.Second)
	}
	if c.likely(0.2) {
		s.limit = 1 + c.IntN(6)
	}
	return s
}

// enlarge gives one fleet in three 9 to 20 workers, so that not all watch, and one in four a planner of the user.
func (s *settings) enlarge(c chance) {
	if c.IntN(3) == 0 {
		s.nodes = 9 + c.IntN(12)
		s.streams += c.IntN(12)
	}
	if c.IntN(4) == 0 {
		s.planner = "user"
	}
}

// config draws the configuration of the next process.
func (s *settings) config(c chance) engine.Config {
	handoff := s.handoff
	if handoff == nil {
		handoff = s.strategy(c)
	}
	return engine.Config{
		Group: group, TTL: s.ttl, Drain: s.drain, Handoff: handoff, Planner: s.planner, MaxShards: s.limit,
		MaxMoves: pick(c, 1, 3, 100), StallAfter: s.stall, CommitTimeout: 3 * s.ttl, MaxAttempts: s.attempts,
		Backoff: s.backoff, MaxBackoff: cmp.Or(s.maxBackoff, 5*time.Second), Audit: s.audit, Poll: cmp.Or(s.poll, pick(c, time.Second, 10*time.Second, 30*time.Second)),
		Order: checkpoint.Decimal, Commits: checkpoint.Policy{Every: s.commits, Marks: s.marks},
	}
}

// strategy draws one of those that can be had.
func (s *settings) strategy(c chance) rebalance.Handoff {
	after := pick(c, rebalance.Force, rebalance.Force, rebalance.Wait)
	eager := rebalance.Terms{Mode: rebalance.Eager, Drain: s.drain, AfterDrain: after, Prepare: s.prepare}
	cooperative := rebalance.Terms{Mode: rebalance.Cooperative, Drain: s.drain, Prepare: s.prepare}
	switch c.IntN(4) {
	case 0:
		return eager
	case 1:
		return cooperative
	case 2:
		return pick(c, rebalance.Eager, rebalance.Cooperative)
	}
	return rebalance.HandoffFunc(func(shard string, why rebalance.Why) rebalance.Terms {
		if rebalance.Tie(shard)%2 == 0 && why == rebalance.Balance {
			return eager
		}
		return cooperative
	})
}

// standsStill is how long nobody may process a shard without a cause that is named: an owner is
// evicted, a rest ends, the source is polled, and a plan is made and carried out, also where some
// requests are lost.
func (s *settings) standsStill() time.Duration {
	return 6*s.ttl + 4*s.drain + max(s.maxBackoff, 5*time.Second) + 2*max(s.poll, 30*time.Second) + s.prepare + 10*time.Second
}
