package engine_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Every method of a store fails for half an hour, by itself or with another one, while the life of the fleet goes on.
// docs/reliability.md has the table.

var (
	attackPairs = flag.Int("attack.pairs", 0, "how many pairs TestAttackPairs draws; 0: 2, and 40 with SHARDLEASE_LONG=1")
	attackSeed  = flag.Uint64("attack.seed", 1, "the seed of TestAttackPairs")
)

// An attack is a kind of call of the table that fails.
type attack struct {
	name string
	hits func(o engine.Output) bool
	// While it lasts for all workers, or for one that is alone, shards without a worker wait.
	waits bool
}

// attacks returns the methods of a store, each for a kind of records.
func attacks() []attack {
	get := func(kind lease.Kind) attack {
		return attack{"Get " + kind.String(), func(o engine.Output) bool { return gets(o, kind) }, false}
	}
	list := func(kind lease.Kind, waits bool) attack {
		return attack{"List " + kind.String(), func(o engine.Output) bool { return lists(o, kind) }, waits}
	}
	write := func(kind lease.Kind) attack {
		return attack{"Write " + kind.String(), func(o engine.Output) bool { return sends(o, kind) }, true}
	}
	return []attack{
		get(lease.KindSeat), get(lease.KindTarget), get(lease.KindLease),
		{"Get", func(o engine.Output) bool { _, is := o.(engine.Get); return is }, false},
		list(lease.KindSeat, true), list(lease.KindTarget, true), list(lease.KindLease, false),
		{"List", func(o engine.Output) bool { _, is := o.(engine.List); return is }, true},
		{"Get and List", func(o engine.Output) bool { return reads(o) != 0 }, true},
		write(lease.KindSeat), write(lease.KindPlan), write(lease.KindTarget), write(lease.KindLease), write(lease.KindWishes),
		{"Verify", func(o engine.Output) bool { _, is := o.(engine.Verify); return is }, true},
	}
}

// stays reports whether workers keep their shards while nothing can move: their heartbeats and commits are stored.
func (a attack) stays() bool { return a.waits && a.name != "Write seat" && a.name != "Write lease" }

// A siege is a fleet that is attacked.
type siege struct {
	*fleet
	victims []*member // nil: all workers
	joins   bool      // the victim is the worker that joins meanwhile
	kept    map[string]bool
	idle    map[string]time.Duration // since when a shard has no worker that needs one
	worst   time.Duration            // the longest time for which a shard had none
	of      string
	unnamed time.Duration // the longest of these times without a named cause
	why     string        // what was the case then
	told    time.Duration // when a cause was last named
	lost    []string      // shards of workers that stayed, which had none for a moment
}

// besiege returns a fleet of so many workers that has settled.
func besiege(t testing.TB, workers int, mode rebalance.Handoff) *siege {
	s := &siege{fleet: newFleet(t, 0, 0, rebalance.Eager), kept: map[string]bool{}, idle: map[string]time.Duration{}}
	s.config.CommitTimeout, s.config.Handoff = 3*leaseTime, mode
	s.begins = func(n *member, o engine.Start) { s.marks(n, o.Tenure) }
	for i := range 4 * workers {
		s.lists(engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	for range workers {
		s.join()
	}
	s.until(time.Minute, s.even)
	s.lists(engine.Shard{Name: "child", Parents: []string{"shard-000"}})
	s.Run(70 * time.Second)
	return s
}

// marks lets a handler mark every five seconds.
func (s *siege) marks(n *member, id engine.Tenure) {
	n.Later(5*time.Second, func() {
		if h := n.Handlers.Of(id); h != nil && !h.Over {
			h.Marks++
			n.Input(engine.Marks{Tenure: id, Mark: checkpoint.Mark{Position: fmt.Sprint(int64(s.Now()))}, Seq: h.Marks})
			s.marks(n, id)
		}
	})
}

// endure lets the fleet live under the attacks for half an hour: a worker dies, one joins, a shard is listed, a shard ends
// whose child waits, a worker leaves, and one joins again.
func (s *siege) endure(all ...attack) {
	up := s.up()
	s.fail(10*time.Millisecond, func(n *member, o engine.Output) bool {
		hit := s.victims == nil && !s.joins || slices.Contains(s.victims, n) || s.joins && n == s.nodes[min(len(up), len(s.nodes)-1)] && len(s.nodes) > len(up)
		return hit && slices.ContainsFunc(all, func(a attack) bool { return a.hits(o) })
	})
	dies := up[len(up)-1]
	if slices.Contains(s.victims, dies) {
		dies = up[0]
	}
	for _, n := range up {
		for _, h := range n.Handlers {
			s.kept[h.Shard] = len(up) == 1 || n != dies
		}
	}
	s.watch(time.Minute)
	if len(up) > 1 {
		dies.Kill()
	}
	s.watch(5 * time.Minute)
	joined := s.join()
	s.watch(5 * time.Minute)
	s.lists(engine.Shard{Name: "new"})
	s.idle["new"] = s.Now() + s.config.Poll
	s.watch(5 * time.Minute)
	s.kept["shard-000"] = false
	s.end("shard-000")
	s.watch(5 * time.Minute)
	for _, h := range joined.Handlers {
		s.kept[h.Shard] = false
	}
	joined.Input(engine.Stop{})
	s.watch(5 * time.Minute)
	s.join()
	s.watch(4 * time.Minute)
}

// watch lets time pass, and looks at each shard.
func (s *siege) watch(d time.Duration) {
	for end := s.Now() + d; s.Now() < end; {
		s.Run(200 * time.Millisecond)
		s.look()
	}
}

// look reports whether every shard that needs a worker has one.
func (s *siege) look() (held bool) {
	busy := map[string]bool{}
	for _, n := range s.nodes {
		for _, h := range n.Handlers {
			busy[h.Shard] = true
		}
	}
	over := func(name string) bool { return s.row(name).Finished }
	for _, shard := range s.source.Shards {
		if busy[shard.Name] || over(shard.Name) || slices.ContainsFunc(shard.Parents, func(p string) bool { return !over(p) }) {
			delete(s.idle, shard.Name)
			continue
		}
		if s.idle[shard.Name] == 0 {
			s.idle[shard.Name] = s.Now()
		}
		d := s.Now() - s.idle[shard.Name]
		if d > s.worst {
			s.worst, s.of = d, shard.Name
		}
		if d > ordinary && s.named() {
			s.told = s.Now()
		} else if silent := min(d, s.Now()-s.told); silent > ordinary {
			s.unnamed, s.why = max(s.unnamed, silent), fmt.Sprintf("%v: %v, of %v", s.Now(), s.row(shard.Name), s.counts())
		}
		if d > time.Second && s.kept[shard.Name] {
			s.kept[shard.Name] = false
			s.lost = append(s.lost, shard.Name)
		}
	}
	return len(s.idle) == 0
}

// ordinary is how long a crash leaves a shard without a worker.
const ordinary = leaseTime + beat + 2*time.Second

// named reports whether a worker reports a fault that lasts, or is without a seat.
func (s *siege) named() bool {
	return slices.ContainsFunc(s.nodes, func(n *member) bool {
		if !n.Up() || n.Engine.Done() {
			return false
		}
		for _, kind := range []event.Kind{event.StoreFault, event.Unwell, event.CommitsFail, event.PlanStale} {
			if told := n.reports(kind); len(told) > 0 && !told[len(told)-1].Over {
				return true
			}
		}
		return n.Engine.Status().Incarnation == ""
	})
}

// bound returns how long a shard may have no worker; 0: as long as the attack lasts. alone: no worker is spared.
func (a attack) bound(alone bool, workers int) time.Duration {
	switch {
	case alone && a.waits, a.name == "Write target" && workers > 8:
		return 0
	case a.name == "Get lease" || a.name == "Get":
		if workers > 8 { // a large fleet lists all rows in place of single reads only from time to time
			return 2*leaseTime + beat + 2*time.Second + time.Minute
		}
	case a.name == "Write lease":
		return 3*leaseTime + ordinary + beat // it shuts down, and cannot release
	}
	return 2*leaseTime + beat + 2*time.Second
}

// TestAttacks: one method of the store fails for half an hour, for one worker or for all. No shard has no worker for longer
// than its bound, or without a named cause. If reads fail, all workers keep what they hold. When the attack is over, all
// is held within its bound. A large fleet whose first watcher can write no targets does not learn what the source lists.
func TestAttacks(t *testing.T) {
	t.Parallel()
	type siegeOf struct {
		attack
		workers int
		victim  string
	}
	var all []siegeOf
	for _, a := range attacks() {
		for _, workers := range []int{3, 9, 2, 1} {
			for _, victim := range []string{"all", "the first", "the last", "one that joins"} {
				if workers > 2 || victim == "all" || victim == "the first" {
					all = append(all, siegeOf{a, workers, victim})
				}
			}
		}
	}
	for i, of := range fixture.Sample(12, all) {
		t.Run(fmt.Sprintf("%s/%d workers/%s", of.name, of.workers, of.victim), func(t *testing.T) {
			t.Parallel()
			s := besiege(t, of.workers, []rebalance.Handoff{rebalance.Eager, rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}}[i%2])
			switch up := s.up(); of.victim {
			case "the first":
				s.victims = up[:1]
			case "the last":
				s.victims = up[len(up)-1:]
			case "one that joins":
				s.joins = true
			}
			s.endure(of.attack)
			limit := of.bound(of.victim == "all" || of.workers <= 2, of.workers)
			t.Logf("%v without a worker (%s), at most %v", s.worst, s.of, limit)
			if limit > 0 && s.worst > limit || s.unnamed > 0 {
				t.Errorf("%s has no worker for %v, at most %v; without a named cause for %v (%s)", s.of, s.worst, limit, s.unnamed, s.why)
			}
			if len(s.lost) > 0 && of.stays() {
				t.Errorf("workers that stayed have lost %v", s.lost)
			}
			s.deaf = nil
			s.until(2*leaseTime+beat+2*time.Second, s.look)
		})
	}
}

// TestAttackPairs: two methods of the store fail for half an hour, each for all workers. No shard is without a worker and
// without a named cause; and when the attack is over, all is held again.
func TestAttackPairs(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(*attackSeed, 1))
	for range fixture.Or(*attackPairs, 2, 40) {
		all := attacks()
		chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		workers, first := []int{1, 2, 3, 9}[chance.IntN(4)], chance.IntN(2) == 0
		t.Run(fmt.Sprintf("%s, %s/%d workers/one of them %v", all[0].name, all[1].name, workers, first), func(t *testing.T) {
			t.Parallel()
			s := besiege(t, workers, rebalance.Eager)
			if first {
				s.victims = s.up()[:1]
			}
			s.endure(all[:2]...)
			if s.unnamed > 0 {
				t.Errorf("%s has no worker for %v without a named cause", s.of, s.unnamed)
			}
			s.deaf = nil
			s.until(2*leaseTime+beat+5*time.Second, s.look)
		})
	}
}
