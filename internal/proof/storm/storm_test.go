package storm

import (
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	stormSeed   = flag.Uint64("storm.seed", 1, "first seed of TestStorm; a failure prints the seed that failed")
	stormRounds = flag.Int("storm.rounds", 0, "how many seeds TestStorm tests")
)

func memStorm(seed uint64) (*Storm, *Network, *judge.Store) {
	check := judge.NewStore(new(memstore.Store), checkpoint.Decimal)
	net := NewNetwork(check, seed, Rates{Lost: 0.05, ReplyLost: 0.3, Late: 0.2, Twin: 0.05, Arrive: 0.5, Read: 0.1})
	return New(net, check, seed), net, check
}

// TestStorm makes random writes of every kind through a network that loses answers and delivers
// late. It compares each answer, each row and each tenure with what really happened.
func TestStorm(t *testing.T) {
	steps, rounds := fixture.Size(5_000, 20_000), fixture.Or(*stormRounds, 4, 80)
	var counts [Fates]atomic.Int64
	var hands, stored, silent atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for round := range rounds {
			seed := *stormSeed + uint64(round)
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				s, net, judge := memStorm(seed)
				for n := range steps {
					if err := errors.Join(s.Step(t.Context()), judge.Err()); err != nil {
						t.Fatalf("step %d: %v\nreplay: %s", n, err, replay(seed))
					}
				}
				for len(net.Held()) > 0 {
					if err := net.Arrive(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(s.Settle(t.Context()), judge.Err()); err != nil {
					t.Fatalf("settling: %v\nreplay: %s", err, replay(seed))
				}
				for fate := range Fates {
					counts[fate].Add(int64(net.Count(fate)))
				}
				silent.Add(int64(net.Silent()))
				hands.Add(int64(s.Tenures()))
				stored.Add(int64(judge.Count()))
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%d writes stored, %d tenures; %d lost, %d with the reply lost (%d of them stored), %d late, %d repeated late; none reported lost that was stored and not overtaken, none applied twice, no position moved back, no generation reused",
		stored.Load(), hands.Load(), counts[Lost].Load(), counts[ReplyLost].Load(), silent.Load(), counts[Late].Load(), counts[Twin].Load())
	if fixture.Long() && rounds >= 80 && (silent.Load() < 100_000 || counts[Late].Load() < 100_000) {
		t.Error("fewer than 100,000 writes stored without an answer, or late")
	}
}

// replay returns the command that makes the storm of a seed again. Its length depends on SHARDLEASE_LONG.
func replay(seed uint64) string {
	command := fmt.Sprintf("go test ./internal/proof/storm -run 'TestStorm$' -storm.rounds 1 -storm.seed %d", seed)
	if fixture.Long() {
		return "SHARDLEASE_LONG=1 " + command
	}
	return command
}

// TestStormReplays: two storms with the same seed make the same writes.
func TestStormReplays(t *testing.T) {
	run := func(seed uint64) string {
		s, net, judge := memStorm(seed)
		for range 3000 {
			if err := s.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r, err := judge.Get(t.Context(), theRow())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r, judge.Count(), net.counts, len(net.held))
	}
	if one, two := run(7), run(7); one != two {
		t.Errorf("seed 7 gave\n%s\nand then\n%s", one, two)
	}
	if run(7) == run(8) {
		t.Error("storms with two seeds are equal")
	}
}

// TestNetworkChecksWrites: a network checks a write before it loses it.
func TestNetworkChecksWrites(t *testing.T) {
	n := NewNetwork(new(memstore.Store), 1, Rates{Late: 1})
	if _, err := n.Write(t.Context(), lease.Write{}); err == nil || errors.Is(err, ErrNoAnswer) {
		t.Errorf("a bad write was not checked: %v", err)
	}
}
