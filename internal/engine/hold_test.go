package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestStallIsConfirmed: a mark that arrives within 50 ms after StallAfter has passed was made in
// time. Without one the handler winds down.
func TestStallIsConfirmed(t *testing.T) {
	p := newFleet(t, 1, 0, rebalance.Eager)
	p.config.StallAfter = 5 * time.Second
	a := p.enter("a", p.config)
	p.until(time.Second, func() bool { return len(a.Handlers) == 1 })
	for range 3 {
		a.mark(a.Handlers[0])
		p.Run(5*time.Second + 30*time.Millisecond)
	}
	if n := len(a.reports(event.Draining)); n > 0 {
		t.Fatalf("%d tenures ended", n)
	}
	p.Run(30 * time.Millisecond)
	if d := a.reports(event.Draining); len(d) != 1 || d[0].Cause != event.CauseStalled {
		t.Errorf("a silent handler was told to wind down as %v", d)
	}
}

// TestPauseIsNoSilence: a process is paused for longer than StallAfter, and its handler marks 200 ms
// after it has woken up.
func TestPauseIsNoSilence(t *testing.T) {
	p := newFleet(t, 1, 0, rebalance.Eager)
	p.config.StallAfter = 3 * time.Second
	a := p.enter("a", p.config)
	for range 10 {
		p.Run(time.Second)
		a.mark(a.Handlers[0])
	}
	a.Pause()
	p.Run(5 * time.Second)
	a.Resume(nil)
	p.Run(200 * time.Millisecond)
	a.never(event.Draining)
	p.Run(4 * time.Second)
	if d := a.reports(event.Draining); len(d) != 1 {
		t.Errorf("a handler that is silent after a pause was told to wind down %d times", len(d))
	}
}

// TestFailingReadsArePaced: reads of rows fail at once. They are repeated a few times per second.
func TestFailingReadsArePaced(t *testing.T) {
	p := newFleet(t, 4, 0, rebalance.Eager)
	a := p.enter("a", p.config)
	p.fail(5*time.Millisecond, func(_ *member, o engine.Output) bool { return gets(o, lease.KindLease) })
	p.write(protocol.Begin("g", "shard-000", nil, "x", p.stamp()))
	p.Run(20 * time.Second)
	if n := a.calls["get lease"]; n == 0 || n > 60 {
		t.Errorf("%d reads of one row in 20 s", n)
	}
	p.deaf = nil
	p.until(time.Second, func() bool { return len(a.Handlers) == 4 })
}

// TestStandingRequestIsCheap: an owner takes an hour to wind down, and its successor has agreed to
// wait. It reads the row once per heartbeat, and takes the shard over within one.
func TestStandingRequestIsCheap(t *testing.T) {
	t.Parallel()
	p := newFleet(t, 2, 0, rebalance.Eager)
	p.config.Handoff = rebalance.Terms{Mode: rebalance.Eager, Drain: 5 * time.Second, AfterDrain: rebalance.Wait}
	a := p.follow("a")
	a.Winds = time.Hour
	b := p.follow("b")
	p.Run(10 * time.Minute)
	before := b.calls["get lease"]
	p.Run(time.Minute)
	if n := b.calls["get lease"] - before; n > 20 || len(b.reports(event.Requested)) != 1 {
		t.Errorf("%d reads of a row in a minute, for %d requests", n, len(b.reports(event.Requested)))
	}
	a.Return(a.Handlers[0].Tenure, false)
	a.Return(a.Handlers[len(a.Handlers)-1].Tenure, false)
	p.until(beat+time.Second, func() bool { return len(b.Handlers) == 1 })
}

// TestNewcomerIsNotRobbed: a claim is refused because a worker has claimed the shard that is not in
// any listing of the seats yet. The seat is read, and found; the shard stays with its owner.
func TestNewcomerIsNotRobbed(t *testing.T) {
	p := newFleet(t, 1, 0, rebalance.Eager)
	a := p.enter("a", p.config)
	var claimed lease.Row
	p.slow = func(_ *member, o engine.Output) time.Duration {
		send, ok := o.(engine.Send)
		if !ok || send.Write.Op != lease.OpTransfer || claimed.Generation > 0 {
			return 0
		}
		seat := p.write(protocol.Sit(lease.Seat{Group: "g", Incarnation: "n", Name: "newcomer", TTL: time.Hour}, p.stamp())).(lease.Seat)
		seat = p.write(protocol.NextBeat(seat, lease.Says{}, p.stamp())).(lease.Seat)
		claimed = p.write(protocol.Claim(send.Write.Old.(lease.Row), seat.Owner(), p.stamp())).(lease.Row)
		return 0
	}
	p.Run(300 * time.Millisecond)
	if claimed.Generation == 0 || len(a.reports(event.Contended)) != 1 {
		t.Fatalf("the newcomer has %v; %d claims were refused", claimed, len(a.reports(event.Contended)))
	}
	p.Run(time.Minute)
	if r := p.row(claimed.Shard); r.Generation != claimed.Generation {
		t.Errorf("the newcomer's shard is %v", r)
	}
}

// mind is a planner that disagrees with Even about every shard.
type mind struct{ rebalance.Even }

func (mind) Name() string { return "mind" }

func (m mind) Plan(v rebalance.View) []int {
	for i := range v.Shards {
		v.Shards[i].Tie = ^v.Shards[i].Tie
	}
	return m.Even.Plan(v)
}

// TestPlannersOfTwoMinds: workers have different planners. One plans each revision, so the fleet
// settles after the smallest number of moves.
func TestPlannersOfTwoMinds(t *testing.T) {
	p := newFleet(t, 12, 0, rebalance.Eager)
	a := p.follow("a")
	p.polled, a.Winds = func(n *member) { n.Answer(0, p.source) }, 0
	p.plansBy(mind{})
	b := p.follow("b0")
	p.Run(5 * time.Minute)
	if moves := len(a.reports(event.Requested)) + len(b.reports(event.Requested)); moves != 6 || len(a.Handlers) != 6 || len(b.Handlers) != 6 {
		t.Errorf("%d moves; a holds %d, b %d", moves, len(a.Handlers), len(b.Handlers))
	}
}

// TestSecondJoinRedirectsMoves: a third worker joins while shards move from the first to the second,
// and the plan gives some of them to it. They move there directly. The second worker reports that
// its requests have ended.
func TestSecondJoinRedirectsMoves(t *testing.T) {
	p := newFleet(t, 12, 0, rebalance.Eager)
	a := p.follow("a")
	a.Winds = 8 * time.Second
	b := p.enter("b", p.config)
	p.until(5*time.Second, func() bool { return len(b.reports(event.Requested)) > 0 })
	c := p.follow("c")
	p.Run(time.Minute)
	started := len(a.reports(event.Started)) + len(b.reports(event.Started)) + len(c.reports(event.Started))
	requested, retired := len(b.reports(event.Requested)), len(b.reports(event.Retired))
	if started != 12+8 || requested-retired != 4 || retired != 2 {
		t.Errorf("%d tenures; b requested %d shards, and %d of its requests ended without one", started, requested, retired)
	}
	if len(a.Handlers) != 4 || len(b.Handlers) != 4 || len(c.Handlers) != 4 {
		t.Errorf("a holds %d, b %d, c %d", len(a.Handlers), len(b.Handlers), len(c.Handlers))
	}
}

// TestSlowClaimsKeepTheirShards: the claims of a worker take long. Nobody claims in its place, and
// when they are stored the shards are evenly distributed.
func TestSlowClaimsKeepTheirShards(t *testing.T) {
	p := newFleet(t, 8, 0, rebalance.Eager)
	a := p.enter("a", p.config)
	b := p.enter("b", p.config)
	p.fail(5*time.Millisecond, func(n *member, o engine.Output) bool { return n == b && sends(o, lease.KindLease) })
	p.Run(2 * time.Minute)
	p.deaf = nil
	p.until(beat+1500*time.Millisecond, func() bool { return len(a.Handlers) == 4 && len(b.Handlers) == 4 })
	a.never(event.Contended, event.Requested)
	b.never(event.Contended, event.Requested)
}

// TestFailedShardIsLeftToOthers: the handler of one worker fails a shard. The other worker processes
// it within the pause, a heartbeat and a second, and the first does not try again meanwhile.
func TestFailedShardIsLeftToOthers(t *testing.T) {
	const backoff = time.Second
	for later := time.Duration(0); later < beat; later += 300 * time.Millisecond {
		p := newFleet(t, 2, 0, rebalance.Eager)
		p.config.Backoff = backoff
		a, b := p.enter("a", p.config), p.enter("b", p.config)
		p.Run(30*time.Second + later)
		began := len(a.reports(event.Started))
		a.Return(a.Handlers[0].Tenure, true)
		p.until(backoff+beat+time.Second, func() bool { return len(b.Handlers) == 2 })
		if n := len(a.reports(event.Started)) - began; n > 0 {
			t.Errorf("%v: a, whose handler failed, has started it %d times", later, n)
		}
	}
}

// TestEvictedSeatStaysGone: a listing of the seats began before an eviction was answered, and its
// answer arrives afterwards with the dead worker's seat.
func TestEvictedSeatStaysGone(t *testing.T) {
	for i := range 20 { // with some of these seeds a listing is under way
		p := newFleet(t, 2, 0, rebalance.Eager)
		p.polled = func(n *member) { n.Answer(0, p.source) }
		a, b := p.enter("a", p.config), p.enter(fmt.Sprint("b", i), p.config) // another name is another seed of b
		p.Run(30 * time.Second)
		a.Kill()
		p.delay(100*time.Millisecond, func(_ *member, o engine.Output) bool { return lists(o, lease.KindSeat) })
		p.until(10*time.Second+beat, func() bool { return len(b.reports(event.PeerEvicted)) == 1 })
		joined := len(b.reports(event.PeerJoined))
		p.until(time.Second, func() bool { return len(b.Handlers) == 2 })
		if n := len(b.reports(event.PeerJoined)) - joined; n > 0 {
			t.Errorf("the dead worker joined %d times", n)
		}
	}
}

// TestTombstoneThatIsListedAgain: a worker remembers since when it knows of a tombstone, although
// the plan takes the shard from it until the source has been asked again. Otherwise every answer
// of the source would seem to be older than the tombstone, and nobody would ever revive the row.
func TestTombstoneThatIsListedAgain(t *testing.T) {
	p := newFleet(t, 1, 0, rebalance.Eager)
	p.config.TTL, p.config.Poll = 100*time.Second, 10*time.Minute
	row := p.write(protocol.Begin("g", "shard-000", nil, "other", p.stamp())).(lease.Row)
	p.write(protocol.Remove(row, protocol.Command{Seen: row.Generation, By: "other"}, p.stamp()))
	a := p.enter("a", p.config)
	p.until(time.Minute, func() bool { return len(a.Handlers) == 1 })
}

// TestFreedShardIsTriedAgain: the only worker rests for an hour after it has failed a shard. An operator
// quarantines the shard and frees it: it is tried again after the next audit.
func TestFreedShardIsTriedAgain(t *testing.T) {
	p := newFleet(t, 1, 0, rebalance.Eager)
	p.config.Backoff, p.config.MaxBackoff = time.Hour, time.Hour
	a := p.follow("a")
	a.Return(a.Handlers[0].Tenure, true)
	p.Run(5 * time.Minute)
	if len(a.Handlers) > 0 {
		t.Fatal(a.Handlers)
	}
	row := p.row("shard-000")
	row = p.write(protocol.Quarantine(row, seen(row), lease.ReasonForced, p.stamp())).(lease.Row)
	p.write(protocol.Unquarantine(row, seen(row), p.stamp()))
	p.until(p.config.Audit+time.Second, func() bool { return len(a.Handlers) == 1 })
}

// TestAcceptedOffersAreNotWithdrawn: a cooperative move is two writes of the row, the offer and its
// acceptance. An owner that sees the request vanish reads the row before it withdraws the offer.
func TestAcceptedOffersAreNotWithdrawn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 12, 0, rebalance.Cooperative)
	f.config.TTL = time.Second
	f.join()
	f.join()
	f.until(time.Minute, f.even)
	for range 12 {
		f.Run(10*time.Second + 37*time.Millisecond)
		f.reset()
		n := f.join()
		f.until(time.Minute, f.even)
		f.Run(10 * time.Second)
		if writes := f.calls["lease swap"] + f.calls["lease transfer"]; writes > 2*4 {
			t.Errorf("%d writes of rows for 4 moves: %v", writes, f.calls)
		}
		n.Input(engine.Stop{})
		f.until(time.Minute, f.even)
	}
}

// TestOwnerGoesOn: in a cooperative move the handler of the owner goes on, after the owner has read that the shard was
// taken over, for twice the slowest recent answer of the table: at least 50 ms, at most 0.5 s.
func TestOwnerGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		slow time.Duration // how long heartbeats and listings of the owner took
		ago  time.Duration // how long before the successor joins that was over
		want time.Duration
	}{
		"a quick table":                {10 * time.Millisecond, 0, 50 * time.Millisecond},
		"a slow table":                 {90 * time.Millisecond, 0, 180 * time.Millisecond},
		"a very slow table":            {400 * time.Millisecond, 0, 500 * time.Millisecond},
		"slow until a heartbeat ago":   {90 * time.Millisecond, beat, 180 * time.Millisecond},
		"slow until a while ago":       {90 * time.Millisecond, 5 * beat, 50 * time.Millisecond},
		"a very slow one, a while ago": {400 * time.Millisecond, 5 * beat, 50 * time.Millisecond},
	} {
		f := newFleet(t, 2, 0, rebalance.Cooperative)
		f.quick = true
		f.delay(tc.slow, func(n *member, o engine.Output) bool { return n.Name == "a" && sends(o, lease.KindSeat) })
		a := f.follow("a")
		f.Run(20 * time.Second)
		if tc.ago > 0 {
			f.slow = nil
			f.Run(tc.ago)
		}
		b := f.enter("b", f.config)
		f.until(10*time.Second, func() bool { return len(a.reports(event.Ended)) == 1 })
		taken, ended := b.reports(event.Started)[0], a.reports(event.Ended)[0]
		read := a.sent[slices.IndexFunc(a.sent, func(s sent) bool { return s.at >= taken.at && gets(s.Output, lease.KindLease) })]
		if got := ended.at - read.at; got != tc.want {
			t.Errorf("%s: the handler went on for %v, not for %v", name, got, tc.want)
		}
	}
}

// TestNoClaimAgainstALeaver: a worker hands its shards over and gives up its seat. A worker that requested one of them
// may find the seat gone before it has read the row again. It does not claim the shard before that.
func TestNoClaimAgainstALeaver(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 12, 0, rebalance.Eager)
	f.config.TTL = time.Second
	f.join()
	f.join()
	f.until(time.Minute, f.even)
	for range 24 {
		n := f.join()
		f.until(time.Minute, f.even)
		f.Run(10*time.Second + 37*time.Millisecond)
		f.reset()
		n.Input(engine.Stop{})
		f.until(time.Minute, f.even)
		f.Run(time.Second)
		if writes := f.calls["lease swap"] + f.calls["lease transfer"]; writes > 4 {
			t.Errorf("%d writes of rows for 4 moves: %v", writes, f.calls)
		}
		f.Run(10 * time.Second)
	}
}
