package engine

import (
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestWhoseFault: a shard is at fault after so many failures under two workers that are well, or
// where no other worker could try. Failures under a worker that is unwell do not count, and those
// of workers that have gone do.
func TestWhoseFault(t *testing.T) {
	const most = 3
	for _, tc := range []struct {
		name   string
		failed string // the workers under which it has failed, a letter each
		dead   string // its last owner, which has died
		well   string
		unwell string
		want   bool
	}{
		{"not often enough", "ab", "", "ab", "", false},
		{"under one worker, and there are others", "aaaaa", "", "ab", "", false},
		{"under two workers", "aab", "", "abc", "", true},
		{"under the only worker", "aaa", "", "a", "", true},
		{"under the only worker that is well", "aaa", "", "a", "x", true},
		{"under a worker that has gone, and another could try", "ccc", "", "a", "", false},
		{"under a worker that has gone, and another", "cca", "", "ab", "", true},
		{"the unwell worker's failures do not count", "xxa", "", "ab", "x", false},
		{"nor make they two of one", "aaaax", "", "ab", "x", false},
		{"enough beside them", "xaxbxa", "", "ab", "x", true},
		{"every worker is unwell", "xyxyxy", "", "", "xy", false},
		{"every worker that lives is unwell", "ccdd", "", "", "xy", false},
		{"a death is one more failure", "aa", "b", "ac", "", true},
		{"a death alone is not enough", "a", "b", "ac", "", false},
		{"deaths under one worker", "bbb", "b", "ac", "", false},
	} {
		r := fixture.Free(t)
		for _, by := range tc.failed {
			r = fixture.Next(t)(protocol.Claim(r, fixture.Worker(string(by)), fixture.Stamp()))
			r = fixture.Next(t)(protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonFailed}, fixture.Stamp()))
		}
		if tc.dead != "" {
			r = fixture.Next(t)(protocol.Claim(r, fixture.Worker(tc.dead), fixture.Stamp()))
		}
		var seats []lease.Seat
		for _, name := range tc.well + tc.unwell {
			of := fixture.Worker(string(name))
			seats = append(seats, lease.Seat{Incarnation: of.Incarnation, Name: of.Name, Beat: 1})
		}
		for i := range tc.unwell {
			seats[len(tc.well)+i].Health.Unwell = "sick"
		}
		if got := atFault(r, tc.dead != "", seats, most); got != tc.want {
			t.Errorf("%s: at fault: %v", tc.name, got)
		}
	}
}
