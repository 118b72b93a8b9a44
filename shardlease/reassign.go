package shardlease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Reassign takes a shard or a lease from its holder, without the holder's cooperation, and gives it to
// the worker or session with the name to, and to nobody else, unless it does not come within the given
// time: then anybody may claim it. It is for a holder that is dead or hangs. The name need not exist yet.
//
// In a group of sessions, a call of [Session.Acquire] of a session with that name must wait for the
// lease, or begin to. It reads the row at least three times per [SessionConfig.TTL], so let within be
// that long at least. For the others the lease is held: TryAcquire returns a [*HeldError] with
// ReservedFor. In a group of workers, Reassign also pins the shard for that time, as [Supervisor.Pin]
// does, which replaces an earlier pin of the shard. The plan ignores a pin to a worker that cannot have the
// shard; the shard then waits for the given time before another worker claims it. Let within be at least
// the time that a wish needs to have an effect: a heartbeat interval and 1.5 s. After the pin has ended, the
// plan may move the shard as any other.
//
// The former holder is fenced like after [Supervisor.ForceRelease]: its writes are refused, and if its
// name is not to, it cannot claim the shard again before the time is over. It notices the command
// within a heartbeat interval and 1.5 s.
//
// The time counts from the command by the wall clocks of those who wait, and at most from when they first
// saw the row: a wrong clock makes it shorter, never longer. Each other command ends the reservation. The
// table does not enforce it: it decides who is next, and the generation decides whose writes count.
//
// Reassign refuses bad arguments with a [*ConfigError] for each. It returns the released row. If it also
// returns an error that begins with "reserved", the shard was released and reserved, and could not be
// pinned: then the plan may give it to another worker, which claims it when the time is over.
func (s Supervisor) Reassign(ctx context.Context, shard string, seen int64, to string, within time.Duration, why string) (lease.Row, error) {
	of := lease.Reservation{For: to, Lasts: (within + time.Millisecond - 1).Truncate(time.Millisecond)}
	var f faults
	f.wrap("to", lease.Reservation{For: to, Lasts: time.Millisecond}.Validate())
	f.wrap("within", lease.Reservation{For: "-", Lasts: of.Lasts}.Validate())
	if err := errors.Join(f...); err != nil {
		return lease.Row{}, err
	}
	row, err := s.command(ctx, "reassign", shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Reassign(row, s.stated(seen, why), of, st)
	})
	if err != nil || s.ofSessions(ctx) {
		return s.announced(ctx, row, err)
	}
	pin := lease.Wish{Kind: lease.WishPin, Subject: shard, To: to, Why: printable(why, lease.MaxName)}
	if err := s.wish(ctx, pin, within); err != nil {
		return row, fmt.Errorf("reserved, but not pinned to %.64q: %w", to, err)
	}
	return s.announced(ctx, row, nil)
}
