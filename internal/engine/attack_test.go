package engine_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
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

// The methods of a store, each for a kind of records.
func getOf(kind lease.Kind, waits bool) attack {
	return attack{"Get " + kind.String(), func(o engine.Output) bool { return gets(o, kind) }, waits}
}

func listOf(kind lease.Kind, waits bool) attack {
	return attack{"List " + kind.String(), func(o engine.Output) bool { return lists(o, kind) }, waits}
}

func writeOf(kind lease.Kind, waits bool) attack {
	return attack{"Write " + kind.String(), func(o engine.Output) bool { return sends(o, kind) }, waits}
}

func getAll(waits bool) attack {
	return attack{"Get", func(o engine.Output) bool { _, is := o.(engine.Get); return is }, waits}
}

var (
	allReads = attack{"Get and List", func(o engine.Output) bool { return reads(o) != 0 }, true}
	verifies = func(o engine.Output) bool { _, is := o.(engine.Verify); return is }
)

// attacks returns what workers use.
func attacks() []attack {
	return []attack{
		getOf(lease.KindSeat, false), getOf(lease.KindTarget, false), getOf(lease.KindLease, false), getAll(false),
		listOf(lease.KindSeat, true), listOf(lease.KindTarget, true), listOf(lease.KindLease, false),
		{"List", func(o engine.Output) bool { _, is := o.(engine.List); return is }, true}, allReads,
		writeOf(lease.KindSeat, true), writeOf(lease.KindPlan, true), writeOf(lease.KindTarget, true), writeOf(lease.KindLease, true),
		writeOf(lease.KindWishes, true), {"Verify", verifies, true},
	}
}

// sessionAttacks returns what sessions use. If the group is new, it needs more: see siege.bound.
func sessionAttacks() []attack {
	return []attack{
		getOf(lease.KindSeat, true), getOf(lease.KindLease, true), getOf(lease.KindPlan, false), getOf(lease.KindWishes, false),
		getAll(true), listOf(lease.KindSeat, false), allReads,
		writeOf(lease.KindSeat, true), writeOf(lease.KindLease, true), writeOf(lease.KindPlan, false), writeOf(lease.KindWishes, false),
		{"Verify", verifies, false},
	}
}

// stays reports whether workers keep their shards while nothing can move: their heartbeats and commits are stored. Sessions
// keep theirs as long as their heartbeats are.
func (s *siege) stays(a attack) bool {
	if s.contest != nil {
		return a.name != "Write seat"
	}
	return a.waits && a.name != "Write seat" && a.name != "Write lease"
}

// A siege is a fleet or a group of sessions that is attacked. For sessions, what the source lists are the leases that each
// of them wants.
type siege struct {
	*fleet
	size     int        // how many workers there are at first
	victim   int        // which worker is attacked, in the order in which they join; everyone: all are
	contest  *contest   // nil: it is a fleet
	sessions []*session // of the contest
	young    bool       // the sessions join when the attack has begun

	hits    int // how many calls have failed
	kept    map[string]bool
	idle    map[string]time.Duration // since when a shard has no worker that needs one
	worst   time.Duration            // the longest time for which a shard had none
	of      string
	unnamed time.Duration // the longest of these times without a named cause
	why     string        // what was the case then
	told    time.Duration // when a cause was last named
	lost    []string      // shards of workers that stayed, which had none for a moment
}

const everyone = -1

func newSiege(f *fleet, size int) *siege {
	return &siege{fleet: f, size: size, victim: everyone, kept: map[string]bool{}, idle: map[string]time.Duration{}}
}

// besiege returns a fleet of so many workers that has settled.
func besiege(t testing.TB, workers int, mode rebalance.Handoff) *siege {
	s := newSiege(newFleet(t, 0, 0, rebalance.Eager), workers)
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

// gather returns a group of so many sessions that has settled, or one without sessions that is young.
func gather(t testing.TB, sessions int, young bool) *siege {
	c := newContest(t, 1)
	s := newSiege(c.fleet, sessions)
	s.contest, s.young = c, young
	for i := range max(sessions, 3) + 1 {
		s.lists(engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	if !young {
		for range sessions {
			s.another()
		}
		s.until(time.Minute, s.fleet.held)
		s.Run(70 * time.Second)
	}
	return s
}

// another lets a worker or a session join.
func (s *siege) another() *member {
	if s.contest == nil {
		return s.join()
	}
	n := s.contest.join(fmt.Sprintf("s%03d", len(s.nodes)))
	n.started = func(o engine.Start) {
		if o.Tenure.Shard != "shard-001" { // that lease has no checkpoint
			s.marks(n.member, o.Tenure)
		}
		if o.Tenure.Shard == "shard-002" { // its holders take turns
			n.Later(time.Minute, func() { n.Input(engine.Marks{Tenure: o.Tenure, Release: true}) })
		}
	}
	s.sessions = append(s.sessions, n)
	s.wants(n, map[string]bool{})
	return n.member
}

// wants lets a session wait for each lease that it does not hold.
func (s *siege) wants(n *session, asked map[string]bool) {
	for _, of := range s.source.Shards {
		switch name := of.Name; {
		case n.holds(name):
			asked[name] = false
		case !asked[name]:
			asked[name] = true
			n.acquire(name, lockDelay(time.Second))
		}
	}
	n.Later(500*time.Millisecond, func() { s.wants(n, asked) })
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
// whose child waits, a worker leaves, and one joins again. In a group of sessions, an operator also takes a lease.
func (s *siege) endure(all ...attack) {
	s.fail(10*time.Millisecond, func(n *member, o engine.Output) bool {
		hit := (s.victim == everyone || s.victim == slices.Index(s.nodes, n)) &&
			slices.ContainsFunc(all, func(a attack) bool { return a.hits(o) })
		if hit {
			s.hits++
		}
		return hit
	})
	for s.young && len(s.nodes) < s.size {
		s.another()
	}
	up := s.up()
	dies := up[len(up)-1]
	if s.victim == len(up)-1 {
		dies = up[0]
	}
	for _, n := range up {
		for _, h := range n.Handlers {
			s.kept[h.Shard] = s.contest == nil && (len(up) == 1 || n != dies) // of sessions, taken shows it
		}
	}
	s.watch(time.Minute)
	if len(up) > 1 {
		dies.Kill()
	}
	s.watch(5 * time.Minute)
	joined := s.another()
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
	s.watch(3 * time.Minute)
	if s.contest != nil && !s.row("shard-003").Owner.IsZero() {
		s.command("shard-003", func(r lease.Row, c protocol.Command) (lease.Write, error) {
			return protocol.ForceRelease(r, c, s.stamp())
		})
	}
	s.watch(2 * time.Minute)
	s.another()
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
		over := map[event.Kind]bool{}
		for _, of := range slices.Backward(n.told) {
			switch of.Kind {
			case event.StoreFault, event.Unwell, event.CommitsFail, event.PlanStale:
				if !of.Over && !over[of.Kind] {
					return true
				}
				over[of.Kind] = true
			}
		}
		return n.Engine.Status().Incarnation == ""
	})
}

// bound returns how long a shard may have no worker; 0: as long as the attack lasts.
func (s *siege) bound(a attack) time.Duration {
	alone := s.victim == everyone || s.size <= 2 // no worker is spared
	begins := s.young && a.name != "Get wishes" && a.name != "Write wishes"
	switch {
	// A session that cannot write that it has released a lease keeps its seat.
	case s.contest != nil && (alone && (a.waits || begins) || a.name == "Write lease"):
		return 0
	case s.contest != nil:
		return ordinary
	case alone && a.waits, a.name == "Write target" && s.size > 8 && s.victim == 0:
		return 0
	case a.name == "Get lease" || a.name == "Get":
		if s.size > 8 { // a large fleet lists all rows in place of single reads only from time to time
			return 2*leaseTime + beat + 2*time.Second + time.Minute
		}
	case a.name == "Write lease":
		return 3*leaseTime + ordinary + beat // it shuts down, and cannot release
	}
	return 2*leaseTime + beat + 2*time.Second
}

// taken returns the leases that sessions have lost although neither they nor an operator have given them up.
func (s *siege) taken() (names []string) {
	for _, n := range s.sessions {
		for _, o := range n.ended {
			switch {
			case o.Cause == event.CauseGivenUp, o.Cause == event.CauseFinished, o.Cause == event.CauseForced, o.Cause == event.CauseStopped:
			default:
				names = append(names, fmt.Sprintf("%s of %s: %v", o.Tenure.Shard, n.Name, o.Cause))
			}
		}
	}
	return names
}

// A siegeOf is one case of TestAttacks.
type siegeOf struct {
	attack
	sessions bool
	size     int
	victim   string
}

// sieges returns all cases of TestAttacks: of workers, or of sessions.
func sieges(sessions bool) (all []siegeOf) {
	of, sizes, victims := attacks(), []int{3, 9, 2, 1}, []string{"all", "the first", "the last", "one that joins"}
	if sessions { // in an order whose sample is quick
		of, sizes, victims = sessionAttacks(), []int{3, 2, 1, 9}, append(victims, "all of a new group", "the first of a new group")
	}
	for _, a := range of {
		for _, size := range sizes {
			for i, victim := range victims {
				if size > 2 || i%4 == 0 || size == 2 && i%4 == 1 || !sessions && i == 1 {
					all = append(all, siegeOf{a, sessions, size, victim})
				}
			}
		}
	}
	return all
}

// TestAttacks: one method of the store fails for half an hour, for one worker or session or for all. No shard or lease has no
// worker for longer than its bound, or without a named cause. If reads fail, all keep what they hold. When the attack is over,
// all is held within its bound. A large fleet whose first watcher can write no targets does not learn what the source lists.
func TestAttacks(t *testing.T) {
	t.Parallel()
	for i, of := range append(fixture.Sample(3, sieges(false)), fixture.Sample(3, sieges(true))...) {
		t.Run(fmt.Sprintf("%s/%d %s/%s", of.name, of.size, map[bool]string{false: "workers", true: "sessions"}[of.sessions], of.victim), func(t *testing.T) {
			t.Parallel()
			var s *siege
			if of.sessions {
				s = gather(t, of.size, strings.Contains(of.victim, "new"))
			} else {
				s = besiege(t, of.size, []rebalance.Handoff{rebalance.Eager, rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}}[i%2])
			}
			s.victim = map[string]int{"the first": 0, "the first of a new group": 0, "the last": of.size - 1, "one that joins": of.size}[of.victim]
			if strings.HasPrefix(of.victim, "all") {
				s.victim = everyone
			}
			s.endure(of.attack)
			limit := s.bound(of.attack)
			t.Logf("%v without a worker (%s), at most %v; %d calls failed", s.worst, s.of, limit, s.hits)
			if limit > 0 && s.worst > limit || s.unnamed > 0 {
				t.Errorf("%s has no worker for %v, at most %v; without a named cause for %v (%s)", s.of, s.worst, limit, s.unnamed, s.why)
			}
			if lost := append(s.lost, s.taken()...); len(lost) > 0 && s.stays(of.attack) {
				t.Errorf("workers that stayed have lost %v", lost)
			}
			s.deaf = nil
			s.until(2*leaseTime+beat+2*time.Second, s.look)
		})
	}
}

// TestAttackPairs: two methods of the store fail for half an hour, each for one worker or session or for all. No shard is
// without a worker and without a named cause; and when the attack is over, all is held again.
func TestAttackPairs(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(*attackSeed, 1))
	for range fixture.Or(*attackPairs, 2, 40) {
		sessions := chance.IntN(4) == 0
		all := attacks()
		if sessions {
			all = sessionAttacks()
		}
		chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		size, first := []int{1, 2, 3, 9}[chance.IntN(4)], chance.IntN(2) == 0
		t.Run(fmt.Sprintf("%s, %s/%d of them/sessions %v/one of them %v", all[0].name, all[1].name, size, sessions, first), func(t *testing.T) {
			t.Parallel()
			var s *siege
			if sessions {
				s = gather(t, size, false)
			} else {
				s = besiege(t, size, rebalance.Eager)
			}
			if first {
				s.victim = 0
			}
			s.endure(all[:2]...)
			if s.unnamed > 0 {
				t.Errorf("%s has no worker for %v without a named cause", s.of, s.unnamed)
			}
			if lost := s.taken(); len(lost) > 0 && s.stays(all[0]) && s.stays(all[1]) {
				t.Errorf("sessions have lost %v", lost)
			}
			s.deaf = nil
			s.until(2*leaseTime+beat+5*time.Second, s.look)
		})
	}
}
