package scale

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the bounds of docs/design.md for fleets of any size.

const watchers = 8

// The pace of the audits of a large fleet; see internal/engine.
const (
	auditPage = 2000             // the rows of one page
	auditRest = 5 * time.Second  // the time between two pages
	longAudit = 12 * time.Second // the same for more than 24,000 rows
)

// sweep returns how long one audit of a large fleet takes, with the rest before the next.
func (s setting) sweep() time.Duration {
	rest := auditRest
	if s.shards > 24_000 {
		rest = longAudit
	}
	return time.Duration(s.shards/auditPage+1) * rest
}

// auditPeriod returns the average time between two audits of a worker of a settled fleet. When a
// large fleet's audit takes longer than a period, the next begins when it has ended.
func (s setting) auditPeriod() time.Duration {
	if s.workers <= watchers {
		return onAverage(audit)
	}
	return max(onAverage(audit), s.sweep())
}

// perSecond derives the units that a settled fleet consumes in a second from the sizes of its
// rows and seats.
//
//   - In each heartbeat a worker writes its seat.
//   - Up to eight workers all list the seats once per heartbeat, and all rows once per minute.
//   - In a larger fleet, the first three of eight watchers list the seats every 500 ms, 1 s and 2 s,
//     the others once per heartbeat. All other workers read the plan once per heartbeat. The first
//     watcher ticks once per heartbeat, and lists the rows page by page. All these reads are
//     eventually consistent, at half the price.
func (f *fleet) perSecond() (l load) {
	rows, seats := f.table.rows, f.table.seats
	perBeat := 1 / onAverage(f.ttl/3).Seconds()
	list := float64(units(seats.bytes, readUnit)) / 2
	n := float64(f.workers)
	l.write[lease.KindSeat] = n * perBeat * float64(units(seats.typical(), writeUnit))
	if f.workers <= watchers {
		l.read[lease.KindSeat] = n * perBeat * list
		l.read[lease.KindLease] = n / f.auditPeriod().Seconds() * float64(units(rows.bytes, readUnit))
	} else {
		l.write[lease.KindSeat] += perBeat
		l.read[lease.KindSeat] = (n-watchers)*perBeat/2 + list*((2+1+0.5)*20/19+(watchers-3)*perBeat)
		l.read[lease.KindLease] = float64(units(rows.bytes, readUnit)) / 2 / f.auditPeriod().Seconds()
	}
	if !f.idle {
		l.write[lease.KindLease] = float64(f.shards) / f.commit.Seconds() * float64(units(rows.typical(), writeUnit))
	}
	return l
}

// A bound is what one change of a fleet may take.
type bound struct {
	name      string
	run       func(*fleet) result
	held      time.Duration // until every shard is held
	even      time.Duration // until the shards are evenly distributed
	starts    int           // tenures that begin
	longest   time.Duration // for which a shard has no handler
	reads     float64       // read units beyond those of the settled fleet; 0: any number
	today     float64       // read units that it takes today, if that is more
	throttled bool          // requests may be throttled: there are more claims than the partitions take in a second
}

// bounds are those of docs/design.md, for a lease time of 10 s. In a small fleet every worker watches.
func bounds(s setting) []bound {
	least := s.shards / (s.workers + 1)
	share := (s.shards + s.workers - 1) / s.workers
	claims := func(n int) time.Duration {
		return time.Duration(n) * time.Second / time.Duration(partitionWrite*s.buckets)
	}
	tenth := (s.workers + 9) / 10 * share
	died, change := leaseTime+2500*time.Millisecond, beat+2*time.Second+claims(s.workers)
	if s.workers <= watchers {
		died = leaseTime + beat + 500*time.Millisecond
	}
	if s.workers < watchers { // one more is a large fleet
		change = beat + 1500*time.Millisecond
	}
	oneDied, someDied := died+claims(share), died+500*time.Millisecond+claims(tenth)
	const nobody = 27 * time.Second
	back := (leaseTime + time.Second + claims(s.shards)) * 6 / 5
	// The planner lists the targets, with 16 bytes for each shard, and meanwhile the watchers list the seats three times.
	listings := float64(16*s.shards+3*240*s.workers) / 8192
	today := map[string]float64{"64x4": 145}[s.size()] // docs/measurements.md says why
	all := []bound{
		{"a worker joins", joins, beat, change, least + 1, 0, float64(s.workers+10*(least+1)) + listings, today, false},
		{"a worker leaves", leaves, change, change, share, 0, 0, 0, false},
		{"one dies", one, oneDied, oneDied, share, oneDied, 0, 0, false},
		{"every tenth dies", everyTenth, someDied, someDied, tenth, someDied, 0, 0, false},
		{"all watchers die", watchersDie, nobody + claims(watchers*share), nobody + claims(watchers*share), watchers * share, 40 * time.Second, 0, 0, false},
		{"every worker is replaced", replaceEach, beat, time.Hour, s.shards + s.shards*3/20, 500 * time.Millisecond, 0, 0, false},
		{"the whole fleet returns", restart, back, back, s.shards, 24 * time.Hour, 0, 0, true},
	}
	if s.workers <= watchers {
		return slices.DeleteFunc(all, func(b bound) bool { return b.name == "all watchers die" })
	}
	return all
}

func (s setting) size() string { return fmt.Sprintf("%dx%d", s.shards, s.workers) }

// idleBounds are the units per second that docs/design.md allows to settled fleets.
var idleBounds = map[string]struct{ write, read float64 }{
	"64x4":        {1.3 * 1.1, 1.0 * 1.1}, // measured in a fleet of the engine before: at most a tenth more
	"256x8":       {2.5 * 1.1, 3.8 * 1.1},
	"100000x1000": {350, 330},
}

func one(f *fleet) result {
	f.nodes[len(f.nodes)-1].kill()
	return f.settle()
}

// everyTenth: every tenth worker dies.
func everyTenth(f *fleet) result {
	for i := len(f.nodes) - 1; i >= 0; i-- {
		if i%10 == 0 {
			f.nodes[i].kill()
		}
	}
	return f.settle()
}

// replaceEach is a deploy: up to ten workers join, and when they are ready, as many others leave.
func replaceEach(f *fleet) result {
	from, old := f.Now(), append([]*node(nil), f.nodes...)
	for batch := range slices.Chunk(old, max(1, min(10, len(old)/5))) {
		for range batch {
			f.join()
		}
		f.until(settleLimit, func() bool { return f.unready() == 0 })
		for _, n := range batch {
			n.last = true
			n.stop()
		}
		f.until(settleLimit, func() bool { return leaving(batch) == 0 })
	}
	took := f.Now() - from
	r := f.settle()
	r.replaced = took
	return r
}

// watchersDie: all workers die that the plan names as watchers.
func watchersDie(f *fleet) result {
	var plan lease.Plan
	for _, it := range f.table.seats.items {
		if p, is := it.record.(lease.Plan); is {
			plan = p
		}
	}
	for _, inc := range plan.Watchers {
		for _, n := range f.nodes {
			if n.Engine.Status().Incarnation == inc {
				n.kill()
				break
			}
		}
	}
	return f.settle()
}

// TestBounds holds fleets to their bounds while nothing happens, and in every change. A fleet lives
// through all changes, one after the other. -scale.sizes names the fleets; those of the ordinary run are
// small. It prints the table of docs/large-fleets.md.
func TestBounds(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(200))
	printed := newSheet()
	for size := range strings.SplitSeq(fixture.Or(given.sizes, "64x4,64x12", "64x4,256x8,64x12,1000x20"), ",") {
		t.Run(size, func(t *testing.T) {
			s := setting{buckets: given.buckets, mode: rebalance.Cooperative, commit: 30 * time.Second, rest: 15 * time.Second, away: 5 * time.Minute}
			if _, err := fmt.Sscanf(size, "%dx%d", &s.shards, &s.workers); err != nil {
				t.Fatalf("-scale.sizes: %v", err)
			}
			s.buckets = cmp.Or(s.buckets, s.needed())
			t.Logf("%d bucket(s)", s.buckets)
			inTurn(t, s, printed.size(size))
		})
	}
	t.Logf("\n%v", printed)
}

// needed returns how many buckets docs/table.md asks for, for a fleet that returns within a lease time
// after its leases have expired.
func (s setting) needed() int {
	perBucket := 700 * int(leaseTime.Seconds())
	return (s.shards + perBucket - 1) / perBucket
}

// inTurn measures a settled fleet, and then every change.
func inTurn(t *testing.T, s setting, note func(story, result string)) {
	s.fresh = s.workers <= watchers // as in the fleets whose figures docs/design.md has
	f := settled(s, true)
	t.Run("nothing happens", func(t *testing.T) {
		if s.workers <= watchers { // a large fleet is measured from the beginning of an audit
			f.Run(f.auditPeriod())
			f.begin()
		}
		r := steady(f)
		followsFromSizes(t, f, r)
		write, read := r.load.writes()/r.took.Seconds(), r.load.reads()/r.took.Seconds()
		note("nothing happens", fmt.Sprintf("%.1f + %.1f units/s; %d", write, read, r.load.throttled))
		most, known := idleBounds[s.size()]
		if known && (write > most.write || read > most.read) || r.load.throttled > 0 {
			t.Errorf("%.1f write and %.1f read units/s, at most %.1f and %.1f; %d requests were throttled", write, read, most.write, most.read, r.load.throttled)
		}
	})
	if s.workers <= watchers {
		s.fresh, s.audits = false, 24*time.Hour // each worker lists the rows to audit them, and a change needs no listing
		f = settled(s, true)
	}
	for _, b := range bounds(s) {
		t.Run(b.name, func(t *testing.T) {
			f.refill()
			note(b.name, b.check(t, f))
		})
	}
}

// refill starts workers until the fleet has its number again, and lets it come to rest.
func (f *fleet) refill() {
	f.table.limited = false
	for range f.workers - len(f.nodes) {
		f.join()
	}
	if f.until(settleLimit, f.even) < 0 {
		panic("the fleet does not settle, even without limits")
	}
	f.Run(f.rest)
	f.table.limited = true
	f.begin()
}

// check lets the change happen, and returns what it took for the table.
func (b bound) check(t *testing.T, f *fleet) string {
	idle := f.perSecond()
	r := b.run(f)
	t.Logf("%v%v", r, f.meter)
	if r.held < 0 || r.held > b.held || r.even < 0 || r.even > b.even {
		t.Errorf("all held after %v, at most %v; even after %v, at most %v", r.held, b.held, r.even, b.even)
	}
	if r.starts > b.starts || r.longest > b.longest || r.lost > 0 {
		t.Errorf("%d tenures began, at most %d; a shard had no handler for %v, at most %v; %d seats lost", r.starts, b.starts, r.longest, b.longest, r.lost)
	}
	// Which part of an audit a change overlaps is chance, so audits are counted as what they are. In these small fleets
	// there are none.
	write, read := r.load.writes()-idle.writes()*r.took.Seconds(), r.load.reads()-r.load.audits-idle.read[lease.KindSeat]*r.took.Seconds()
	if most := max(b.reads, b.today); b.reads > 0 && read > most {
		t.Errorf("%.0f read units beyond those of a settled fleet, at most %.0f", read, most)
	}
	if n := f.meter.counts["list lease"]; n > 0 || r.load.throttled > 0 && !b.throttled {
		t.Errorf("%d listings of all rows; %d requests were throttled", n, r.load.throttled)
	}
	return fmt.Sprintf("%s; %d; %.0f + %.0f; %d", moment(cmp.Or(r.replaced, r.even)), r.starts, max(0, write), max(0, read), r.load.throttled)
}

// TestChangesOfALargeFleet: sixteen workers with 400 shards are held to docs/design.md, at several
// moments of their heartbeats. Most of them read the plan once per heartbeat: nobody moves a shard before
// its owner has read that. A fleet whose table was silent is none that returns, because its workers know
// their former seats: they delete them, and the first that then finds no watcher takes over. When one dies, most watchers
// read the plan long before they list the seats again: the seats that they know still have the dead worker.
func TestChangesOfALargeFleet(t *testing.T) {
	const change, died = beat + 2*time.Second + 17*time.Millisecond, leaseTime + 3*time.Second + 50*time.Millisecond // two deaths are two plans
	const back, moment = beat + beat/4 + 2*time.Second, 500 * time.Millisecond
	for _, c := range []struct {
		name                string
		run                 func(*fleet) result
		held, even, longest time.Duration // the longest: without a handler
		starts              int           // the most tenures that may begin
		moments             uint64
	}{
		{"a worker joins", joins, beat, change, moment, 27, 5},
		{"a worker leaves", leaves, change + 32*time.Millisecond, change + 32*time.Millisecond, moment, 60, 42}, // docs/measurements.md says why
		{"two of sixteen die", func(f *fleet) result { f.nodes[1].kill(); return dies(f) }, died, died, died, 60, 14},
		// A worker that leaves gives back what it had just requested; the next plan is due a second later. When its
		// seat is gone, no other plan is due.
		{"every worker is replaced", deploy, beat, 3 * leaseTime, 2 * moment, 3 * 400, 5},
		{"the table was silent", outage, back, back, back, 405, 5},
		{"all restart", restart, leaseTime + beat, leaseTime + beat, leaseTime + beat, 400, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range fixture.Size(1, c.moments) {
				f := settled(ofSixteen(), true)
				f.chance = rand.New(rand.NewPCG(i, 7))
				f.Run(time.Duration(i) * 700 * time.Millisecond)
				f.begin()
				r := c.run(f)
				t.Logf("%v\n%v", f.meter, r)
				if r.held < 0 || r.held > c.held || r.even < 0 || r.even > c.even {
					t.Errorf("all held after %v, at most %v; even after %v, at most %v", r.held, c.held, r.even, c.even)
				}
				if refused := f.meter.refused(); r.starts > c.starts || r.lost > 0 || refused > 5 || r.longest > c.longest {
					t.Errorf("%d tenures began, at most %d; %d seats lost; %d writes of rows were refused, at most 5; a shard had no handler for %v, at most %v",
						r.starts, c.starts, r.lost, refused, r.longest, c.longest)
				}
				if swaps := f.meter.counts["plan swap"]; c.name == "every worker is replaced" && swaps > 25 {
					t.Errorf("the plan was written %d times, at most 25", swaps)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

func ofSixteen() setting {
	s := small()
	s.workers, s.rest = 16, 2*time.Minute
	return s
}

// refused returns how many writes of lease rows the table refused.
func (m *meter) refused() (n int) {
	for what, times := range m.counts {
		if strings.HasPrefix(what, "lease ") && strings.HasSuffix(what, " refused") {
			n += times
		}
	}
	return n
}

// A sheet is the table of docs/large-fleets.md.
type sheet struct {
	sizes, stories []string
	cells          map[[2]string]string
}

func newSheet() *sheet { return &sheet{cells: map[[2]string]string{}} }

// size begins a column, and returns what fills it.
func (s *sheet) size(size string) func(story, result string) {
	s.sizes = append(s.sizes, size)
	return func(story, result string) {
		if !slices.Contains(s.stories, story) {
			s.stories = append(s.stories, story)
		}
		s.cells[[2]string{story, size}] = result
	}
}

func (s *sheet) String() string {
	var b strings.Builder
	b.WriteString("time; moves; write + read units beyond those of a settled fleet; throttled\n\n| |")
	for _, size := range s.sizes {
		b.WriteString(" " + size + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(s.sizes)) + "\n")
	for _, story := range s.stories {
		b.WriteString("| " + story + " |")
		for _, size := range s.sizes {
			b.WriteString(" " + cmp.Or(s.cells[[2]string{story, size}], "–") + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
