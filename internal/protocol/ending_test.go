package protocol_test

import (
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestEveryReasonHasAnEnding: the partition has every reason of this version, and no other.
func TestEveryReasonHasAnEnding(t *testing.T) {
	for _, reason := range fixture.Kinds[lease.Reason](t) {
		if protocol.EndingOf(reason) == 0 {
			t.Errorf("EndingOf does not know the reason %q", reason)
		}
	}
	if ending := protocol.EndingOf("telepathy"); ending != 0 {
		t.Errorf("a reason of a newer version has the ending %d", ending)
	}
}

// TestWhichTransitionsRecordAReason: of the transitions that are told a reason, each accepts only its own reasons. Some
// transition records each reason.
func TestWhichTransitionsRecordAReason(t *testing.T) {
	const itself = "" // a transition records the reason without being told
	transitions := map[lease.Reason]string{
		lease.ReasonInitial: itself, lease.ReasonAdopted: itself, lease.ReasonRemoved: itself, lease.ReasonFinished: itself,
		lease.ReasonReleased: "release discard", lease.ReasonUnlisted: "release",
		lease.ReasonFailed: "release quarantine", lease.ReasonStalled: "release quarantine",
		lease.ReasonHandoff: "yield", lease.ReasonDrainTimeout: "release yield discard",
		lease.ReasonExpired: "quarantine", lease.ReasonForced: "quarantine",
	}
	r := fixture.Held(t, "a")
	h, end := fixture.Hold(r), func(reason lease.Reason) protocol.End { return protocol.End{Reason: reason} }
	for _, reason := range fixture.Kinds[lease.Reason](t) {
		want, known := transitions[reason]
		if !known {
			t.Errorf("the test does not know which transitions record the reason %q", reason)
			continue
		}
		var got []string
		for _, of := range []struct {
			name string
			err  error
		}{
			{"release", errOf(protocol.Release(r, h, end(reason), stamp()))},
			{"yield", errOf(protocol.Yield(r, h, owner("b"), end(reason), stamp()))},
			{"discard", errOf(protocol.Discard(r, h, end(reason), stamp()))},
			{"quarantine", errOf(protocol.Quarantine(r, protocol.Command{Seen: r.Generation, By: "op"}, reason, stamp()))},
		} {
			if of.err == nil {
				got = append(got, of.name)
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("the reason %q is accepted by %q, and not by %q", reason, text, want)
		}
	}
}

// TestSeatsKeepEveryField: of a full seat, a creation keeps every field except those of the write, and a heartbeat keeps
// everything that the worker publishes.
func TestSeatsKeepEveryField(t *testing.T) {
	seat := fixture.Seat()
	created := fixture.Write(t)(protocol.Sit(seat, stamp())).Next.(lease.Seat)
	bare := created
	bare.Says = lease.Says{}
	beaten := fixture.Write(t)(protocol.NextBeat(bare, seat.Says, stamp())).Next.(lease.Seat)
	for _, field := range fixture.Unset(created) {
		if field != "lease.Seat.Beat" {
			t.Errorf("a creation loses %s", field)
		}
	}
	for _, field := range fixture.Unset(beaten) {
		t.Errorf("a heartbeat loses %s", field)
	}
}
