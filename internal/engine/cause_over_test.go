package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestCauseThatIsOver: the shards of a worker have moved because it was drained, or has left, but the worker that has them now
// never reports that it holds its whole target. When a plan moves them on, because another worker joins, that is for balance:
// the first worker is no longer drained, has left, or has nothing any more. That another worker is drained for the same reason
// does not matter. An owner that hands the shard over itself knows that it is not the first one.
func TestCauseThatIsOver(t *testing.T) {
	t.Parallel()
	type these []int
	both := []rebalance.Mode{rebalance.Eager, rebalance.Cooperative}
	for name, c := range map[string]struct {
		drained, leave these // at first
		late           these // these seem to have shards left, as the worker does that gets the shards
		stay, exit     these // later: which workers are still drained, and which leave
		modes          []rebalance.Mode
	}{
		"its worker has nothing any more":           {drained: these{0}, stay: these{0}, modes: both},
		"it is no longer drained":                   {drained: these{0}, late: these{0}, modes: both},
		"another is drained for that reason":        {drained: these{0, 2}, late: these{0, 2}, stay: these{2}, modes: both},
		"it has left":                               {leave: these{0}, late: these{2}, modes: both},
		"it has left, and another leaves":           {leave: these{0}, late: these{2}, exit: these{2}, modes: both},
		"the worker that gives it is not the first": {drained: these{0}, late: these{0}, stay: these{0}, modes: both[:1]},
	} {
		for _, mode := range c.modes {
			t.Run(fmt.Sprintf("%s/%v", name, mode), func(t *testing.T) {
				f := newFleet(t, 24, 3, mode, func(c *engine.Config) { c.Drain = time.Minute })
				first, second := f.nodes[0], f.nodes[1]
				happens := func(drained, leave these) {
					var list []lease.Wish
					for _, i := range drained {
						list = append(list, lease.Wish{Kind: lease.WishDrain, Subject: f.nodes[i].Name, By: "ann", Why: "disk is slow"})
					}
					f.wish(list...)
					for _, i := range leave {
						f.nodes[i].Input(engine.Stop{})
					}
				}
				for _, i := range append(c.late, 1) {
					f.nodes[i].alter = func(s *lease.Seat) { s.Settled = false }
				}
				mine := map[string]bool{}
				for _, h := range first.Handlers {
					mine[h.Shard] = true
				}
				happens(c.drained, c.leave)
				f.Run(time.Minute)
				if of := f.target(second); len(first.Handlers) > 0 || len(of.Causes) == 0 {
					t.Fatalf("held %v; the causes of %s are %+v", f.counts(), second.Name, of.Causes)
				}
				before := generations(f)
				f.nodes[2].Winds = 30 * time.Second
				happens(c.stay, c.exit)
				f.join()
				f.join()
				f.Run(time.Minute)
				moved := 0
				for shard := range mine {
					of := f.row(shard).Last
					if of.Generation <= before[shard] || of.From != second.Name {
						continue
					}
					if moved++; of.Why != rebalance.Balance || of.Note != "" {
						t.Errorf("%s moves on as %v", shard, of)
					}
				}
				if moved == 0 {
					t.Errorf("nothing has moved on; held %v", f.counts())
				}
			})
		}
	}
}

// TestRepeatedCauseIsOfOneMove: a shard has moved to a worker for a cause, and later others hold it. The plan still assigns it to
// the worker, and another revision repeats the cause. When the worker requests the shard again, that is not for this cause.
func TestRepeatedCauseIsOfOneMove(t *testing.T) {
	f := newFleet(t, 12, 3, rebalance.Eager)
	owner, to, third := f.nodes[0], f.nodes[1], f.nodes[2]
	shard := owner.Handlers[0].Shard
	takes := func(n *member) {
		row := f.row(shard)
		f.write(protocol.ForceRelease(row, seen(row), f.stamp()))
		f.write(protocol.Claim(f.row(shard), f.seat(n).Owner(), f.stamp()))
		f.wish(f.look(shard, time.Minute))
		f.until(30*time.Second, func() bool { return n.holds(shard) && !to.holds(shard) })
	}
	f.because(shard, to, rebalance.Drained, true)
	f.until(20*time.Second, func() bool { return to.holds(shard) })
	owner.Winds = 15 * time.Second
	takes(owner)
	f.because(shard, to, rebalance.Drained, false)
	f.until(2*beat, func() bool { return f.seat(to).Revision == f.plan().Revision })
	if to.holds(shard) || f.target(to).CauseOf(shard).Why != rebalance.Drained {
		t.Fatalf("held %v", f.counts())
	}
	takes(third)
	f.until(30*time.Second, func() bool { return to.holds(shard) })
	requests := to.reports(event.Requested)
	if last := requests[len(requests)-1]; last.Peer != third.Name || last.Why != 0 {
		t.Errorf("%s reports %v", to.Name, last)
	}
}
