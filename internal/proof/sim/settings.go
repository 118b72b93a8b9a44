package sim

import (
	"cmp"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
)

// Settings are the settings of a round, without its trouble.
type settings struct {
	ttl, drain time.Duration
	pace       time.Duration // of handlers
	wind       time.Duration // how long good handlers take to wind down
	retention  time.Duration // how long the source lists a finished stream
	nodes      int
	streams    int
	every      time.Duration // between records
	marks      int
	commits    time.Duration
	flush      float64 // the probability that a handler waits for a mark to be stored
	limit      int
	stall      time.Duration
	attempts   int64
	backoff    time.Duration
	cooldown   time.Duration
	audit      time.Duration
	prepare    time.Duration
	handoff    rebalance.Handoff // nil: each process draws one
	targets    bool              // handlers change a sink whose fence is raised
	planner    string            // the name of the user's planner, which plans as rebalance.Even does; empty: there is none

	// Only seasons set these. In a round they are zero, and the defaults of config and handlers hold.
	seasonal   bool
	kinds      []Fault // the faults of all its spells
	maxBackoff time.Duration
	poll       time.Duration
	faster     int64 // how many times as fast handlers are as records come; 0: four times

	temper Fault         // the only fault of handlers; 0: they have any
	rest   time.Duration // how long it is checked that nothing moves in a fleet at rest
	exact  bool          // no clock runs at a rate of its own

	chances
}

// Chances are the probabilities of faults outside the network.
type chances struct {
	tempers, hook, source float64
	sick, busy            float64 // that a process starts on such a host
}

// drawRound draws the settings of a round.
func drawRound(c chance) settings {
	ttl := pick(c, 2*time.Second, 3*time.Second, 5*time.Second, 10*time.Second)
	s := settings{
		ttl: ttl, drain: ttl * time.Duration(pick(c, 1, 2)), pace: pick(c, 100*time.Millisecond, 400*time.Millisecond, time.Second),
		wind: pick(c, 0, 100*time.Millisecond, 300*time.Millisecond), retention: pick(c, 20*time.Second, time.Minute),
		nodes: 2 + c.IntN(5), streams: 1 + c.IntN(12), every: pick(c, 20*time.Millisecond, 100*time.Millisecond),
		marks: pick(c, 0, 0, 1, 5), commits: pick(c, 0, time.Second, -1), flush: pick(c, 0, 0.02, 0.3),
		backoff: pick(c, 200*time.Millisecond, time.Second), cooldown: pick(c, 0, ttl), audit: pick(c, 20*time.Second, time.Minute),
	}
	s.drawOptions(c, ttl, 6)
	return s
}

// drawOptions draws what only some fleets configure. The limit of shards is at most limit.
func (s *settings) drawOptions(c chance, stall time.Duration, limit int) {
	if c.likely(0.2) {
		s.stall = stall
	}
	if c.likely(0.2) {
		s.attempts = 3
	}
	if c.likely(0.5) {
		s.prepare = c.between(100*time.Millisecond, 2*time.Second)
	}
	if c.likely(0.2) {
		s.limit = 1 + c.IntN(limit)
	}
}

// enlarge gives a third of the fleets 9 to 20 workers, so that not all of these watch, a quarter a planner of the user, and a
// third a sink whose fence is raised.
func (s *settings) enlarge(c chance) {
	if c.IntN(3) == 0 {
		s.nodes = 9 + c.IntN(12)
		s.streams += c.IntN(12)
	}
	if c.IntN(4) == 0 {
		s.planner = "user"
	}
	s.targets = c.IntN(3) == 0
}

// config draws the configuration of the next process.
func (s *settings) config(c chance) engine.Config {
	handoff := s.handoff
	if handoff == nil {
		handoff = s.strategy(c)
	}
	return engine.Config{
		Targets: s.targets, Before: s.targets && c.likely(0.3),
		Group: group, TTL: s.ttl, Drain: s.drain, Handoff: handoff, Planner: s.planner, MaxShards: s.limit,
		MaxMoves: pick(c, 1, 3, 100), StallAfter: s.stall, CommitTimeout: 3 * s.ttl, MaxAttempts: s.attempts,
		Backoff: s.backoff, MaxBackoff: cmp.Or(s.maxBackoff, 5*time.Second), Audit: s.audit, Poll: cmp.Or(s.poll, pick(c, time.Second, 10*time.Second, 30*time.Second)),
		Order: checkpoint.Decimal, Commits: checkpoint.Policy{Every: s.commits, Marks: s.marks},
	}
}

// strategy draws a strategy.
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
