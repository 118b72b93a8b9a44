package report

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/fleet"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// These tests count what the library costs and do not measure time: on a busy machine everything is late,
// but nothing costs more. The exception is a heartbeat so late that other workers notice and poll more
// often. Such a try is discarded, and repeated with twice the lease time, on which the costs do not depend.
const (
	costTries = 5
	tooSlow   = "every try was disturbed: this machine has no time for heartbeats every 5 s, or they have become late"
	enough    = 20 // lease times to wait for changes that take one or two if the machine is not busy
)

// TestCostsOfASettledFleet: between two audits a heartbeat is one write of one unit and one read of half
// a unit for each worker, and held shards cost nothing.
func TestCostsOfASettledFleet(t *testing.T) {
	local.Beside(t)
	table := local.Table(t)
	for _, p := range []fleetPlan{{shards: 8}, {shards: 48}, {shards: 48, buckets: 8}} {
		t.Run(fmt.Sprint(p.shards, " shards in ", max(p.buckets, 1)), func(t *testing.T) {
			t.Parallel()
			p.table, p.mode, p.metered = table, rebalance.Eager, true
			undisturbed(t, p, 3, func(s *measured, staff []string) error { return settledCosts(s, len(staff)) })
		})
	}
}

// settledCosts counts the requests during a few heartbeats.
func settledCosts(s *measured, workers int) error {
	before := s.sum()
	s.bill()
	fixture.Sleep(s.T, 4*s.plan.beat())
	b, sent := s.bill(), s.sum().plus(before, -1)
	fmt.Fprintf(s.Output(), "%d beats, %d looks: %v\n", sent.beats, sent.looks, b)
	switch rest := sent.all - sent.beats - sent.looks; {
	case sent.beats < workers || sent.looks > sent.beats+workers:
		return fmt.Errorf("%d polls in %d heartbeats", sent.looks, sent.beats)
	case rest != 0:
		return fmt.Errorf("%d requests in addition to heartbeats and polls: %+v", rest, sent)
	case b.writes > sent.beats+workers: // heartbeats may be under way while the meter is read
		return fmt.Errorf("%d write units for %d heartbeats", b.writes, sent.beats)
	case b.reads > 0.5*float64(sent.looks+workers):
		return fmt.Errorf("%g read units for %d polls", b.reads, sent.looks)
	}
	return nil
}

// TestCostsOfBuckets: eight buckets cost a listing seven requests more, and at most as many read units,
// because each query is rounded up. A long test also prints the costs of a fleet that audits often.
func TestCostsOfBuckets(t *testing.T) {
	const workers, periods = 4, 3
	rows := fixture.Size(200, 1000)
	local.Beside(t)
	table, listing := local.Table(t), map[int]bill{}
	for _, buckets := range []int{1, 8} {
		t.Run(fmt.Sprint(buckets, " buckets"), func(t *testing.T) {
			m, o := newMeter(t), dynamostore.Options{Group: fmt.Sprint("listed-", buckets), Buckets: buckets}
			plain := local.Open(t, local.Client(t, nil), table, o)
			for i := range rows {
				fixture.Must[lease.Row](t, plain)(protocol.Begin(o.Group, fmt.Sprintf("shardId-%012d", i), nil, "a", fixture.Stamp()))
			}
			s := local.Open(t, local.Client(t, m.over), table, o)
			m.since()
			for _, err := range s.List(t.Context(), lease.Query{Group: o.Group, Kind: lease.KindLease}) {
				if err != nil {
					t.Fatal(err)
				}
			}
			listing[buckets] = total(m.since())
			if b, one := listing[buckets], listing[1]; b.requests != buckets || b.reads > one.reads+float64(buckets-1) {
				t.Errorf("a listing costs %v, with one bucket %v", b, one)
			}
			if !fixture.Long() {
				return
			}
			plan := fleetPlan{table: table, mode: rebalance.Eager, ttl: time.Second, shards: 64, audit: 3 * time.Second, buckets: buckets, metered: true}
			f := newFleet(t, plan)
			together(func() {
				defer f.Close()
				f.start(workers)
				f.rest()
				f.audited(workers)
				c := f.cost(size{plan.shards, workers}, periods)
				fmt.Fprintf(t.Output(), "%d buckets: a listing of %d rows costs %v; %d workers that hold %d shards and audit every %v: %.1f write + %.1f read units/s\n",
					buckets, rows, listing[buckets], workers, plan.shards, plan.audit, c.writes, c.reads)
			})
		})
	}
}

// TestCostsOfMoves: when a worker joins or leaves, no shard moves that need not, and each move is at most
// two writes of its row, or three in cooperative mode.
func TestCostsOfMoves(t *testing.T) {
	local.Beside(t)
	table := local.Table(t)
	for mode, most := range map[rebalance.Mode]int{rebalance.Eager: 2, rebalance.Cooperative: 3} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			p := fleetPlan{table: table, mode: mode, shards: 12, pace: 20 * time.Millisecond, commit: checkpoint.Policy{Every: -1}}
			undisturbed(t, p, 2, func(s *measured, staff []string) error {
				third := s.NextName()
				join := s.moving(4, most, fleet.Shared(append(staff, third)...), func() { s.Start(third) })
				return errors.Join(join, s.moving(4, most, fleet.Shared(staff...), func() { s.Worker(third).Stop() }))
			})
		})
	}
}

// moving runs an action that should move so many shards, with at most so many writes each.
func (s *measured) moving(moves, writes int, until func(*fleet.Book) bool, do func()) error {
	before, since := s.sum(), time.Now()
	do()
	if !s.soon(until) {
		return errors.New("the fleet is not even again")
	}
	s.rest()
	sent, moved := s.sum().plus(before, -1), len(s.Moves(since))
	fmt.Fprintf(s.Output(), "%d moves: %+v\n", moved, sent)
	if moved != moves {
		return fmt.Errorf("%d shards moved, %d moves are enough", moved, moves)
	}
	if sent.rows() > writes*moved {
		return fmt.Errorf("%d writes of rows for %d moves: %+v", sent.rows(), moved, sent)
	}
	return nil
}

// undisturbed repeats a try, each time in a new fleet at rest, until no heartbeat is late during one. An error in such an
// undisturbed try is final.
func undisturbed(t *testing.T, p fleetPlan, workers int, try func(s *measured, staff []string) error) {
	p.ttl = time.Second
	for range costTries {
		s, disturbed := newFleet(t, p), true
		together(func() {
			defer s.Close()
			staff := s.StartAll(workers)
			if !s.settle(fleet.Shared(staff...)) {
				return
			}
			before := s.Trouble.Load()
			err := try(s, staff)
			if disturbed = err != nil && s.Trouble.Load() != before; err != nil && !disturbed {
				t.Error(err)
			}
		})
		if !disturbed || t.Failed() {
			return
		}
		t.Logf("disturbed with a lease time of %v", p.ttl)
		p.ttl *= 2
	}
	t.Error(tooSlow)
}

// soon waits until a condition holds, and reports whether it does. It may never hold: if the lease time is too short for
// the machine, workers evict each other again and again.
func (s *measured) soon(holds func(*fleet.Book) bool) bool {
	_, ok := s.Watch(holds).Within(enough * s.plan.ttl)
	return ok
}

// settle waits until the shards are shared and the fleet has had no trouble for two lease times: a worker
// that was evicted comes back, and its shards move once more.
func (s *measured) settle(even func(*fleet.Book) bool) bool {
	for range 3 {
		before := s.Trouble.Load()
		if !s.soon(even) {
			return false
		}
		fixture.Sleep(s.T, 2*s.plan.ttl)
		s.rest()
		s.quiet()
		if s.Trouble.Load() == before {
			return true
		}
	}
	return false
}

// together runs functions that may end by must, and waits for all.
func together(all ...func()) {
	var wg sync.WaitGroup
	for _, f := range all {
		wg.Go(f)
	}
	wg.Wait()
}
