package report

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/fixture"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/rebalance"
)

// What the library costs is counted here and not timed: a machine that is busy makes
// everything late, and nothing dearer. Only a heartbeat that is so late that others
// notice makes them look more often; such a try says nothing, and is made again.
const (
	costTries = 5
	tooSlow   = "every try was disturbed: this machine has no time for heartbeats of a third of a second, or they have become late"
)

// TestCostsOfASettledFleet: between two audits a beat is one write of one unit and one read
// of half a unit, for each worker, and held shards cost nothing.
func TestCostsOfASettledFleet(t *testing.T) {
	local.Endpoint(t)
	table := local.Table(t)
	for _, shards := range []int{8, 48} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			s := newSquad(t, squadPlan{table: table, mode: rebalance.Eager, ttl: time.Second, shards: shards, metered: true})
			slow := false
			together(func() {
				defer s.close()
				all := s.enlist(3)
				s.must(s.watch(shared(all...)), 20*time.Second, "three workers share")
				s.rest()
				slow = undisturbed(s, func() error { return settledCosts(s, len(all)) })
			})
			if slow {
				t.Error(tooSlow)
			}
		})
	}
}

// settledCosts watches a few beats.
func settledCosts(s *squad, workers int) error {
	before := s.sum()
	s.bill()
	fixture.Sleep(s.t, 4*s.plan.beat())
	b, sent := s.bill(), s.sum().plus(before, -1)
	fmt.Fprintf(s.t.Output(), "%d beats, %d looks: %v\n", sent.beats, sent.looks, b)
	switch rest := sent.all - sent.beats - sent.looks; {
	case sent.beats < workers || sent.looks > sent.beats+workers:
		return fmt.Errorf("%d looks in %d beats", sent.looks, sent.beats)
	case rest != 0:
		return fmt.Errorf("%d requests beside beats and looks: %+v", rest, sent)
	case b.writes > sent.beats+workers: // one that was under way when the meter was read
		return fmt.Errorf("%d write units for %d beats", b.writes, sent.beats)
	case b.reads > 0.5*float64(sent.looks+workers):
		return fmt.Errorf("%g read units for %d looks", b.reads, sent.looks)
	}
	return nil
}

// TestCostsOfMoves: a worker that joins or leaves moves no shard more than it must, and
// each move is at most two writes of its row, or three when it is cooperative.
func TestCostsOfMoves(t *testing.T) {
	local.Endpoint(t)
	table := local.Table(t)
	for mode, most := range map[rebalance.Mode]int{rebalance.Eager: 2, rebalance.Cooperative: 3} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := newSquad(t, squadPlan{
				table: table, mode: mode, ttl: time.Second, shards: 12,
				pace: 20 * time.Millisecond, commit: checkpoint.Policy{Every: -1},
			})
			slow := false
			together(func() {
				defer s.close()
				staff := s.enlist(2)
				s.must(s.watch(shared(staff...)), 20*time.Second, "two workers share")
				s.rest()
				slow = undisturbed(s, func() error {
					staff = append(staff, s.name())
					third := staff[2]
					join := s.moving(4, most, shared(staff...), func() { s.enter(third) })
					staff = staff[:2]
					return errors.Join(join, s.moving(4, most, shared(staff...), func() { s.retire(third) }))
				})
			})
			if slow {
				t.Error(tooSlow)
			}
		})
	}
}

// moving does something that should move so many shards, with no more writes each than
// that.
func (s *squad) moving(moves, writes int, until func(*book) bool, do func()) error {
	before, since := s.sum(), time.Now()
	do()
	s.must(s.watch(until), 20*time.Second, "the fleet is even again")
	s.rest()
	sent, moved := s.sum().plus(before, -1), len(s.moves(since))
	fmt.Fprintf(s.t.Output(), "%d moves: %+v\n", moved, sent)
	if moved != moves {
		return fmt.Errorf("%d shards moved, %d would have done", moved, moves)
	}
	if sent.rows() > writes*moved {
		return fmt.Errorf("%d writes of rows for %d moves: %+v", sent.rows(), moved, sent)
	}
	return nil
}

// undisturbed repeats a try during which the machine was too slow. What is wrong in an
// undisturbed try is wrong.
func undisturbed(s *squad, try func() error) (slow bool) {
	for range costTries {
		before := s.trouble.Load()
		err := try()
		if err == nil {
			return false
		}
		if s.trouble.Load() == before {
			s.t.Error(err)
			return false
		}
		s.t.Logf("disturbed: %v", err)
		s.rest()
	}
	return true
}

// together runs functions that may end by must, and waits for all.
func together(all ...func()) {
	var wg sync.WaitGroup
	for _, f := range all {
		wg.Go(f)
	}
	wg.Wait()
}
