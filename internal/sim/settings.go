package sim

import (
	"cmp"
	"math/rand/v2"
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

	// The chances of what goes wrong outside the network.
	tempers, hook, source float64
	sick, busy            float64 // of a process, when it starts
}

// draw is a round of the mix.
func (w *world) draw() settings {
	ttl := pick(w, 2*time.Second, 3*time.Second, 5*time.Second, 10*time.Second)
	s := settings{
		ttl: ttl, drain: ttl * time.Duration(pick(w, 1, 2)), pace: pick(w, 100*time.Millisecond, 400*time.Millisecond, time.Second),
		wind: pick(w, 0, 100*time.Millisecond, 300*time.Millisecond), retention: pick(w, 20*time.Second, time.Minute),
		nodes: 2 + w.chance.IntN(5), streams: 1 + w.chance.IntN(12), every: pick(w, 20*time.Millisecond, 100*time.Millisecond),
		marks: pick(w, 0, 0, 1, 5), commits: pick(w, 0, time.Second, -1), flush: pick(w, 0, 0.02, 0.3),
		backoff: pick(w, 200*time.Millisecond, time.Second), cooldown: pick(w, 0, ttl), audit: pick(w, 20*time.Second, time.Minute),
	}
	if w.likely(0.2) {
		s.stall = ttl
	}
	if w.likely(0.2) {
		s.attempts = 3
	}
	if w.likely(0.5) {
		s.prepare = w.between(100*time.Millisecond, 2*time.Second)
	}
	if w.likely(0.2) {
		s.limit = 1 + w.chance.IntN(6)
	}
	return s
}

// enlarge gives one fleet in three 9 to 20 workers, so that not all watch, and one in four a planner of the user. That
// is drawn apart, so that all else of a seed is as it would be.
func (w *world) enlarge() {
	chance := rand.New(rand.NewPCG(w.seed, 0x1a29e))
	if chance.IntN(3) == 0 {
		w.set.nodes = 9 + chance.IntN(12)
		w.set.streams += chance.IntN(12)
	}
	if chance.IntN(4) == 0 {
		w.set.planner = "user"
	}
}

// config is that of the next process.
func (w *world) config() engine.Config {
	s := &w.set
	handoff := s.handoff
	if handoff == nil {
		handoff = w.strategy()
	}
	return engine.Config{
		Group: group, TTL: s.ttl, Drain: s.drain, Handoff: handoff, Planner: s.planner, MaxShards: s.limit,
		MaxMoves: pick(w, 1, 3, 100), StallAfter: s.stall, CommitTimeout: 3 * s.ttl, MaxAttempts: s.attempts,
		Backoff: s.backoff, MaxBackoff: cmp.Or(s.maxBackoff, 5*time.Second), Audit: s.audit, Poll: cmp.Or(s.poll, pick(w, time.Second, 10*time.Second, 30*time.Second)),
		Order: checkpoint.Decimal, Commits: checkpoint.Policy{Every: s.commits, Marks: s.marks},
	}
}

// strategy draws one of those that can be had.
func (w *world) strategy() rebalance.Handoff {
	after := pick(w, rebalance.Force, rebalance.Force, rebalance.Wait)
	eager := rebalance.Terms{Mode: rebalance.Eager, Drain: w.set.drain, AfterDrain: after, Prepare: w.set.prepare}
	cooperative := rebalance.Terms{Mode: rebalance.Cooperative, Drain: w.set.drain, Prepare: w.set.prepare}
	switch w.chance.IntN(4) {
	case 0:
		return eager
	case 1:
		return cooperative
	case 2:
		return pick(w, rebalance.Eager, rebalance.Cooperative)
	}
	return rebalance.HandoffFunc(func(shard string, why rebalance.Why) rebalance.Terms {
		if rebalance.Tie(shard)%2 == 0 && why == rebalance.Balance {
			return eager
		}
		return cooperative
	})
}
