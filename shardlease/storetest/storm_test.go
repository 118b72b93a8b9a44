package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	stormSeed   = flag.Uint64("storm.seed", 1, "first seed of TestStorm; a failure prints its own")
	stormRounds = flag.Int("storm.rounds", 80, "how many seeds TestStorm goes through")
)

// A storm is four actors on one shard behind a network at its worst.
type storm struct {
	judge  *Judge
	net    *Faulty
	chance *rand.Rand
	actors [4]actor
	past   []lease.Row // what was read lately: a read may be answered late
	starts map[int64]lease.Incarnation
	hands  int
}

func newStorm(seed uint64) *storm {
	judge := NewJudge(new(memstore.Store), checkpoint.Decimal)
	return &storm{
		judge:  judge,
		net:    NewFaulty(judge, seed, Rates{Lost: 0.05, ReplyLost: 0.3, Late: 0.2, Twin: 0.05, Arrive: 0.5, Read: 0.1}),
		chance: rand.New(rand.NewPCG(seed, 1)), starts: map[int64]lease.Incarnation{},
		actors: [4]actor{newActor("a"), newActor("b"), newActor("c"), newActor("d")},
	}
}

func (s *storm) Stored(id lease.WriteID) bool { return s.judge.Stored(id) }

func (s *storm) started(r lease.Row) error {
	if who, ok := s.starts[r.Generation]; ok {
		return fmt.Errorf("S3: generation %d was started by %s, and now by %s", r.Generation, who, r.Owner.Incarnation)
	}
	s.starts[r.Generation] = r.Owner.Incarnation
	s.hands++
	return nil
}

// step lets one actor do one thing.
func (s *storm) step(ctx context.Context) error {
	i := s.chance.IntN(len(s.actors))
	a := &s.actors[i]
	open, busy := a.copy.Open()
	switch {
	case s.chance.IntN(500) == 0:
		a.reborn()
		return nil
	case busy:
		reply, err := s.net.Write(ctx, open)
		return a.answered(reply, err, s)
	case s.chance.IntN(3) == 0:
		return s.look(ctx, a)
	}
	moves := a.moves(s.actors[(i+1+s.chance.IntN(len(s.actors)-1))%len(s.actors)].owner())
	s.chance.Shuffle(len(moves), func(i, j int) { moves[i], moves[j] = moves[j], moves[i] })
	for _, m := range moves {
		if m.name != "commit" && a.tenure && s.chance.IntN(4) > 0 {
			continue // holders mostly commit
		}
		write, err := m.make()
		if err != nil {
			continue
		}
		a.writes++
		if err := a.copy.Send(write); err != nil {
			return err
		}
		reply, err := s.net.Write(ctx, write)
		return a.answered(reply, err, s)
	}
	return nil
}

// look reads the row, or is answered with what was read some time ago.
func (s *storm) look(ctx context.Context, a *actor) error {
	r, err := s.net.Get(ctx, lease.Key{Group: group, Kind: lease.KindLease, Name: shard})
	if errors.Is(err, ErrNoAnswer) || errors.Is(err, lease.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.past = append(s.past, r.(lease.Row))
	if len(s.past) > 20 {
		s.past = s.past[1:]
	}
	at := len(s.past) - 1
	if s.chance.IntN(3) == 0 {
		at = s.chance.IntN(len(s.past))
	}
	return a.saw(s.past[at], s)
}

// settle lets everything arrive that was held, and every actor learn what became
// of its open write.
func (s *storm) settle(ctx context.Context) error {
	for len(s.net.Held()) > 0 {
		if err := s.net.Arrive(ctx, 0); err != nil {
			return err
		}
	}
	for i := range s.actors {
		a := &s.actors[i]
		for open, busy := a.copy.Open(); busy; open, busy = a.copy.Open() {
			reply, err := s.net.Suffer(ctx, open, Delivered)
			if err := a.answered(reply, err, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestStorm makes random writes of every kind through a network that loses
// answers and delivers late, and holds each answer, each row and each tenure
// against what really happened.
func TestStorm(t *testing.T) {
	const steps = 20_000
	var counts [fates]atomic.Int64
	var hands, stored, silent atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for round := range *stormRounds {
			seed := *stormSeed + uint64(round)
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				s := newStorm(seed)
				for n := range steps {
					if err := errors.Join(s.step(t.Context()), s.judge.Err()); err != nil {
						t.Fatalf("step %d: %v\nreplay: go test ./shardlease/storetest -run TestStorm -storm.rounds 1 -storm.seed %d", n, err, seed)
					}
				}
				if err := errors.Join(s.settle(t.Context()), s.judge.Err()); err != nil {
					t.Fatalf("settling: %v\nreplay: -storm.rounds 1 -storm.seed %d", err, seed)
				}
				for fate := range fates {
					counts[fate].Add(int64(s.net.Count(fate)))
				}
				silent.Add(int64(s.net.Silent()))
				hands.Add(int64(s.hands))
				stored.Add(int64(len(s.judge.stored)))
			})
		}
	})
	t.Logf("%d writes stored, %d tenures; %d lost, %d with the reply lost (%d of them stored), %d late, %d repeated late; 0 reported lost that were stored and not overtaken, 0 applied twice, 0 positions moved back, 0 generations reused",
		stored.Load(), hands.Load(), counts[Lost].Load(), counts[ReplyLost].Load(), silent.Load(), counts[Late].Load(), counts[Twin].Load())
	if !t.Failed() && *stormRounds >= 80 && (silent.Load() < 100_000 || counts[Late].Load() < 100_000) {
		t.Error("fewer than 100,000 writes stored without an answer, or late")
	}
}

// TestStormReplays: the same seed is the same storm, to the last write.
func TestStormReplays(t *testing.T) {
	run := func(seed uint64) string {
		s := newStorm(seed)
		for range 3000 {
			if err := s.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.judge.Get(t.Context(), lease.Key{Group: group, Kind: lease.KindLease, Name: shard})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r, len(s.judge.stored), s.net.counts, len(s.net.held))
	}
	if one, two := run(7), run(7); one != two {
		t.Errorf("seed 7 gave\n%s\nand then\n%s", one, two)
	}
	if run(7) == run(8) {
		t.Error("two seeds gave one storm")
	}
}
