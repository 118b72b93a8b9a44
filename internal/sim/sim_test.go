package sim

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// -sim.rounds N      so many random rounds (0: what fits into a second)
// -sim.seed N        one round, with all that happened in it
// -sim.from N        the first seed
// -sim.for 6m        as many rounds as fit
type flags struct {
	rounds int
	seed   uint64
	from   uint64
	long   time.Duration
}

// given declares the flags when the test binary starts.
var given = declare()

func declare() *flags {
	f := new(flags)
	flag.IntVar(&f.rounds, "sim.rounds", 0, "random rounds to simulate")
	flag.Uint64Var(&f.seed, "sim.seed", 0, "replay this round, and tell all")
	flag.Uint64Var(&f.from, "sim.from", 1, "the seed of the first round")
	flag.DurationVar(&f.long, "sim.for", 0, "simulate rounds for so long")
	return f
}

func TestRounds(t *testing.T) {
	if given.seed > 0 {
		r := Round(given.seed, func(line string) { fmt.Println(line) })
		t.Logf("hash %x\n%v", r.Hash, r.Stats)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return
	}
	long, rounds := given.long, given.rounds
	if long == 0 && rounds == 0 {
		long = time.Second
	}
	began := time.Now()
	var next atomic.Uint64
	next.Store(given.from)
	var mu sync.Mutex
	var total Stats
	failed := 0
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				seed := next.Add(1) - 1
				if rounds > 0 && seed >= given.from+uint64(rounds) || long > 0 && time.Since(began) > long {
					return
				}
				r := Round(seed, nil)
				mu.Lock()
				total.Add(r.Stats)
				if r.Err != nil {
					failed++
					t.Errorf("replay with -sim.seed %d: %.3000v", seed, r.Err)
				}
				enough := failed > 20
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	t.Logf("%v\n%d failed; %.0f simulated seconds per second", total, failed, total.Time.Seconds()/took.Seconds())
}
