package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func (h *hall) wishes() lease.Wishes {
	r, _ := h.store.Get(h.Context(), lease.Wishes{Group: "g"}.Key())
	now, _ := r.(lease.Wishes)
	now.Group = "g"
	return now
}

// look stores the wish by which sessions notice a command, with a clock that is behind the clocks of the sessions.
func (h *hall) look(name string, behind time.Duration) {
	h.Helper()
	list := append(h.wishes().List, lease.Wish{Kind: protocol.WishLook, Subject: name, By: "operator", Until: virtual.Epoch().Add(h.Now() + time.Minute - behind)})
	w, err := protocol.SetWishes(h.wishes(), list, protocol.Stamp{ID: lease.WriteID(fmt.Sprint("wish-", h.Unique())), At: time.Unix(1, 0)})
	if _, errWrite := h.store.Write(h.Context(), w); err != nil || errWrite != nil {
		h.Fatal(err, errWrite)
	}
}

// TestHolderLearnsThatAnOperatorEndedIt: the cause is the operator, also if a later holder has released the lease
// since, so that the row is a tombstone.
func TestHolderLearnsThatAnOperatorEndedIt(t *testing.T) {
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	h.Run(time.Second)
	a.acquire("lock")
	h.until(time.Second, func() bool { return a.holds("lock") })
	h.force("lock")
	b.acquire("lock")
	h.until(time.Second, func() bool { return b.holds("lock") })
	b.release("lock")
	h.Run(time.Second)
	a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: "1"}, Seq: 1, Flush: 1})
	h.Run(time.Second)
	if len(a.ended) != 1 || a.ended[0].Cause != event.CauseForced || a.ended[0].Err == nil {
		t.Errorf("the holder is told %v", a.ended)
	}
}

// TestHolderNoticesARelease: a holder notices an operator's release within a heartbeat interval and 1.5 s, and
// without any commit. Later a session removes the wish that announced the release.
func TestHolderNoticesARelease(t *testing.T) {
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	h.Run(time.Second)
	for i := range 3 {
		a.acquire(fmt.Sprint("lock-", i))
		b.acquire(fmt.Sprint("other-", i))
	}
	h.Run(20 * time.Second)
	for i := range 2 { // the second time, the wishes have the first one too
		name := fmt.Sprint("lock-", i)
		h.force(name)
		h.look(name, 0)
		h.until(sessionConfig().TTL/3+1500*time.Millisecond, func() bool { return !a.holds(name) })
	}
	if len(a.ended) != 2 || a.ended[0].Cause != event.CauseForced || len(a.held) != 1 || len(b.ended) > 0 {
		t.Errorf("the holders are told %v and %v", a.ended, b.ended)
	}
	h.until(2*time.Minute+10*time.Second, func() bool { return len(h.wishes().List) == 0 })
	h.Run(5 * time.Second) // both have read them
	a.calls = nil
	h.Run(20 * time.Second)
	for _, o := range a.calls {
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
		h := newHall(t, 1)
		a := h.join("a")
		h.Run(time.Second)
		a.acquire("other")
		if commits {
			a.acquire("lock")
		}
		h.Run(20 * time.Second)
		read := false
		a.mute = func(o engine.Output) bool {
			if get, is := o.(engine.Get); is {
				read = read || get.Key.Kind == lease.KindWishes
			}
			send, is := o.(engine.Send)
			if !is || send.Write.Key().Name != "lock" {
				return false
			}
			in := h.table.Serve(a.Sender(), o)
			h.After(late, func() { a.Input(in) })
			h.force("lock")
			h.look("lock", 0)
			a.mute = nil
			return true
		}
		h.until(10*time.Second, func() bool { return read })
		h.Run(sessionConfig().TTL/3 - time.Second) // the wishes are read again before the answer is there
		if commits {
			a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: "1"}, Seq: 1, Flush: 1})
		} else {
			a.acquire("lock")
		}
		if h.Run(late + sessionConfig().TTL/3 + 1500*time.Millisecond); a.holds("lock") || len(a.ended) != 1 || a.ended[0].Cause != event.CauseForced {
			t.Errorf("commits: %v: the holder is told %v", commits, a.ended)
		}
	}
}

// TestALookOfABusyHolderEnds: a session that commits without pause reads the row that a wish names once or twice.
func TestALookOfABusyHolderEnds(t *testing.T) {
	h := newHall(t, 1)
	a := h.join("a")
	h.Run(time.Second)
	a.acquire("lock")
	h.Run(20 * time.Second)
	h.look("lock", 0)
	a.calls = nil
	for i := range uint64(5000) {
		a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: fmt.Sprint(i + 1)}, Seq: i + 1, Flush: i + 1})
		h.Run(2 * time.Millisecond)
	}
	reads := 0
	for _, o := range a.calls {
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
			h, c := newHall(t, uint64(i)+1), sessionConfig()
			c.TTL = of.ttl
			a := h.joinWith("a", c)
			others := []*guest{h.join("b"), h.join("c"), h.join("d")}
			h.Run(time.Second)
			a.acquire("lock")
			for _, g := range others {
				g.acquire("lock of " + g.Name)
			}
			h.Run(20*time.Second + time.Duration(i)*c.TTL/3/time.Duration(moments))
			h.force("lock")
			h.look("lock", of.behind)
			if h.Run(c.TTL/3 + 1500*time.Millisecond); a.holds("lock") {
				t.Errorf("%s: the holder does not notice that its lease was released", name)
			}
			h.until(3*time.Minute+10*time.Second, func() bool { return len(h.wishes().List) == 0 })
		}
	}
}
