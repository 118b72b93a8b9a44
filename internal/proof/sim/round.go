package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Result is the result of one round.
type Result struct {
	Stats Stats
	Hash  uint64 // of everything that happened
	Err   error
}

// Round simulates the life of one fleet, which follows from its seed: it comes up,
// suffers, and comes to rest; then a worker joins, one leaves and one dies, and
// all stop. The trouble lasts for 2 to 20 minutes, but no longer than most; log, if it is not nil, gets a line
// for everything that happens.
func Round(seed uint64, most time.Duration, log func(string)) Result {
	w := newWorld(seed, log)
	w.set = drawRound(w.chance)
	w.set.enlarge(w.apart(0x1a29e))
	w.populate()
	kinds := drawKinds(w.chance)
	if slices.Contains(kinds, SkewedRestore) {
		w.skew(time.Hour)
	}
	storm := w.drawTrouble(kinds)
	storm.kinds = append(storm.kinds, Crash)
	length := min(w.between(2*time.Minute, 20*time.Minute), most)
	w.set.rest = min(most, time.Minute)
	w.faults.begin(storm, length)
	w.run(length)
	rest{w}.settle()
	life{rest{w}}.all()
	return w.result()
}

func (w *world) result() Result {
	w.stats.Rounds, w.stats.Time, w.stats.Faults[Stale] = 1, w.Now(), w.table.Lagged
	if len(w.nodes) > lease.MaxWatchers {
		w.stats.Large = 1
	}
	return Result{Stats: w.stats, Hash: w.hash, Err: errors.Join(w.broken...)}
}
