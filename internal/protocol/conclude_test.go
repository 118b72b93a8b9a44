package protocol_test

import (
	"errors"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestCommandsTakeAHeldShard: a rewind and the finish of an operator end the owner's tenure in the same write, under a
// reason that is not the owner's. A commit that is stored in between refuses them. A rewind keeps a quarantine, and a finish
// ends it.
func TestCommandsTakeAHeldShard(t *testing.T) {
	held := fixture.Held(t, "a")
	command := func(r lease.Row) protocol.Command { return protocol.Command{Seen: r.Generation, By: "op", Note: "why"} }
	for did, give := range map[string]func(lease.Row) (lease.Write, error){
		"rewound":  func(r lease.Row) (lease.Write, error) { return protocol.Rewind(r, command(r), at("3"), stamp()) },
		"finished": func(r lease.Row) (lease.Write, error) { return protocol.Conclude(r, command(r), stamp()) },
	} {
		w := write(t)(give(held))
		r := w.Next.(lease.Row)
		if r.Generation != held.Generation+1 || !r.Owner.IsZero() || r.Last.Reason != lease.ReasonForced || r.Last.Did != did || r.Last.By != "op" || r.Last.From != "a" {
			t.Errorf("%s: %v", did, r)
		}
		if r.Finished != (did == "finished") || r.Checkpoint.Position != map[string]string{"rewound": "3"}[did] {
			t.Errorf("%s: finished %t, at %q", did, r.Finished, r.Checkpoint.Position)
		}
		committed := next(t)(protocol.Commit(held, handle(held), at("9"), stamp()))
		if _, err := w.Apply(committed); !errors.Is(err, lease.ErrRefused) {
			t.Errorf("%s after a commit: %v", did, err)
		}
		aside := next(t)(protocol.Quarantine(held, command(held), lease.ReasonForced, stamp()))
		if r := next(t)(give(aside)); r.Quarantined != (did == "rewound") {
			t.Errorf("%s: quarantined %t", did, r.Quarantined)
		}
	}
}

// TestOnlyARewindMovesTheCheckpoint: the check of a write refuses a change of hands that moves the checkpoint of an owner and
// is no rewind, and a rewind to a position of an earlier generation.
func TestOnlyARewindMovesTheCheckpoint(t *testing.T) {
	claimed := fixture.Held(t, "a")
	held := next(t)(protocol.Commit(claimed, handle(claimed), at("9"), stamp()))
	seen := protocol.Command{Seen: held.Generation, By: "op"}
	for name, spoil := range map[string]func(*lease.Row){
		"another command":       func(r *lease.Row) { r.Last.Did = "finished" },
		"another reason":        func(r *lease.Row) { r.Last.Reason = lease.ReasonReleased },
		"an earlier generation": func(r *lease.Row) { r.Checkpoint.Generation = held.Generation - 1 },
		"to another owner":      func(r *lease.Row) { r.Owner = owner("b") },
	} {
		w := write(t)(protocol.Rewind(held, seen, at("3"), stamp()))
		r := w.Next.(lease.Row)
		spoil(&r)
		if w.Next = r; !errors.Is(w.Check(), lease.ErrBadWrite) {
			t.Errorf("%s: %v is accepted", name, r)
		}
	}
	if r := next(t)(protocol.Rewind(held, seen, checkpoint.Mark{}, stamp())); !r.Checkpoint.IsZero() {
		t.Errorf("at the very beginning: %v", r)
	}
}
