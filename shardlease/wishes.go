package shardlease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Wishes returns the wishes of all operators, without those of kind "look". A wish that
// has ended is in the list until a worker removes it.
func (s Supervisor) Wishes(ctx context.Context) ([]lease.Wish, error) {
	if err := s.check(false); err != nil {
		return nil, err
	}
	now, err := s.wishes(ctx)
	return slices.DeleteFunc(now.List, func(w lease.Wish) bool { return w.Kind == protocol.WishLook }), err
}

// lookFor is how long the wish stays by which workers notice a command. Every worker that watches
// lists the seats more often.
const lookFor = time.Minute

// oldLook is how long ago such a wish must have ended before the next command removes it, because the clock of this
// operator may be ahead. Where sessions hold their leases for moments only, nobody else removes it.
const oldLook = time.Hour

// announced makes workers and sessions read the row that a command has changed, and records the command. If the wish cannot
// be stored, workers notice the change at their next audit, and sessions at their next commit. So that is no fault of
// the command. Finally, announced counts the tenure that the command has ended.
func (s Supervisor) announced(ctx context.Context, act lease.Act, row lease.Row, ended int64, err error) (lease.Row, error) {
	if err == nil {
		s.look(ctx, row.Shard)
		act.Subject, act.Generation = row.Shard, row.Last.Generation
		journal(ctx, s, act)
	}
	s.countEnds(ctx, ended)
	return row, err
}

// look makes workers and sessions read the rows of these shards, as far as there is room for that among the wishes.
func (s Supervisor) look(ctx context.Context, shards ...string) {
	if len(shards) == 0 {
		return
	}
	now := time.Now()
	_ = s.rewish(ctx, func(list []lease.Wish) ([]lease.Wish, error) {
		ended := now.Add(-oldLook)
		if len(list)+len(shards) > lease.MaxWishes {
			ended = now
		}
		list = slices.DeleteFunc(list, func(old lease.Wish) bool {
			look := old.Kind == protocol.WishLook
			return look && slices.Contains(shards, old.Subject) || (look || old.Kind == lease.WishMove) && !old.Stands(ended)
		})
		for _, shard := range shards[:max(0, min(len(shards), lease.MaxWishes-len(list)))] {
			list = append(list, lease.Wish{Kind: protocol.WishLook, Subject: shard, By: s.By, Until: now.Add(lookFor)})
		}
		return list, nil
	})
}

// ofSessions reports whether the group is one of sessions. If the record of its kind cannot be read,
// ofSessions returns false, and the caller stores a wish that perhaps has no effect. That does no harm.
func (s Supervisor) ofSessions(ctx context.Context) bool {
	record, err := s.Store.Get(ctx, lease.Plan{Group: s.Group}.Key())
	plan, ok := record.(lease.Plan)
	return err == nil && ok && plan.Sessions
}

// steer stores a wish for the next plan. A group of sessions has no plan.
func (s Supervisor) steer(ctx context.Context, w lease.Wish, lasts time.Duration) error {
	if err := s.check(true); err != nil {
		return err
	}
	if s.ofSessions(ctx) {
		return &lease.RuleError{Transition: string(w.Kind), Key: lease.Plan{Group: s.Group}.Key(), Rule: lease.ErrSessions}
	}
	return wished(ctx, s, w, lasts, s.wish(ctx, w, lasts))
}

// Cordon keeps plans from giving more shards to the workers with that name. They keep the shards
// that they hold. The wish ends after lasts; if lasts is 0, it ends when it is lifted.
func (s Supervisor) Cordon(ctx context.Context, worker string, lasts time.Duration, why string) error {
	return s.steer(ctx, lease.Wish{Kind: lease.WishCordon, Subject: worker, Why: why}, lasts)
}

// Drain makes plans move all shards away from the workers with that name. The wish ends after
// lasts; if lasts is 0, it ends when it is lifted. Each move is an ordinary one, eager or
// cooperative as configured. The drained workers keep running, and can be stopped when they hold no
// shards. They keep the shards for which no other worker is well and has room.
func (s Supervisor) Drain(ctx context.Context, worker string, lasts time.Duration, why string) error {
	return s.steer(ctx, lease.Wish{Kind: lease.WishDrain, Subject: worker, Why: why}, lasts)
}

// pauseFor is how long a pause lasts, unless its caller says otherwise.
const pauseFor = 24 * time.Hour

// Pause makes plans leave every held shard where it is. Shards without an owner are still assigned,
// and a worker that shuts down still gives up its shards. The wish ends after lasts. If lasts is 0, it ends after 24
// hours: in a forgotten pause every deploy has gaps. If lasts is negative, the wish ends when it is lifted.
func (s Supervisor) Pause(ctx context.Context, lasts time.Duration, why string) error {
	switch {
	case lasts == 0:
		lasts = pauseFor
	case lasts < 0:
		lasts = 0
	}
	return s.steer(ctx, lease.Wish{Kind: lease.WishPause, Why: why}, lasts)
}

// Pin makes plans assign a shard to the worker with that name. Plans ignore the pin while no such
// worker runs, and while that worker is leaving, full, cordoned, drained or unwell, or has just
// failed the shard. The wish ends after lasts; if lasts is 0, it ends when it is lifted.
func (s Supervisor) Pin(ctx context.Context, shard, worker string, lasts time.Duration, why string) error {
	return s.steer(ctx, lease.Wish{Kind: lease.WishPin, Subject: shard, To: worker, Why: why}, lasts)
}

// Raise makes every worker or session of the group raise the fences of all that it holds again, at the present
// generations ([Config.Targets]): because a sink was restored from a backup, with the fences that it had then. Handlers run
// meanwhile. In a group of workers the wish ends when all of them say on their seats that they have done so. In a group of
// sessions it ends after lasts, or when it is lifted; inspect shows which sessions have done so.
func (s Supervisor) Raise(ctx context.Context, lasts time.Duration, why string) error {
	w := lease.Wish{Kind: lease.WishRaise, Why: why}
	return wished(ctx, s, w, lasts, s.wish(ctx, w, lasts))
}

// Lift ends a wish. The subject is the name of the worker; for a pin or a move it is that of the shard, and for a pause
// or a raise it is empty. Lift returns [lease.ErrNotFound] if there is no such wish, for example because it has ended
// by itself. Why, which may be empty, is in the journal alone, as that of LiftAll.
func (s Supervisor) Lift(ctx context.Context, kind lease.WishKind, subject, why string) error {
	if err := s.check(true); err != nil {
		return err
	}
	wish := lease.Wish{Kind: kind, Subject: subject}
	err := s.rewish(ctx, func(list []lease.Wish) ([]lease.Wish, error) {
		rest := slices.DeleteFunc(list, func(w lease.Wish) bool { return w.Compare(wish) == 0 })
		if len(rest) == len(list) {
			return nil, fmt.Errorf("lift %s: no such wish (%w)", strings.TrimSpace(string(kind)+" "+subject), lease.ErrNotFound)
		}
		return rest, nil
	})
	return lifted(ctx, s, string(kind), subject, why, err)
}

// LiftAll ends all wishes of the group, and returns nil if there are none. If the record of the wishes
// cannot be read, no wish has an effect, and all other methods that make or lift a wish fail. LiftAll
// deletes such a record, unless another write has changed it since it was read.
func (s Supervisor) LiftAll(ctx context.Context, why string) error {
	if err := s.check(true); err != nil {
		return err
	}
	return lifted(ctx, s, "all", "", why, liftAll(ctx, s))
}

func liftAll(ctx context.Context, s Supervisor) error {
	const tries = 3
	for try := 1; ; try++ {
		err := s.rewish(ctx, func(list []lease.Wish) ([]lease.Wish, error) {
			looks := slices.DeleteFunc(slices.Clone(list), func(w lease.Wish) bool { return w.Kind != protocol.WishLook })
			if len(looks) == len(list) {
				return nil, lease.ErrNotFound
			}
			return looks, nil
		})
		malformed, spoilt := errors.AsType[*lease.MalformedError](err)
		switch {
		case errors.Is(err, lease.ErrNotFound):
			return nil
		case !spoilt || malformed == nil || try == tries:
			return err
		}
		if err := s.dropWishes(ctx, malformed.WriteID); err != nil {
			return err
		}
	}
}

// dropWishes deletes the unreadable record of the wishes, unless another write has changed it since it
// was read. It returns nil in both cases: the caller reads the record again, which shows the outcome.
func (s Supervisor) dropWishes(ctx context.Context, id lease.WriteID) error {
	w, err := protocol.DropWishes(s.Group, id)
	if err != nil {
		return err
	}
	s.repeat(ctx, func() bool {
		_, err = s.Store.Write(ctx, w)
		if errors.Is(err, lease.ErrRefused) || errors.Is(err, lease.ErrMalformed) {
			err = nil
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("deletion of %v: %w", w.Key(), err)
	}
	return nil
}

// wish adds a wish, or replaces the wish of the same kind with the same subject.
func (s Supervisor) wish(ctx context.Context, w lease.Wish, lasts time.Duration) error {
	if err := s.check(true); err != nil {
		return err
	}
	w.By = s.By
	if lasts < 0 {
		return &ConfigError{Field: "lasts", Rule: "must not be negative"}
	}
	w.Until = ending(lasts)
	return s.rewish(ctx, func(list []lease.Wish) ([]lease.Wish, error) {
		next := w
		if w.Kind == lease.WishRaise {
			next.Number = time.Now().UnixMilli()
			for _, old := range list {
				next.Number = max(next.Number, old.Number+1)
			}
		}
		return append(slices.DeleteFunc(list, func(old lease.Wish) bool { return old.Compare(w) == 0 }), next), nil
	})
}

func (s Supervisor) wishes(ctx context.Context) (lease.Wishes, error) {
	none := lease.Wishes{Group: s.Group}
	record, err := s.Store.Get(ctx, none.Key())
	if errors.Is(err, lease.ErrNotFound) {
		return none, nil
	}
	now, ok := record.(lease.Wishes)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the record holds no wishes", lease.ErrMalformed)
	}
	if err != nil {
		return none, fmt.Errorf("get %v: %w", none.Key(), err)
	}
	return now, nil
}

// rewish changes the list of wishes. If another operator changes the list first, rewish starts
// again with the new list. It waits for a random time before that, so that two operators do not
// collide again and again.
func (s Supervisor) rewish(ctx context.Context, change func([]lease.Wish) ([]lease.Wish, error)) error {
	const tries = 10
	for try := 1; ; try++ {
		now, err := s.wishes(ctx)
		if err != nil {
			return err
		}
		list, err := change(slices.Clone(now.List))
		switch {
		case try > 1 && errors.Is(err, lease.ErrNotFound): // lifted by the last try, or by the other operator
			return nil
		case err != nil:
			return err
		}
		w, err := protocol.SetWishes(now, list, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
		if err != nil {
			return err
		}
		verdict := protocol.Unknown
		s.repeat(ctx, func() bool {
			reply, answer := s.Store.Write(ctx, w)
			verdict, _ = protocol.Settle("", w, reply, answer)
			if err = answer; err == nil {
				err = lease.ErrMalformed // for an answer that does not fit
			}
			return verdict != protocol.Unknown
		})
		switch {
		case verdict == protocol.Stored:
			return nil
		case verdict != protocol.Again || try == tries || !rest(ctx, mrand.N(time.Duration(try)*20*time.Millisecond)):
			return fmt.Errorf("change of %v: %w", now.Key(), err)
		}
	}
}
