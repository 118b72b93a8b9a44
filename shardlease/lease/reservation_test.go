package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var reservation = lease.Reservation{For: "b", Lasts: time.Minute}

// reserve returns the row of a shard that a command has reserved.
func reserve(t *testing.T) (held, reserved lease.Row) {
	t.Helper()
	held = fixture.Held(t, "a")
	return held, fixture.Next(t)(protocol.Reassign(held, protocol.Command{Seen: held.Generation, By: "op"}, reservation, fixture.Stamp()))
}

// TestOnlyACommandReserves: a reservation begins with the transfer in which a command takes a shard from
// its owner, or from an earlier reservation. No other write of a row may contain one.
func TestOnlyACommandReserves(t *testing.T) {
	held, reserved := reserve(t)
	released := fixture.Write(t)(protocol.ForceRelease(held, protocol.Command{Seen: held.Generation, By: "op"}, fixture.Stamp()))
	rewound := fixture.Write(t)(protocol.Rewind(reserved, protocol.Command{Seen: reserved.Generation, By: "op"}, checkpoint.Mark{}, fixture.Stamp()))
	reassigned := func(w lease.Write) lease.Write {
		next := w.Next.(lease.Row)
		next.Last.Did = "reassigned"
		w.Next = next
		return w
	}
	free := rewound.Next.(lease.Row)
	quarantined := fixture.Write(t)(protocol.Quarantine(free, protocol.Command{Seen: free.Generation, By: "op"}, lease.ReasonForced, fixture.Stamp()))
	ofFree := quarantined.Next.(lease.Row)
	ofFree.Quarantined = false
	quarantined.Next = ofFree
	for name, w := range map[string]lease.Write{
		"a forced release": released, "a rewind": rewound, "a rewind as a reassignment": reassigned(rewound),
		"a reassignment of a free shard": reassigned(quarantined),
	} {
		next := w.Next.(lease.Row)
		next.Reserved = reservation
		w.Next = next
		if err := w.Check(); !errors.Is(err, lease.ErrBadWrite) {
			t.Errorf("%s with a reservation: %v", name, err)
		}
	}
	for name, r := range map[string]lease.Reservation{
		"of nobody": {Lasts: time.Second}, "without a time": {For: "b"}, "of half a millisecond": {For: "b", Lasts: time.Microsecond},
		"of a year": {For: "b", Lasts: 365 * 24 * time.Hour}, "with a delay of a year": {For: "b", Lasts: time.Second, Delay: 365 * 24 * time.Hour},
		"with a delay alone": {Delay: time.Second},
	} {
		bad := reserved
		bad.Reserved = r
		if err := bad.Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("a reservation %s: %v", name, err)
		}
	}
}

// TestForcedReleaseReservesForNobody: the row of a forced release contains the lock delay of the lost owner, and no name.
func TestForcedReleaseReservesForNobody(t *testing.T) {
	held := fixture.Held(t, "a")
	held.Owner.LockDelay = 5 * time.Second
	released := fixture.Next(t)(protocol.ForceRelease(held, protocol.Command{Seen: held.Generation, By: "op"}, fixture.Stamp()))
	want := lease.Reservation{Delay: 5 * time.Second}
	if record, err := lease.Decode(lease.Encode(released)); err != nil || record.(lease.Row).Reserved != want {
		t.Errorf("read as %v, %v", record, err)
	}
	for name, r := range map[string]lease.Reservation{
		"for a name": reservation, "for a name and with a delay": {For: "b", Lasts: time.Minute, Delay: time.Second},
		"of a delay of a year": {Delay: 365 * 24 * time.Hour}, "of half a millisecond": {Delay: time.Microsecond},
	} {
		bad := released
		bad.Reserved = r
		if err := bad.Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("a reservation %s: %v", name, err)
		}
	}
}

// TestLeftReservationIsIgnored: an older version of the library claims and releases a reserved row, and leaves
// the attributes of the reservation in it. Then they reserve nothing any more.
func TestLeftReservationIsIgnored(t *testing.T) {
	_, reserved := reserve(t)
	for _, name := range []string{"held", "released"} {
		r := fixture.Next(t)(protocol.Claim(reserved, fixture.Worker("c"), fixture.Stamp()))
		if name == "released" {
			r = fixture.Next(t)(protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
		}
		item := lease.Encode(r)
		item["reservedFor"], item["reservedMillis"] = "b", int64(60_000)
		if record, err := lease.Decode(item); err != nil || !record.(lease.Row).Reserved.IsZero() {
			t.Errorf("%s: %v, %v", name, record, err)
		}
	}
	if record, err := lease.Decode(lease.Encode(reserved)); err != nil || record.(lease.Row).Reserved != reservation {
		t.Errorf("reserved: %v, %v", record, err)
	}
}
