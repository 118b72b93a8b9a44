package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// requesting returns a fleet of two workers, a and c, and a third one, b, that has requested shards. The handlers of
// a and c have just begun to wind down, which takes so long.
func requesting(t *testing.T, winds time.Duration) (f *fleet, a, b *member) {
	f = newFleet(t, 8, 2, rebalance.Eager)
	a = f.nodes[0]
	for _, n := range f.nodes {
		n.Winds = winds
	}
	b = f.join()
	f.until(2*beat, func() bool { return len(a.reports(event.Draining)) > 0 })
	return f, a, b
}

// TestStopWithOpenRequests: a worker stops that has just requested shards, alone or together with one of their
// owners. Its seat stays until the owners have seen that it leaves. So no row names a worker without a seat, and
// nobody recovers one.
func TestStopWithOpenRequests(t *testing.T) {
	t.Parallel()
	const winds = 150 * time.Millisecond // longer than an owner takes to look at the seats again
	for _, together := range []bool{false, true} {
		for after := 60 * time.Millisecond; after <= winds; after += 10 * time.Millisecond {
			f, a, b := requesting(t, winds)
			if together {
				a.Input(engine.Stop{})
			}
			f.Run(after)
			b.Input(engine.Stop{})
			f.until(beat+2*time.Second, b.Engine.Done)
			f.until(time.Minute, func() bool { return f.held() && (!together || a.Engine.Done()) })
			f.Run(2 * beat)
			for _, n := range f.nodes {
				for _, started := range n.reports(event.Started) {
					if started.Reason == lease.ReasonExpired {
						t.Errorf("stopped %v after the request, together %t: %s recovers %s of %s", after, together, n.Name, started.Shard, started.Peer)
					}
				}
			}
		}
	}
}

// TestStopAwaitsNoAnswer: a worker that stops with open requests keeps its seat for a heartbeat interval, and for no
// longer than a moment more, although no read of these rows is answered. If the table answers nothing, it stops when
// its lease is over.
func TestStopAwaitsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		mute        func(engine.Output) bool
		least, most time.Duration
	}{
		{"the table answers", func(engine.Output) bool { return false }, beat, beat + time.Second},
		{"no row is answered", func(o engine.Output) bool { return gets(o, lease.KindLease) }, beat, beat + time.Second},
		{"nothing is answered", func(engine.Output) bool { return true }, 0, leaseTime},
	} {
		f, _, b := requesting(t, 15*time.Second)
		b.mute = tc.mute
		b.Input(engine.Stop{})
		if took := f.until(time.Minute, b.Engine.Done); took < tc.least || took > tc.most {
			t.Errorf("%s: the stop took %v", tc.name, took)
		}
	}
}

// TestStopWithALongLeaseTime: a worker with open requests, and a lease time of an hour, stops within seconds.
func TestStopWithALongLeaseTime(t *testing.T) {
	f := newFleet(t, 8, 0, rebalance.Eager)
	f.config.TTL = time.Hour
	a := f.join()
	a.Winds = time.Minute
	f.until(time.Minute, f.held)
	b := f.join()
	f.until(time.Hour, func() bool { return len(a.reports(event.Draining)) > 0 })
	b.Input(engine.Stop{})
	if took := f.until(time.Hour, b.Engine.Done); took > 12*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// TestStopWithoutRequestsReadsNoRow: a worker reads no row when it stops if its requests were served, or called off
// so long ago that their owners have noticed.
func TestStopWithoutRequestsReadsNoRow(t *testing.T) {
	f, a, b := requesting(t, 0)
	f.until(time.Minute, f.even)
	shard := a.Handlers[0].Shard
	a.mute = func(o engine.Output) bool { return lists(o, lease.KindSeat) } // it does not see the request
	f.assign(map[string]*member{shard: b}, false)
	asked := len(b.reports(event.Requested))
	f.until(2*beat, func() bool { return len(b.reports(event.Requested)) > asked })
	f.Run(100 * time.Millisecond)
	f.assign(map[string]*member{shard: a}, false)
	f.until(2*beat, func() bool { return len(b.reports(event.Retired)) > 0 })
	a.mute = nil
	f.Run(2 * beat)
	f.reset()
	b.Input(engine.Stop{})
	f.until(beat+2*time.Second, b.Engine.Done)
	if n := b.calls["get lease"]; n > 0 {
		t.Errorf("%d reads of rows", n)
	}
}

// TestLateHandOverIsNoFailedAttempt: a hands a shard over to b, but b has left meanwhile. Nobody has failed the
// shard. The death of a worker that may have started the shard is a failed attempt.
func TestLateHandOverIsNoFailedAttempt(t *testing.T) {
	left := func(f *fleet, b *member) {
		b.Input(engine.Stop{})
		f.until(time.Minute, b.Engine.Done)
	}
	for name, tc := range map[string]struct {
		goes   func(f *fleet, b *member)
		writes bool  // the row shows a write of b
		same   bool  // b has the name of a
		counts int64 // how many failed attempts
	}{
		"b has left":                      {left, false, false, 0},
		"b has left after a write":        {left, true, false, 1},
		"b has left, and has a's name":    {left, false, true, 1},
		"b has died":                      {func(_ *fleet, b *member) { b.Kill() }, false, false, 1},
		"b has died while it was leaving": {func(f *fleet, b *member) { b.Input(engine.Stop{}); f.Run(time.Second); b.Kill() }, false, false, 1},
		"b has left, and nobody has seen it": {func(f *fleet, b *member) {
			f.fail(100*time.Millisecond, func(n *member, o engine.Output) bool { return n != b && lists(o, lease.KindSeat) })
			b.Input(engine.Stop{})
			f.until(time.Minute, b.Engine.Done)
			f.deaf = nil
		}, false, false, 1},
	} {
		for _, workers := range []int{3, 12} {
			if workers > 8 && tc.counts == 0 {
				continue // the worker that recovers the row may not watch, and then it has not seen that b left
			}
			t.Run(fmt.Sprintf("%s/%d workers", name, workers), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, 4*workers/3, workers, rebalance.Eager)
				a, b := f.nodes[0], f.nodes[1]
				shard, to := a.Handlers[0].Shard, f.seat(b).Owner()
				tc.goes(f, b)
				f.until(time.Minute, func() bool { return f.seat(b).Incarnation == "" })
				row := f.row(shard)
				hold := func() lease.Hold {
					return lease.Hold{Key: row.Key(), Incarnation: row.Owner.Incarnation, Generation: row.Generation}
				}
				if tc.same {
					to.Name = row.Owner.Name
				}
				row = f.write(protocol.Yield(row, hold(), to, protocol.End{Reason: lease.ReasonHandoff, Mode: rebalance.Eager}, f.stamp())).(lease.Row)
				if tc.writes {
					row = f.write(protocol.Offer(row, hold(), "somebody", checkpoint.Mark{}, f.stamp())).(lease.Row)
				}
				f.until(2*time.Minute, func() bool { return f.row(shard).Generation > row.Generation })
				if now := f.row(shard); now.Attempts() != tc.counts || now.Last.Reason != lease.ReasonExpired {
					t.Errorf("%d failed attempts, want %d: %v", now.Attempts(), tc.counts, now)
				}
			})
		}
	}
}
