package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A world is one fleet, its table and its streams.
//
// Invariant: whatever decides anything is ordered (by time, then by when it was
// put there), never by a map.
type world struct {
	virtual.Time
	seed    uint64
	chance  *rand.Rand
	make    virtual.Maker
	table   virtual.Table
	store   *store // of the table
	judge   *judge
	net     network
	streams []*stream
	named   map[string]*stream
	nodes   []*node
	set     settings
	stats   Stats
	hash    uint64
	log     func(string) // nil: nobody reads along
	faults  []error
	reports reports

	snapshot *snapshot     // of the table, to be restored
	keeping  bool          // one is to be taken soon
	went     bool          // the table is an older one, and nobody has adopted it yet
	wall     time.Duration // how far the operator's clock is off
	calm     time.Duration
	peace    bool // trouble has ended
	strict   bool // calm for long enough: bounds hold
	snare    bool // the next worker that writes a plan is stopped in the middle

	wires    virtual.Wires
	watchful bool                     // workers have a deathwatch
	lies     map[string]engine.Shown  // what the addresses of some nodes show instead of the truth
	mistaken map[string]time.Duration // until when an address last seemed to prove the death of its node
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, chance: rand.New(rand.NewPCG(seed, 0x5eed)), make: virtual.New, store: newStore(), named: map[string]*stream{}, hash: 14695981039346656037}
	w.judge, w.net.w = newJudge(w), w
	w.table = virtual.Table{Store: w.store, Watcher: w.judge, Unreadable: map[lease.Key]bool{}, Time: &w.Time}
	w.reports.idle, w.reports.shards = map[string]time.Duration{}, map[string]time.Duration{}
	w.After(0, w.keepNaming)
	w.watchful = rand.New(rand.NewPCG(seed, 0xdea7)).IntN(3) == 0 // drawn apart, so that all else of a seed is as it would be
	w.lies, w.mistaken, w.wires.Lie = map[string]engine.Shown{}, map[string]time.Duration{}, w.lie
	return w
}

// run lets so much time pass, or less if a promise was broken.
func (w *world) run(d time.Duration) {
	w.RunWhile(d, func() bool { return len(w.faults) == 0 })
}

// until lets time pass until cond holds, and reports whether it did in time.
func (w *world) until(limit time.Duration, cond func() bool) bool {
	for from := w.Now(); !cond(); w.run(max(50*time.Millisecond, w.set.ttl/200)) {
		if w.Now()-from > limit || len(w.faults) > 0 {
			return false
		}
	}
	return true
}

// fault notes a broken promise. The simulation ends at the first.
func (w *world) fault(format string, args ...any) {
	err := fmt.Errorf("seed %d at %v: "+format, append([]any{w.seed, w.Now()}, args...)...)
	w.faults = append(w.faults, err)
	if w.log != nil {
		w.log(err.Error())
	}
}

// trace makes what happened part of the hash, and tells who reads along.
func (w *world) trace(what, who string, text func() string) {
	w.mix(uint64(w.Now()))
	for i := range len(what) {
		w.mix(uint64(what[i]))
	}
	for i := range len(who) {
		w.mix(uint64(who[i]))
	}
	if w.log != nil {
		line := fmt.Sprintf("%10.3fs %-5s %s", w.Now().Seconds(), who, what)
		if text != nil {
			line += " " + text()
		}
		w.log(line)
	}
}

// note tells who reads along, and is no part of the hash.
func (w *world) note(who, format string, args ...any) {
	if w.log != nil {
		w.log(fmt.Sprintf("%10.3fs %-5s ", w.Now().Seconds(), who) + fmt.Sprintf(format, args...))
	}
}

func (w *world) mix(v uint64) { w.hash = (w.hash ^ v) * 1099511628211 }

// between draws a duration.
func (w *world) between(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(w.chance.Int64N(int64(to-from)))
}

// likely draws whether something of that chance happens.
func (w *world) likely(p float64) bool { return p > 0 && w.chance.Float64() < p }

// pick draws one of them.
func pick[T any](w *world, from ...T) T { return from[w.chance.IntN(len(from))] }
