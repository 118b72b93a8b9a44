package shardlease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// moveFor is how long a move lasts at most, unless its caller says otherwise.
const moveFor = 10 * time.Minute

// Move moves a shard or a lease by name from its living holder to the workers or sessions whose name is the argument
// to. It stores a wish of the kind [lease.WishMove], does not wait, and forces nothing: for a holder that is dead or
// hangs, use [Supervisor.Reassign]. The wish ends when the move is done; when the duration within has passed, which is
// at most a day, and 10 minutes if it is 0; or when it is lifted.
//
// In a group of workers, the wish is a pin that ends by itself: the next plan assigns the shard to the worker, which
// gets it by an ordinary move, eager or cooperative as configured. After the move, plans may move the shard like any
// other; to keep it there, use [Supervisor.Pin].
//
// In a group of sessions, the holder reads the wish within a third of its TTL, and at most 20 s. The soft context of
// its tenure ends ([Tenure.Soft], with the cause [event.CauseHandedOff]), and the holder has [SessionConfig.Drain] to
// call [Tenure.Release]. After that, its hard context ends, as at a shutdown. Either ends the generation and reserves
// the lease, as Reassign does, for as long as within: one of the named sessions acquires it within a heartbeat interval
// if a call of its Acquire waits, and no other session does. There is a gap and no overlap. A holder that releases the
// lease leaves no lock delay; one that is cut off may still run, and leaves its [SessionConfig.LockDelay]. The move
// concerns only the generation seen: if the lease changes hands in another way first, for example because its holder
// dies, the move is over. A holder of a version that does not know moves keeps the lease.
//
// A move that cannot happen now is refused with a [*lease.RuleError], and nothing is written: if the shard has changed
// hands since the generation seen, is finished, quarantined or removed, is with the named worker already, or is
// reserved for another name; if no worker or session with the name has a seat, or it is leaving; if nobody holds the
// lease, in a group of sessions; and in a group of workers, if the worker is unwell, cordoned or drained, if the shard
// is pinned, or if moves are paused. Move returns the row that it has read.
func (s Supervisor) Move(ctx context.Context, shard string, seen int64, to string, within time.Duration, why string) (lease.Row, error) {
	if within == 0 {
		within = moveFor
	}
	of := lease.Reservation{For: to, Lasts: (within + time.Millisecond - 1).Truncate(time.Millisecond)}
	var f faults
	f.wrap("to", lease.Reservation{For: to, Lasts: time.Millisecond}.Validate())
	f.wrap("within", lease.Reservation{For: "-", Lasts: of.Lasts}.Validate())
	if err := errors.Join(s.check(true), errors.Join(f...)); err != nil {
		return lease.Row{}, err
	}
	row, err := s.Get(ctx, shard)
	if err != nil {
		return lease.Row{}, err
	}
	seats, err := s.Workers(ctx)
	if err != nil && !errors.Is(err, lease.ErrMalformed) { // a seat that cannot be read is not that of the named worker
		return row, err
	}
	sessions, c := s.ofSessions(ctx), s.stated(seen, printable(why, lease.MaxName))
	err = s.rewish(ctx, func(list []lease.Wish) ([]lease.Wish, error) {
		w, err := protocol.Move(row, c, of, seats, list, sessions, time.Now())
		if err != nil {
			return nil, err
		}
		return append(slices.DeleteFunc(list, func(old lease.Wish) bool { return old.Compare(w) == 0 }), w), nil
	})
	if err == nil {
		journal(ctx, s, lease.Act{Did: "move", Subject: shard, To: to, Why: why, Generation: seen, Until: ending(of.Lasts)})
	}
	return row, err
}
