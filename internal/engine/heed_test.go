package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// announce adds the wish by which sessions notice a command, with a clock that is behind the clocks of the sessions.
func (c *contest) announce(name string, behind time.Duration) {
	c.Helper()
	c.wish(append(c.wishes().List, c.look(name, time.Minute-behind))...)
}

// TestHolderLearnsThatAnOperatorEndedIt: the cause is the operator, also if a later holder has released the lease
// since, so that the row is a tombstone.
func TestHolderLearnsThatAnOperatorEndedIt(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	f.release("lock")
	b.lock()
	b.release("lock")
	f.Run(time.Second)
	a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: "1"}, Seq: 1, Flush: 1})
	f.Run(time.Second)
	if len(a.ended) != 1 || a.ended[0].Cause != event.CauseForced || a.ended[0].Err == nil {
		t.Errorf("the holder is told %v", a.ended)
	}
}

// TestHolderNoticesARelease: a holder notices an operator's release within a heartbeat interval and 1.5 s, and
// without any commit. Later a session removes the wish that announced the release.
func TestHolderNoticesARelease(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	for i := range 3 {
		a.acquire(fmt.Sprint("lock-", i))
		b.acquire(fmt.Sprint("other-", i))
	}
	f.Run(20 * time.Second)
	for i := range 2 { // the second time, the wishes have the first one too
		name := fmt.Sprint("lock-", i)
		f.release(name)
		f.announce(name, 0)
		f.until(beat+1500*time.Millisecond, func() bool { return !a.holds(name) })
	}
	if len(a.ended) != 2 || a.ended[0].Cause != event.CauseForced || len(a.held) != 1 || len(b.ended) > 0 {
		t.Errorf("the holders are told %v and %v", a.ended, b.ended)
	}
	f.until(2*time.Minute+10*time.Second, func() bool { return len(f.wishes().List) == 0 })
	f.Run(5 * time.Second) // both have read them
	a.asked = nil
	f.Run(20 * time.Second)
	for _, o := range a.asked {
		if send, ok := o.(engine.Send); ok && send.Write.Key().Kind == lease.KindWishes {
			t.Errorf("without wishes the session makes %v", o)
		}
	}
}

// TestHolderNoticesAReleaseDuringAWrite: also if the command comes between a write of the session and its
// late answer, which shows the lease as it was before the command.
func TestHolderNoticesAReleaseDuringAWrite(t *testing.T) {
	const late = 2 * time.Second
	for _, commits := range []bool{true, false} {
		f := newContest(t, 1)
		a := f.join("a")
		f.Run(time.Second)
		a.acquire("other")
		if commits {
			a.acquire("lock")
		}
		f.Run(20 * time.Second)
		read := false
		a.mute = func(o engine.Output) bool {
			if get, is := o.(engine.Get); is {
				read = read || get.Key.Kind == lease.KindWishes
			}
			send, is := o.(engine.Send)
			if !is || send.Write.Key().Name != "lock" {
				return false
			}
			in := f.table.Serve(a.Sender(), o)
			f.After(late, func() { a.Input(in) })
			f.release("lock")
			f.announce("lock", 0)
			a.mute = nil
			return true
		}
		f.until(10*time.Second, func() bool { return read })
		f.Run(beat - time.Second) // the wishes are read again before the answer is there
		if commits {
			a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: "1"}, Seq: 1, Flush: 1})
		} else {
			a.acquire("lock")
		}
		if f.Run(late + beat + 1500*time.Millisecond); a.holds("lock") || len(a.ended) != 1 || a.ended[0].Cause != event.CauseForced {
			t.Errorf("commits: %v: the holder is told %v", commits, a.ended)
		}
	}
}

// TestALookOfABusyHolderEnds: a session that commits without pause reads the row that a wish names once or twice.
func TestALookOfABusyHolderEnds(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.acquire("lock")
	f.Run(20 * time.Second)
	f.announce("lock", 0)
	a.asked = nil
	for i := range uint64(5000) {
		a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: fmt.Sprint(i + 1)}, Seq: i + 1, Flush: i + 1})
		f.Run(2 * time.Millisecond)
	}
	reads := 0
	for _, o := range a.asked {
		if get, is := o.(engine.Get); is && get.Key.Kind == lease.KindLease {
			reads++
		}
	}
	if reads < 1 || reads > 2 || !a.holds("lock") {
		t.Errorf("%d reads, and the session holds the lease: %v", reads, a.holds("lock"))
	}
}

// TestNobodyRemovesALookTooEarly: the holder notices a release although other sessions remove the wish that is over,
// also if the operator's clock is behind, or if the holder has a longer lease time than they have.
func TestNobodyRemovesALookTooEarly(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ behind, ttl time.Duration }{
		"the operator's clock is behind": {time.Hour, 10 * time.Second},
		"a long lease time":              {0, time.Hour},
	} {
		moments := fixture.Size(7, 20)
		for i := range moments {
			f := newContest(t, uint64(i)+1)
			c := f.config
			c.TTL = of.ttl
			a := f.joinWith("a", c)
			others := []*session{f.join("b"), f.join("c"), f.join("d")}
			f.Run(time.Second)
			a.acquire("lock")
			for _, g := range others {
				g.acquire("lock of " + g.Name)
			}
			f.Run(20*time.Second + time.Duration(i)*c.TTL/3/time.Duration(moments))
			f.release("lock")
			f.announce("lock", of.behind)
			if f.Run(c.TTL/3 + 1500*time.Millisecond); a.holds("lock") {
				t.Errorf("%s: the holder does not notice that its lease was released", name)
			}
			f.until(3*time.Minute+10*time.Second, func() bool { return len(f.wishes().List) == 0 })
		}
	}
}
