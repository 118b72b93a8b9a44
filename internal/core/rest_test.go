package core_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A fleet comes to rest after a change, and then nothing more is planned.

// TestOnePlanForALeave: the plan that gives away what a leaving worker has is the only one. When its
// seat goes, nothing is planned and nothing is late, although the next watcher has not seen it leave.
func TestOnePlanForALeave(t *testing.T) {
	for workers, lists := range map[int]string{4: "page of seat", 12: "list seat"} {
		for _, unseen := range []bool{false, true} {
			f := newFleet(t, 24, workers, rebalance.Eager)
			before, leaver, next := f.plan(), f.watchers()[0], f.watchers()[1]
			f.slow = func(n *member, o engine.Output) time.Duration {
				if list, ok := o.(engine.List); ok && unseen && n == next && list.Query.Limit != 1 && list.Query.Kind == lease.KindSeat {
					return 5 * time.Second
				}
				return 0
			}
			f.deaf = func(n *member, o engine.Output) bool { // nor does it read the plan alone
				list, ok := o.(engine.List)
				return ok && n == next && list.Query.Limit == 1
			}
			f.reset()
			f.until(10*time.Second, func() bool { return next.calls[lists] > 0 })
			leaver.Input(engine.Stop{})
			f.slow = nil
			f.until(30*time.Second, f.even)
			f.Run(time.Minute)
			p := f.plan()
			if p.Revision != before.Revision+1 || p.Members != int64(workers-1) || p.Late {
				t.Errorf("%d workers, the leave is unseen: %t: revision %d became %d, with %d workers, late: %t", workers, unseen, before.Revision, p.Revision, p.Members, p.Late)
			}
		}
	}
}

// TestPauseAndALeave: while moves are paused, the plan leaves what a leaving worker has with it. When its
// seat goes, the next plan gives it to others.
func TestPauseAndALeave(t *testing.T) {
	f := newFleet(t, 8, 2, rebalance.Eager)
	f.wish(lease.Wish{Kind: lease.WishPause, By: "operator"})
	f.Run(20 * time.Second)
	f.nodes[1].Input(engine.Stop{})
	f.until(time.Minute, func() bool { return len(f.nodes[0].Handlers) == 8 })
}
