package engine_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestOldFailureSetsNothingAside: a worker remembers that a shard has failed before. It
// has come further since, then its owner dies: that is no second failure in a row.
func TestOldFailureSetsNothingAside(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) { // now and then the rows are listed just in time
		w := newTwins(t, 8)
		w.chance = rand.New(rand.NewPCG(seed, 7))
		c := config(rebalance.Cooperative)
		c.MaxAttempts = 2
		a, b := w.enter("a", c), w.enter("b", c)
		w.until(time.Minute, w.held)
		w.Run(time.Minute)
		fails := a.tenures()[0]
		a.Return(fails, true)
		w.until(time.Minute, w.held)
		w.Run(5 * time.Minute) // both have listed the rows
		dies, stays := a, b
		if b.holds(fails.Shard) {
			dies, stays = b, a
		}
		for _, id := range dies.tenures() {
			if id.Shard == fails.Shard {
				dies.Step(engine.Marks{Tenure: id, Mark: mark("1"), Seq: 1, Flush: 1})
			}
		}
		w.Run(time.Second)
		dies.Kill()
		w.Run(time.Minute)
		if len(stays.Handlers) != 8 || len(stays.reports(event.Quarantined)) > 0 {
			t.Errorf("seed %d: %d of 8 shards are held; set aside: %+v", seed, len(stays.Handlers), stays.reports(event.Quarantined))
		}
	}
}

// TestWhoComesBackTrustsNoMemoryOfParents: while a fleet was away, its table was put back to
// before a parent was finished, and adopted. The workers remember the parent's end; its
// child, which is listed now, begins after the next one.
func TestWhoComesBackTrustsNoMemoryOfParents(t *testing.T) {
	t.Parallel()
	w := newTwins(t, 10)
	parent, child := engine.Shard{Name: "parent"}, engine.Shard{Name: "child", Parents: []string{"parent"}}
	w.lists(parent)
	all := w.source.Shards
	w.enterAll("abcd", config(rebalance.Cooperative))
	w.until(2*time.Minute, w.held)
	w.end("parent")
	w.Run(5 * time.Minute)
	w.down = true
	w.lists(child)
	w.Run(time.Minute)
	w.use(older(t, all))
	w.down = false
	for range 1000 {
		w.Run(100 * time.Millisecond)
		if w.processed("child") && !w.row("parent").Finished {
			t.Fatalf("the child has begun, and the parent is %v", w.row("parent"))
		}
	}
	for _, s := range all {
		if !w.processed(s.Name) {
			t.Errorf("%s is not processed; held %v", s.Name, w.counts())
		}
	}
}

// older is a table that knows these shards, was put back in time and adopted.
func older(t *testing.T, shards []engine.Shard) *judge.Store {
	t.Helper()
	store := judge.NewStore(new(memstore.Store), checkpoint.Decimal)
	must := fixture.Must[lease.Row](t, store)
	for _, s := range shards {
		must(protocol.Adopt(must(protocol.Begin("g", s.Name, nil, "operator", fixture.Stamp())), "operator", fixture.Stamp()))
	}
	return store
}

// TestNothingIsClaimedInVain: one worker after the other leaves. Most remember its shards
// where they were minutes ago, and still nobody takes them for a dead worker's.
func TestNothingIsClaimedInVain(t *testing.T) {
	t.Parallel()
	w := newTwins(t, 24)
	fleet := w.enterAll("abcdef", config(rebalance.Cooperative))
	w.until(2*time.Minute, w.even)
	w.Run(10 * time.Minute) // all have listed the rows
	for _, n := range fleet[:4] {
		n.Step(engine.Stop{})
		w.until(time.Minute, n.Engine.Done)
		w.until(time.Minute, w.held)
		w.Run(5 * time.Second)
	}
	for _, n := range fleet {
		n.never(event.Contended)
	}
}

// TestDeathBeforeTheRowsAreListed: a newcomer dies that has just been given shards, then who
// has just inherited some. Nobody has listed the rows since, and all know what those had.
func TestDeathBeforeTheRowsAreListed(t *testing.T) {
	t.Parallel()
	w := newTwins(t, 24)
	w.enterAll("abcdef", config(rebalance.Cooperative))
	w.until(2*time.Minute, w.even)
	w.Run(5 * time.Minute)
	w.enter("k", config(rebalance.Cooperative))
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
	w := newTwins(t, 12)
	config := config(rebalance.Cooperative)
	config.Handoff = rebalance.Eager
	a := w.enter("a", config)
	a.Stuck = true // it does not wind down
	w.until(time.Minute, w.held)
	b, c := w.enter("b", config), w.enter("c", config)
	w.until(2*time.Minute, func() bool { return len(b.reports(event.Requested)) > 0 && len(c.reports(event.Requested)) > 0 })
	w.Run(300 * time.Millisecond) // they have seen what the other wants
	a.Kill()
	if took := w.until(2*time.Minute, w.held); took > 15*time.Second {
		t.Errorf("all was held again after %v", took)
	}
}

// TestDeathWhileAPlanIsMade: a worker dies while another joins, and the plan for the newcomer is written when the seat
// of the dead one is deleted. That plan does not know of the death; the worker that deleted the seat writes the next at
// once.
func TestDeathWhileAPlanIsMade(t *testing.T) {
	t.Parallel()
	const most = 500 * time.Millisecond // after the seat is deleted
	step := fixture.Size(40*time.Millisecond, 10*time.Millisecond)
	for workers := 3; workers < 5; workers++ {
		var gone, worst time.Duration
		for early := time.Duration(0); early < 900*time.Millisecond; early = max(early+step, 400*time.Millisecond) {
			f := newFleet(t, 6*workers, workers, rebalance.Cooperative)
			dead := f.nodes[workers-1]
			seat := f.seat(dead)
			dead.Kill()
			if early == 0 { // nobody joins
				gone = f.until(time.Minute, func() bool { return f.table.Read(seat.Key()) == nil })
				continue
			}
			f.Run(gone - early)
			f.join()
			worst = max(worst, f.again()-early)
		}
		t.Logf("%d workers: %v at most", workers, worst)
		if worst > most {
			t.Errorf("%d workers: all is held again %v after the seat is deleted, want at most %v", workers, worst, most)
		}
	}
}

// again is how long it takes until all is held.
func (f *fleet) again() (took time.Duration) {
	for !f.held() && took < 10*time.Minute {
		f.Run(100 * time.Millisecond)
		took += 100 * time.Millisecond
	}
	return took
}

// rollout is a settled fleet, with the workers that are going to leave.
func rollout(t *testing.T, seed uint64, shards int, c engine.Config, names ...string) (w *fleet, old []*member) {
	w = newTwins(t, shards)
	w.chance = rand.New(rand.NewPCG(seed, 7))
	for _, name := range names {
		old = append(old, w.enter(name, c))
	}
	w.enterAll("bcdefgh", c)
	w.until(10*time.Minute, w.held)
	w.Run(fixture.Size(2*time.Minute, 10*time.Minute) + time.Duration(w.chance.IntN(5000))*time.Millisecond)
	return w, old
}

// TestKilledWhileItLeaves: a worker is killed long after it was told to stop.
func TestKilledWhileItLeaves(t *testing.T) {
	t.Parallel()
	for seed := range fixture.Size(uint64(1), 4) {
		w, old := rollout(t, seed, 24, config(rebalance.Cooperative), "a", "a2")
		for _, a := range old {
			a.Step(engine.Stop{})
			w.Run(12 * time.Second)
			a.Kill()
			if took := w.again(); took > 14*time.Second {
				t.Errorf("seed %d: what %s had was held again after %v", seed, a.Name, took)
			}
			w.Run(30 * time.Second)
		}
	}
}

// TestGivenToNobody: two workers leave, one after the other, and nobody has asked for what they
// had. The few that look have just looked, or have no room.
func TestGivenToNobody(t *testing.T) {
	t.Parallel()
	tight := config(rebalance.Cooperative)
	tight.MaxShards = 4
	for seed := range fixture.Size(uint64(1), 4) {
		for _, fleet := range []struct {
			shards int
			config engine.Config
			old    []string
		}{{24, config(rebalance.Cooperative), []string{"a", "a2"}}, {25, tight, []string{"a"}}} {
			w, old := rollout(t, seed, fleet.shards, fleet.config, fleet.old...)
			for _, a := range old {
				a.Step(engine.Stop{})
				w.until(2*time.Minute, a.Engine.Done)
				if took := w.again(); took > 14*time.Second {
					t.Errorf("seed %d: what %s had was held again after %v", seed, a.Name, took)
				}
				w.Run(30 * time.Second)
			}
		}
	}
}

// TestUnreadableRowOfADeadWorker: who is to claim a row and cannot read it leaves it as it is,
// and does not ask for it forever.
func TestUnreadableRowOfADeadWorker(t *testing.T) {
	w := newTwins(t, 12)
	a := w.enterAll("abcd", config(rebalance.Cooperative))[0]
	w.until(2*time.Minute, w.held)
	w.Run(5 * time.Minute)
	shard := a.Handlers[0].Shard
	w.unreadable(w.row(shard).Key())
	a.Kill()
	w.Run(5 * time.Minute)
	before := w.calls["get lease"]
	w.Run(time.Minute)
	if gets, owner := w.calls["get lease"]-before, w.row(shard).Owner.Name; gets > 12 || owner != "a" {
		t.Errorf("rows were read %d times in a minute, and the one that cannot be read is %s's", gets, owner)
	}
}

// TestUnreadableRowIsNotClaimed: in a small fleet, too. A shard rests after a failure, and
// meanwhile its row becomes one that cannot be read; when it can be again, it is claimed.
func TestUnreadableRowIsNotClaimed(t *testing.T) {
	w := newTwins(t, 4)
	c := config(rebalance.Eager)
	c.Backoff, c.MaxBackoff = 5*time.Minute, 5*time.Minute
	a := w.enter("a", c)
	w.until(time.Minute, w.held)
	fails := a.tenures()[0]
	a.Return(fails, true)
	w.Run(10 * time.Second) // planned, and resting
	w.unreadable(w.row(fails.Shard).Key())
	w.Run(10 * time.Minute)
	if row := w.row(fails.Shard); !row.Owner.IsZero() {
		t.Errorf("nobody can read it, and it was claimed: %v", row)
	}
	w.unreadable()
	w.until(3*time.Minute, w.held)
}

// TestWhatASuspectHoldsIsNotRead: it is planned, but nobody can claim it yet.
func TestWhatASuspectHoldsIsNotRead(t *testing.T) {
	t.Parallel()
	w := newTwins(t, 24)
	fleet := w.enterAll("abcdef", config(rebalance.Cooperative))
	w.until(5*time.Minute, w.even)
	w.Run(10 * time.Minute)
	a, b := fleet[0], fleet[1]
	second := map[string]bool{}
	for _, id := range b.tenures() {
		second[id.Shard] = true
	}
	from := w.Now()
	a.Kill()
	w.Run(4 * time.Second)
	b.Kill()
	w.until(20*time.Second, func() bool {
		return len(fleet[2].reports(event.PeerLeft))+len(fleet[2].reports(event.PeerEvicted)) == 1
	})
	w.Until(2*time.Second, time.Millisecond, func() bool { return w.seat(b).Incarnation == "" }) // then it is no suspect any more
	for _, n := range fleet[2:] {
		for _, s := range n.sent {
			if get, ok := s.Output.(engine.Get); ok && s.at >= from && second[get.Key.Name] {
				t.Errorf("%s read %s at %v, when its owner was suspect", n.Name, get.Key.Name, s.at)
			}
		}
	}
}

// BeforeWrite is a store that does something before each write.
type beforeWrite struct {
	virtual.Store
	do func(lease.Write)
}

func (s beforeWrite) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	s.do(w)
	return s.Store.Write(ctx, w)
}

// TestHeartbeatBeforeAnEviction: a heartbeat is stored just before the deletion of its seat, which is refused. What the
// heartbeat says counts as always: here, that the worker leaves.
func TestHeartbeatBeforeAnEviction(t *testing.T) {
	p := newFleet(t, 4, 0, rebalance.Eager)
	a, b := p.follow("a"), p.follow("b")
	key := p.seat(b).Key()
	b.Kill()
	refused := false
	p.table.Store = beforeWrite{p.table.Store, func(w lease.Write) {
		if refused || w.Op != lease.OpDelete || w.Key() != key {
			return
		}
		refused = true
		says := p.seat(b).Says
		says.Leaving = true
		p.write(protocol.NextBeat(p.seat(b), says, p.stamp()))
	}}
	p.until(2*p.config.TTL, func() bool { return refused })
	p.Run(p.config.TTL / 2)
	if n := len(a.reports(event.PeerLeaving)); n != 1 {
		t.Errorf("%d times it was told that the worker leaves", n)
	}
}

// TestSeatThatIsCreatedAgain: the creation of a seat arrives a second time, right after the seat of a dead worker was
// deleted. The new seat has a lower beat than the others have seen, and they evict it nevertheless.
func TestSeatThatIsCreatedAgain(t *testing.T) {
	p := newFleet(t, 4, 0, rebalance.Eager)
	p.follow("a")
	b := p.follow("b")
	b.Kill()
	seat := p.seat(b)
	p.write(protocol.Evict(seat))
	p.write(protocol.Sit(seat, p.stamp()))
	p.until(3*p.config.TTL, func() bool { return p.seat(b).Incarnation == "" })
}
