package protocol_test

import (
	"errors"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestReserve: a holder that has released a lease leaves no lock delay, and one that was cut off does. The row has the
// last mark, the operator and the operator's reason.
func TestReserve(t *testing.T) {
	by := fixture.Worker("a")
	by.LockDelay = 5 * time.Second
	held := next(t)(protocol.BeginHeld("g", "lock", by, stamp()))
	to := lease.Reservation{For: "b", Lasts: time.Minute}
	for name, tc := range map[string]struct {
		reason lease.Reason
		left   lease.Reservation
	}{
		"released": {lease.ReasonHandoff, lease.Reservation{For: "b", Lasts: time.Minute}},
		"cut off":  {lease.ReasonDrainTimeout, lease.Reservation{For: "b", Lasts: time.Minute, Delay: 5 * time.Second}},
	} {
		end := protocol.End{Reason: tc.reason, Note: "host is old", Mark: fixture.At("7")}
		r := next(t)(protocol.Reserve(held, fixture.Hold(held), to, "ann", end, stamp()))
		if r.Reserved != tc.left || !r.Owner.IsZero() || r.Generation != held.Generation+1 || r.Checkpoint.Position != "7" {
			t.Errorf("%s: left %v, %+v", name, r, r.Reserved)
		}
		if l := r.Last; l.Reason != tc.reason || l.By != "ann" || l.From != "a" || l.Did != "reassigned" || l.Note != "host is old" {
			t.Errorf("%s: the last transfer is %v", name, l)
		}
		back, err := lease.Decode(lease.Encode(r))
		if row, _ := back.(lease.Row); err != nil || row.Reserved != tc.left {
			t.Errorf("%s: read back as %v, %v", name, back, err)
		}
	}
	stale := fixture.Hold(held)
	stale.Generation--
	end := protocol.End{Reason: lease.ReasonHandoff}
	for name, tc := range map[string]struct{ err, is error }{
		"a stale holder": {errOf(protocol.Reserve(held, stale, to, "ann", end, stamp())), checkpoint.ErrStale},
		"a release":      {errOf(protocol.Reserve(held, fixture.Hold(held), to, "ann", protocol.End{Reason: lease.ReasonReleased}, stamp())), protocol.ErrReason},
		"for nobody":     {errOf(protocol.Reserve(held, fixture.Hold(held), lease.Reservation{}, "ann", end, stamp())), checkpoint.ErrInvalid},
		"for no time":    {errOf(protocol.Reserve(held, fixture.Hold(held), lease.Reservation{For: "b"}, "ann", end, stamp())), checkpoint.ErrInvalid},
	} {
		if !errors.Is(tc.err, tc.is) {
			t.Errorf("%s: %v, want %v", name, tc.err, tc.is)
		}
	}
}

// TestOnlyAHeldLeaseIsReserved: no store sends a swap that reserves a lease that nobody holds.
func TestOnlyAHeldLeaseIsReserved(t *testing.T) {
	free := fixture.Free(t)
	w, err := protocol.Rewind(free, protocol.Command{Seen: free.Generation, By: "ann"}, checkpoint.Mark{}, stamp())
	if err != nil {
		t.Fatal(err)
	}
	row := w.Next.(lease.Row)
	row.Last.Did, row.Reserved = "reassigned", lease.Reservation{For: "b", Lasts: time.Minute}
	if w.Next = row; !errors.Is(w.Check(), lease.ErrBadWrite) {
		t.Errorf("%v is accepted: %v", w, w.Check())
	}
}
