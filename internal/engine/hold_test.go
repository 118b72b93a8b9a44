package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A pair is a small fleet in virtual time, mostly of two, with a story that a test writes down: one
// worker has shards, and another takes them. When the test ends, no write may have broken a
// promise.
type pair struct {
	testing.TB
	virtual.Time
	table  virtual.Table
	store  *judge.Store
	chance *rand.Rand
	config engine.Config
	source engine.Source
	steps  int
}

// A side is one worker of a pair.
type side struct {
	virtual.Process
	virtual.Quiet
	of    *pair
	winds time.Duration // how long its handlers take to wind down
	asked []engine.Output
	told  []event.Event
	// answer returns how much later than usual a call is answered, and the error instead of the
	// answer; nil: all is as usual.
	answer func(o engine.Output) (later time.Duration, err error)
}

const h = 10 * time.Second / 3

func newPair(t testing.TB, shards int) *pair {
	p := &pair{TB: t, chance: rand.New(rand.NewPCG(1, 1)), store: judge.NewStore(new(memstore.Store), checkpoint.Decimal)}
	p.table.Restore(p.store)
	t.Cleanup(func() {
		if err := p.store.Err(); err != nil {
			t.Error(err)
		}
	})
	p.config = engine.Config{
		Group: "g", TTL: 10 * time.Second, Drain: 20 * time.Second, Handoff: rebalance.Eager,
		MaxMoves: 100, Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Minute, Poll: 30 * time.Second,
	}
	for i := range shards {
		p.source.Shards = append(p.source.Shards, engine.Shard{Name: fmt.Sprintf("shard-%03d", i)})
	}
	p.source.Complete = true
	return p
}

// join starts a worker, and waits until the plan that it causes is followed.
func (p *pair) join(name string) *side {
	n := p.enter(name)
	p.Run(20 * time.Second)
	return n
}

func (p *pair) enter(name string) *side {
	n := &side{of: p, Process: virtual.Process{Time: &p.Time, Name: name}}
	n.Shell = n
	c := p.config
	c.Name = name
	n.Boot(0, func() virtual.Engine { return virtual.New(c, n.Moment()) })
	return n
}

// until lets time pass until cond holds, and returns how much.
func (p *pair) until(limit time.Duration, cond func() bool) time.Duration {
	p.Helper()
	from := p.Now()
	for !cond() {
		if p.Now()-from > limit {
			p.Fatalf("not within %v", limit)
		}
		p.Run(10 * time.Millisecond)
	}
	return p.Now() - from
}

func stamp(id string) protocol.Stamp {
	return protocol.Stamp{ID: lease.WriteID(id), At: virtual.Epoch()}
}

// write makes a write that a test has prepared, and returns what it stored.
func write[R lease.Record](p *pair) func(w lease.Write, err error) R {
	return func(w lease.Write, err error) R {
		p.Helper()
		if err != nil {
			p.Fatal(err)
		}
		r, err := p.store.Write(p.Context(), w)
		if err != nil {
			p.Fatal(err)
		}
		return r.(R)
	}
}

// Plan asks the planner that differs from rebalance.Even.
func (n *side) Plan(o engine.Plan) {
	n.Answer(0, engine.Planned{Ask: o.Ask, To: mind{}.Plan(o.View)})
}

func (n *side) Moment() engine.Moment {
	n.of.steps++
	return n.MomentOf(n.Name + "-" + strconv.Itoa(n.of.steps))
}

func (n *side) Call(o engine.Output) {
	n.asked = append(n.asked, o)
	latency := func() time.Duration { return time.Millisecond + time.Duration(n.of.chance.IntN(4000))*time.Microsecond }
	var later time.Duration
	var err error
	if n.answer != nil {
		later, err = n.answer(o)
	}
	from := n.Sender()
	n.Deliver(latency(), latency()+later, func() engine.Input {
		if err != nil {
			return virtual.Unanswered(o, err)
		}
		return n.of.table.Serve(from, o)
	})
}

func (n *side) Poll() { n.Answer(0, n.of.source) }

func (n *side) Start(*virtual.Handler, engine.Start) {}

func (n *side) Drain(_ *virtual.Handler, o engine.Drain) {
	n.Later(n.winds, func() { n.ret(o.Tenure, false) })
}

func (n *side) Over(h *virtual.Handler, o engine.Over) {
	if h != nil && !h.Over {
		n.Later(time.Millisecond, func() { n.ret(o.Tenure, false) })
	}
}

func (n *side) Tell(e event.Event) { n.told = append(n.told, e) }

// ret lets a handler return.
func (n *side) ret(id engine.Tenure, failed bool) {
	if n.Handlers.Remove(id) {
		n.Step(engine.Returned{Tenure: id, Failed: failed})
	}
}

// mark lets a handler mark its next position.
func (n *side) mark(h *virtual.Handler) {
	h.Marks++
	n.Step(engine.Marks{Tenure: h.Tenure, Mark: checkpoint.Mark{Position: strconv.FormatUint(h.Marks, 10)}, Seq: h.Marks})
}

// events returns the events of a kind.
func (n *side) events(kind event.Kind) (events []event.Event) {
	for _, e := range n.told {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// gets returns how many rows it has read one by one.
func (n *side) gets() (count int) {
	for _, o := range n.asked {
		if get, ok := o.(engine.Get); ok && get.Key.Kind == lease.KindLease {
			count++
		}
	}
	return count
}

// TestStallIsConfirmed: a mark that arrives within 50 ms after StallAfter has passed was made in
// time. Without one the handler winds down.
func TestStallIsConfirmed(t *testing.T) {
	p := newPair(t, 1)
	p.config.StallAfter = 5 * time.Second
	a := p.enter("a")
	p.until(time.Second, func() bool { return len(a.Handlers) == 1 })
	for range 3 {
		a.mark(a.Handlers[0])
		p.Run(5*time.Second + 30*time.Millisecond)
	}
	if n := len(a.events(event.Draining)); n > 0 {
		t.Fatalf("%d tenures ended", n)
	}
	p.Run(30 * time.Millisecond)
	if d := a.events(event.Draining); len(d) != 1 || d[0].Cause != event.CauseStalled {
		t.Errorf("a silent handler was told to wind down as %v", d)
	}
}

// TestPauseIsNoSilence: a process is paused for longer than StallAfter, and its handler marks 200 ms
// after it has woken up.
func TestPauseIsNoSilence(t *testing.T) {
	p := newPair(t, 1)
	p.config.StallAfter = 3 * time.Second
	a := p.enter("a")
	for range 10 {
		p.Run(time.Second)
		a.mark(a.Handlers[0])
	}
	a.Pause()
	p.Run(5 * time.Second)
	a.Resume(nil)
	p.Run(200 * time.Millisecond)
	if d := a.events(event.Draining); len(d) > 0 {
		t.Errorf("told to wind down as %v", d[0].Cause)
	}
	p.Run(4 * time.Second)
	if d := a.events(event.Draining); len(d) != 1 {
		t.Errorf("a handler that is silent after a pause was told to wind down %d times", len(d))
	}
}

// TestFailingReadsArePaced: reads of rows fail at once. They are repeated a few times per second.
func TestFailingReadsArePaced(t *testing.T) {
	p := newPair(t, 4)
	a := p.enter("a")
	a.answer = func(o engine.Output) (time.Duration, error) {
		if get, ok := o.(engine.Get); ok && get.Key.Kind == lease.KindLease {
			return 0, errors.New("no answer")
		}
		return 0, nil
	}
	write[lease.Row](p)(protocol.Begin("g", "shard-000", nil, "x", protocol.Stamp{ID: "1", At: virtual.Epoch()}))
	p.Run(20 * time.Second)
	if n := a.gets(); n == 0 || n > 60 {
		t.Errorf("%d reads of one row in 20 s", n)
	}
	a.answer = nil
	p.until(time.Second, func() bool { return len(a.Handlers) == 4 })
}

// TestStandingRequestIsCheap: an owner takes an hour to wind down, and its successor has agreed to
// wait. It reads the row once per heartbeat, and takes the shard over within one.
func TestStandingRequestIsCheap(t *testing.T) {
	p := newPair(t, 2)
	p.config.Handoff = rebalance.Terms{Mode: rebalance.Eager, Drain: 5 * time.Second, AfterDrain: rebalance.Wait}
	a := p.join("a")
	a.winds = time.Hour
	b := p.join("b")
	p.Run(10 * time.Minute)
	before := b.gets()
	p.Run(time.Minute)
	if n := b.gets() - before; n > 20 || len(b.events(event.Requested)) != 1 {
		t.Errorf("%d reads of a row in a minute, for %d requests", n, len(b.events(event.Requested)))
	}
	a.ret(a.Handlers[0].Tenure, false)
	a.ret(a.Handlers[len(a.Handlers)-1].Tenure, false)
	p.until(h+time.Second, func() bool { return len(b.Handlers) == 1 })
}

// TestNewcomerIsNotRobbed: a claim is refused because a worker has claimed the shard that is not in
// any listing of the seats yet. The seat is read, and found; the shard stays with its owner.
func TestNewcomerIsNotRobbed(t *testing.T) {
	p := newPair(t, 1)
	a := p.enter("a")
	var claimed lease.Row
	a.answer = func(o engine.Output) (time.Duration, error) {
		send, ok := o.(engine.Send)
		if !ok || send.Write.Op != lease.OpTransfer || claimed.Generation > 0 {
			return 0, nil
		}
		seat := write[lease.Seat](p)(protocol.Sit(lease.Seat{Group: "g", Incarnation: "n", Name: "newcomer", TTL: time.Hour}, stamp("1")))
		seat = write[lease.Seat](p)(protocol.NextBeat(seat, lease.Says{}, stamp("2")))
		claimed = write[lease.Row](p)(protocol.Claim(send.Write.Old.(lease.Row), seat.Owner(), stamp("3")))
		return 0, nil
	}
	p.Run(300 * time.Millisecond)
	if claimed.Generation == 0 || len(a.events(event.Contended)) != 1 {
		t.Fatalf("the newcomer has %v; %d claims were refused", claimed, len(a.events(event.Contended)))
	}
	p.Run(time.Minute)
	if r, err := p.store.Get(t.Context(), claimed.Key()); err != nil || r.(lease.Row).Generation != claimed.Generation {
		t.Errorf("the newcomer's shard is %v (%v)", r, err)
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
	p := newPair(t, 12)
	a := p.join("a")
	p.config.Planner = mind{}.Name()
	b := p.join("b")
	p.Run(5 * time.Minute)
	if moves := len(a.events(event.Requested)) + len(b.events(event.Requested)); moves != 6 || len(a.Handlers) != 6 || len(b.Handlers) != 6 {
		t.Errorf("%d moves; a holds %d, b %d", moves, len(a.Handlers), len(b.Handlers))
	}
}

// TestSecondJoinRedirectsMoves: a third worker joins while shards move from the first to the second,
// and the plan gives some of them to it. They move there directly. The second worker reports that
// its requests have ended.
func TestSecondJoinRedirectsMoves(t *testing.T) {
	p := newPair(t, 12)
	a := p.join("a")
	a.winds = 8 * time.Second
	b := p.enter("b")
	p.until(5*time.Second, func() bool { return len(b.events(event.Requested)) > 0 })
	c := p.join("c")
	p.Run(time.Minute)
	started := len(a.events(event.Started)) + len(b.events(event.Started)) + len(c.events(event.Started))
	requested, retired := len(b.events(event.Requested)), len(b.events(event.Retired))
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
	p := newPair(t, 8)
	a := p.enter("a")
	b := p.enter("b")
	slow := true
	b.answer = func(o engine.Output) (time.Duration, error) {
		if send, ok := o.(engine.Send); slow && ok && send.Write.Key().Kind == lease.KindLease {
			return 0, errors.New("no answer")
		}
		return 0, nil
	}
	p.Run(2 * time.Minute)
	slow = false
	p.until(h+1500*time.Millisecond, func() bool { return len(a.Handlers) == 4 && len(b.Handlers) == 4 })
	if n := len(a.events(event.Contended)) + len(b.events(event.Contended)) + len(a.events(event.Requested)) + len(b.events(event.Requested)); n > 0 {
		t.Errorf("%d claims were refused, or shards requested", n)
	}
}

// TestFailedShardIsLeftToOthers: the handler of one worker fails a shard. The other worker processes
// it within the pause, a heartbeat and a second, and the first does not try again meanwhile.
func TestFailedShardIsLeftToOthers(t *testing.T) {
	const backoff = time.Second
	for later := time.Duration(0); later < h; later += 300 * time.Millisecond {
		p := newPair(t, 2)
		p.config.Backoff = backoff
		a, b := p.enter("a"), p.enter("b")
		p.Run(30*time.Second + later)
		began := len(a.events(event.Started))
		a.ret(a.Handlers[0].Tenure, true)
		p.until(backoff+h+time.Second, func() bool { return len(b.Handlers) == 2 })
		if n := len(a.events(event.Started)) - began; n > 0 {
			t.Errorf("%v: a, whose handler failed, has started it %d times", later, n)
		}
	}
}

// TestEvictedSeatStaysGone: a listing of the seats began before an eviction was answered, and its
// answer arrives afterwards with the dead worker's seat.
func TestEvictedSeatStaysGone(t *testing.T) {
	p := newPair(t, 2)
	a, b := p.enter("a"), p.enter("b")
	p.Run(30 * time.Second)
	a.Kill()
	b.answer = func(o engine.Output) (time.Duration, error) {
		if list, ok := o.(engine.List); ok && list.Query.Kind == lease.KindSeat {
			return 100 * time.Millisecond, nil
		}
		return 0, nil
	}
	p.until(10*time.Second+h, func() bool { return len(b.events(event.PeerEvicted)) == 1 })
	joined := len(b.events(event.PeerJoined))
	p.until(time.Second, func() bool { return len(b.Handlers) == 2 })
	if n := len(b.events(event.PeerJoined)) - joined; n > 0 {
		t.Errorf("the dead worker joined %d times", n)
	}
}

// TestTombstoneThatIsListedAgain: a worker remembers since when it knows of a tombstone, although
// the plan takes the shard from it until the source has been asked again. Otherwise every answer
// of the source would seem to be older than the tombstone, and nobody would ever revive the row.
func TestTombstoneThatIsListedAgain(t *testing.T) {
	p := newPair(t, 1)
	p.config.TTL, p.config.Poll = 100*time.Second, 10*time.Minute
	row := write[lease.Row](p)(protocol.Begin("g", "shard-000", nil, "other", stamp("1")))
	write[lease.Row](p)(protocol.Remove(row, protocol.Command{Seen: row.Generation, By: "other"}, stamp("2")))
	a := p.enter("a")
	p.until(time.Minute, func() bool { return len(a.Handlers) == 1 })
}

// TestFreedShardIsTriedAgain: the only worker rests for an hour after it has failed a shard. An operator
// quarantines the shard and frees it: it is tried again after the next audit.
func TestFreedShardIsTriedAgain(t *testing.T) {
	p := newPair(t, 1)
	p.config.Backoff, p.config.MaxBackoff = time.Hour, time.Hour
	a := p.join("a")
	a.ret(a.Handlers[0].Tenure, true)
	p.Run(5 * time.Minute)
	r, err := p.store.Get(t.Context(), lease.Key{Group: "g", Kind: lease.KindLease, Name: "shard-000"})
	if err != nil || len(a.Handlers) > 0 {
		t.Fatal(err, a.Handlers)
	}
	row := r.(lease.Row)
	row = write[lease.Row](p)(protocol.Quarantine(row, protocol.Command{Seen: row.Generation, By: "operator"}, lease.ReasonForced, stamp("1")))
	write[lease.Row](p)(protocol.Unquarantine(row, protocol.Command{Seen: row.Generation, By: "operator"}, stamp("2")))
	p.until(p.config.Audit+time.Second, func() bool { return len(a.Handlers) == 1 })
}

// TestAcceptedOffersAreNotWithdrawn: a cooperative move is two writes of the row, the offer and its
// acceptance. An owner that sees the request vanish reads the row before it withdraws the offer.
func TestAcceptedOffersAreNotWithdrawn(t *testing.T) {
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
