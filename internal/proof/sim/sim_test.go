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

// Flags of the simulator; their help texts are in declare. CI runs Rounds with -sim.commits 1000000 -sim.each 100. The nightly
// run has Rounds with -sim.commits 100000000, and Seasons with -sim.hours 50000. Without any of -sim.rounds, -sim.for,
// -sim.hours, -sim.commits and -sim.each, a test simulates what it can in less than a second.
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
	flag.IntVar(&f.rounds, "sim.rounds", 0, "how many rounds or seasons to simulate, and how many seeds TestSessions has")
	flag.Uint64Var(&f.seed, "sim.seed", 0, "simulate only the round or season with this seed, and print everything that happens; use it with -run Rounds or -run Seasons")
	flag.Uint64Var(&f.from, "sim.from", 1, "the first seed, of rounds, seasons, scenarios and sessions")
	flag.DurationVar(&f.long, "sim.for", 0, "simulate rounds or seasons until this time has passed")
	flag.Float64Var(&f.hours, "sim.hours", 0, "simulate rounds or seasons until their simulated time adds up to this many hours")
	flag.IntVar(&f.commits, "sim.commits", 0, "simulate rounds or seasons until this many commits were accepted")
	flag.IntVar(&f.each, "sim.each", 0, "simulate rounds or seasons until each kind of fault has happened this many times")
	flag.DurationVar(&f.most, "sim.most", 0, "how long the faults of one simulation go on at most (default 20m, and 90 days in a season; 30s if no flag says how much to simulate)")
	flag.IntVar(&f.sessions, "sim.sessions", 0, "the number of sessions in TestSessions (default 40; 20 if no flag says how much to simulate)")
	flag.IntVar(&f.leases, "sim.leases", 5, "the number of callers of each session in TestSessions; each wants one lease at a time")
	return f
}

// moment reports whether no flag says how much to simulate. Then a test has less than a second.
func (f *flags) moment() bool {
	return f.most == 0 && f.seed == 0 && !f.bounded()
}

// bounded reports whether a flag says how many simulations there are, for how long, or until what is reached.
func (f *flags) bounded() bool { return f.rounds > 0 || f.long > 0 || f.aims() }

// aims reports whether the simulations go on until their sum has reached something.
func (f *flags) aims() bool { return f.hours > 0 || f.commits > 0 || f.each > 0 }

// reached reports whether s has everything that the flags ask for.
func (f *flags) reached(s *Stats) bool {
	return s.Time.Hours() >= f.hours && s.Commits >= f.commits && slices.Min(s.Faults[:]) >= f.each
}

// trouble returns how long the faults of one simulation go on at most; usual is the default of its kind.
func (f *flags) trouble(usual time.Duration) time.Duration {
	if f.moment() {
		return 30 * time.Second
	}
	return cmp.Or(f.most, usual)
}

const (
	short   = 20 * time.Minute    // the default for rounds and scenarios
	quarter = 90 * 24 * time.Hour // the default for seasons
)

// TestRounds simulates random fleets, on every processor; each round follows from
// its seed alone.
func TestRounds(t *testing.T) {
	runs := &runs{T: t, name: "Rounds", simulate: Round, most: given.trouble(short)}
	runs.all()
}

// TestSeasons simulates fleets that live for weeks and months.
func TestSeasons(t *testing.T) {
	runs := &runs{T: t, name: "Seasons", simulate: Season, most: given.trouble(quarter)}
	runs.all()
}

// Runs are the rounds or seasons of one test, on all processors.
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
	processors := runtime.GOMAXPROCS(0)
	if !given.bounded() {
		processors = 1
	}
	for range processors {
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
		long = 200 * time.Millisecond
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
