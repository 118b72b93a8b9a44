package engine

import (
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestWhatAReasonTellsTheOwner: for each reason for which the next generation began, why the tenure ended whose owner had
// not noticed, and which write of the owner can only have been its own.
func TestWhatAReasonTellsTheOwner(t *testing.T) {
	type told struct {
		cause event.Cause
		mine  doing
	}
	fenced := told{event.CauseFenced, 0}
	all := map[lease.Reason]told{
		lease.ReasonInitial: fenced, lease.ReasonExpired: fenced, lease.ReasonDrainTimeout: fenced, lease.ReasonStalled: fenced,
		lease.ReasonFailed: fenced, lease.ReasonAdopted: fenced, lease.ReasonRemoved: fenced, lease.ReasonUnlisted: fenced,
		lease.ReasonHandoff: {event.CauseHandedOff, 0}, lease.ReasonForced: {event.CauseForced, 0},
		lease.ReasonReleased: {event.CauseFenced, givingUp}, lease.ReasonFinished: {event.CauseFenced, ending},
	}
	for _, reason := range fixture.Kinds[lease.Reason](t) {
		want, known := all[reason]
		if !known {
			t.Errorf("the test does not know what the reason %q tells the owner: see overtaken and landed", reason)
			continue
		}
		row := fixture.Held(t, "a")
		mine := row.Generation
		row.Generation++
		row.Last = lease.Transfer{Generation: row.Generation, Reason: reason}
		if got := overtaken(row, mine); got != want.cause {
			t.Errorf("%s: the cause is %v, want %v", reason, got, want.cause)
		}
		for _, what := range []doing{givingUp, ending, claiming} {
			if got := landed(row, mine, what); got != (what == want.mine) {
				t.Errorf("%s: landed is %t for the doing %v", reason, got, what)
			}
		}
	}
}
