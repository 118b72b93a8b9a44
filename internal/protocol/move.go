package protocol

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The rules that forbid a move.
const (
	ErrThere    lease.Rule = "the named worker or session has it already"
	ErrNobody   lease.Rule = "no worker or session with that name has a seat"
	ErrLeaving  lease.Rule = "the worker or session with that name is leaving"
	ErrUnwell   lease.Rule = "the worker with that name is unwell"
	ErrShunned  lease.Rule = "the worker with that name is cordoned or drained"
	ErrPaused   lease.Rule = "moves are paused"
	ErrPinned   lease.Rule = "the shard is pinned"
	ErrReserved lease.Rule = "it is reserved for another name"
)

// Move returns the wish that moves a shard or a lease by name to the workers or sessions with one name, or the rule by
// which it cannot move there now. seats are those of the group, and list has its wishes. The wish ends when the time of
// the reservation to has passed. In a group of sessions the wish ends only the generation that c has seen, so there
// has to be a holder.
func Move(r lease.Row, c Command, to lease.Reservation, seats []lease.Seat, list []lease.Wish, sessions bool, at time.Time) (lease.Wish, error) {
	const name = "move"
	err := seen(r, name, c)
	if err == nil {
		err = claimable(r, name)
	}
	if err == nil {
		err = to.Validate()
	}
	if err != nil {
		return lease.Wish{}, err
	}
	var why lease.Rule
	switch {
	case sessions && r.Owner.IsZero():
		why = ErrNotHeld
	case r.Owner.Name == to.For:
		why = ErrThere
	case r.Reserved.For != "" && r.Reserved.For != to.For:
		why = ErrReserved
	default:
		why = receives(to.For, seats)
	}
	if why == "" && !sessions {
		why = movable(r.Shard, to.For, list, at)
	}
	if why != "" {
		return lease.Wish{}, rule(r, name, why)
	}
	return lease.Wish{
		Kind: lease.WishMove, Subject: r.Shard, To: to.For, By: c.By, Why: c.Note, Until: at.Add(to.Lasts), Generation: r.Generation, Lasts: to.Lasts,
	}, nil
}

// receives returns why no worker or session of that name can have one more shard; empty: one can.
func receives(name string, seats []lease.Seat) lease.Rule {
	why := ErrNobody
	for _, s := range seats {
		switch {
		case s.Name != name || !s.Confirmed():
		case s.Leaving:
			why = ErrLeaving
		case s.Health.Unwell != "":
			why = ErrUnwell
		default:
			return ""
		}
	}
	return why
}

// movable returns the wish because of which plans would not obey a move; empty: they obey it.
func movable(shard, to string, list []lease.Wish, at time.Time) lease.Rule {
	stands := func(kind lease.WishKind, subject string) bool {
		return slices.ContainsFunc(list, func(w lease.Wish) bool { return w.Kind == kind && w.Subject == subject && w.Stands(at) })
	}
	switch {
	case stands(lease.WishPause, ""):
		return ErrPaused
	case stands(lease.WishCordon, to), stands(lease.WishDrain, to):
		return ErrShunned
	case stands(lease.WishPin, shard):
		return ErrPinned
	}
	return ""
}
