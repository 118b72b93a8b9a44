package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
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
	for _, c := range fixture.Sample(1, []struct{ shards, workers int }{{64, 4}, {1000, 20}, {400, 16}}) {
		for _, idle := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d x %d, idle %v", c.shards, c.workers, idle), func(t *testing.T) {
				s := small()
				s.shards, s.workers = c.shards, c.workers
				s.rest = s.auditPeriod() / 2 // by then every worker has listed the rows after the last change, and no audit has begun
				f := settled(s, idle)
				followsFromSizes(t, f, steady(f))
			})
		}
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

// TestSameFleetSameFigures: all figures depend only on the seed.
func TestSameFleetSameFigures(t *testing.T) {
	s := small()
	s.shards, s.workers = 64, 4
	figures := func() string {
		f := settled(s, false)
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
