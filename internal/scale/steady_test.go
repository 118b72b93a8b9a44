package scale

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	audit   = time.Minute // the default of shardlease.Config.AuditEvery
	turns   = 4           // how many rounds of listings an audit period of a large fleet has; see audits in internal/engine
	watched = 2           // the number of audit periods for which a settled fleet is measured
)

// onAverage returns how long the engine waits on average for a configured d: it subtracts
// up to a tenth at random.
func onAverage(d time.Duration) time.Duration { return d * 19 / 20 }

// auditPeriod returns the average time between two audits of a worker of a settled fleet:
// audit, or four times as long as all workers together may take to list all rows once.
func (s setting) auditPeriod() time.Duration {
	if next() {
		return s.nextAuditPeriod()
	}
	turn := time.Duration(s.workers*s.shards) * time.Second / time.Duration(cmp.Or(s.listed, engine.ListedRows))
	return onAverage(max(audit, turns*turn))
}

// steady measures a settled fleet for whole audit periods. Most reads of the fleet are
// audits, and a shorter period may contain none of them.
func steady(f *fleet) result {
	f.Run(watched * f.auditPeriod())
	return f.measure(result{unchanged: true})
}

// perSecond derives the units that a settled fleet consumes in a second from the sizes of its
// rows and seats.
//
//   - In each heartbeat a worker writes its seat, and lists all seats with eventual
//     consistency, at half the price.
//   - In each audit period a worker lists all rows and then all seats, both with consistency.
//   - Each shard commits once in f.commit, unless the fleet is idle.
func (f *fleet) perSecond() (l load) {
	if next() {
		return f.nextPerSecond()
	}
	rows, seats := f.table.rows, f.table.seats
	beats := float64(f.workers) / onAverage(f.ttl/3).Seconds()
	audits := float64(f.workers) / f.auditPeriod().Seconds()
	l.write[lease.KindSeat] = beats * float64(units(seats.typical(), writeUnit))
	l.read[lease.KindSeat] = (beats/2 + audits) * float64(units(seats.bytes, readUnit))
	l.read[lease.KindLease] = audits * float64(units(rows.bytes, readUnit))
	if !f.idle {
		l.write[lease.KindLease] = float64(f.shards) / f.commit.Seconds() * float64(units(rows.typical(), writeUnit))
	}
	return l
}

// followsFromSizes checks that a steady story consumed the units that perSecond derives, to
// within a tenth.
func followsFromSizes(t *testing.T, f *fleet, r result) {
	t.Helper()
	derived, seconds := f.perSecond(), r.took.Seconds()
	for _, k := range []lease.Kind{lease.KindLease, lease.KindSeat} {
		for _, c := range []struct {
			what      string
			got, want float64
		}{
			{"write", r.load.write[k] / seconds, derived.write[k]},
			{"read", r.load.read[k] / seconds, derived.read[k]},
		} {
			t.Logf("%v: %.2f %s units/s, derived from sizes: %.2f", k, c.got, c.what, c.want)
			if math.Abs(c.got-c.want) > c.want/10 {
				t.Errorf("%v: %.2f %s units/s in %v, derived from sizes: %.2f", k, c.got, c.what, r.took, c.want)
			}
		}
	}
}
