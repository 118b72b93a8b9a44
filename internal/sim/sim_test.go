package sim

import (
	"cmp"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// flags of the simulator. A run in CI: -sim.for 6m.
//
//	-sim.rounds N   so many random rounds; 0 and no -sim.for: what fits into a moment
//	-sim.for D      as many as fit into that time
//	-sim.from N     the seed of the first; of the scenarios, too
//	-sim.most D     how long the trouble of one simulation lasts at most
//	-sim.seed N     replay one round, and tell all that happens in it
type flags struct {
	rounds     int
	seed, from uint64
	long, most time.Duration
}

// given declares the flags when the test binary starts.
var given = declare()

func declare() *flags {
	f := new(flags)
	flag.IntVar(&f.rounds, "sim.rounds", 0, "random rounds to simulate")
	flag.Uint64Var(&f.seed, "sim.seed", 0, "replay this round, and tell all")
	flag.Uint64Var(&f.from, "sim.from", 1, "the seed of the first round")
	flag.DurationVar(&f.long, "sim.for", 0, "simulate rounds for so long")
	flag.DurationVar(&f.most, "sim.most", 0, "the longest trouble of one simulation; default 20m, or 30s when nothing is asked for")
	return f
}

// trouble is how long it lasts at most. When nothing is asked for there is little
// time.
func (f *flags) trouble() time.Duration {
	if f.most == 0 && f.rounds == 0 && f.seed == 0 && f.long == 0 {
		return 30 * time.Second
	}
	return cmp.Or(f.most, 20*time.Minute)
}

// TestRounds simulates random fleets, on every processor; each round follows from
// its seed alone.
func TestRounds(t *testing.T) {
	if given.seed > 0 {
		replay(t)
		return
	}
	runs := &runs{T: t, began: time.Now()}
	runs.next.Store(given.from)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(runs.run)
	}
	all.Wait()
	t.Logf("%v\n%d failed; %.0f simulated seconds per second", runs.total, runs.failed, runs.total.Time.Seconds()/time.Since(runs.began).Seconds())
}

func replay(t *testing.T) {
	r := Round(given.seed, given.trouble(), func(line string) { fmt.Println(line) })
	t.Logf("hash %x\n%v", r.Hash, r.Stats)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
}

// Runs are rounds on several processors.
type runs struct {
	*testing.T
	began time.Time
	next  atomic.Uint64

	mu     sync.Mutex
	total  Stats
	failed int
}

func (r *runs) run() {
	for {
		seed := r.next.Add(1) - 1
		if r.enough(seed) {
			return
		}
		r.add(seed, Round(seed, given.trouble(), nil))
	}
}

func (r *runs) enough(seed uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	long := given.long
	if long == 0 && given.rounds == 0 {
		long = 400 * time.Millisecond
	}
	return r.failed > 20 || long > 0 && time.Since(r.began) > long || given.rounds > 0 && seed >= given.from+uint64(given.rounds)
}

func (r *runs) add(seed uint64, result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Add(result.Stats)
	if result.Err != nil {
		r.failed++
		r.Errorf("replay with -sim.seed %d -sim.most %v: %.3000v", seed, given.trouble(), result.Err)
	}
}
