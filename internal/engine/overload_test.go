package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A server takes one call after the other, and each takes its time. A caller that has
// waited for too long gives up, which the server does not know: it serves the call all the same.
type server struct {
	f    *fleet
	slow time.Duration // so many times slower than usual, in percent; 0: as usual
	free time.Duration // when it has served all that it was asked
}

// takes is what a call costs: reading all rows is dear.
func (s *server) takes(o engine.Output) time.Duration {
	d := 3 * time.Millisecond
	if l, ok := o.(engine.List); ok && l.Query.Kind == lease.KindLease {
		d += time.Duration(len(s.f.source.Shards)) * time.Millisecond
	}
	if s.slow > 0 {
		d = d * s.slow / 100
	}
	return d
}

// call is one call of a worker.
func (s *server) call(n *member, o engine.Output) bool {
	s.free = max(s.free, s.f.Now()) + s.takes(o)
	patience := n.patience
	if l, ok := o.(engine.List); ok && l.Query.Kind == lease.KindLease {
		patience *= 4 // as the shell has it
	}
	answered := false
	answer := func(in engine.Input) {
		if !answered {
			answered = true
			n.Step(in)
		}
	}
	from := n.Sender()
	s.f.After(s.free-s.f.Now(), func() { answer(s.f.table.Serve(from, o)) })
	s.f.After(patience, func() { answer(unanswered(o)) })
	return true
}

// commits makes a node commit each of its shards every two seconds.
func (n *member) commits() {
	n.Later(2*time.Second, func() {
		seq := uint64(n.of.Now() / time.Millisecond)
		for _, id := range n.tenures() {
			if !n.Handlers.Of(id).Soft {
				n.Step(engine.Marks{Tenure: id, Seq: seq, Flush: seq, Mark: mark(fmt.Sprint(seq))})
			}
		}
		n.commits()
	})
}

// TestFleetRecoversFromOverload: twelve workers come up at once on a server that has little
// time, and get along with it; three times, or twice in a sample, it becomes so slow that all lose what they hold,
// and when it is well again so are they. Nobody helps.
func TestFleetRecoversFromOverload(t *testing.T) {
	t.Parallel()
	w := newFleet(t, 200, 0, rebalance.Eager)
	server := &server{f: w}
	w.deaf = server.call
	c := config(rebalance.Eager)
	c.TTL, c.Drain = 5*time.Second, 5*time.Second
	for i := range 12 {
		w.enter(fmt.Sprintf("w%02d", i), c).commits()
	}
	took := w.until(20*time.Second, w.held)
	t.Logf("held after %v", took)
	for range fixture.Size(2, 3) {
		w.Run(30 * time.Second)
		server.slow = 600
		w.Run(20 * time.Second)
		server.slow = 0
		lost := len(w.source.Shards)
		for _, n := range w.counts() {
			lost -= n
		}
		took := w.until(time.Minute, w.held)
		t.Logf("of 200 shards %d were processed by nobody; all are again after %v", lost, took)
	}
	w.until(time.Minute, w.even)
}

// TestOneSlowReadDelaysNothing: a listing of the rows takes long, once, because the answer does
// or because its worker is paused meanwhile; and just then a dead worker has to be replaced.
func TestOneSlowReadDelaysNothing(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{10 * time.Second, time.Minute} {
		for _, paused := range []bool{false, true} {
			worst := time.Duration(0)
			for early := ttl / 50; early < ttl/2; early += ttl / fixture.Size[time.Duration](25, 50) {
				worst = max(worst, recovery(t, ttl, early, paused))
			}
			if worst > ttl+ttl/3+500*time.Millisecond {
				t.Errorf("T = %v, paused %t: taken over only after %v", ttl, paused, worst)
			}
		}
	}
}

// TestSlowListings: one listing of the seats that takes long delays the next one by nothing, two in
// a row do, and a table that answers quickly again is soon asked as before.
func TestSlowListings(t *testing.T) {
	w := newTwins(t, 2)
	a, b := w.enter("a", config(rebalance.Eager)), w.enter("b", config(rebalance.Eager))
	w.Run(30 * time.Second)
	a.Kill()
	w.Run(5 * time.Second) // b looks twice a second
	for _, c := range []struct {
		slow        int
		least, most time.Duration
	}{{1, 0, 600 * time.Millisecond}, {2, 1500 * time.Millisecond, beat + 100*time.Millisecond}} {
		pause := b.afterSlow(c.slow, 500*time.Millisecond)
		if pause < c.least || pause > c.most {
			t.Errorf("after %d slow listings the next one came after %v, want %v to %v", c.slow, pause, c.least, c.most)
		}
	}
}

// afterSlow makes so many listings of the seats take so long, and returns how long after the last
// of them was answered the next one is sent.
func (n *member) afterSlow(many int, took time.Duration) time.Duration {
	sent, answered := 0, time.Duration(0)
	f := n.of
	f.slow = func(of *member, o engine.Output) time.Duration {
		if of != n || !lists(o, lease.KindSeat) {
			return 0
		}
		if sent++; sent > many {
			return 0
		}
		answered = f.Now() + took
		return took
	}
	f.until(10*time.Second, func() bool { return sent > many })
	return f.Now() - answered
}

// recovery is how long b takes to replace a, if it lists the rows so early before a's seat
// expires and that takes a sixth of T.
func recovery(t *testing.T, ttl, early time.Duration, paused bool) time.Duration {
	w := newFleet(t, 1, 0, rebalance.Eager)
	c := config(rebalance.Eager)
	c.TTL = ttl
	a := w.enter("a", c)
	w.until(5*time.Second, w.held)
	b, leaver := w.enter("b", c), w.enter("c", c)
	w.Run(3 * ttl)
	a.Kill()
	died := w.Now()
	w.Run(ttl - early)
	w.slow = func(of *member, o engine.Output) time.Duration {
		if of != b || !lists(o, lease.KindLease) {
			return 0
		}
		w.slow = nil
		if !paused {
			return ttl / 6
		}
		b.Pause()
		w.After(ttl/6, func() { b.Resume(nil) })
		return 0
	}
	leaver.Step(engine.Stop{}) // so b lists the rows
	w.until(4*ttl, func() bool { return len(b.Handlers) == 1 })
	return w.Now() - died
}

// TestFailuresWithoutBackoff: without Backoff, a handler that fails at once is called a few times a
// second, and not as often as the table answers.
func TestFailuresWithoutBackoff(t *testing.T) {
	c := config(rebalance.Eager)
	c.Backoff = 0
	w := newTwins(t, 1)
	a := w.enter("a", c)
	w.until(time.Minute, w.held)
	for from := w.Now(); w.Now()-from < 10*time.Second; w.Run(time.Millisecond) {
		for _, id := range a.tenures() {
			a.Return(id, true)
		}
	}
	if n := w.calls["lease transfer"]; n < 50 || n > 200 { // each tenure is claimed and given up
		t.Errorf("%d changes of hands in ten seconds", n)
	}
}
