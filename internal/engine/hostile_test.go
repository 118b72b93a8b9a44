package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestLateAnswerProvesNothing: the answer to the question whether this is still the table
// arrives when the worker has another seat, in another table perhaps.
func TestLateAnswerProvesNothing(t *testing.T) {
	w := newTwins(t, 1)
	var questions []engine.Verify
	w.deaf = func(_ *member, o engine.Output) bool {
		question, is := o.(engine.Verify)
		if is {
			questions = append(questions, question)
		}
		return is
	}
	a := w.enter("a", config(rebalance.Eager))
	w.until(time.Second, func() bool { return len(questions) == 1 })
	w.write(protocol.Evict(w.seat(a))) // the table is restored, and the seat is missing
	late := engine.Verified{Read: questions[0].Read}
	former := a.Engine.Status().Incarnation
	w.until(5*time.Second, func() bool { return a.Engine.Status().Incarnation != former })
	for range 1000 {
		a.Step(late)
		w.Run(time.Millisecond)
	}
	if len(questions) != 2 {
		t.Errorf("the new seat was never asked about: %d question(s) in all", len(questions))
	}
	if a.Engine.Status().Proven {
		t.Error("an answer to an earlier question counts as an answer to this one")
	}
}

// TestSlowOwnerIsNotSeized: an owner whose lease time is ten minutes looks every three or so;
// its successor waits for that, whatever its own lease time.
func TestSlowOwnerIsNotSeized(t *testing.T) {
	for after := 250 * time.Second; after < 450*time.Second; after += 20 * time.Second {
		w := newTwins(t, 4)
		long := config(rebalance.Eager)
		long.TTL, long.Drain = 10*time.Minute, 8*time.Minute
		a := w.enter("a", long)
		w.until(5*time.Second, w.held)
		w.Run(after)
		b := w.enter("b", config(rebalance.Eager))
		w.until(300*time.Second, func() bool { return len(b.Handlers) > 0 })
		for _, e := range b.told {
			if e.Kind == event.Started && e.Reason == lease.ReasonDrainTimeout {
				t.Errorf("joined at %v: seized %s from a healthy owner that winds down at once and was never told; a told %v", after, e.Shard, len(a.told))
			}
		}
	}
}

// limited runs until then or so many events.
func (f *fleet) limited(d time.Duration, most int) (events int) {
	f.RunWhile(d, func() bool {
		events++
		return events <= most
	})
	return events
}

// TestNoSpinningWhileDraining: a handler winds down for a reason of its own while an offer
// stands that nobody takes.
func TestNoSpinningWhileDraining(t *testing.T) {
	w := newTwins(t, 2)
	c := config(rebalance.Cooperative)
	c.Handoff = rebalance.Terms{Mode: rebalance.Cooperative, Drain: time.Second, AfterDrain: rebalance.Wait}
	a := w.enter("a", c)
	w.until(5*time.Second, w.held)
	w.Run(20 * time.Second)
	a.Winds = time.Hour
	b := w.enter("b", c)
	w.until(10*time.Second, func() bool { return len(b.reports(event.Requested)) > 0 })
	b.mute = transfers
	w.until(5*time.Second, func() bool { return w.offered().Shard != "" })
	b.Kill()
	w.Run(50 * time.Millisecond)
	for _, id := range a.tenures() {
		a.Step(engine.Marks{Tenure: id, Release: true})
	}
	for i := range 18 {
		if n := w.limited(time.Second, 20000); n > 2000 {
			t.Fatalf("second %d: %d events: the engine spins at %v", i, n, w.Now())
		}
	}
}

// TestBackoffIsBounded: a row with ten thousand million failures costs no time.
func TestBackoffIsBounded(t *testing.T) {
	c := config(rebalance.Eager)
	c.Backoff = 0
	c.Name = "a"
	now, n := engine.Instant(0), 0
	moment := func() engine.Moment {
		n++
		now = now.Add(time.Millisecond)
		return engine.Moment{Mono: now, Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(now)), Chance: fmt.Sprint("c", n)}
	}
	e := virtual.New(c, moment())
	wr, err := protocol.Begin("g", "s", nil, "x", protocol.Stamp{ID: "w", At: moment().Wall})
	if err != nil {
		t.Fatal(err)
	}
	row := wr.Next.(lease.Row)
	row.Failures, row.Last.Reason = lease.Failures{Count: 1 << 33, Errors: 1 << 33, Last: row.Generation}, lease.ReasonFailed
	if err := row.Validate(); err != nil {
		t.Fatal(err)
	}
	var seat lease.Seat
	var todo []engine.Input
	claimed := false
	for range 1000 {
		in := engine.Input(engine.Tick{})
		if len(todo) > 0 {
			in, todo = todo[0], todo[1:]
		} else {
			now = now.Add(100 * time.Millisecond)
		}
		from := time.Now()
		outs, _ := e.Step(moment(), in)
		if took := time.Since(from); took > fixture.Size(5*time.Second, 100*time.Millisecond) { // a busy machine may take some
			t.Errorf("a step took %v: %T", took, in)
			return
		}
		for _, o := range outs {
			switch o := o.(type) {
			case engine.Send:
				if s, ok := o.Write.Next.(lease.Seat); ok {
					seat = s
				}
				claimed = claimed || o.Write.Key() == row.Key()
				todo = append(todo, engine.Settled{Write: o.Write, Record: o.Write.Next})
			case engine.Verify:
				todo = append(todo, engine.Verified{Read: o.Read})
			case engine.Poll:
				todo = append(todo, engine.Source{Shards: []engine.Shard{{Name: "s"}}, Complete: true})
			case engine.Get:
				todo = append(todo, engine.Got{Read: o.Read, Key: o.Key, Record: row})
			case engine.List:
				l := engine.Listed{Read: o.Read, Records: []lease.Record{row}}
				if o.Query.Kind == lease.KindSeat {
					l.Records = []lease.Record{seat}
				}
				todo = append(todo, l)
			}
		}
	}
	if !claimed {
		t.Error("the row was not claimed")
	}
}

// TestDrainEndsThoughAWriteIsOpen: the time of a drain is over while a commit is unanswered:
// the handler's context ends all the same.
func TestDrainEndsThoughAWriteIsOpen(t *testing.T) {
	w := newTwins(t, 2)
	a := w.enter("a", config(rebalance.Eager))
	w.until(5*time.Second, w.held)
	w.Run(20 * time.Second)
	a.Winds = time.Hour
	w.enter("b", config(rebalance.Eager))
	var id engine.Tenure
	w.until(10*time.Second, func() bool {
		for _, h := range a.Handlers {
			if h.Soft {
				id = h.Tenure
				return true
			}
		}
		return false
	})
	from := w.Now()
	a.unanswered(id) // while everything else works
	w.Run(3 * time.Minute)
	if h := a.Handlers.Of(id); h != nil && !h.Over {
		t.Errorf("%v after it was told to wind down (drain 20 s) the handler's context has not ended; events: %v", w.Now()-from, a.told[len(a.told)-1])
	}
}

// unanswered makes n commit, and takes the commit away from it: no answer comes.
func (n *member) unanswered(id engine.Tenure) {
	n.of.Helper()
	var open lease.Write
	outs, _ := n.Engine.Step(n.Moment(), engine.Marks{Tenure: id, Seq: 1, Flush: 1, Mark: mark("1")})
	for _, o := range outs {
		if s, ok := o.(engine.Send); ok && s.Write.Key().Kind == lease.KindLease {
			open = s.Write
		} else {
			n.Stepped(nil, []engine.Output{o})
			n.CarryOut(o)
		}
	}
	if open.Op == 0 {
		n.of.Fatal("no commit went out")
	}
	n.mute = func(o engine.Output) bool {
		send, ok := o.(engine.Send)
		return ok && send.Write.ID() == open.ID()
	}
	n.Step(engine.Settled{Write: open, Err: errors.New("no answer")})
}

// TestTornCommitOfAnOfferedShard: a commit went unanswered, and its repetition is refused
// because the shard was taken as offered: the refusal is told, and that the commit may have
// been stored before.
func TestTornCommitOfAnOfferedShard(t *testing.T) {
	w := newTwins(t, 2)
	a := w.enter("a", config(rebalance.Cooperative))
	w.until(5*time.Second, w.held)
	w.Run(20 * time.Second)
	b := w.enter("b", config(rebalance.Cooperative))
	b.mute = transfers
	var take lease.Write
	w.until(10*time.Second, func() bool {
		for _, s := range b.sent {
			if send, ok := s.Output.(engine.Send); ok && send.Write.Op == lease.OpTransfer {
				take = send.Write
			}
		}
		return take.Op != 0
	})
	w.Run(1100 * time.Millisecond) // while an offer stands, commits wait for a second
	id := engine.Tenure{Shard: take.Key().Name, Generation: take.Old.(lease.Row).Generation}
	a.unanswered(id)
	if _, err := w.store.Write(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	a.mute = nil // the next sending arrives
	w.until(2*time.Second, func() bool { return a.Handlers.Of(id) == nil })
	if refused := a.reports(event.Refused); len(refused) != 1 || refused[0].Generation != id.Generation {
		t.Errorf("the refusal was told as %v", refused)
	}
	for _, s := range a.sent {
		if o, ok := s.Output.(engine.Over); ok && o.Tenure == id {
			if stale, ok := errors.AsType[*checkpoint.StaleError](o.Err); !ok || !stale.OutcomeUnknown {
				t.Errorf("the tenure ended with %v: its commit may have been stored", o.Err)
			}
		}
	}
}

// TestOwnDrainTimeCounts: who gives a shard up by itself has its worker's drain time, not that
// of somebody's want.
func TestOwnDrainTimeCounts(t *testing.T) {
	w := newTwins(t, 2)
	c := config(rebalance.Cooperative)
	a := w.enter("a", c)
	w.until(5*time.Second, w.held)
	w.Run(20 * time.Second)
	a.Winds = 5 * time.Second // well within a's 20 s
	c.Handoff = rebalance.Terms{Mode: rebalance.Cooperative, Drain: time.Second}
	b := w.enter("b", c)
	b.mute = transfers
	w.until(10*time.Second, func() bool { return w.offered().Shard != "" })
	w.Run(20 * time.Millisecond)
	id := w.offered()
	a.Step(engine.Marks{Tenure: id, Release: true})
	w.Run(3 * time.Second)
	if h := a.Handlers.Of(id); h == nil || h.Over {
		t.Errorf("3 s after Release the handler's context has ended; its worker's drain time is 20 s")
	}
}

// TestOldBeatDoesNotEndDoubt: the machine was suspended with a beat on the wire; its answer,
// from before, arrives first.
func TestOldBeatDoesNotEndDoubt(t *testing.T) {
	w := newTwins(t, 1)
	a := w.enter("a", config(rebalance.Eager))
	w.Run(20 * time.Second)
	var old []engine.Input
	w.deaf = func(_ *member, o engine.Output) bool {
		beat := sends(o, lease.KindSeat)
		if beat {
			old = append(old, w.table.Serve(a.Sender(), o))
		}
		return beat
	}
	w.until(beat, func() bool { return len(old) > 0 })
	a.Clock.Wall = time.Hour // suspended: the monotonic clock stood still
	woke := w.Now()
	a.Step(engine.Marks{Tenure: a.Handlers[0].Tenure, Seq: 1, Flush: 1, Mark: mark("1")})
	if rows := a.writes(lease.KindLease, woke); len(rows) > 0 {
		t.Errorf("a commit went out at once: %v", rows)
	}
	a.Step(old[0]) // answered before the suspend
	if rows := a.writes(lease.KindLease, woke); len(rows) > 0 {
		t.Errorf("a commit went out on the strength of a beat from before the suspend: %v", rows)
	}
}

// transfers reports whether a call is a transfer.
func transfers(o engine.Output) bool {
	send, ok := o.(engine.Send)
	return ok && send.Write.Op == lease.OpTransfer
}

func mark(p string) checkpoint.Mark { return checkpoint.Mark{Position: p} }
