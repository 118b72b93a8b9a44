package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Answers and ends of moves that are rare.

// TestABackwardMarkHoldsUpNothing: a handler marks a lower position than before. Its commit is refused without a write, and
// the next mark is stored.
func TestABackwardMarkHoldsUpNothing(t *testing.T) {
	f := newFleet(t, 1, 0, rebalance.Eager)
	f.config.Order = checkpoint.Decimal
	n := f.follow("a")
	h := n.Handlers[0]
	for i, position := range []string{"5", "3", "7"} {
		seq := uint64(i + 1)
		n.Step(engine.Marks{Tenure: h.Tenure, Mark: mark(position), Seq: seq, Flush: seq})
		f.Run(100 * time.Millisecond)
		last, is := n.sent[slices.IndexFunc(n.sent, func(s sent) bool {
			o, is := s.Output.(engine.Committed)
			return is && o.Seq == seq
		})].Output.(engine.Committed)
		if !is || errors.Is(last.Err, checkpoint.ErrBackwards) != (position == "3") {
			t.Errorf("mark %s: %+v", position, last)
		}
	}
	if row := f.row(h.Shard); row.Checkpoint.Position != "7" || len(n.Handlers) != 1 {
		t.Errorf("the row is %v", row)
	}
}

// TestARowThatSomebodyTouched: somebody has written the row of a held shard by hand, under the same generation and owner.
// The next commit is made again on the row as it stands, and the tenure goes on.
func TestARowThatSomebodyTouched(t *testing.T) {
	f, n, row := held(t)
	f.rewrite(row.Owner, 2)
	n.flush(n.Handlers[0])
	f.Run(time.Second)
	if now := f.row(row.Shard); now.Checkpoint.Position == "1" || len(n.reports(event.Ended)) > 0 {
		t.Errorf("the row is %v; ended %v", now, n.reports(event.Ended))
	}
}

// TestARowThatIsGoneIsMissed: somebody deletes the row of a held shard, and workers are told to look at the shard. The
// tenure ends without a commit.
func TestARowThatIsGoneIsMissed(t *testing.T) {
	f, shard := commanded(t, 3, 1)
	f.hand.Delete(f.row(shard).Key())
	f.wish(f.look(shard, time.Minute))
	f.until(beat+1500*time.Millisecond, func() bool { return !f.processed(shard) })
	if causes := f.causes(shard); !slices.Equal(causes, []event.Cause{event.CauseVanished}) {
		t.Errorf("the tenure has ended as %v", causes)
	}
	c := newContest(t, 1)
	s := c.join("a")
	c.Run(time.Second)
	s.acquire("lock")
	c.until(time.Second, func() bool { return s.holds("lock") })
	c.hand.Delete(c.row("lock").Key())
	c.wish(c.look("lock", time.Minute))
	c.until(beat+1500*time.Millisecond, func() bool { return !s.holds("lock") })
	if s.ended[0].Cause != event.CauseVanished {
		t.Errorf("the lease has ended as %v", s.ended[0].Cause)
	}
}

// TestFencedOrForced: the end of a tenure says that an operator has taken the shard, unless the row has changed hands so
// often since that it no longer shows that.
func TestFencedOrForced(t *testing.T) {
	for hands, want := range map[int]event.Cause{0: event.CauseForced, 40: event.CauseFenced, 41: event.CauseFenced} {
		f, n, row := held(t)
		f.release(row.Shard)
		for i := range hands {
			if i%2 == 0 {
				f.write(protocol.Claim(f.row(row.Shard), lease.Owner{Incarnation: "ghost", Name: "ghost"}, f.stamp()))
			} else {
				f.release(row.Shard)
			}
		}
		n.flush(n.Handlers[0])
		f.Run(50 * time.Millisecond)
		if ended := n.reports(event.Ended); len(ended) != 1 || ended[0].Cause != want {
			t.Errorf("%d changes of hands later: %v, want %v", hands, ended, want)
		}
	}
}

// TestAWaitingCallIsNoSilence: a handler waits for a commit that the table does not answer. That is no stall. The
// handler stalls if it shows no sign for StallAfter after the answer.
func TestAWaitingCallIsNoSilence(t *testing.T) {
	f := newFleet(t, 1, 0, rebalance.Eager)
	f.config.StallAfter = 5 * time.Second
	n := f.enter("a", f.config)
	f.until(time.Second, f.held)
	n.mute = func(o engine.Output) bool { return sends(o, lease.KindLease) }
	n.flush(n.Handlers[0])
	f.Run(30 * time.Second)
	if d := n.reports(event.Draining); len(d) > 0 {
		t.Fatalf("wound down as %v while it waits", d[0].Cause)
	}
	n.mute = nil
	f.Run(5 * time.Second)
	if f.row("shard-000").Checkpoint.Position == "" {
		t.Fatal("the commit is not stored")
	}
	f.Run(6 * time.Second)
	if d := n.reports(event.Draining); len(d) != 1 || d[0].Cause != event.CauseStalled {
		t.Errorf("wound down as %v", d)
	}
}

// waiting returns two workers whose moves have no limit, with a handler of the first that winds down for the second, and
// does not return.
func waiting(t *testing.T, stallAfter time.Duration) (f *fleet, a, b *member, h engine.Tenure) {
	f = newFleet(t, 2, 0, rebalance.Eager)
	f.config.Handoff = rebalance.Terms{Mode: rebalance.Eager, Drain: 5 * time.Second, AfterDrain: rebalance.Wait}
	f.config.StallAfter = stallAfter
	a = f.follow("a")
	a.Winds = time.Hour
	b = f.enter("b", f.config)
	f.until(20*time.Second, func() bool { return len(a.reports(event.Draining)) == 1 })
	for _, h := range a.Handlers {
		if h.Soft {
			return f, a, b, h.Tenure
		}
	}
	t.Fatal("no handler winds down")
	return
}

// TestASuccessorWaitsForNoStalledHandler: its terms have no limit, and a stall sets one.
func TestASuccessorWaitsForNoStalledHandler(t *testing.T) {
	f, a, b, h := waiting(t, time.Minute)
	since := f.Now()
	for range 120 { // the other handler makes progress
		for _, of := range a.Handlers {
			if of.Tenure != h {
				a.mark(of)
			}
		}
		f.Run(time.Second)
	}
	if !b.holds(h.Shard) || !a.holds(other(a, h)) {
		t.Errorf("%v after the request, b processes %v", f.Now()-since, b.tenures())
	}
	ended := a.reports(event.Ended)
	if len(ended) != 1 || ended[0].at < since+time.Minute || ended[0].at > since+time.Minute+f.config.Drain+time.Second || ended[0].Err == nil {
		t.Errorf("ended %v", ended)
	}
}

// other returns the shard of a worker's other tenure.
func other(n *member, than engine.Tenure) string {
	for _, id := range n.tenures() {
		if id != than {
			return id.Shard
		}
	}
	return ""
}

// TestAStopLimitsAMove: a worker stops while a handler winds down for a successor that would wait without a limit. It
// waits for the drain time of the worker, from when the worker releases its shards.
func TestAStopLimitsAMove(t *testing.T) {
	f, a, b, h := waiting(t, 0)
	f.Run(time.Minute)
	if !a.holds(h.Shard) {
		t.Fatal("the handler was cut off")
	}
	since := f.Now()
	a.Step(engine.Stop{})
	f.until(2*f.config.Drain+2*time.Second, func() bool { return b.holds(h.Shard) })
	if took := f.Now() - since; took < f.config.Drain {
		t.Errorf("cut off after %v", took)
	}
	f.until(time.Minute, a.Engine.Done)
}

// TestAClaimThatIsAnsweredAfterAStop: the answer to a claim is lost, and the worker stops. It starts no tenure of the shard
// that is in its name, and releases it.
func TestAClaimThatIsAnsweredAfterAStop(t *testing.T) {
	f := newFleet(t, 1, 0, rebalance.Eager)
	n := f.enter("a", f.config)
	claimed := false
	f.deaf = func(n *member, o engine.Output) bool {
		send, is := o.(engine.Send)
		if !is || send.Write.Op != lease.OpTransfer || claimed {
			return false
		}
		claimed = true
		f.table.Serve(n.Sender(), o)
		n.Answer(2*time.Second, unanswered(o))
		return true
	}
	f.until(time.Second, func() bool { return claimed })
	generation := f.row("shard-000").Generation
	n.Step(engine.Stop{})
	f.until(10*time.Second, n.Engine.Done)
	if row := f.row("shard-000"); row.Generation != generation+1 || row.Last.Reason != lease.ReasonReleased || f.starts > 0 {
		t.Errorf("%d tenures began; the row is %v", f.starts, row)
	}
}

// preparing returns a fleet whose successors prepare for a shard before they request it.
func preparing(t *testing.T, prepare time.Duration) *fleet {
	f := newFleet(t, 12, 0, rebalance.Eager)
	f.config.Handoff = rebalance.Terms{Mode: rebalance.Eager, Prepare: prepare, AfterDrain: rebalance.Force}
	return f
}

// TestASuccessorPreparesFirst: a successor requests a shard when its preparation has ended, or when the time for it is over.
func TestASuccessorPreparesFirst(t *testing.T) {
	for prepare, want := range map[time.Duration]time.Duration{5 * time.Second: 50 * time.Millisecond, 20 * time.Millisecond: 20 * time.Millisecond} {
		f := preparing(t, prepare)
		f.follow("a")
		b := f.follow("b")
		began := map[string]time.Duration{}
		for _, s := range b.sent {
			if p, is := s.Output.(engine.Prepare); is {
				if began[p.Shard.Name] > 0 || p.For != prepare {
					t.Errorf("prepared twice, or for %v", p.For)
				}
				began[p.Shard.Name] = s.at
			}
		}
		for _, e := range b.reports(event.Requested) {
			if took := e.at - began[e.Shard]; began[e.Shard] == 0 || took != want {
				t.Errorf("%s was requested %v after its preparation began, want %v", e.Shard, took, want)
			}
		}
		if len(b.Handlers) != 6 || len(began) != 6 {
			t.Errorf("b has prepared for %d shards and processes %d", len(began), len(b.Handlers))
		}
	}
}

// TestAPreparationIsCalledOff: a third worker joins while a second has prepared for shards, and the plan gives some of them to
// it. Their preparations end, and only these.
func TestAPreparationIsCalledOff(t *testing.T) {
	f := preparing(t, 5*time.Second)
	a := f.follow("a")
	a.Winds = 8 * time.Second
	b := f.enter("b", f.config)
	f.until(5*time.Second, func() bool { return len(b.reports(event.Requested)) > 0 })
	f.follow("c")
	f.Run(time.Minute)
	var off, retired []string
	for _, s := range b.sent {
		if o, is := s.Output.(engine.CallOff); is {
			off = append(off, o.Shard)
		}
	}
	for _, e := range b.reports(event.Retired) {
		retired = append(retired, e.Shard)
	}
	slices.Sort(off)
	slices.Sort(retired)
	if len(off) == 0 || !slices.Equal(off, retired) {
		t.Errorf("called off %v, and its requests for %v ended", off, retired)
	}
}

// TestACooperativeOwnerIsNeverSeized: the owner does not see the request. The successor ends it, pauses and requests again,
// until the owner sees it.
func TestACooperativeOwnerIsNeverSeized(t *testing.T) {
	f := newFleet(t, 2, 0, rebalance.Cooperative)
	f.config.Handoff = rebalance.Terms{Mode: rebalance.Cooperative, Drain: 5 * time.Second}
	a := f.follow("a")
	a.mute = func(o engine.Output) bool { return lists(o, lease.KindSeat) }
	b := f.enter("b", f.config)
	f.Run(2 * time.Minute)
	asked, ended := b.reports(event.Requested), b.reports(event.Retired)
	if len(asked) < 3 || len(ended) < 2 || len(b.reports(event.Started)) > 0 || len(a.Handlers) != 2 {
		t.Fatalf("%d requests, of which %d have ended; a processes %d shards", len(asked), len(ended), len(a.Handlers))
	}
	for i := range ended {
		if i+1 < len(asked) && asked[i+1].at < ended[i].at+beat {
			t.Errorf("requested %v after the last request has ended", asked[i+1].at-ended[i].at)
		}
	}
	a.mute = nil
	f.until(30*time.Second, f.even)
}
