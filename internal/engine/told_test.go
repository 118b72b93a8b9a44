package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// These tests are about news that people read: which handlers hang, and which are silent.

// told returns the shards of which the seats have news of one kind, each with the name of the worker.
func (f *fleet) told(kind lease.NewsKind) (all []string) {
	for _, seat := range f.table.Seats("g") {
		for _, n := range seat.News {
			if n.Kind == kind {
				all = append(all, seat.Name+" "+n.Shard)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestHangingHandlerIsOnTheSeat: an operator releases a shard, and its handler does not return. With the next heartbeat the
// seat of its worker names the shard, and does until the handler returns. Nothing else changes: the plans are those of a fleet
// whose workers are of an older build and say nothing, and no other seat becomes larger.
func TestHangingHandlerIsOnTheSeat(t *testing.T) {
	var plans []int64
	for _, old := range []bool{true, false} {
		f := newFleet(t, 8, 4, rebalance.Eager)
		n := f.nodes[1]
		shard := n.Handlers[0].Tenure
		n.Stuck = true
		if old {
			n.alter = func(s *lease.Seat) {
				s.News = slices.DeleteFunc(slices.Clone(s.News), func(n lease.News) bool { return n.Kind == lease.NewsHangs })
			}
		}
		f.release(shard.Shard)
		f.until(2*time.Minute, func() bool { return n.Engine.Status().Held == 1 })
		f.Run(2 * beat)
		want := []string{n.Name + " " + shard.Shard}
		if got := f.told(lease.NewsHangs); slices.Equal(got, want) == old {
			t.Errorf("an older build: %t: the seats name %q", old, got)
		}
		f.Run(time.Minute)
		if got := f.told(lease.NewsHangs); slices.Equal(got, want) == old {
			t.Errorf("an older build: %t: a minute later the seats name %q", old, got)
		}
		plans = append(plans, f.plan().Revision)
		n.Stuck = false
		n.Return(shard, false)
		f.Run(2 * beat)
		if got := f.told(lease.NewsHangs); len(got) > 0 {
			t.Errorf("it has returned, and the seats name %q", got)
		}
	}
	if plans[0] != plans[1] {
		t.Errorf("%d plans of an older build, %d of this one", plans[0], plans[1])
	}
}

// TestReturningHandlerHangsNot: handlers that return within half a second after the end of their tenures are on no seat, although
// heartbeats are stored meanwhile.
func TestReturningHandlerHangsNot(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 8, 4, rebalance.Eager)
	n, beats := f.nodes[1], 0
	n.Stuck = true
	for range 30 {
		f.until(time.Minute, func() bool { return n.Engine.Status().Held == 2 })
		shard, before := n.Handlers[0].Tenure, f.beat(n)
		f.release(shard.Shard)
		f.until(2*time.Minute, func() bool { before = f.beat(n); return n.Engine.Status().Held == 1 })
		for range 9 {
			f.Run(50 * time.Millisecond)
			if got := f.told(lease.NewsHangs); len(got) > 0 {
				t.Fatalf("the seats name %q", got)
			}
		}
		if f.beat(n) > before {
			beats++
		}
		n.Return(shard, false)
	}
	if beats == 0 {
		t.Error("no heartbeat was stored meanwhile")
	}
}

// beat returns the heartbeat counter of a worker.
func (f *fleet) beat(n *member) int64 {
	for _, seat := range f.table.Seats("g") {
		if seat.Name == n.Name {
			return seat.Beat
		}
	}
	return 0
}

// TestNewsForPeopleLeavesRoom: with more hanging handlers than a seat has room for, the seat names the first hundred, and
// counts none of the others as news that a planner lacks.
func TestNewsForPeopleLeavesRoom(t *testing.T) {
	const shards = lease.MaxNews + 20
	f := newFleet(t, shards, 1, rebalance.Eager)
	n := f.nodes[0]
	n.Stuck = true
	for _, s := range f.source.Shards {
		f.release(s.Name)
	}
	f.until(3*time.Minute, func() bool { return n.Engine.Status().Held == 0 })
	f.Run(2 * beat)
	seat := f.table.Seats("g")[0]
	if len(seat.News) != lease.MaxNews || seat.NewsLeft != 0 {
		t.Errorf("%d news, %d left", len(seat.News), seat.NewsLeft)
	}
}

// TestSilentHandlersAreNamed: of the handlers that are silent, the seat names those that were not idle: that have marked, or
// called Alive. It names ten, in 128 bytes. A handler that has only called Progress, or nothing, may be idle. The number is
// that of all.
func TestSilentHandlersAreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		does  func(n *member, id engine.Tenure)
		long  int // the length of the names
		shown int
	}{
		"marked":   {func(n *member, id engine.Tenure) { n.Input(engine.Marks{Tenure: id, Seq: 1, Mark: mark("7")}) }, 0, 10},
		"alive":    {func(n *member, id engine.Tenure) { n.Input(engine.Marks{Tenure: id}) }, 0, 10},
		"long":     {func(n *member, id engine.Tenure) { n.Input(engine.Marks{Tenure: id}) }, 60, 2},
		"progress": {func(n *member, id engine.Tenure) { n.Input(engine.Marks{Tenure: id, Progress: true}) }, 0, 0},
		"nothing":  {func(*member, engine.Tenure) {}, 0, 0},
	} {
		f := newFleet(t, 12, 0, rebalance.Eager)
		for i := range f.source.Shards {
			if tc.long > 0 {
				f.source.Shards[i].Name = fmt.Sprintf("%02d", i) + strings.Repeat("-", tc.long-2)
			}
		}
		n := f.join()
		f.until(time.Minute, f.held)
		for _, h := range slices.Clone(n.Handlers) {
			tc.does(n, h.Tenure)
		}
		f.Run(5*time.Minute + 2*beat)
		got, health := f.told(lease.NewsSilent), f.table.Seats("g")[0].Health
		if len(got) != tc.shown || health.Silent != 12 || health.SilentSince.IsZero() != (tc.shown == 0) {
			t.Errorf("%s: the seat names %q; %+v", name, got, health)
		}
		for _, h := range slices.Clone(n.Handlers) {
			n.Input(engine.Marks{Tenure: h.Tenure, Progress: true})
		}
		f.Run(2 * beat)
		if got := f.told(lease.NewsSilent); len(got) > 0 {
			t.Errorf("%s: all have called Progress, and the seat names %q", name, got)
		}
	}
}
