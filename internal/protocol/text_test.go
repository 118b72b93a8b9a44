package protocol_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestWritesNameTheirPurpose: errors and logs contain the text of a write. It begins with what the write
// is for, and not with the operation.
func TestWritesNameTheirPurpose(t *testing.T) {
	free, a := fixture.Free(t), fixture.Held(t, "a")
	ha := handle(a)
	command := func(r lease.Row) protocol.Command { return protocol.Command{Seen: r.Generation, By: "op"} }
	offered := next(t)(protocol.Offer(a, ha, "b-1", at("1"), stamp()))
	aside := next(t)(protocol.Quarantine(free, command(free), lease.ReasonFailed, stamp()))
	gone := next(t)(protocol.Remove(free, command(free), stamp()))
	seat := lease.Seat{Group: "orders", Incarnation: "i", Name: "n", TTL: time.Second, WriteID: "id"}
	plan := lease.Plan{Group: "orders"}
	texts := map[string]string{} // by purpose
	for purpose, made := range map[string]func() (lease.Write, error){
		`creation of shard "shard-1" (`: func() (lease.Write, error) { return protocol.Begin("orders", "shard-1", nil, "s", stamp()) },
		`claim of shard "shard-1" (`:    func() (lease.Write, error) { return protocol.Claim(free, owner("b"), stamp()) },
		`claim of shard "shard-1" (l`:   func() (lease.Write, error) { return protocol.Recover(a, owner("b"), stamp()) },
		`takeover of shard "shard-1" (`: func() (lease.Write, error) { return protocol.Take(offered, owner("b"), stamp()) },
		`commit of shard "shard-1" (`:   func() (lease.Write, error) { return protocol.Commit(a, ha, at("1"), stamp()) },
		`commit of shard "shard-1" (l`:  func() (lease.Write, error) { return protocol.Commit(offered, handle(offered), at("2"), stamp()) },
		`offer of shard "shard-1" (`:    func() (lease.Write, error) { return protocol.Offer(a, ha, "b-1", at("1"), stamp()) },
		`withdrawal of the offer of shard "shard-1" (`: func() (lease.Write, error) {
			return protocol.Withdraw(offered, handle(offered), stamp())
		},
		`handover of shard "shard-1" (`: func() (lease.Write, error) {
			return protocol.Yield(a, ha, owner("b"), protocol.End{Reason: lease.ReasonHandoff}, stamp())
		},
		`release of shard "shard-1" (`: func() (lease.Write, error) {
			return protocol.Release(a, ha, protocol.End{Reason: lease.ReasonReleased}, stamp())
		},
		`finish of shard "shard-1" (`:         func() (lease.Write, error) { return protocol.Finish(a, ha, checkpoint.Mark{}, stamp()) },
		`forced release of shard "shard-1" (`: func() (lease.Write, error) { return protocol.ForceRelease(a, command(a), stamp()) },
		`reassignment of shard "shard-1" (`: func() (lease.Write, error) {
			return protocol.Reassign(a, command(a), lease.Reservation{For: "b", Lasts: time.Second}, stamp())
		},
		`quarantine of shard "shard-1" (`: func() (lease.Write, error) {
			return protocol.Quarantine(a, command(a), lease.ReasonForced, stamp())
		},
		`unquarantine of shard "shard-1" (`: func() (lease.Write, error) { return protocol.Unquarantine(aside, command(aside), stamp()) },
		`rewind of shard "shard-1" (`:       func() (lease.Write, error) { return protocol.Rewind(aside, command(aside), at("7"), stamp()) },
		`rewind of shard "shard-1" (l`:      func() (lease.Write, error) { return protocol.Rewind(a, command(a), at("7"), stamp()) },
		`finish of shard "shard-1" (l`:      func() (lease.Write, error) { return protocol.Conclude(a, command(a), stamp()) },
		`removal of shard "shard-1" (`:      func() (lease.Write, error) { return protocol.Remove(free, command(free), stamp()) },
		`revival of shard "shard-1" (`:      func() (lease.Write, error) { return protocol.Revive(gone, nil, "s", stamp()) },
		`adoption of shard "shard-1" (`:     func() (lease.Write, error) { return protocol.Adopt(a, "op", stamp()) },
		`heartbeat (seat orders/i`:          func() (lease.Write, error) { return protocol.NextBeat(seat, lease.Says{}, stamp()) },
		`creation of the seat (`:            func() (lease.Write, error) { return protocol.Sit(seat, stamp()) },
		`deletion of the seat (`:            func() (lease.Write, error) { return protocol.Evict(seat) },
		`creation of the plan (`: func() (lease.Write, error) {
			return protocol.OpenPlan(plan, protocol.Opening{By: owner("a")}, stamp())
		},
		`deletion of the wishes (`: func() (lease.Write, error) { return protocol.DropWishes("orders", "id") },
	} {
		w, err := made()
		if texts[purpose] = w.String(); err != nil || !strings.HasPrefix(w.String(), purpose) {
			t.Errorf("%s: %v, %v", purpose, w, err)
		}
	}
	if len(texts) != 26 {
		t.Errorf("%d texts", len(texts))
	}
	refused := error(&lease.RefusedError{Op: lease.OpSwap, Key: seat.Key()})
	if got := refused.Error(); got != "heartbeat of seat orders/i refused: no such row" || !errors.Is(refused, lease.ErrRefused) {
		t.Errorf("a refused heartbeat reads %q", got)
	}
}
