package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A server takes one call after the other, and each takes its time. Whoever has waited for
// too long gives up, which the server does not know: it serves the call all the same.
type server struct {
	w    *world
	slow time.Duration // so many times slower than usual, in percent; 0: as usual
	free time.Duration // when it has served all that it was asked
}

// takes is what a call costs: reading all rows is dear.
func (s *server) takes(o engine.Output) time.Duration {
	d := 3 * time.Millisecond
	if l, ok := o.(engine.List); ok && l.Query.Kind == lease.KindLease {
		d += time.Duration(len(s.w.shards)) * time.Millisecond
	}
	if s.slow > 0 {
		d = d * s.slow / 100
	}
	return d
}

// call is one call of a node with so much patience.
func (s *server) call(serve func() engine.Input, done func(engine.Input), silent engine.Input, patience time.Duration, o engine.Output) {
	s.free = max(s.free, s.w.now) + s.takes(o)
	wait := s.free - s.w.now
	if l, ok := o.(engine.List); ok && l.Query.Kind == lease.KindLease {
		patience *= 4 // as the shell has it
	}
	answered := false
	s.w.after(wait, func() {
		in := serve()
		if !answered {
			answered = true
			done(in)
		}
	})
	s.w.after(patience, func() {
		if !answered {
			answered = true
			done(silent)
		}
	})
}

// commits makes a node commit each of its shards every two seconds.
func (n *node) commits() {
	n.w.after(2*time.Second, func() {
		if n.dead {
			return
		}
		seq := uint64(n.w.now / time.Millisecond)
		for id, h := range n.active {
			if !h.soft {
				n.step(engine.Marks{Tenure: id, Seq: seq, Flush: seq, Mark: mark(fmt.Sprint(seq))})
			}
		}
		n.commits()
	})
}

// TestFleetRecoversFromOverload: twelve workers come up at once on a server that has little
// time, and get along with it; three times it becomes so slow that all lose what they hold,
// and when it is well again so are they. Nobody helps.
func TestFleetRecoversFromOverload(t *testing.T) {
	w := newWorld(struct{ testing.TB }{t}, 200) // no test to the world: it would compare twins
	w.server = &server{w: w}
	c := config(rebalance.Eager)
	c.TTL, c.Drain = 5*time.Second, 5*time.Second
	for i := range 12 {
		w.join(fmt.Sprintf("w%02d", i), c).commits()
	}
	took := w.until(20*time.Second, w.held)
	t.Logf("held after %v", took)
	for range 3 {
		w.run(30 * time.Second)
		w.server.slow = 600
		w.run(20 * time.Second)
		w.server.slow = 0
		lost := len(w.shards)
		for _, n := range w.counts() {
			lost -= n
		}
		took := w.until(time.Minute, w.held)
		t.Logf("of 200 shards %d were processed by nobody; all are again after %v", lost, took)
	}
	w.until(time.Minute, w.even)
}
