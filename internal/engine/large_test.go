package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// large is a configuration with which a few workers with a few shards do what large fleets
// do: they list the rows in turns of workers times shards seconds.
func large(few int) engine.Config {
	c := config(rebalance.Cooperative)
	c.ListedRows, c.Few = 1, few
	return c
}

// row is the row of a shard as it stands.
func (w *world) row(name string) lease.Row {
	w.Helper()
	r, err := w.store.Get(w.Context(), lease.Key{Group: "g", Kind: lease.KindLease, Name: name})
	if err != nil {
		w.Fatal(err)
	}
	return r.(lease.Row)
}

// TestShardIsReadBeforeItIsSetAside: a worker remembers that a shard has failed before. It
// has come further since, then its owner dies: that is no second failure in a row.
func TestShardIsReadBeforeItIsSetAside(t *testing.T) {
	for seed := range uint64(6) { // now and then the rows are listed just in time
		w := newWorld(t, 8)
		w.chance = rand.New(rand.NewPCG(seed, 7))
		c := large(0)
		c.MaxAttempts = 2
		a, b := w.join("a", c), w.join("b", c)
		w.until(time.Minute, w.held)
		w.run(time.Minute)
		fails := a.tenures()[0]
		a.fail(fails)
		w.until(time.Minute, w.held)
		w.run(5 * time.Minute) // both have listed the rows
		dies, stays := a, b
		for _, id := range b.tenures() {
			if id.Shard == fails.Shard {
				dies, stays = b, a
			}
		}
		for _, id := range dies.tenures() {
			if id.Shard == fails.Shard {
				dies.step(engine.Marks{Tenure: id, Mark: mark("1"), Seq: 1, Flush: 1})
			}
		}
		w.run(time.Second)
		dies.Kill()
		w.run(time.Minute)
		if len(stays.Handlers) != 8 || len(stays.of(event.Quarantined)) > 0 {
			t.Errorf("seed %d: %d of 8 shards are held; set aside: %+v", seed, len(stays.Handlers), stays.of(event.Quarantined))
		}
	}
}

// TestWhoComesBackTrustsNoMemoryOfParents: while a fleet was away, its table was put back to
// before a parent was finished, and adopted. The workers remember the parent's end; its
// child, which is listed now, begins after the next one.
func TestWhoComesBackTrustsNoMemoryOfParents(t *testing.T) {
	w := newWorld(t, 10)
	parent, child := engine.Shard{Name: "parent"}, engine.Shard{Name: "child", Parents: []string{"parent"}}
	w.shards = append(w.shards, parent)
	w.source.Shards = w.shards
	w.fleet("abcd", large(0))
	w.until(2*time.Minute, w.held)
	w.finish("parent")
	w.run(5 * time.Minute)
	w.down = true
	w.source.Shards = append(w.shards[:len(w.shards):len(w.shards)], child)
	w.run(time.Minute)
	w.use(older(t, w.nodes[0].Moment(), w.shards))
	w.down = false
	for range 1000 {
		w.run(100 * time.Millisecond)
		if w.processed("child") > 0 && !w.row("parent").Finished {
			t.Fatalf("the child has begun, and the parent is %v", w.row("parent"))
		}
	}
	if !w.held() {
		t.Errorf("%v are held of %d shards", w.counts(), len(w.shards))
	}
}

// older is a table that knows these shards, was put back in time and adopted.
func older(t *testing.T, now engine.Moment, shards []engine.Shard) lease.Store {
	t.Helper()
	store := judge.NewStore(new(memstore.Store), checkpoint.Decimal)
	stamp := func(s engine.Shard, what string) protocol.Stamp {
		return protocol.Stamp{ID: lease.WriteID(strings.Repeat(what, 5) + s.Name), At: now.Wall}
	}
	for _, s := range shards {
		w, err := protocol.Begin("g", s.Name, nil, "operator", stamp(s, "begin"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.Write(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if w, err = protocol.Adopt(r.(lease.Row), "operator", stamp(s, "adopt")); err != nil {
			t.Fatal(err)
		}
		if _, err = store.Write(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// TestChildrenInALargeFleet: most workers do not know that a parent has ended. Some few look,
// and claim what is left lying.
func TestChildrenInALargeFleet(t *testing.T) {
	w := newWorld(t, 12)
	left, right := engine.Shard{Name: "left", Parents: []string{"shard-000"}}, engine.Shard{Name: "right", Parents: []string{"shard-000"}}
	w.source.Shards = append(w.shards[:len(w.shards):len(w.shards)], left, right)
	w.fleet("abcdefgh", large(3))
	w.until(2*time.Minute, w.held)
	w.run(5 * time.Minute)
	w.finish("shard-000")
	took := w.until(15*time.Second, func() bool { return w.processed("left", "right") == 2 })
	t.Logf("both have begun after %v", took)
}

// TestNothingIsClaimedInVain: one worker after the other leaves. Most remember its shards
// where they were minutes ago, and still nobody takes them for a dead worker's.
func TestNothingIsClaimedInVain(t *testing.T) {
	w := newWorld(t, 24)
	fleet := w.fleet("abcdef", large(3))
	w.until(2*time.Minute, w.even)
	w.run(10 * time.Minute) // all have listed the rows
	for _, n := range fleet[:4] {
		n.step(engine.Stop{})
		w.until(time.Minute, n.Engine.Done)
		w.until(time.Minute, w.held)
		w.run(5 * time.Second)
	}
	for _, n := range fleet {
		if vain := n.of(event.Contended); len(vain) > 0 {
			t.Errorf("%s claimed in vain: %+v", n.Name, vain)
		}
	}
}

// TestDeathBeforeTheRowsAreListed: a newcomer dies that has just been given shards, then who
// has just inherited some. Nobody has listed the rows since, and all know what those had.
func TestDeathBeforeTheRowsAreListed(t *testing.T) {
	w := newWorld(t, 24)
	w.fleet("abcdef", large(0))
	w.until(2*time.Minute, w.even)
	w.run(5 * time.Minute)
	w.join("k", large(0))
	w.until(time.Minute, w.even)
	for _, at := range []int{6, 0, 1} {
		w.nodes[at].Kill()
		if took := w.again(); took > 14*time.Second {
			t.Errorf("what %s had was held again after %v", w.nodes[at].Name, took)
		}
	}
}

// TestWrongGuess: two workers ask a third for its shards, and it dies before they have them.
// Each believes that the other has what it asked for, and yet all is taken over.
func TestWrongGuess(t *testing.T) {
	w := newWorld(t, 12)
	config := large(0)
	config.Handoff = rebalance.Eager
	a := w.join("a", config)
	a.deaf = true // it does not wind down
	w.until(time.Minute, w.held)
	b, c := w.join("b", config), w.join("c", config)
	w.until(2*time.Minute, func() bool { return len(b.of(event.Requested)) > 0 && len(c.of(event.Requested)) > 0 })
	w.run(300 * time.Millisecond) // they have seen what the other wants
	a.Kill()
	if took := w.until(2*time.Minute, w.held); took > 15*time.Second {
		t.Errorf("all was held again after %v", took)
	}
}

// fickle is a planner that moves all of a's shards to k, and when there is an l, to b.
type fickle struct{ keep }

func (p fickle) Plan(v rebalance.View) []int {
	targets := p.keep.Plan(v)
	named := func(name string) int {
		return slices.IndexFunc(v.Workers, func(w rebalance.Worker) bool { return w.Name == name })
	}
	a, b, k, l := named("a"), named("b"), named("k"), named("l")
	for i, s := range v.Shards {
		switch {
		case s.Owner == rebalance.Nobody || k < 0:
		case s.Owner == k && l >= 0:
			targets[i] = b
		case s.Owner == a && l < 0:
			targets[i] = k
		}
	}
	return targets
}

// TestGivenAlthoughItAsksNoMore: an owner hands its shards to a worker that has just called off
// what it asked for. It finds out by itself: to all others they are held.
func TestGivenAlthoughItAsksNoMore(t *testing.T) {
	w := newWorld(t, 24)
	c := large(0)
	c.Handoff, c.Planner = rebalance.Eager, fickle{}
	a := w.fleet("abcdefgh", c)[0]
	w.until(2*time.Minute, w.held)
	w.run(5 * time.Minute)
	a.winds = 3 * time.Second
	k := w.join("k", c)
	w.until(time.Minute, func() bool { return len(a.of(event.Draining)) > 0 })
	a.slow = func(o engine.Output) time.Duration {
		if list, ok := o.(engine.List); ok && list.Query.Kind == lease.KindSeat {
			return 5 * time.Second // it does not see in time that nobody asks any more
		}
		return 0
	}
	w.join("l", c)
	w.run(6 * time.Second)
	if len(k.of(event.Retired)) == 0 || len(a.Handlers) > 0 {
		t.Fatalf("it called %d off, and the owner kept %d", len(k.of(event.Retired)), len(a.Handlers))
	}
	a.slow = nil
	if took := w.again(); took > 10*time.Second {
		t.Errorf("what it was given lay there for another %v", took)
	}
}

// odd is a planner that is of another mind than the rest of the fleet: nobody asks anybody.
type odd struct{ rebalance.Even }

func (odd) Fingerprint() string { return "odd" }

// TestLastWords: a worker that leaves has given its shards to nobody. It says so before it
// goes, and long enough for the others to see it.
func TestLastWords(t *testing.T) {
	w := newWorld(t, 12)
	c := large(0)
	c.Planner = odd{}
	a := w.join("a", c)
	w.fleet("bcd", large(0))
	w.until(2*time.Minute, w.held)
	w.run(time.Minute)
	had := int64(len(a.Handlers))
	a.step(engine.Stop{})
	w.until(time.Minute, a.Engine.Done)
	var before, said, at time.Duration
	freed := int64(0)
	for _, s := range a.sent {
		send, ok := s.Output.(engine.Send)
		if !ok {
			continue
		}
		switch seat, ok := send.Write.Next.(lease.Seat); {
		case ok && !seat.Leaving:
			freed = seat.Freed
		case ok && seat.Freed == freed+had && said == 0:
			said = s.at
		case send.Write.Key().Kind == lease.KindLease:
			before = s.at
		case send.Write.Op == lease.OpDelete:
			at = s.at
		}
	}
	if said < before || at < said+3*time.Second {
		t.Errorf("it gave the last shard up at %v, said so at %v, and its seat at %v", before, said, at)
	}
}

// keep is a planner that plans no move. So nobody asks for what a leaving worker has, as when
// all believe that somebody else does.
type keep struct{}

func (keep) Fingerprint() string { return "keep" }

func (keep) Plan(v rebalance.View) []int {
	targets := make([]int, len(v.Shards))
	for i, s := range v.Shards {
		if targets[i] = s.Owner; s.Owner == rebalance.Nobody {
			targets[i] = int(s.Tie % uint64(len(v.Workers)))
		}
	}
	return targets
}

// TestLeaverIsAskedForAll: a leaving worker tells what nobody asks for, and then all agree who
// does.
func TestLeaverIsAskedForAll(t *testing.T) {
	w := newWorld(t, 12)
	c := large(0)
	c.Planner = keep{}
	fleet := w.fleet("abcd", c)
	w.until(2*time.Minute, w.held)
	w.run(time.Minute)
	leaver := fleet[0]
	leaver.step(engine.Stop{})
	for !leaver.Engine.Done() {
		w.run(5 * time.Millisecond)
		held := map[string]bool{}
		for _, n := range fleet {
			for _, id := range n.tenures() {
				held[id.Shard] = true
			}
		}
		if len(held) < len(w.shards) {
			t.Fatalf("it gave something to nobody: held %v", w.counts())
		}
	}
}

// TestFewListInTurn: shards are given back one after the other. The few that look for all do
// not list the rows each time, and nor does anybody else.
func TestFewListInTurn(t *testing.T) {
	for _, few := range []int{0, 8} {
		w := newWorld(t, 12)
		fleet := w.fleet("abcdefgh", large(few))
		w.until(2*time.Minute, w.held)
		w.run(10 * time.Minute)
		before, turns := w.calls["list lease"], 5
		for range turns * 96 {
			for _, n := range fleet {
				for _, id := range n.tenures() {
					n.ret(id)
					break
				}
			}
			w.run(time.Second)
		}
		if lists := w.calls["list lease"] - before; lists > turns*len(fleet)*5/4 {
			t.Errorf("the rows were listed %d times in %d turns by %d workers", lists, turns, len(fleet))
		}
	}
}

// TestFewListOneAfterTheOther: when somebody has died, those few leave the table to who
// claims, and then do not list the rows all at once.
func TestFewListOneAfterTheOther(t *testing.T) {
	early, atOnce := 0, 0
	for seed := range 10 {
		w := newWorld(t, 24)
		w.salt = fmt.Sprint("/", seed)
		fleet := w.fleet("abcdefghijkl", large(12))
		w.until(4*time.Minute, w.held)
		w.run(10 * time.Minute)
		fleet[0].Kill()
		evicted := time.Duration(0)
		for evicted == 0 {
			w.run(100 * time.Millisecond)
			for _, n := range fleet {
				if len(n.of(event.PeerEvicted)) > 0 {
					evicted = w.Now()
				}
			}
		}
		w.run(10 * time.Second)
		listed := w.lists(evicted)
		for i, at := range listed {
			if at < evicted+3*time.Second {
				early++
			}
			if i > 0 && at < listed[i-1]+time.Second {
				atOnce++
			}
		}
	}
	if early > 2 || atOnce > 15 { // some have their turn just then
		t.Errorf("right after a death the rows were listed %d times, and within a second of another %d times", early, atOnce)
	}
}

// lists are the moments since then at which anybody has listed the rows.
func (w *world) lists(since time.Duration) (at []time.Duration) {
	for _, n := range w.nodes {
		for _, s := range n.sent {
			if list, ok := s.Output.(engine.List); ok && list.Query.Kind == lease.KindLease && s.at >= since {
				at = append(at, s.at)
			}
		}
	}
	slices.Sort(at)
	return at
}

// again is how long it takes until all is held.
func (w *world) again() (took time.Duration) {
	for !w.held() && took < 10*time.Minute {
		w.run(100 * time.Millisecond)
		took += 100 * time.Millisecond
	}
	return took
}

// rollout is a settled fleet of which the first workers have a planner of another version:
// nobody asks them, so they leave with what they hold.
func rollout(t *testing.T, seed uint64, shards int, c engine.Config, names ...string) (w *world, old []*node) {
	w = newWorld(t, shards)
	w.chance = rand.New(rand.NewPCG(seed, 7))
	o := c
	o.Planner = odd{}
	for _, name := range names {
		old = append(old, w.join(name, o))
	}
	w.fleet("bcdefgh", c)
	w.until(10*time.Minute, w.held)
	w.run(10*time.Minute + time.Duration(w.chance.IntN(5000))*time.Millisecond)
	return w, old
}

// TestKilledWhileItLeaves: a worker is killed long after it was told to stop.
func TestKilledWhileItLeaves(t *testing.T) {
	for seed := range uint64(4) {
		w, old := rollout(t, seed, 24, large(4), "a", "a2")
		for _, a := range old {
			a.step(engine.Stop{})
			w.run(12 * time.Second)
			a.Kill()
			if took := w.again(); took > 14*time.Second {
				t.Errorf("seed %d: what %s had was held again after %v", seed, a.Name, took)
			}
			w.run(30 * time.Second)
		}
	}
}

// TestGivenToNobody: two workers leave, one after the other, and nobody has asked for what they
// had. The few that look have just looked, or have no room.
func TestGivenToNobody(t *testing.T) {
	tight := large(2)
	tight.ListedRows, tight.MaxShards = 2, 4
	for seed := range uint64(4) {
		for _, fleet := range []struct {
			shards int
			config engine.Config
			old    []string
		}{{24, large(2), []string{"a", "a2"}}, {25, tight, []string{"a"}}} {
			w, old := rollout(t, seed, fleet.shards, fleet.config, fleet.old...)
			for _, a := range old {
				a.step(engine.Stop{})
				w.until(2*time.Minute, a.Engine.Done)
				if took := w.again(); took > 14*time.Second {
					t.Errorf("seed %d: what %s had was held again after %v", seed, a.Name, took)
				}
				w.run(30 * time.Second)
			}
		}
	}
}

// pins gives one shard to one worker, whatever the others' planners say.
type pins struct {
	rebalance.Even
	shard, to string
}

func (p pins) Plan(v rebalance.View) []int {
	targets := p.Even.Plan(v)
	for i := range v.Shards {
		for at := range v.Workers {
			if v.Shards[i].Name == p.shard && v.Workers[at].Name == p.to && !v.Workers[at].Leaving {
				targets[i] = at
			}
		}
	}
	return targets
}

// TestStandingWant: one worker asks for a shard whose owner takes an hour to wind down, and
// another has planned it to itself. That one does not read it all the time, and does not
// forget the other shards.
func TestStandingWant(t *testing.T) {
	w := newWorld(t, 24)
	c := large(2)
	c.ListedRows = 2
	c.Handoff = rebalance.Terms{Mode: rebalance.Eager, Drain: 5 * time.Second, AfterDrain: rebalance.Wait}
	w.fleet("abcdef", c)
	w.until(10*time.Minute, w.even)
	w.run(5 * time.Minute)
	var shard string
	for _, id := range w.nodes[0].tenures() {
		if shard == "" || id.Shard < shard {
			shard = id.Shard
		}
	}
	w.nodes[0].winds = time.Hour
	for _, name := range []string{"x", "y"} {
		k := c
		k.MaxMoves, k.Planner = 1, pins{shard: shard, to: name}
		w.join(name, k)
		w.run(40 * time.Second)
	}
	y := w.nodes[7]
	w.run(9 * time.Minute)
	from, gets := len(y.sent), 0
	w.run(time.Minute)
	for _, s := range y.sent[from:] {
		if _, ok := s.Output.(engine.Get); ok {
			gets++
		}
	}
	if gets > 60 || len(y.Handlers) < 2 {
		t.Errorf("in its tenth minute it read rows %d times; it holds %d", gets, len(y.Handlers))
	}
}

// TestUnreadableRowOfADeadWorker: who is to claim a row and cannot read it leaves it as it is,
// and does not ask for it for ever.
func TestUnreadableRowOfADeadWorker(t *testing.T) {
	w := newWorld(t, 12)
	a := w.fleet("abcd", large(0))[0]
	w.until(2*time.Minute, w.held)
	w.run(5 * time.Minute)
	var shard string
	for _, id := range a.tenures() {
		shard = id.Shard
	}
	w.unreadable(rowKey(shard))
	a.Kill()
	w.run(5 * time.Minute)
	before := w.calls["get"]
	w.run(time.Minute)
	if gets, owner := w.calls["get"]-before, w.row(shard).Owner.Name; gets > 12 || owner != "a" {
		t.Errorf("rows were read %d times in a minute, and the one that cannot be read is %s's", gets, owner)
	}
}

// TestUnreadableRowIsNotClaimed: in a small fleet, too. A shard rests after a failure, and
// meanwhile its row becomes one that cannot be read; when it can be again, it is claimed.
func TestUnreadableRowIsNotClaimed(t *testing.T) {
	w := newWorld(t, 4)
	c := config(rebalance.Eager)
	c.Backoff, c.MaxBackoff = 5*time.Minute, 5*time.Minute
	a := w.join("a", c)
	w.until(time.Minute, w.held)
	fails := a.tenures()[0]
	a.fail(fails)
	w.run(10 * time.Second) // planned, and resting
	w.unreadable(rowKey(fails.Shard))
	w.run(10 * time.Minute)
	if row := w.row(fails.Shard); !row.Owner.IsZero() {
		t.Errorf("nobody can read it, and it was claimed: %v", row)
	}
	w.unreadable()
	w.until(3*time.Minute, w.held)
}

// TestWhatASuspectHoldsIsNotRead: it is planned, but nobody can claim it yet.
func TestWhatASuspectHoldsIsNotRead(t *testing.T) {
	w := newWorld(t, 24)
	fleet := w.fleet("abcdef", large(2))
	w.until(5*time.Minute, w.even)
	w.run(10 * time.Minute)
	a, b := fleet[0], fleet[1]
	second := map[string]bool{}
	for _, id := range b.tenures() {
		second[id.Shard] = true
	}
	from := w.Now()
	a.Kill()
	w.run(4 * time.Second)
	b.Kill()
	w.until(20*time.Second, func() bool { return len(fleet[2].of(event.PeerLeft))+len(fleet[2].of(event.PeerEvicted)) == 1 })
	w.run(2 * time.Second)
	for _, n := range fleet[2:] {
		for _, s := range n.sent {
			if get, ok := s.Output.(engine.Get); ok && s.at >= from && second[get.Key.Name] {
				t.Errorf("%s read %s at %v, when its owner was suspect", n.Name, get.Key.Name, s.at)
			}
		}
	}
}

// TestReadyBeforeTheRowsAreListed: a whole fleet comes back, and works before anybody's turn
// to list the rows has come.
func TestReadyBeforeTheRowsAreListed(t *testing.T) {
	w := newWorld(t, 24)
	for _, n := range w.fleet("abcdef", large(0)) {
		n.step(engine.Stop{})
		w.until(time.Minute, n.Engine.Done)
	}
	w.nodes = nil
	back := w.fleet("klmnop", large(0))
	for _, n := range back {
		n.slow = func(o engine.Output) time.Duration {
			if list, ok := o.(engine.List); ok && list.Query.Kind == lease.KindLease {
				return time.Hour
			}
			return 0
		}
	}
	w.until(time.Minute, w.held)
	for _, n := range back {
		if !n.Engine.Status().Planned {
			t.Errorf("%s works, and says that it is not ready", n.Name)
		}
	}
}
