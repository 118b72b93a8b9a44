package shardlease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Reassign takes a shard or a lease from its holder, without the holder's cooperation, and reserves it for
// the workers or sessions whose name is the argument to. No other worker or session claims it until the
// duration within has passed; then all of them may. Reassign is for a holder that is dead or hangs. No
// worker or session needs to have the name yet. If nobody holds the shard, but it is reserved, Reassign replaces
// the reservation, and [Supervisor.ForceRelease] ends it.
//
// In a group of sessions, one with that name acquires the lease when a call of its [Session.Acquire] waits
// for it. Such a call reads the row at least three times per [SessionConfig.TTL], so within should be at
// least a third of TTL. To other sessions the lease looks held: their TryAcquire returns a [*HeldError] with
// ReservedFor.
//
// In a group of workers, Reassign also pins the shard for the same time, as [Supervisor.Pin] does. The pin
// replaces an earlier pin of the shard. It needs a heartbeat interval and 1.5 s to have an effect, so within
// should be longer than that. If the worker with that name cannot have the shard, the plan ignores the pin,
// and nobody processes the shard until within has passed. After the pin has ended, the plan may move the
// shard like any other.
//
// The former holder is fenced as after [Supervisor.ForceRelease]: its writes are refused, and it notices the
// command within a heartbeat interval and 1.5 s. Unless it has the name to, it cannot claim the shard again
// before within has passed.
//
// Each process that waits counts the time from the command by its own wall clock, but never waits longer
// than within from when it first saw the row. So a wrong clock can only shorten the reservation. If the former
// holder had a [SessionConfig.LockDelay], the session with the name waits for the delay too, and within begins
// after it. Any other command for the shard ends the reservation. The table does not enforce the reservation:
// the reservation decides who is next, and the generation decides whose writes count.
//
// Reassign returns the released row, or a [*ConfigError] for each bad argument. If it returns both a row and
// an error that begins with "reserved", the shard was released and reserved, but not pinned. Then the plan
// may assign the shard to another worker, which claims it when within has passed.
func (s Supervisor) Reassign(ctx context.Context, shard string, seen int64, to string, within time.Duration, why string) (lease.Row, error) {
	of := lease.Reservation{For: to, Lasts: (within + time.Millisecond - 1).Truncate(time.Millisecond)}
	var f faults
	f.wrap("to", lease.Reservation{For: to, Lasts: time.Millisecond}.Validate())
	f.wrap("within", lease.Reservation{For: "-", Lasts: of.Lasts}.Validate())
	if err := errors.Join(f...); err != nil {
		return lease.Row{}, err
	}
	row, ended, err := s.command(ctx, "reassign", shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Reassign(row, s.stated(seen, why), of, st)
	})
	act := lease.Act{Did: "reassign", To: to, Why: why, Until: ending(of.Lasts)}
	if err != nil || s.ofSessions(ctx) {
		return s.announced(ctx, act, row, ended, err)
	}
	pin := lease.Wish{Kind: lease.WishPin, Subject: shard, To: to, Why: printable(why, lease.MaxName)}
	unpinned := s.wish(ctx, pin, within)
	if unpinned != nil {
		unpinned = fmt.Errorf("reserved, but not pinned to %.64q: %w", to, unpinned)
	}
	row, _ = s.announced(ctx, act, row, ended, nil)
	return row, unpinned
}
