package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
)

// small returns a fleet that is small enough for every run of the tests.
func small() setting {
	return setting{
		shards: 400, workers: 8, buckets: 1, mode: rebalance.Cooperative,
		commit: 10 * time.Second, rest: 15 * time.Second, away: 5 * time.Minute,
	}
}

const (
	leaseTime = 10 * time.Second
	beat      = leaseTime / 3
)

// TestSteadyFleetCostsItsWorkers: while nothing happens, a worker sends one heartbeat and
// lists the seats once per heartbeat interval, and each commit is one write unit.
func TestSteadyFleetCostsItsWorkers(t *testing.T) {
	f := settled(small(), true)
	r := steady(f)
	beats := 8 * r.took.Seconds() / beat.Seconds()
	if most := 1.15 * beats; r.load.writes() > most || float64(f.meter.counts["list seat"]) > most {
		t.Errorf("%.0f heartbeats were due in %v, and the counts are %v", beats, r.took, f.meter)
	}
	if n, most := f.meter.counts["list lease"], 8*3; n > most {
		t.Errorf("the rows were listed %d times in %v, more than %d", n, r.took, most)
	}
	f = settled(small(), false)
	r = steady(f)
	if commits := r.load.writes() - 1.15*beats; commits > 400*r.took.Seconds()/10 {
		t.Errorf("one commit per shard every 10 s cost %.0f write units in %v", commits, r.took)
	}
	if r.load.throttled > 0 || r.lost > 0 {
		t.Errorf("%d requests were refused, %d seats lost", r.load.throttled, r.lost)
	}
}

// TestSteadyCostFollowsFromSizes: the units that a settled fleet consumes in whole audit
// periods follow from the number of its workers and the sizes of its rows and seats. (A
// period of two minutes, which was measured before, was between two audits: it showed 4.1
// of the 8.8 read units/s of the last of these fleets, and 79 of the 326 of a fleet of 100
// workers with 10,000 shards. TestScale asserts the same for that fleet.)
func TestSteadyCostFollowsFromSizes(t *testing.T) {
	for _, c := range []struct{ shards, workers, listed int }{{64, 4, 0}, {1000, 20, 0}, {400, 16, 100}} {
		for _, idle := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d x %d, idle %v", c.shards, c.workers, idle), func(t *testing.T) {
				s := small()
				s.shards, s.workers, s.listed = c.shards, c.workers, c.listed
				s.rest = s.auditPeriod() / 2 // by then every worker has listed the rows after the last change, and no audit has begun
				f := settled(s, idle)
				followsFromSizes(t, f, steady(f))
			})
		}
	}
}

// TestSteadyLargeFleetListsInTurn: if a listing of all rows takes long, workers list less
// often than the configuration says.
func TestSteadyLargeFleetListsInTurn(t *testing.T) {
	s := small()
	s.workers, s.listed, s.rest = 16, 100, 10*time.Minute
	f := settled(s, true)
	r := steady(f)
	if n, most := f.meter.counts["list lease"], 16*watched*11/10; n > most {
		t.Errorf("16 workers listed the rows %d times in %v, at most %d are allowed: an audit period is %v", n, r.took, most, 4*16*400/100*time.Second)
	}
}

// TestChangesOfASmallFleet limits the time and the number of tenures of each change.
func TestChangesOfASmallFleet(t *testing.T) {
	for _, c := range []struct {
		name   string
		run    func(*fleet) result
		held   time.Duration // the longest time until all shards are held again
		even   time.Duration // the longest time until they are evenly distributed
		starts int           // the most tenures that may begin
	}{
		{"a worker joins", joins, beat, beat + 1500*time.Millisecond, 44},
		{"a worker leaves", leaves, beat + time.Second, beat + 1500*time.Millisecond, 60},
		{"one of eight dies", dies, leaseTime + beat + 500*time.Millisecond, leaseTime + 2*beat, 50},
		{"every worker is replaced", deploy, time.Minute, time.Minute, 4 * 400},
		{"the table was silent", outage, 3 * leaseTime, 3 * leaseTime, 420},
		{"all restart", restart, 3 * leaseTime, 3 * leaseTime, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.run(settled(small(), false))
			if r.held < 0 || r.held > c.held || r.even < 0 || r.even > c.even {
				t.Errorf("all held after %v, more than %v; or even after %v, more than %v", r.held, c.held, r.even, c.even)
			}
			if r.starts > c.starts || r.lost > 0 {
				t.Errorf("%d tenures began, more than %d; or seats were lost: %d", r.starts, c.starts, r.lost)
			}
		})
	}
}

// TestChangesOfALargeFleet: if the workers cannot all list all rows at every change, only a
// few do, and the changes take no longer.
func TestChangesOfALargeFleet(t *testing.T) {
	for _, c := range []struct {
		name   string
		run    func(*fleet) result
		held   time.Duration // as in TestChangesOfASmallFleet, also even and starts
		even   time.Duration
		starts int
		lists  int // the most listings of all rows
		vain   int // the most writes for a shard that may be refused
	}{
		{"a worker joins", joins, beat, beat + 1500*time.Millisecond, 27, 24, 5},
		{"a worker leaves", leaves, beat + time.Second, beat + 1500*time.Millisecond, 60, 40, 5},
		{"two of sixteen die", func(f *fleet) result { f.nodes[1].kill(); return dies(f) }, leaseTime + beat + 500*time.Millisecond, leaseTime + 2*beat, 60, 36, 5},
		{"every worker is replaced", deploy, beat, 3 * leaseTime, 3 * 400, 100, 5},
		{"the table was silent", outage, leaseTime + beat, 3 * leaseTime, 405, 48, 5},
		{"all restart", restart, leaseTime + beat, 3 * leaseTime, 400, 64, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := small()
			s.workers, s.listed, s.rest = 16, 400, 2*time.Minute
			if next() {
				ofSixteen(t, s, c.name, c.run, c.starts, c.vain)
				return
			}
			f := settled(s, true)
			r := c.run(f)
			t.Logf("%v\n%v", f.meter, r)
			if r.held < 0 || r.held > c.held || r.even < 0 || r.even > c.even {
				t.Errorf("all held after %v, more than %v; or even after %v, more than %v", r.held, c.held, r.even, c.even)
			}
			if lists := f.meter.counts["list lease"]; lists > c.lists || r.starts > c.starts || r.lost > 0 {
				t.Errorf("the rows were listed %d times, more than %d; %d tenures began, more than %d; or seats were lost: %d", lists, c.lists, r.starts, c.starts, r.lost)
			}
			if vain := f.meter.counts["lease transfer refused"] + f.meter.counts["lease create refused"]; vain > c.vain {
				t.Errorf("%d writes were refused, more than %d", vain, c.vain)
			}
		})
	}
}

// TestSameFleetSameFigures: all figures depend only on the seed.
func TestSameFleetSameFigures(t *testing.T) {
	figures := func() string {
		f := settled(small(), false)
		r := dies(f)
		return r.String() + f.meter.String()
	}
	if one, other := figures(), figures(); one != other {
		t.Errorf("two runs differ:\n%s\n%s", one, other)
	}
}

// TestTableRefusesWhatIsTooMuch: a partition accepts a thousand writes per second and no
// more, however many are sent.
func TestTableRefusesWhatIsTooMuch(t *testing.T) {
	f := newFleet(small())
	f.table.limited = true
	f.table.rows.buckets[0].write.level = 0
	taken := 0
	for ms := range 1000 {
		for range 5 {
			w, err := protocol.Begin(group, fmt.Sprint("new-", taken), nil, workerName(0), f.stamp())
			check(err)
			if _, _, ok := f.table.write(time.Duration(ms)*time.Millisecond, w); ok {
				taken++
			}
		}
	}
	if taken < 990 || taken > 1001 {
		t.Errorf("%d of 5000 writes were accepted in a second", taken)
	}
}
