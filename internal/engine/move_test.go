package engine_test

import (
	"context"
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

// noticed is how long a session may take to read a wish. Sessions read the wishes once per heartbeat interval.
const noticed = beat + 1500*time.Millisecond

// move returns the wish of an operator that a shard moves, as its row is now.
func (o *operator) move(shard, to string, lasts time.Duration) lease.Wish {
	return lease.Wish{
		Kind: lease.WishMove, Subject: shard, To: to, By: "ann", Why: "host is old", Until: o.later(lasts), Generation: o.row(shard).Generation, Lasts: lasts,
	}
}

// TestMoveOfALease: the soft context of the holder ends, the holder releases the lease with its last mark, and the
// named session acquires it, although others wait for longer. The holder's lock delay does not count. The wish ends,
// and the row has the operator and the reason.
func TestMoveOfALease(t *testing.T) {
	f := newContest(t, 1)
	a, b, c := f.join("a"), f.join("b"), f.join("c")
	f.Run(time.Second)
	a.lock(lockDelay(time.Hour))
	c.acquire("lock")
	f.Run(time.Minute)
	b.acquire("lock")
	f.Run(10 * time.Second)
	began := f.row("lock").Generation
	a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: "7"}, Seq: 1})
	f.wish(f.move("lock", "b", 10*time.Minute))
	f.until(noticed, func() bool { return !a.holds("lock") })
	softly := a.reports(event.Draining)
	if len(softly) != 1 || softly[0].Cause != event.CauseHandedOff || softly[0].Peer != "b" || len(a.ended) > 0 {
		t.Errorf("the holder is told %v and %v", softly, a.ended)
	}
	f.until(noticed, func() bool { return b.holds("lock") })
	r := f.row("lock")
	if r.Generation != began+2 || r.Checkpoint.Position != "7" || !r.Reserved.IsZero() {
		t.Errorf("acquired as %v after generation %d", r, began)
	}
	if over := r.History()[0]; over.Reason != lease.ReasonHandoff || over.By != "ann" || over.From != "a" || over.Note != "host is old" {
		t.Errorf("the row remembers %v", over)
	}
	if ends := a.reports(event.Ended); len(ends) != 1 || ends[0].Cause != event.CauseHandedOff || ends[0].Err != nil {
		t.Errorf("the former holder reports %v", ends)
	}
	f.until(2*noticed, func() bool { return len(f.wishes().List) == 0 })
	if f.Run(time.Minute); !b.holds("lock") {
		t.Error("the move ends the next tenure")
	}
	b.release("lock")
	f.until(10*time.Second, func() bool { return c.holds("lock") }) // the next release reserves nothing
}

// TestMoveOfAHolderThatStays: a holder that ignores the end of its soft context has the drain time. Then its hard
// context ends, and the named session acquires the lease when its lock delay has passed, also if the wish has ended or
// was lifted meanwhile. A holder without a mark leaves no tombstone, because the lease is reserved.
func TestMoveOfAHolderThatStays(t *testing.T) {
	for name, of := range map[string]struct {
		delay time.Duration
		lift  bool
	}{"no lock delay": {}, "a lock delay": {delay: 30 * time.Second}, "the wish is lifted": {30 * time.Second, true}} {
		f := newContest(t, 1)
		a, b, c := f.join("a"), f.join("b"), f.join("c")
		f.Run(time.Second)
		a.lock(lockDelay(of.delay))
		b.acquire("lock")
		c.acquire("lock")
		f.Run(time.Minute)
		a.Stuck = true
		f.wish(f.move("lock", "b", 10*time.Minute))
		f.until(noticed, func() bool { return len(a.reports(event.Draining)) > 0 })
		soft := f.Now()
		if of.lift {
			f.wish()
		}
		f.until(f.config.Drain+time.Second, func() bool { return len(a.ended) > 0 })
		hard := f.Now()
		if stands := len(f.wishes().List) > 0; stands == of.lift {
			t.Errorf("%s: while the holder winds down, the wishes are %v", name, f.wishes())
		}
		if took := hard - soft; took < f.config.Drain || a.ended[0].Cause != event.CauseHandedOff {
			t.Errorf("%s: the hard context ends %v after the soft one: %v", name, took, a.ended)
		}
		waited := f.until(2*time.Minute, func() bool { return b.holds("lock") || c.holds("lock") })
		if c.holds("lock") {
			t.Errorf("%s: another session has acquired the lease", name)
		}
		if waited < of.delay || waited > of.delay+noticed {
			t.Errorf("%s: acquired %v after the holder was cut off", name, waited)
		}
	}
}

// TestMoveWhoseAnswersAreLost: the holder gives the lease up, and gets no answer until the named session holds it. To the
// holder's session that is the end of the move, as if it had been answered.
func TestMoveWhoseAnswersAreLost(t *testing.T) {
	for _, stays := range []bool{false, true} {
		f := newContest(t, 1)
		a, b := f.join("a"), f.join("b")
		f.Run(time.Second)
		a.lock()
		b.acquire("lock")
		f.Run(time.Minute)
		a.Stuck = stays
		lost := 0
		a.answer = func(in engine.Input) engine.Input {
			settled, is := in.(engine.Settled)
			if is && settled.Write.Key().Kind == lease.KindLease && !b.holds("lock") {
				lost++
				return engine.Settled{Write: settled.Write, Err: context.DeadlineExceeded}
			}
			return in
		}
		f.wish(f.move("lock", "b", 10*time.Minute))
		f.until(time.Minute, func() bool { return b.holds("lock") && len(a.reports(event.Ended)) > 0 })
		b.release("lock")
		f.Run(time.Minute)
		ends := a.reports(event.Ended)
		if lost == 0 || len(ends) != 1 || ends[0].Cause != event.CauseHandedOff || (ends[0].Err != nil) != stays || len(a.reports(event.Refused)) > 0 {
			t.Errorf("the holder stays: %t; %d answers are lost; it reports %v and %v", stays, lost, ends, a.reports(event.Refused))
		}
	}
}

// TestMoveToNobody: after its release nobody gets the lease for the time of the move, and then the session that waits
// does.
func TestMoveToNobody(t *testing.T) {
	const lasts = time.Minute
	f := newContest(t, 1)
	a, c := f.join("a"), f.join("c")
	f.Run(time.Second)
	a.lock()
	c.acquire("lock")
	f.Run(time.Minute)
	f.wish(f.move("lock", "b", lasts))
	f.until(noticed, func() bool { return !a.holds("lock") })
	if waited := f.until(2*lasts, func() bool { return c.holds("lock") }); waited < lasts || waited > lasts+5*time.Second {
		t.Errorf("acquired %v after the release, want %v", waited, lasts)
	}
}

// TestMoveOfAnotherGeneration: a move that an operator has ordered for an earlier or a later generation, or that has
// ended, or to a session of the holder's name, does not concern the holder.
func TestMoveOfAnotherGeneration(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.lock()
	f.Run(10 * time.Second)
	for _, edit := range []func(w *lease.Wish){
		func(w *lease.Wish) { w.Generation-- }, func(w *lease.Wish) { w.Generation++ }, func(w *lease.Wish) { w.Generation, w.Lasts = 0, 0 },
		func(w *lease.Wish) { w.Until = f.later(-time.Second) }, func(w *lease.Wish) { w.To = "a" },
		func(w *lease.Wish) { w.Kind, w.Generation, w.Lasts = "move:7:60000", 0, 0 }, // as a version reads it that does not know moves
	} {
		w := f.move("lock", "b", time.Minute)
		edit(&w)
		f.wish(w)
		if f.Run(30 * time.Second); !a.holds("lock") || len(a.reports(event.Draining)) > 0 {
			t.Fatalf("%v ends the tenure %v", w, a.ended)
		}
	}
}

// TestMoveOfAShard: the shard moves to its worker in the mode of the fleet, from any worker to any other; the wish is
// removed when the worker holds the shard, and the shard stays there. It takes no longer than any wish, and soon the
// fleet makes no more requests than before.
func TestMoveOfAShard(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{3, 12} {
		for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
			f := newFleet(t, 2*workers, workers, mode)
			f.Run(time.Minute)
			for _, from := range fixture.Sample(3, f.nodes) {
				to := f.nodes[(slices.Index(f.nodes, from)+1)%workers]
				shard := from.Handlers[0].Shard
				f.wish(f.move(shard, to.Name, 10*time.Minute))
				f.until(noticed+time.Second, func() bool { return to.holds(shard) })
				if last := f.row(shard).Last; last.Reason != lease.ReasonHandoff || last.Mode != mode {
					t.Errorf("%d workers, %v: moved as %v", workers, mode, last)
				}
				f.until(3*beat, func() bool { return len(f.wishes().List) == 0 })
				if f.Run(20 * time.Second); !to.holds(shard) || !f.even() {
					t.Errorf("%d workers, %v: after the move the workers process %v", workers, mode, f.order())
				}
			}
			since := f.Now()
			f.Run(30 * time.Second)
			for _, n := range f.nodes {
				if slices.ContainsFunc(n.sent, func(s sent) bool {
					return s.at >= since && (gets(s.Output, lease.KindLease) || sends(s.Output, lease.KindWishes))
				}) {
					t.Errorf("%d workers, %v: after the moves %s still looks for them", workers, mode, n.Name)
				}
			}
		}
	}
}

// TestMoveToAWorkerThatNeverTakes: the wish ends by its time, also if another worker comes to hold the shard. A pin of
// the shard prevails.
func TestMoveToAWorkerThatNeverTakes(t *testing.T) {
	f := newFleet(t, 6, 3, rebalance.Eager)
	to := f.nodes[1]
	shard := to.Handlers[0].Shard
	f.wish(lease.Wish{Kind: lease.WishPin, Subject: shard, To: "w002", By: "operator"})
	f.until(time.Minute, func() bool { return f.nodes[2].holds(shard) })
	move := f.move(shard, "w001", 2*time.Minute)
	f.wish(move, lease.Wish{Kind: lease.WishPin, Subject: shard, To: "w002", By: "operator"}) // the pin prevails
	f.Run(2*time.Minute - time.Second)
	if list := f.wishes().List; len(list) != 2 || !f.nodes[2].holds(shard) {
		t.Errorf("the wishes are %v", list)
	}
	f.until(10*time.Second, func() bool { return len(f.wishes().List) == 1 })
	f.wish(f.move(shard, "nobody", 2*time.Minute))
	f.nodes[2].Kill()
	f.until(time.Minute, func() bool { return f.processed(shard) })
	if f.Run(time.Minute); len(f.wishes().List) != 1 {
		t.Error("the shard is held by another worker, and the wish has ended")
	}
	f.until(2*time.Minute, func() bool { return len(f.wishes().List) == 0 })
}
