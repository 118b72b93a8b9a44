package scale

import (
	"math"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	audit   = time.Minute // the default of shardlease.Config.AuditEvery
	watched = 2           // the number of audit periods for which a settled fleet is measured
)

// onAverage returns how long the engine waits on average for a configured d: it subtracts
// up to a tenth at random.
func onAverage(d time.Duration) time.Duration { return d * 19 / 20 }

// steady measures a settled fleet for whole audit periods. Most reads of the fleet are
// audits, and a shorter period may contain none of them. Those of a large fleet are so few
// requests that a part of an audit more or less would show: it is measured from the beginning
// of one to that of another.
func steady(f *fleet) result {
	if f.workers <= watchers {
		f.Run(watched * f.auditPeriod())
		return f.measure(result{unchanged: true})
	}
	f.untilAudits(1)
	f.begin()
	f.untilAudits(watched)
	return f.measure(result{unchanged: true})
}

// untilAudits runs the fleet until so many audits have begun.
func (f *fleet) untilAudits(n int) {
	before := f.meter.counts["audit"]
	if f.until(time.Duration(n+1)*f.auditPeriod(), func() bool { return f.meter.counts["audit"] >= before+n }) < 0 {
		panic("a large fleet does not audit its rows")
	}
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
