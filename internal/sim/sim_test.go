package sim

import (
	"cmp"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// flags of the simulator. A run in CI: -run Rounds -sim.commits 1000000 -sim.each 100. The
// long ones: -run Rounds -sim.commits 100000000, and -run Seasons -sim.hours 50000.
//
//	-sim.rounds N   so many random rounds, or seasons; 0 and none of the next four: what fits into a moment
//	-sim.for D      as many as fit into that time
//	-sim.hours N    as many as it takes to simulate so many hours
//	-sim.commits N  … for so many commits to be accepted
//	-sim.each N     … for each kind of fault to happen so often
//	-sim.from N     the seed of the first; of the scenarios, too
//	-sim.most D     how long the trouble of one simulation lasts at most
//	-sim.sessions N how many sessions contend in TestSessions
//	-sim.leases N   for how many leases each of them has a caller
//	-sim.seed N     replay one, and tell all that happens in it: with -run Rounds or -run Seasons
type flags struct {
	rounds     int
	seed, from uint64
	hours      float64
	commits    int
	each       int
	long, most time.Duration

	sessions, leases int
}

// given declares the flags when the test binary starts.
var given = declare()

func declare() *flags {
	f := new(flags)
	flag.IntVar(&f.rounds, "sim.rounds", 0, "random rounds to simulate")
	flag.Uint64Var(&f.seed, "sim.seed", 0, "replay this round or season, and tell all")
	flag.Uint64Var(&f.from, "sim.from", 1, "the seed of the first round")
	flag.DurationVar(&f.long, "sim.for", 0, "simulate rounds for so long")
	flag.Float64Var(&f.hours, "sim.hours", 0, "simulate so many hours")
	flag.IntVar(&f.commits, "sim.commits", 0, "simulate until so many commits are accepted")
	flag.IntVar(&f.each, "sim.each", 0, "simulate until each kind of fault has happened so often")
	flag.DurationVar(&f.most, "sim.most", 0, "the longest trouble of one simulation; default 20m, of seasons 90 days, or 30s when nothing is asked for")
	flag.IntVar(&f.sessions, "sim.sessions", 40, "how many sessions contend in TestSessions")
	flag.IntVar(&f.leases, "sim.leases", 5, "for how many leases each session has a caller in TestSessions")
	return f
}

// moment reports whether nothing is asked for: then there is little time.
func (f *flags) moment() bool {
	return f.most == 0 && f.seed == 0 && !f.bounded()
}

// bounded reports whether it is said how much to simulate.
func (f *flags) bounded() bool { return f.rounds > 0 || f.long > 0 || f.aims() }

// aims reports whether something is to be reached, and how long it takes is not said.
func (f *flags) aims() bool { return f.hours > 0 || f.commits > 0 || f.each > 0 }

// reached reports whether all that is to be reached is.
func (f *flags) reached(s *Stats) bool {
	return s.Time.Hours() >= f.hours && s.Commits >= f.commits && slices.Min(s.Faults[:]) >= f.each
}

// trouble is how long it lasts at most, of those who may have so much of it.
func (f *flags) trouble(usual time.Duration) time.Duration {
	if f.moment() {
		return 30 * time.Second
	}
	return cmp.Or(f.most, usual)
}

const (
	short   = 20 * time.Minute    // of rounds and scenarios
	quarter = 90 * 24 * time.Hour // of seasons
)

// TestRounds simulates random fleets, on every processor; each round follows from
// its seed alone.
func TestRounds(t *testing.T) {
	runs := &runs{T: t, name: "Rounds", simulate: Round, most: given.trouble(short)}
	runs.all()
}

// TestSeasons simulates fleets that live for weeks and months: the same, in long.
func TestSeasons(t *testing.T) {
	runs := &runs{T: t, name: "Seasons", simulate: Season, most: given.trouble(quarter)}
	runs.all()
}

// Runs are rounds or seasons, on several processors.
type runs struct {
	*testing.T
	name     string
	simulate func(seed uint64, most time.Duration, log func(string)) Result
	most     time.Duration
	began    time.Time
	next     atomic.Uint64

	mu     sync.Mutex
	total  Stats
	failed int
}

func (r *runs) all() {
	if given.seed > 0 {
		r.replay()
		return
	}
	r.began = time.Now()
	r.next.Store(given.from)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(r.run)
	}
	all.Wait()
	r.Logf("%v\n%d failed; %.0f simulated seconds per second", r.total, r.failed, r.total.Time.Seconds()/time.Since(r.began).Seconds())
}

func (r *runs) replay() {
	result := r.simulate(given.seed, r.most, func(line string) { fmt.Println(line) })
	r.Logf("hash %x\n%v", result.Hash, result.Stats)
	if result.Err != nil {
		r.Fatal(result.Err)
	}
}

func (r *runs) run() {
	for {
		seed := r.next.Add(1) - 1
		if r.enough(seed) {
			return
		}
		r.add(seed, r.simulate(seed, r.most, nil))
	}
}

func (r *runs) enough(seed uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	long := given.long
	if !given.bounded() {
		long = 400 * time.Millisecond
	}
	return r.failed > 20 || long > 0 && time.Since(r.began) > long ||
		given.rounds > 0 && seed >= given.from+uint64(given.rounds) ||
		given.aims() && given.reached(&r.total)
}

func (r *runs) add(seed uint64, result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Add(result.Stats)
	if result.Err != nil {
		r.failed++
		r.Errorf("replay with -run %s -sim.seed %d -sim.most %v: %.3000v", r.name, seed, r.most, result.Err)
	}
}
