package scale

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// flags are the flags of the measurement.
//
//	-scale            measure 10,000 shards on 100 workers
//	-scale.shards N   measure this number of shards
//	-scale.workers N  measure this number of workers
//	-scale.buckets N  the number of buckets of the lease rows
//	-scale.commit D   how often each shard commits
//	-scale.sizes L    the fleets of TestBounds
//	-scale.story S    only stories whose name contains S
//	-scale.eager      eager moves instead of cooperative ones
type flags struct {
	full            bool
	shards, workers int
	buckets         int
	sizes           string
	commit          time.Duration
	story           string
	eager           bool
}

// given are the flags, declared when the test binary starts.
var given = declare()

func declare() *flags {
	f := new(flags)
	flag.BoolVar(&f.full, "scale", false, "measure a large fleet")
	flag.IntVar(&f.shards, "scale.shards", 10_000, "the number of shards")
	flag.IntVar(&f.workers, "scale.workers", 100, "the number of workers")
	flag.IntVar(&f.buckets, "scale.buckets", 0, "the number of buckets of the lease rows; 0: what docs/table.md asks for")
	flag.StringVar(&f.sizes, "scale.sizes", "", "the fleets of TestBounds: shards x workers")
	flag.DurationVar(&f.commit, "scale.commit", 30*time.Second, "how often each shard commits")
	flag.StringVar(&f.story, "scale.story", "", "only stories whose name contains this")
	flag.BoolVar(&f.eager, "scale.eager", false, "eager moves")
	return f
}

func (f *flags) setting() setting {
	mode := rebalance.Cooperative
	if f.eager {
		mode = rebalance.Eager
	}
	s := setting{
		shards: f.shards, workers: f.workers, buckets: max(1, f.buckets), mode: mode,
		commit: f.commit, away: 3 * time.Hour,
	}
	s.rest = time.Minute
	return s
}

// A story is an event in the life of a settled fleet.
type story struct {
	name string
	idle bool // the handlers commit nothing
	run  func(f *fleet) result
}

func stories() []story {
	return []story{
		{"steady, no commits", true, steady},
		{"steady", false, steady},
		{"a worker joins", false, joins},
		{"a worker leaves", false, leaves},
		{"10 % die at once", false, dies},
		{"and three more times", false, waves},
		{"rolling deploy, 10 at a time", false, deploy},
		{"rolling deploy, 10 at a time, ready or not", false, rush},
		{"the table was silent for 10 min", false, outage},
		{"all restart after 3 h", false, restart},
		{"all restart after 3 h, no commits", true, restart},
	}
}

// settled returns a fleet that has held all shards for a while. The limits of the table are
// off until the fleet is even.
func settled(s setting, idle bool) *fleet {
	f := newFleet(s)
	f.idle = idle
	for range s.workers {
		f.join()
	}
	if f.until(10*time.Minute, f.even) < 0 {
		panic("the fleet does not settle, even without limits")
	}
	f.Run(5 * time.Second)
	f.table.limited = true
	f.idle = true // commits in this time would change nothing except how long the test runs
	f.Run(s.rest - s.rest/8)
	f.idle = idle
	f.Run(s.rest / 8)
	f.begin()
	return f
}

// begin resets the meter and the counters.
func (f *fleet) begin() {
	f.meter.reset(f.Now())
	f.lost, f.starts, f.gaps, f.longest = 0, 0, 0, 0
}

// measure completes a result with what was measured since begin.
func (f *fleet) measure(r result) result {
	r.took = f.Now() - f.meter.from
	r.load, r.lost, r.starts, r.gaps, r.longest = f.meter.sum(), f.lost, f.starts, f.gaps, f.longest
	requests, write, read := f.meter.peak()
	r.peak = [3]float64{float64(requests), write, read}
	return r
}

// settleLimit is how long a story waits for the fleet to settle.
const settleLimit = 2 * time.Minute

// settle waits until all shards are held, and then until they are evenly distributed. It
// measures a while longer.
func (f *fleet) settle() result {
	from := f.Now()
	r := result{held: f.until(settleLimit, f.allHeld), even: -1}
	if r.held >= 0 {
		if f.until(settleLimit, f.even) >= 0 {
			r.even = max(f.Now()-from, time.Millisecond)
		}
	}
	f.Run(10 * time.Second)
	return f.measure(r)
}

func joins(f *fleet) result {
	f.join()
	return f.settle()
}

// leaves: one worker shuts down gracefully, and no other replaces it.
func leaves(f *fleet) result {
	n, from := f.nodes[0], f.Now()
	n.last = true
	n.stop()
	f.until(settleLimit, func() bool { return !n.Up() })
	gone := f.Now() - from
	r := f.settle()
	for _, took := range []*time.Duration{&r.held, &r.even} {
		if *took >= 0 {
			*took += gone
		}
	}
	return r
}

func dies(f *fleet) result {
	for range max(1, f.workers/10) {
		f.nodes[0].kill()
	}
	return f.settle()
}

// waves: some workers die, then others, before the remaining ones had the time to list the
// rows.
func waves(f *fleet) result {
	for range 3 {
		dies(f)
		f.Run(30 * time.Second)
	}
	f.begin()
	return dies(f)
}

// deploy replaces the workers, about ten at a time: a successor starts when its predecessor
// has ended, and the next worker is stopped when fewer than ten are stopping or not ready.
func deploy(f *fleet) result { return replaceAll(f, (*fleet).unready) }

// rush does not wait for successors to be ready.
func rush(f *fleet) result { return replaceAll(f, func(*fleet) int { return 0 }) }

func replaceAll(f *fleet, unready func(*fleet) int) result {
	from := f.Now()
	old := append([]*node(nil), f.nodes...)
	for i, n := range old {
		if f.until(settleLimit, func() bool { return leaving(old[:i])+unready(f) < 10 }) < 0 {
			break
		}
		n.stop()
	}
	f.until(settleLimit, func() bool { return leaving(old) == 0 })
	r := f.settle()
	if r.even >= 0 {
		r.even = r.even + f.Now() - from - r.took
	}
	return r
}

func leaving(nodes []*node) (n int) {
	for _, o := range nodes {
		if o.leaving && o.Up() {
			n++
		}
	}
	return n
}

// outage: no worker reaches the table for a while; then all do.
func outage(f *fleet) result {
	f.table.silent = true
	f.Run(min(f.away, 10*time.Minute)) // a longer outage would change nothing except how long the test runs
	f.table.silent = false
	f.begin()
	return f.settle()
}

// restart: every process was killed, and hours later all start again.
func restart(f *fleet) result {
	for len(f.nodes) > 0 {
		f.nodes[0].kill()
	}
	f.Run(f.away)
	f.begin()
	for range f.workers {
		f.join()
	}
	return f.settle()
}

// TestScale measures; with -scale it prints a table for docs/measurements.md.
func TestScale(t *testing.T) {
	if !given.full {
		t.Skip("-scale measures a large fleet")
	}
	debug.SetGCPercent(300)
	var out strings.Builder
	fmt.Fprintf(&out, "%d shards, %d workers, lease time 10 s, a commit per shard every %v, lease rows in %d bucket(s)\n\n%s", given.shards, given.workers, given.commit, max(1, given.buckets), header)
	for _, s := range stories() {
		if !strings.Contains(s.name, given.story) {
			continue
		}
		began := time.Now()
		f := settled(given.setting(), s.idle)
		t.Logf("%s: settled after %.1f s of real time; rows of %d bytes, seats of %d", s.name, time.Since(began).Seconds(), f.table.rows.typical(), f.table.seats.typical())
		r := s.run(f)
		r.story = s.name
		if r.unchanged {
			followsFromSizes(t, f, r)
		}
		out.WriteString(r.String())
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		t.Logf("%s: %.1f s of real time, %d MB\n%v\n%s", s.name, time.Since(began).Seconds(), mem.HeapAlloc>>20, f.meter, r)
	}
	t.Logf("\n%s", out.String())
}
