package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestTargetIsMendedMeanwhile: a plan is made while the target of a worker cannot be read, and can be read
// when it is written. Its worker has not noticed, and gets its share.
func TestTargetIsMendedMeanwhile(t *testing.T) {
	f := newFleet(t, 40, 4, rebalance.Eager)
	key := f.target(f.up()[0]).Key()
	f.unreadable(key)
	f.deaf = func(_ *member, o engine.Output) bool {
		if send, is := o.(engine.Send); is && send.Write.Key() == key {
			f.table.Unreadable = nil
		}
		return false
	}
	f.join()
	f.until(3*beat, f.even)
}

// TestTargetIsMendedUnseen: the target of a worker is spoilt while it reads nothing, and is mended later as it
// was. The worker never learns of it, and gets its share of what the plans have moved meanwhile.
func TestTargetIsMendedUnseen(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 10*workers, workers, rebalance.Eager)
		of := f.up()[0]
		if workers > 8 {
			of = f.others()[0]
		}
		key := f.target(of).Key()
		f.unreadable(key)
		f.fail(time.Second, func(_ *member, o engine.Output) bool {
			get, is := o.(engine.Get)
			return is && get.Key == key
		})
		for range 3 {
			f.join()
		}
		f.Run(2*beat + beat/2) // in a lease time it would say that it cannot read
		f.table.Unreadable, f.deaf = nil, nil
		if f.even() {
			t.Error("the worker has given its share before")
		}
		f.until(f.config.Poll+3*beat, f.even)
		revision := f.plan().Revision
		if f.Run(5 * time.Minute); f.plan().Revision != revision {
			t.Errorf("%d workers: %d plans at rest", workers, f.plan().Revision-revision)
		}
	}
}

// TestUnreadableTarget: the target of a worker cannot be read from when a plan gives it one shard more.
// The worker reports it and keeps what it holds; what nobody holds goes to the others, and plans are made
// only for what happens. When the target can be read again, the worker gets its share.
func TestUnreadableTarget(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		f := newFleet(t, 10*workers, workers, rebalance.Cooperative)
		of := f.up()[workers-1]
		if workers > 8 {
			of = f.others()[0]
		}
		f.deaf = func(n *member, o engine.Output) bool {
			if get, is := o.(engine.Get); is && n == of && get.Key.Kind == lease.KindTarget {
				f.table.Unreadable, f.deaf = map[lease.Key]bool{get.Key: true}, nil
			}
			return false
		}
		add := func() {
			for range workers {
				f.lists(engine.Shard{Name: fmt.Sprintf("shard-%03d", len(f.source.Shards))})
			}
		}
		add()
		f.until(f.config.Poll+2*beat+3*time.Second, f.held)
		f.Run(20 * time.Second)
		held := len(of.Handlers)
		if held != 10 || slices.IndexFunc(of.told, func(e told) bool { return e.Kind == event.Malformed && !e.Over }) < 0 {
			t.Errorf("%d workers: it has %d shards, and does not report that it cannot read its target: %v", workers, held, of.told)
		}
		add()
		dead := f.up()[1]
		needed := workers + len(dead.Handlers)
		dead.Kill()
		f.reset()
		f.until(f.config.Poll+leaseTime+2500*time.Millisecond, f.held)
		revision := f.plan().Revision
		f.Run(5 * time.Minute)
		if len(of.Handlers) != held || f.plan().Revision != revision || f.starts != needed {
			t.Errorf("%d workers: it has %d shards, not %d; there were %d plans at rest; %d tenures began, not %d", workers, len(of.Handlers), held, f.plan().Revision-revision, f.starts, needed)
		}
		f.table.Unreadable = nil
		f.until(f.config.Poll+2*beat+2*time.Second, f.even)
	}
}

// TestUnreadablePlan: nobody can read the plan. Nobody writes another, and the workers read and write as at
// rest. They report it, and that it is over: when somebody mends the plan, or deletes it, plans are made again.
func TestUnreadablePlan(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, fixture.Size(12, 40)} {
		for _, mended := range []bool{true, false} {
			f := newFleet(t, 10*workers, workers, rebalance.Eager)
			f.Run(time.Minute)
			f.reset()
			f.Run(10 * beat)
			requests := func() (n int) {
				for _, of := range f.calls {
					n += of
				}
				return n
			}
			rest := requests()
			f.unreadable(f.plan().Key())
			f.Run(5 * beat)
			f.reset()
			f.Run(10 * beat)
			if n := requests(); n > rest+rest/4 || f.calls["plan create"]+f.calls["plan swap"] > 0 {
				t.Errorf("%d workers: %d requests, %d at rest: %v", workers, n, rest, f.calls)
			}
			joined := f.join()
			f.Run(5 * beat)
			f.reset()
			f.Run(10 * beat)
			if n := requests(); n > rest+rest/2 || f.even() {
				t.Errorf("%d workers and one that has joined: %d requests, %d at rest: %v", workers, n, rest, f.calls)
			}
			limit := 4 * beat
			if f.table.Unreadable = nil; !mended {
				if workers > 8 { // and nobody is left who lists the seats
					limit = 3 * leaseTime
					for _, n := range append(f.watchers(), joined) {
						n.Kill()
					}
				}
				f.hand.Delete(f.plan().Key())
			}
			f.reset()
			f.Run(beat)
			if n := f.calls["plan swap"] + f.calls["plan create"]; n > 6 {
				t.Errorf("%d workers: they write the plan %d times in a heartbeat", workers, n)
			}
			f.until(limit, f.even)
			f.Run(2 * beat)
			for _, n := range f.up() {
				reports := n.reports(event.Malformed)
				if len(reports) > 0 && !reports[len(reports)-1].Over {
					t.Errorf("%d workers: the last report is %v", workers, reports[len(reports)-1])
				}
			}
			if first := f.up()[0]; workers < 8 && len(first.reports(event.Malformed)) == 0 {
				t.Error("nothing was reported")
			}
		}
	}
}

// TestFullWhileThePlanIsUnreadable: what the plan has said stands while nobody can read it.
func TestFullWhileThePlanIsUnreadable(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.config.MaxShards = 2
	f.join()
	f.join()
	f.Run(time.Minute)
	f.unreadable(f.plan().Key())
	f.Run(time.Minute)
	for _, n := range f.up() {
		full := func(e told) bool { return e.Kind == event.Full && e.Over }
		if n.Engine.Status().Unplaced.Count != 2 || slices.ContainsFunc(n.told, full) {
			t.Errorf("%s: %d shards without room: %v", n.Name, n.Engine.Status().Unplaced.Count, n.told)
		}
	}
}

// TestUnreadablePageBeyondATarget: a page that an earlier, longer target has left cannot be read. Its worker does
// not need it, and gets its share.
func TestUnreadablePageBeyondATarget(t *testing.T) {
	f := newFleet(t, 8, 2, rebalance.Eager)
	page := f.target(f.up()[0])
	page.Page, page.Pages = 1, 2
	f.put(page)
	f.unreadable(page.Key())
	for i := range 8 {
		f.lists(engine.Shard{Name: fmt.Sprintf("new-%d", i)})
	}
	f.until(f.config.Poll+2*beat, f.even)
}

// TestMalformedTargetIsReportedWhileItLasts: again and again, and when somebody has mended it. The worker itself may
// make the plan that follows.
func TestMalformedTargetIsReportedWhileItLasts(t *testing.T) {
	f := newFleet(t, 4, 1, rebalance.Eager)
	of := f.up()[0]
	f.unreadable(f.target(of).Key())
	f.lists(engine.Shard{Name: "new"})
	f.Run(15 * time.Minute)
	told := func() []told { return of.reports(event.Malformed) }
	if n := len(told()); n < 4 || told()[n-1].Over || !errors.Is(told()[0].Err, lease.ErrMalformed) {
		t.Fatalf("%d reports: %v", n, told())
	}
	f.table.Unreadable = nil
	f.until(2*f.config.Poll, func() bool { return f.even() && told()[len(told())-1].Over })
}

// TestPlansWithAnUnreadableSeat: nobody can read the seat of a worker that lives, or of one that is dead. Some workers
// could read it before, one joins that never has, and the worker itself knows what is in it. They agree about
// plans, and move nothing to and fro.
func TestPlansWithAnUnreadableSeat(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{3, 12} {
		for _, dead := range []bool{false, true} {
			f := newFleet(t, 4*workers, 0, rebalance.Eager)
			for f.config.MaxShards = 100; len(f.up()) < workers; {
				f.join()
			}
			f.until(time.Minute, f.even)
			f.Run(20 * time.Second)
			of := f.up()[0]
			f.unreadable(f.seat(of).Key())
			if dead {
				of.Pause()
			}
			f.Run(leaseTime)
			f.join()
			f.watchers()[1].Kill() // a newcomer may watch instead
			f.Run(3 * leaseTime)
			f.reset()
			before := f.plan().Revision
			f.Run(5 * leaseTime)
			if n := f.plan().Revision - before; n > 0 || f.starts > 0 || len(of.Handlers) == 0 && !dead {
				t.Errorf("%d workers, dead: %t: %d plans, and %d tenures began; held %v", workers, dead, n, f.starts, f.counts())
			}
		}
	}
}

// TestWorkerGetsItsShareWhenItsSeatIsMended: a worker dies while nobody can read the seat of another, which gets nothing
// of what the dead one had. When the seat can be read again, a plan gives that worker its share.
func TestWorkerGetsItsShareWhenItsSeatIsMended(t *testing.T) {
	for _, workers := range []int{3, 12} {
		f := newFleet(t, 4*workers, workers, rebalance.Eager)
		of := f.up()[0]
		f.unreadable(f.seat(of).Key())
		f.Run(leaseTime)
		f.up()[workers-1].Kill()
		f.until(time.Minute, f.held)
		if f.Run(leaseTime); len(of.Handlers) > 4 {
			t.Errorf("%d workers: it got more although nobody can read its seat: %v", workers, f.counts())
		}
		f.table.Unreadable = nil
		f.until(2*leaseTime, f.even)
	}
}

// TestUnreadableSeatKeepsItsLimit: a worker that is alone and cannot read its own seat holds MaxShards, and no more.
func TestUnreadableSeatKeepsItsLimit(t *testing.T) {
	f := newFleet(t, 2, 0, rebalance.Eager)
	f.config.MaxShards = 4
	of := f.join()
	f.until(time.Minute, f.even)
	f.unreadable(f.seat(of).Key())
	for i := range 4 {
		f.lists(engine.Shard{Name: fmt.Sprintf("new-%d", i)})
	}
	f.Run(2 * time.Minute)
	if n := len(of.Handlers); n != 4 || f.plan().Unplaced != 2 {
		t.Errorf("it holds %d shards; %d have no worker", n, f.plan().Unplaced)
	}
}

// TestUnreadableSeatGetsNoMore: all other workers are full, and nobody can read the seat of one. It gets no more shards, which
// may be more than its limit, until it plans by itself: it knows its limit.
func TestUnreadableSeatGetsNoMore(t *testing.T) {
	f := newFleet(t, 4, 0, rebalance.Eager)
	f.config.MaxShards = 2
	f.join()
	of := f.join()
	f.until(time.Minute, f.even)
	f.unreadable(f.seat(of).Key())
	for i := range 4 {
		f.lists(engine.Shard{Name: fmt.Sprintf("new-%d", i)})
	}
	for range 120 {
		if f.Run(time.Second); len(of.Handlers) > 2 {
			t.Fatalf("it holds %d shards, and may hold 2", len(of.Handlers))
		}
	}
	if n := f.plan().Unplaced; n != 4 {
		t.Errorf("%d shards have no worker", n)
	}
}

// TestSpoiltPagesOfATarget: a page is left of an earlier, longer target, or pages are no whole target, which
// nobody reads any more. The next plan moves no shard that they name.
func TestSpoiltPagesOfATarget(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 12} {
		for _, left := range []bool{true, false} {
			f := newFleet(t, 2*workers, workers, rebalance.Eager)
			of, hold := f.up()[1], f.target(f.up()[2]).Hold
			first := f.target(of)
			page := first
			page.Page, page.Pages, page.Hold = 1, 2, hold
			f.put(page)
			if !left {
				first.Pages, first.Revision, first.Hold = 2, first.Revision+1, append(slices.Clone(first.Hold), hold[0])
				for i := range 3 * workers { // of these there are no rows
					first.Hold = append(first.Hold, lease.Assigned{Shard: fmt.Sprintf("gone-%03d", i)})
				}
				slices.SortFunc(first.Hold, func(a, b lease.Assigned) int { return strings.Compare(a.Shard, b.Shard) })
				f.put(first)
			}
			f.Run(time.Minute)
			f.reset()
			f.join()
			f.Run(time.Minute)
			if f.starts > 1 { // the newcomer may have one shard
				t.Errorf("%d workers, left: %t: %d tenures began", workers, left, f.starts)
			}
		}
	}
}

// TestUnreadableSeatIsALife: a worker whose seat cannot be read lives as long as its seat changes, also for a
// worker that has never read it. When nobody has written the seat for ten lease times it is evicted.
func TestUnreadableSeatIsALife(t *testing.T) {
	w, ttl := newTwins(t, 6), config(rebalance.Eager).TTL
	a, b := w.enter("a", config(rebalance.Eager)), w.enter("b", config(rebalance.Eager))
	w.until(10*time.Second, w.even)
	w.unreadable(w.seat(a).Key())
	w.Run(5 * time.Minute)
	if n := len(a.Handlers); n != 3 {
		t.Errorf("a holds %d shards", n)
	}
	for _, s := range b.writes(lease.KindSeat, 0) {
		if write := s.Output.(engine.Send).Write; write.Op == lease.OpDelete {
			t.Errorf("b tries to evict a seat that changes: %v", write)
		}
	}
	a.Pause()
	w.Run(ttl / 2)
	c := w.enter("c", config(rebalance.Eager)) // it has never read that seat
	w.Run(ttl)
	if n := len(b.Handlers) + len(c.Handlers); n != 3 {
		t.Errorf("b and c hold %d shards", n)
	}
	evicted := func() int { return len(b.reports(event.PeerEvicted)) + len(c.reports(event.PeerEvicted)) }
	w.Run(7*ttl + ttl/2)
	if evicted() != 0 {
		t.Errorf("%d evictions", evicted())
	}
	w.until(2*ttl, func() bool { return len(b.Handlers)+len(c.Handlers) == 6 })
	if evicted() != 1 || len(b.reports(event.PeerEvicted)) != 1 { // it has seen the last heartbeat
		t.Errorf("%d evictions, %d of them by b", evicted(), len(b.reports(event.PeerEvicted)))
	}
	a.Resume(nil)
	w.until(30*time.Second, w.even)
}

// A shift is a planner that gives everything to the last worker.
type shift struct{ rebalance.Even }

func (shift) Plan(v rebalance.View) []int {
	return slices.Repeat([]int{len(v.Workers) - 1}, len(v.Shards))
}

// TestUnreadableSeatIsNotRobbed: a plan gives to another worker what one has whose seat cannot be read. The other
// one requests it and waits, whatever it lists meanwhile.
func TestUnreadableSeatIsNotRobbed(t *testing.T) {
	f := newFleet(t, 6, 0, rebalance.Eager)
	f.plansBy(shift{})
	for range 3 {
		f.join()
	}
	f.until(time.Minute, f.held)
	of := f.up()[slices.IndexFunc(f.up(), func(n *member) bool { return len(n.Handlers) == 6 })]
	of.Winds = 15 * time.Second
	f.unreadable(f.seat(of).Key())
	next := f.join()
	f.Run(3 * time.Second)
	f.up()[0].Input(engine.Stop{}) // so that the seats are listed consistently
	f.until(time.Minute, func() bool { return len(next.Handlers) == 6 })
	for _, s := range f.source.Shards {
		if r := f.row(s.Name); r.Last.Reason != lease.ReasonHandoff {
			t.Errorf("%v", r)
		}
	}
}

// TestSpoiltSeatDelaysItsOwnShardsOnly: a dead worker has left a seat that cannot be read, with a long lease
// time. Workers that join meanwhile get their share of all other shards at once.
func TestSpoiltSeatDelaysItsOwnShardsOnly(t *testing.T) {
	w := newTwins(t, 9)
	for _, name := range []string{"a", "b", "c"} {
		w.enter(name, config(rebalance.Eager))
	}
	w.until(10*time.Second, w.even)
	w.unreadable(w.seat(w.nodes[0]).Key())
	w.nodes[0].Pause()
	d := w.enter("d", config(rebalance.Eager))
	w.until(10*time.Second, func() bool { return len(d.Handlers) == 2 })
	w.until(12*config(rebalance.Eager).TTL, func() bool { return len(w.nodes[1].Handlers)+len(w.nodes[2].Handlers)+len(d.Handlers) == 9 })
}

// TestUnreadableSeatOfOnesOwn: a worker that cannot read its own seat loses nothing by it. Its
// beats go on, and tell.
func TestUnreadableSeatOfOnesOwn(t *testing.T) {
	w := newTwins(t, 4)
	a := w.enter("a", config(rebalance.Eager))
	w.until(5*time.Second, w.held)
	w.unreadable(w.seat(a).Key())
	w.Run(5 * time.Minute) // several audits, each with a listing of the seats
	a.never(event.Ended)
	w.enter("b", config(rebalance.Eager)) // a plan needs a consistent listing
	w.Run(10 * time.Second)
	w.nodes[1].Input(engine.Stop{})
	w.Run(time.Minute)
	a.never(event.Lost)
}

// TestUnreadableFormerSeat: a worker knows that its own earlier incarnation is over, whatever
// became of that one's seat.
func TestUnreadableFormerSeat(t *testing.T) {
	w := newTwins(t, 4)
	a := w.enter("a", config(rebalance.Eager))
	w.until(5*time.Second, w.held)
	w.unreadable(w.seat(a).Key())
	w.down = true
	w.until(15*time.Second, func() bool { return len(a.Handlers) == 0 })
	w.down = false
	w.until(5*time.Second, w.held)
}
