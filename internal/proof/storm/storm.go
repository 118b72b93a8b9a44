// Package storm tests that the promises do not depend on sensible workers. The actors of a [Storm]
// do anything that the transitions allow, a [Network] loses, delays and repeats their writes, and
// package internal/proof/judge checks what is stored, and which tenures start, against the promises.
package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	group = "group"
	shard = "shard-0001"
)

// theRow returns the key of the row for which the actors compete.
func theRow() lease.Key { return lease.Key{Group: group, Kind: lease.KindLease, Name: shard} }

// clock returns the time of every write. It stands still, because nothing in the contract may
// depend on it. It is in the future, so that a service that deletes expired tombstones does not
// delete these.
func clock() time.Time { return time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC) }

// A Storm is four actors that compete for one shard of one store, preferably behind a bad network.
// Each may do anything that the transitions allow, at any time, and every answer is compared with
// what really happened. The actions of a storm follow from its seed and the answers alone.
type Storm struct {
	store  lease.Store
	truth  Truth
	chance *rand.Rand
	actors [4]actor
	past   []lease.Row // the rows that were read lately; a read may return one of them, as if it were late
}

// New returns a storm on an empty store.
func New(store lease.Store, truth Truth, seed uint64) *Storm {
	return &Storm{
		store: store, truth: truth, chance: rand.New(rand.NewPCG(seed, 1)),
		actors: [4]actor{newActor("a"), newActor("b"), newActor("c"), newActor("d")},
	}
}

// Tenures returns how many tenures the actors have started.
func (s *Storm) Tenures() (n int) {
	for _, a := range s.actors {
		n += a.tenures
	}
	return n
}

// Step lets one actor do one thing. It returns an error if a promise is broken.
func (s *Storm) Step(ctx context.Context) error {
	i := s.chance.IntN(len(s.actors))
	a := &s.actors[i]
	open, busy := a.copy.Open()
	switch {
	case s.chance.IntN(500) == 0:
		a.reborn()
		return nil
	case busy:
		return s.send(ctx, a, open)
	case s.chance.IntN(3) == 0:
		return s.look(ctx, a)
	}
	moves := a.moves(s.actors[(i+1+s.chance.IntN(len(s.actors)-1))%len(s.actors)].owner())
	s.chance.Shuffle(len(moves), func(i, j int) { moves[i], moves[j] = moves[j], moves[i] })
	for _, m := range moves {
		if m.name != "commit" && a.tenure && s.chance.IntN(4) > 0 {
			continue // holders mostly commit
		}
		write, err := m.make(a.stamp(m))
		if err != nil {
			continue
		}
		a.writes++
		if err := a.copy.Send(write); err != nil {
			return err
		}
		return s.send(ctx, a, write)
	}
	return nil
}

func (s *Storm) send(ctx context.Context, a *actor, w lease.Write) error {
	reply, err := s.store.Write(ctx, w)
	return a.answered(reply, err, s.truth)
}

// look reads the row, or returns a row that was read earlier.
func (s *Storm) look(ctx context.Context, a *actor) error {
	r, err := s.store.Get(ctx, theRow())
	if errors.Is(err, lease.ErrMalformed) {
		return err
	}
	if err != nil {
		return nil // no answer, or no row yet
	}
	s.past = append(s.past, r.(lease.Row))
	if len(s.past) > 20 {
		s.past = s.past[1:]
	}
	at := len(s.past) - 1
	if s.chance.IntN(3) == 0 {
		at = s.chance.IntN(len(s.past))
	}
	return a.saw(s.past[at], s.truth)
}

// Settle sends every open write until it is answered.
func (s *Storm) Settle(ctx context.Context) error {
	for i := range s.actors {
		a := &s.actors[i]
		for open, busy := a.copy.Open(); busy; open, busy = a.copy.Open() {
			if err := errors.Join(s.send(ctx, a, open), ctx.Err()); err != nil {
				return err
			}
		}
	}
	return nil
}
