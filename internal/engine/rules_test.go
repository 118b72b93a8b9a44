package engine_test

import (
	"cmp"
	"errors"
	"slices"
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

// The rules one by one, each in a world where it alone decides.

// TestTrustCountsFromTheFirstSending: the answers to heartbeats take three seconds,
// and then there are none any more. Trust ends by when they were sent.
func TestTrustCountsFromTheFirstSending(t *testing.T) {
	w := newTwins(t, 1)
	n := w.enter("a", config(rebalance.Eager))
	w.Run(20 * time.Second)
	w.delay(3*time.Second, func(_ *member, o engine.Output) bool { return sends(o, lease.KindSeat) })
	w.Run(20 * time.Second)
	w.down = true
	beats := n.writes(lease.KindSeat, 0)
	last := beats[len(beats)-1].at // it was served, and will be answered
	w.Run(20 * time.Second)
	ended := n.reports(event.Ended)
	if len(ended) != 1 || ended[0].at > last+9*time.Second+50*time.Millisecond {
		t.Errorf("last confirmed beat sent at %v; ended: %+v", last, ended)
	}
}

// TestNoWriteAfterWakingUp: a process is paused past the end of its trust, and its handlers, which
// were blocked in a call, continue before its run loop does. Whatever the engine hears of first, it
// ends the tenures before it takes that in, and sends no write of theirs.
func TestNoWriteAfterWakingUp(t *testing.T) {
	w := newTwins(t, 1)
	n := w.enter("a", config(rebalance.Eager))
	w.Run(20 * time.Second)
	id := n.tenures()[0]
	mark := checkpoint.Mark{Position: "1000000"}
	for name, in := range map[string]engine.Input{
		"a commit":  engine.Batch{{Tenure: id, Mark: mark, Seq: 1e6, Flush: 1e6}},
		"a finish":  engine.Marks{Tenure: id, Mark: mark, Seq: 1e6, Finish: true},
		"a release": engine.Marks{Tenure: id, Release: true},
		"a return":  engine.Returned{Tenure: id},
		"a failure": engine.Returned{Tenure: id, Failed: true},
	} {
		e, now := n.Engine.Clone(), n.Moment()
		now.Mono = e.Status().Trust
		outs, _ := e.Step(now, in)
		ended := false
		for _, o := range outs {
			switch o := o.(type) {
			case engine.Over:
				ended = ended || o.Tenure == id && o.Cause == event.CauseExpired
			case engine.Send:
				if o.Write.Key().Kind == lease.KindLease {
					t.Errorf("%s: the engine sends %v", name, o.Write)
				}
			}
		}
		if !ended {
			t.Errorf("%s: the tenure is not over", name)
		}
	}
}

// TestTrustCountsRepeatedBeatsOnce: a beat that has to be sent several times is as old
// as its first sending, for any of them may be the one that was stored.
func TestTrustCountsRepeatedBeatsOnce(t *testing.T) {
	w := newTwins(t, 1)
	n := w.enter("a", config(rebalance.Eager))
	w.Run(20 * time.Second)
	w.down = true
	from := w.Now()
	w.until(4*time.Second, func() bool { return len(n.writes(lease.KindSeat, from)) > 0 })
	first, trust := w.Now(), n.Engine.Status().Trust
	w.Run(3 * time.Second)
	beats := n.writes(lease.KindSeat, from)
	again := beats[0].Output.(engine.Send).Write.ID()
	w.deaf = func(_ *member, o engine.Output) bool {
		s, ok := o.(engine.Send)
		w.down = w.down || ok && s.Write.ID() != again // the next one goes unanswered
		return false
	}
	w.down = false
	w.until(4*time.Second, func() bool { return n.Engine.Status().Trust != trust })
	w.Run(20 * time.Second)
	if ended := n.reports(event.Ended); len(ended) != 1 || ended[0].at > first+9*time.Second+50*time.Millisecond {
		t.Errorf("a beat was first sent at %v; ended: %+v", first, ended)
	}
}

// TestSuspendIsNotTrusted: the monotonic clock stood still while the machine slept for
// an hour, and the wall clock tells. Before anything else is written a heartbeat has to
// be answered.
func TestSuspendIsNotTrusted(t *testing.T) {
	w := newTwins(t, 1)
	n := w.enter("a", config(rebalance.Eager))
	w.Run(20 * time.Second)
	id := n.tenures()[0]
	n.Clock.Wall = time.Hour
	woke := w.Now()
	n.Step(engine.Marks{Tenure: id, Mark: checkpoint.Mark{Position: "1"}, Seq: 1, Flush: 1})
	if rows := n.writes(lease.KindLease, woke); len(rows) > 0 {
		t.Errorf("it wrote %v first", rows)
	}
	if beats := n.writes(lease.KindSeat, woke); len(beats) != 1 {
		t.Fatalf("%d beats", len(beats))
	}
	w.Run(time.Second)
	if rows := n.writes(lease.KindLease, woke); len(rows) != 1 {
		t.Errorf("after the beat was answered it wrote %v", rows)
	}
	n.never(event.Ended)
}

// TestMovesWaitForStillSeats: shards that are held move only when the seats have
// stood still for half a second.
func TestMovesWaitForStillSeats(t *testing.T) {
	w := newTwins(t, 12)
	w.enter("a", config(rebalance.Eager))
	w.Run(20 * time.Second)
	b := w.enter("b", config(rebalance.Eager))
	w.Run(300 * time.Millisecond)
	joined := w.Now()
	w.enter("c", config(rebalance.Eager))
	w.Run(10 * time.Second)
	asks := b.reports(event.Requested)
	if len(asks) == 0 || asks[0].at < joined+500*time.Millisecond {
		t.Errorf("c joined at %v; b asked: %+v", joined, asks)
	}
	if !w.even() {
		t.Errorf("%v", w.counts())
	}
}

// TestBudgetDelaysMoves: a worker asks for no more shards at a time than it may, and
// gets its part all the same.
func TestBudgetDelaysMoves(t *testing.T) {
	w := newTwins(t, 20)
	w.enter("a", config(rebalance.Eager))
	w.Run(20 * time.Second)
	c := config(rebalance.Eager)
	c.MaxMoves = 3
	b := w.enter("b", c)
	most := 0
	for range 4000 {
		w.Run(5 * time.Millisecond)
		for _, s := range b.writes(lease.KindSeat, w.Now()-5*time.Millisecond) {
			if seat, ok := s.Output.(engine.Send).Write.Next.(lease.Seat); ok {
				most = max(most, len(seat.Wants))
			}
		}
	}
	if most != 3 || !w.even() {
		t.Errorf("at most %d wants at a time; %v", most, w.counts())
	}
}

// TestWantForAnotherGeneration: an owner ignores a want for a generation it does not
// hold: it was answered already, or is a slow one.
func TestWantForAnotherGeneration(t *testing.T) {
	for _, wrong := range []int64{0, 1} {
		w := newTwins(t, 1)
		a := w.enter("a", config(rebalance.Eager))
		w.Run(20 * time.Second)
		id := a.tenures()[0]
		seat := w.write(protocol.Sit(lease.Seat{Group: "g", Incarnation: "ghost", Name: "ghost", TTL: time.Hour}, w.stamp())).(lease.Seat)
		want := lease.Want{Shard: id.Shard, Generation: id.Generation - wrong, Terms: rebalance.Terms{Mode: rebalance.Eager}}
		w.write(protocol.NextBeat(seat, lease.Says{Wants: []lease.Want{want}}, w.stamp()))
		w.Run(10 * time.Second)
		if drained := len(a.reports(event.Draining)) > 0; drained != (wrong == 0) {
			t.Errorf("a want for %d generations ago was served: %t", wrong, drained)
		}
	}
}

// TestFailingShardsRest: between the tenures of a shard that fails, pauses double. They are no
// shorter if another worker tries.
func TestFailingShardsRest(t *testing.T) {
	starts := failing(t, "ab")
	for i, pause := 1, time.Second; i < len(starts); i, pause = i+1, 2*pause {
		if got := starts[i].at - starts[i-1].at; got < pause {
			t.Errorf("of two workers, tenure %d began %v after the one before, want %v", i, got, pause)
		}
	}
	starts = failing(t, "a")
	if len(starts) < 5 || len(starts) > 7 {
		t.Fatalf("%d tenures in a minute", len(starts))
	}
	for i, pause := 1, time.Second; i < len(starts); i, pause = i+1, 2*pause {
		if got := starts[i].at - starts[i-1].at; got < pause || got > pause+100*time.Millisecond {
			t.Errorf("tenure %d began %v after the one before, want %v", i, got, pause)
		}
	}
}

// failing returns the tenures of a shard that each of these workers fails, in a minute.
func failing(t *testing.T, names string) (starts []told) {
	w := newTwins(t, 1)
	fleet := w.enterAll(names, config(rebalance.Eager))
	for range 6000 {
		w.Run(10 * time.Millisecond)
		for _, n := range fleet {
			for _, id := range n.tenures() {
				n.Return(id, true)
			}
		}
	}
	for _, n := range fleet {
		starts = append(starts, n.reports(event.Started)...)
	}
	slices.SortFunc(starts, func(a, b told) int { return cmp.Compare(a.at, b.at) })
	return starts
}

// TestUnknownParentMayBeThere: a child whose parent nobody knows waits for a complete
// listing that lacks the parent.
func TestUnknownParentMayBeThere(t *testing.T) {
	w := newTwins(t, 0)
	w.write(protocol.Begin("g", "child", []string{"parent"}, "x", w.stamp()))
	child := engine.Shard{Name: "child", Parents: []string{"parent"}}
	w.source = engine.Source{Shards: []engine.Shard{child}}
	a := w.enter("a", config(rebalance.Eager))
	w.Run(5 * time.Minute)
	if len(a.Handlers) > 0 {
		t.Error("the child began although its parent may be there")
	}
	w.source = engine.Source{Shards: []engine.Shard{child}, Complete: true}
	w.Run(time.Minute)
	if len(a.Handlers) != 1 {
		t.Error("the child did not begin although its parent is gone")
	}
}

// TestCommitsWaitForAnOffer: while an offer stands, commits are held for a second, and
// no longer.
func TestCommitsWaitForAnOffer(t *testing.T) {
	w := newTwins(t, 2)
	a := w.enter("a", config(rebalance.Cooperative))
	w.Run(20 * time.Second)
	b := w.enter("b", config(rebalance.Cooperative))
	offered := func() (string, time.Duration) {
		for _, s := range a.writes(lease.KindLease, 20*time.Second) {
			if row, ok := s.Output.(engine.Send).Write.Next.(lease.Row); ok && row.OfferedTo != "" {
				return row.Shard, s.at
			}
		}
		return "", 0
	}
	w.until(5*time.Second, func() bool { _, at := offered(); return at > 0 })
	b.Pause()
	shard, at := offered()
	w.Run(20 * time.Millisecond)
	for _, id := range a.tenures() {
		if id.Shard == shard {
			a.Step(engine.Marks{Tenure: id, Mark: checkpoint.Mark{Position: "7"}, Seq: 1, Flush: 1})
		}
	}
	w.Run(900 * time.Millisecond)
	commits := func() (n int) {
		for _, s := range a.writes(lease.KindLease, at) {
			if row, ok := s.Output.(engine.Send).Write.Next.(lease.Row); ok && row.Checkpoint.Position == "7" {
				n++
			}
		}
		return n
	}
	if n := commits(); n > 0 {
		t.Errorf("%d commits within a second of the offer", n)
	}
	w.Run(200 * time.Millisecond)
	if n := commits(); n != 1 {
		t.Errorf("%d commits after it", n)
	}
}

// TestCrashIsNoticedTogether: whichever worker evicts a dead one first, the others look often
// enough by then to claim their part at once.
func TestCrashIsNoticedTogether(t *testing.T) {
	t.Parallel()
	for apart := 200 * time.Millisecond; apart < 3*time.Second; apart += 300 * time.Millisecond {
		w := newTwins(t, 30)
		for _, name := range []string{"a", "b", "c"} {
			w.enter(name, config(rebalance.Eager))
			w.Run(apart)
		}
		w.until(10*time.Second, w.even)
		w.Run(20*time.Second + apart)
		w.nodes[0].Kill()
		w.until(10*time.Second+beat, func() bool {
			return len(w.nodes[1].reports(event.PeerEvicted))+len(w.nodes[2].reports(event.PeerEvicted)) > 0
		})
		if took := w.until(5*time.Second, w.held); took > 300*time.Millisecond {
			t.Errorf("joined %v apart: all held %v after the eviction", apart, took)
		}
	}
}

// TestOneHandlerAtATime: a handler that ignores its contexts keeps its worker from
// starting that shard again, and nothing else.
func TestOneHandlerAtATime(t *testing.T) {
	w := newTwins(t, 2)
	c := config(rebalance.Eager)
	c.StallAfter = 10 * time.Second
	a := w.enter("a", c)
	w.Run(time.Second)
	stuck, fine := a.tenures()[0], a.tenures()[1]
	a.Stuck = true
	for seq := uint64(1); seq < 300; seq++ {
		a.Step(engine.Marks{Tenure: fine, Mark: mark("1"), Seq: seq})
		w.Run(time.Second)
	}
	starts := 0
	for _, e := range a.reports(event.Started) {
		if e.Shard == stuck.Shard {
			starts++
		}
	}
	if starts != 1 || a.Handlers.Of(fine) == nil {
		t.Errorf("the shard of the stuck handler was started %d times; the other runs: %t", starts, a.Handlers.Of(fine) != nil)
	}
	a.Stuck = false
	a.Return(stuck, false)
	w.Run(5 * time.Minute)
	if len(a.reports(event.Started)) < 3 {
		t.Error("it was not started again when its handler had returned")
	}
}

// TestStuckHandlerLeavesItsShard: a worker whose handler does not return leaves the shard to others. One
// that returns in a moment is no reason for that: the worker claims the shard again, and nothing is planned.
func TestStuckHandlerLeavesItsShard(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		f := newFleet(t, 8, 4, rebalance.Eager)
		before, n := f.plan(), f.nodes[1]
		shard := n.Handlers[0].Shard
		n.Stuck, f.starts = stuck, 0
		f.release(shard)
		f.until(2*time.Minute, func() bool { return n.Engine.Status().Held == 1 })
		f.until(5*time.Second, func() bool {
			return slices.ContainsFunc(f.up(), func(o *member) bool { return (o == n) != stuck && o.holds(shard) })
		})
		f.Run(time.Minute)
		if planned := f.plan().Revision > before.Revision; planned != stuck || f.starts != 1 && !stuck {
			t.Errorf("stuck: %t: a plan was written: %t; tenures began: %d", stuck, planned, f.starts)
		}
	}
}

// TestParentThatIsListedAgain: the name of a shard that was removed is used again. Until it is
// finished again its children wait, also when the source cannot be asked just then.
func TestParentThatIsListedAgain(t *testing.T) {
	w := newTwins(t, 1)
	parent := w.source.Shards[0]
	a := w.enter("a", config(rebalance.Eager))
	w.until(5*time.Second, w.held)
	a.end(slices.Clone(a.Handlers)...)
	w.source.Shards = nil
	w.until(3*time.Minute, func() bool { return len(a.reports(event.Removed)) == 1 })
	w.Run(2 * time.Minute) // the worker forgets that there was one
	w.source.Shards = []engine.Shard{{Name: "child", Parents: []string{parent.Name}}, parent}
	since := w.Now()
	w.until(time.Minute, func() bool { return len(a.writes(lease.KindLease, since)) > 0 }) // refused over the tombstone
	listing := w.source
	w.source = engine.Source{Err: errors.New("no answer")}
	w.Run(3 * time.Minute)
	if w.processed("child") {
		t.Errorf("the child began before its parent: %v", a.tenures())
	}
	w.source = listing
	w.until(time.Minute, func() bool { return len(a.Handlers) == 1 })
	for _, id := range a.tenures() {
		if id.Shard != parent.Name {
			t.Errorf("%s began before its parent", id.Shard)
		}
	}
}

// TestChildOutlivesItsParentsRow: a child is processed, its parent's row is removed, and then the
// child's owner dies. Whatever the source says or does not say by then, the child goes on.
func TestChildOutlivesItsParentsRow(t *testing.T) {
	for name, after := range map[string]func(w *fleet){
		"prompt":  func(*fleet) {},
		"slow":    func(w *fleet) { w.polled = func(n *member) { n.Answer(20*time.Second, w.source) } },
		"partial": func(w *fleet) { w.source.Complete = false },
		"down":    func(w *fleet) { w.source = engine.Source{Err: errors.New("throttled")} },
	} {
		w := newTwins(t, 0)
		parent, child := engine.Shard{Name: "parent"}, engine.Shard{Name: "child", Parents: []string{"parent"}}
		w.source = engine.Source{Shards: []engine.Shard{parent, child}, Complete: true}
		a := w.enter("a", config(rebalance.Eager))
		w.until(5*time.Second, func() bool { return w.processed("parent") })
		a.end(slices.Clone(a.Handlers)...)
		w.until(10*time.Second, func() bool { return len(a.Handlers) == 1 })
		b := w.enter("b", config(rebalance.Eager))
		w.Run(20 * time.Second)
		dies, stays := a, b
		if len(b.Handlers) == 1 {
			dies, stays = b, a
		}
		w.source.Shards = []engine.Shard{child}
		w.until(3*time.Minute, func() bool { return len(a.reports(event.Removed))+len(b.reports(event.Removed)) == 1 })
		after(w)
		dies.Kill()
		w.Logf("%s: the child lay for %v", name, w.until(10*time.Second+beat+500*time.Millisecond, func() bool { return len(stays.Handlers) == 1 }))
	}
}

// TestAdoptedChild: an operator adopts the row of a child. If nobody has held the child, it has not begun,
// and waits for its parent; if a worker has held and released it, it goes on.
func TestAdoptedChild(t *testing.T) {
	for name, begun := range map[string]bool{"never held": false, "held before": true} {
		t.Run(name, func(t *testing.T) {
			w := newTwins(t, 1)
			child := engine.Shard{Name: "child", Parents: []string{w.source.Shards[0].Name}}
			row := w.write(protocol.Begin("g", child.Name, child.Parents, "x", w.stamp())).(lease.Row)
			if begun {
				row = w.write(protocol.Claim(row, lease.Owner{Incarnation: "1.x", Name: "x"}, w.stamp())).(lease.Row)
				row = w.write(protocol.Release(row, fixture.Hold(row), protocol.End{Reason: lease.ReasonReleased}, w.stamp())).(lease.Row)
			}
			w.write(protocol.Adopt(row, "operator", w.stamp()))
			w.lists(child)
			a := w.enter("a", config(rebalance.Eager))
			w.Run(3 * time.Minute)
			got := slices.ContainsFunc(a.tenures(), func(id engine.Tenure) bool { return id.Shard == child.Name })
			if got != begun {
				t.Errorf("the child is processed: %v, want %v", got, begun)
			}
		})
	}
}

// TestPollSoonDuringAPoll: a shard is finished while the source is being listed; that listing
// may be older, so its children are asked for once more soon after.
func TestPollSoonDuringAPoll(t *testing.T) {
	w := newTwins(t, 1)
	w.polled = func(n *member) { n.Answer(3*time.Second, w.source) }
	a := w.enter("a", config(rebalance.Eager))
	w.until(15*time.Second, w.held)
	before := a.polls
	w.until(time.Minute, func() bool { return a.polls > before })
	w.Run(time.Second) // the listing is under way
	a.end(slices.Clone(a.Handlers)...)
	w.lists(engine.Shard{Name: "child", Parents: []string{w.source.Shards[0].Name}})
	w.until(10*time.Second, func() bool { return len(a.Handlers) == 1 })
}

// TestUnprovenTableIsNotClaimed: nothing is claimed, nor made, before the store has said
// that this is the table it was.
func TestUnprovenTableIsNotClaimed(t *testing.T) {
	w := newTwins(t, 4)
	w.table.Verified = errors.New("no answer")
	a := w.enter("a", config(rebalance.Eager))
	for _, w.table.Verified = range []error{errors.New("no answer"), lease.ErrWentBack} {
		w.Run(5 * time.Minute)
		if writes := a.writes(lease.KindLease, 0); len(writes) > 0 {
			t.Errorf("%d writes of rows though it was told %v", len(writes), w.table.Verified)
		}
	}
	if !a.Engine.Status().Restored {
		t.Error("it does not say so")
	}
	w.table.Verified = nil
	w.until(5*time.Second, w.held)
}

// TestFreedIsTold: a worker that finishes a shard tells the others, who list the rows and
// claim their part of the children, long before the next audit.
func TestFreedIsTold(t *testing.T) {
	w := newTwins(t, 0)
	shards := []engine.Shard{{Name: "parent"}}
	for _, name := range []string{"child-1", "child-2", "child-3", "child-4"} {
		shards = append(shards, engine.Shard{Name: name, Parents: []string{"parent"}})
	}
	w.source = engine.Source{Shards: shards, Complete: true}
	a := w.enter("a", config(rebalance.Eager))
	w.Run(time.Second)
	b := w.enter("b", config(rebalance.Eager))
	w.Run(20 * time.Second)
	a.end(slices.Clone(a.Handlers)...)
	took := w.until(beat+1500*time.Millisecond, func() bool { return len(a.Handlers) == 2 && len(b.Handlers) == 2 })
	t.Logf("all children are processed after %v", took)
}

// TestTwoListingsHaveToLackAShard: a finished shard that one listing lacks stays, even if
// there is a plan meanwhile; one that two lack is removed.
func TestTwoListingsHaveToLackAShard(t *testing.T) {
	w := newTwins(t, 7)
	a := w.enter("a", config(rebalance.Eager))
	w.Run(time.Second)
	for _, id := range a.tenures() {
		if id.Shard != "shard-000" {
			w.end(id.Shard)
		}
	}
	w.Run(5 * time.Second)
	w.source.Shards = w.source.Shards[:1]
	since, polls := w.Now(), a.polls
	removed := func() (n int) {
		for _, s := range a.writes(lease.KindLease, since) {
			if row, ok := s.Output.(engine.Send).Write.Next.(lease.Row); ok && row.Removed {
				n++
			}
		}
		return n
	}
	w.until(40*time.Second, func() bool { return a.polls == polls+1 })
	w.enter("b", config(rebalance.Eager)) // so there is a plan
	w.Run(5 * time.Second)
	if n := removed(); n > 0 {
		t.Errorf("%d shards were removed after one listing", n)
	}
	w.Run(90 * time.Second)
	if removed() == 0 {
		t.Error("none was removed after several")
	}
}
