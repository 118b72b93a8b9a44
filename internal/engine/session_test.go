package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	sessionCount = flag.Int("session.count", 20, "how many sessions contend in TestSessionsContend")
	leaseCount   = flag.Int("session.leases", 10, "how many leases there are for each of them")
	sessionSeed  = flag.Uint64("session.seed", 1, "the seed of TestSessionsContend")
)

// A hall is a group of sessions on one store, in virtual time. A judge checks every write that the
// store accepts; a register checks the effects of the holders.
type hall struct {
	testing.TB
	virtual.Time
	table   virtual.Table
	store   *judge.Store
	chance  *rand.Rand
	effects map[string]int64 // by lease: the highest generation whose effect was accepted
	holders map[string]string
	lossy   bool
	id      uint64
}

func newHall(t testing.TB, seed uint64) *hall {
	h := &hall{TB: t, chance: rand.New(rand.NewPCG(seed, seed)), effects: map[string]int64{}, holders: map[string]string{}}
	h.store = judge.NewStore(new(memstore.Store), checkpoint.Decimal)
	h.table = virtual.Table{Store: h.store, Time: &h.Time}
	t.Cleanup(func() {
		if err := h.store.Err(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	})
	return h
}

// A guest is one session of the hall.
type guest struct {
	virtual.Process
	virtual.Quiet
	h       *hall
	config  engine.Config
	calls   []engine.Output
	held    map[string]engine.Start
	refused []engine.Unavailable
	ended   []engine.Over
	events  []event.Event
	started func(engine.Start)
	deaf    bool                     // its holders do not return when they should
	lost    int                      // so many heartbeats in a row went without an answer
	mute    func(engine.Output) bool // this call is never answered
	answer  func(engine.Input) engine.Input
}

func sessionConfig() engine.Config {
	return engine.Config{Group: "g", TTL: 10 * time.Second, Drain: 20 * time.Second, Handoff: rebalance.Eager, Commits: checkpoint.Policy{}, CommitTimeout: 30 * time.Second}
}

func (h *hall) join(name string) *guest { return h.joinWith(name, sessionConfig()) }

func (h *hall) joinWith(name string, c engine.Config) *guest {
	g := &guest{h: h, config: c, Process: virtual.Process{Time: &h.Time, Name: name}}
	g.Shell = g
	g.boot()
	return g
}

func (g *guest) boot() {
	c := g.config
	c.Name, g.held = g.Name, map[string]engine.Start{}
	g.Boot(g.h.Now(), func() virtual.Engine { return virtual.NewSession(c, g.Moment()) })
}

func (g *guest) Moment() engine.Moment {
	return g.MomentOf(fmt.Sprintf("%s-%d", g.Name, g.Time.Unique()))
}
func (g *guest) Poll() { g.h.Error("a session has listed a source") }

func (g *guest) Call(o engine.Output) {
	if list, ok := o.(engine.List); ok && (list.Query.Kind != lease.KindSeat || g.Engine.Status().Planned) {
		g.h.Errorf("a session has listed records: %v", list.Query)
	}
	g.calls = append(g.calls, o)
	late := func() time.Duration { return time.Millisecond + time.Duration(g.h.chance.IntN(4000))*time.Microsecond }
	by := g.Sender()
	lossy := g.h.lossy && (!beats(o) || g.lost < 2) // three in a row may cost the seat
	lost := func() {
		if beats(o) {
			g.lost++
		}
		g.Answer(2500*time.Millisecond, virtual.Unanswered(o, errors.New("no answer")))
	}
	switch n := g.h.chance.IntN(100); {
	case g.mute != nil && g.mute(o), lossy && n < 3: // it does not arrive
		lost()
	case lossy && n < 6: // its answer is lost
		g.h.After(late(), func() { g.h.table.Serve(by, o) })
		lost()
	case lossy && n < 8: // it arrives much later, when it was repeated already
		g.h.After(3*time.Second+late(), func() { g.h.table.Serve(by, o) })
		lost()
	default:
		if beats(o) {
			g.lost = 0
		}
		g.Deliver(late(), late(), func() engine.Input {
			in := g.h.table.Serve(by, o)
			if g.answer != nil {
				in = g.answer(in)
			}
			return in
		})
	}
}

func (g *guest) Stepped(_ engine.Input, out []engine.Output) {
	for _, o := range out {
		switch o := o.(type) {
		case engine.Unavailable:
			g.refused = append(g.refused, o)
		case engine.Tell:
			g.events = append(g.events, o.Event)
		}
	}
}

// of returns the events of that kind.
func (g *guest) of(kind event.Kind) (all []event.Event) {
	for _, e := range g.events {
		if e.Kind == kind {
			all = append(all, e)
		}
	}
	return all
}

func (g *guest) Start(_ *virtual.Handler, o engine.Start) {
	g.held[o.Tenure.Shard] = o
	if g.started != nil {
		g.started(o)
	}
}

// Drain ends a tenure's soft context: its holder returns a moment later.
func (g *guest) Drain(_ *virtual.Handler, o engine.Drain) {
	if !g.deaf {
		g.ret(o.Tenure)
	}
}

func (g *guest) Over(_ *virtual.Handler, o engine.Over) {
	g.ended = append(g.ended, o)
	g.ret(o.Tenure)
}

func (g *guest) ret(id engine.Tenure) {
	if g.held[id.Shard].Tenure == id {
		delete(g.held, id.Shard)
	}
	g.Later(time.Millisecond, func() {
		if g.Handlers.Remove(id) {
			g.Input(engine.Returned{Tenure: id})
		}
	})
}

// apply is an effect under a tenure, in a sink that compares generations.
func (g *guest) apply(of engine.Tenure) {
	if of.Generation < g.h.effects[of.Shard] {
		return // refused
	}
	key := fmt.Sprint(of)
	if by, taken := g.h.holders[key]; taken && by != g.Name {
		g.h.Errorf("%s and %s both have an accepted effect under %v", by, g.Name, of)
	}
	g.h.effects[of.Shard], g.h.holders[key] = of.Generation, g.Name
}

// TestFaultOfSeatReadsLasts: the reads of a holder's seat fail, and nothing else. The fault of the waiting session
// lasts as long, although the store answers its other calls.
func TestFaultOfSeatReadsLasts(t *testing.T) {
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	a.acquire("lock")
	h.Run(5 * time.Second)
	b.mute = func(o engine.Output) bool {
		get, ok := o.(engine.Get)
		return ok && get.Key.Kind == lease.KindSeat
	}
	b.acquire("lock")
	h.Run(time.Minute)
	if all := b.of(event.StoreFault); len(all) == 0 || slices.ContainsFunc(all, func(e event.Event) bool { return e.Over }) {
		t.Errorf("b reports %v", all)
	}
	b.mute = nil
	h.Run(20 * time.Second)
	if all := b.of(event.StoreFault); len(all) == 0 || !all[len(all)-1].Over {
		t.Errorf("b reports %v", all)
	}
}

// TestFaultOfARowThatNobodyWants: no transition accepts the row of a lost lease, because its counter has reached its limit.
// The caller gives up, and the fault ends.
func TestFaultOfARowThatNobodyWants(t *testing.T) {
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	a.acquire("lock", func(in *engine.Acquire) { in.LockDelay = 5 * time.Second })
	h.Run(5 * time.Second)
	b.answer = func(in engine.Input) engine.Input {
		if got, ok := in.(engine.Got); ok && got.Key.Kind == lease.KindLease {
			if row, ok := got.Record.(lease.Row); ok && !row.Owner.IsZero() {
				row.Counter = math.MaxInt64
				got.Record = row
				return got
			}
		}
		return in
	}
	a.Kill()
	id := b.acquire("lock")
	h.Run(40 * time.Second)
	b.Input(engine.Forgo{Name: "lock", ID: id})
	h.Run(time.Minute)
	if all := b.of(event.StoreFault); len(all) == 0 || !all[len(all)-1].Over {
		t.Errorf("b reports %v", all)
	}
}

// TestManyLosses: a session has seen more lost leases than it remembers, and callers try for two more with a lock delay. They
// acquire both, whatever their names are, because the leases that were lost first make room.
func TestManyLosses(t *testing.T) {
	t.Parallel()
	const many = 2100
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	delay := func(in *engine.Acquire) { in.LockDelay = 30 * time.Second }
	h.Run(2 * time.Second)
	name := func(i int) string { return fmt.Sprintf("lease-%05d", i) } // between the names of the two
	for i := range many {
		a.acquire(name(i), delay)
	}
	last := []string{"a", "z"}
	for _, name := range last {
		a.acquire(name, delay)
	}
	h.Run(4 * time.Second)
	a.Kill()
	h.Run(time.Second)
	ids := map[string]uint64{}
	for i := range many {
		ids[name(i)] = b.acquire(name(i), delay)
	}
	h.Run(13 * time.Second)
	for name, id := range ids {
		b.Input(engine.Forgo{Name: name, ID: id})
	}
	for range 12 {
		for _, name := range last {
			if _, held := b.held[name]; !held {
				b.acquire(name, delay, func(in *engine.Acquire) { in.Try = true })
			}
		}
		h.Run(5 * time.Second)
	}
	for _, name := range last {
		if _, held := b.held[name]; !held {
			t.Errorf("%s is not acquired within a minute", name)
		}
	}
}

func (g *guest) acquire(name string, edit ...func(*engine.Acquire)) uint64 {
	g.h.id++
	in := engine.Acquire{Name: name, ID: g.h.id}
	for _, e := range edit {
		e(&in)
	}
	g.Input(in)
	return in.ID
}

func (g *guest) release(name string) {
	g.Input(engine.Marks{Tenure: g.held[name].Tenure, Release: true})
}

func (g *guest) holds(name string) bool { _, ok := g.held[name]; return ok }

func (h *hall) until(limit time.Duration, cond func() bool) time.Duration {
	h.Helper()
	from := h.Now()
	for !cond() {
		if h.Now()-from > limit {
			h.Fatalf("not within %v", limit)
		}
		h.Run(5 * time.Millisecond)
	}
	return h.Now() - from
}

func (h *hall) row(name string) lease.Row {
	r, _ := h.store.Get(h.Context(), lease.Key{Group: "g", Kind: lease.KindLease, Name: name})
	row, _ := r.(lease.Row)
	return row
}

// force is an operator who releases a lease.
func (h *hall) force(name string) {
	h.Helper()
	row := h.row(name)
	w, err := protocol.ForceRelease(row, protocol.Command{Seen: row.Generation, By: "operator"}, protocol.Stamp{ID: lease.WriteID(fmt.Sprint("force-", h.Unique())), At: time.Unix(1, 0)})
	if _, errWrite := h.store.Write(h.Context(), w); err != nil || errWrite != nil {
		h.Fatal(err, errWrite)
	}
}

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

// beats reports whether a call is a heartbeat.
func beats(o engine.Output) bool {
	send, ok := o.(engine.Send)
	return ok && send.Write.Key().Kind == lease.KindSeat
}

func lockDelay(d time.Duration) func(*engine.Acquire) {
	return func(a *engine.Acquire) { a.LockDelay = d }
}

// TestSessionAcquiresInTwoRequests: a Get and one conditional write, whether the lease is new, free or
// a tombstone; and the generation grows each time.
func TestSessionAcquiresInTwoRequests(t *testing.T) {
	h := newHall(t, 1)
	a := h.join("a")
	h.Run(time.Second)
	last := int64(0)
	for _, state := range []string{"new", "a tombstone", "free, with a checkpoint"} {
		b := a
		if state == "a tombstone" { // another session: a has the row in memory, and would need one request
			b = h.join("b")
			h.Run(time.Second)
		}
		b.calls = nil
		b.acquire("lock", func(in *engine.Acquire) { in.Task = state })
		h.until(time.Second, func() bool { return b.holds("lock") })
		b.calls = slices.DeleteFunc(b.calls, beats)
		if len(b.calls) != 2 {
			t.Fatalf("%s: acquired with %v", state, b.calls)
		}
		if _, get := b.calls[0].(engine.Get); !get {
			t.Errorf("%s: the first request is %v", state, b.calls[0])
		}
		r := h.row("lock")
		if r.Generation <= last || r.Owner.Task != state || r.Owner.Name != b.Name {
			t.Errorf("%s: acquired as %v after generation %d", state, r, last)
		}
		last = r.Generation
		if state == "a tombstone" {
			id := b.held["lock"].Tenure
			b.Input(engine.Marks{Tenure: id, Mark: checkpoint.Mark{Position: "1", State: "data"}, Seq: 1, Flush: 1})
			h.Run(time.Second)
		}
		b.release("lock")
		h.Run(5 * time.Second)
		if r := h.row("lock"); r.Removed == (r.Checkpoint.Position != "") || r.Last.Reason != lease.ReasonReleased || r.Generation != last+1 {
			t.Errorf("%s: released as %v", state, r)
		}
		last++
	}
}

// TestSessionAtRestWritesItsSeatAlone: a session without marks writes only its seat and reads only the wishes,
// however many leases it holds.
func TestSessionAtRestWritesItsSeatAlone(t *testing.T) {
	h := newHall(t, 1)
	a := h.join("a")
	for i := range 100 {
		a.acquire(fmt.Sprint("lock-", i))
	}
	h.until(time.Second, func() bool { return len(a.held) == 100 })
	a.calls = nil
	h.Run(60 * time.Second)
	reads := 0
	for _, o := range a.calls {
		if get, ok := o.(engine.Get); ok && get.Key.Kind == lease.KindWishes {
			reads++
		} else if !beats(o) {
			t.Errorf("at rest the session makes %v", o)
		}
	}
	if n := len(a.calls) - reads; n < 17 || n > 22 || reads < 17 || reads > 22 {
		t.Errorf("%d heartbeats and %d reads in a minute, want one of each per 3 s", n, reads)
	}
	for name := range a.held {
		a.release(name)
	}
	h.Run(10 * time.Second)
	a.calls = nil
	h.Run(60 * time.Second)
	if i := slices.IndexFunc(a.calls, func(o engine.Output) bool { return !beats(o) }); i >= 0 {
		t.Errorf("without a lease the session makes %v", a.calls[i])
	}
}

// TestWaiterEvictsTheDead: after the lease time of the dead session, and not before. Without a waiter
// nothing happens.
func TestWaiterEvictsTheDead(t *testing.T) {
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	h.Run(time.Second)
	a.acquire("lock")
	h.until(time.Second, func() bool { return a.holds("lock") })
	h.Run(time.Minute)
	died := h.Now()
	a.Kill()
	b.calls = nil
	h.Run(time.Hour)
	for _, o := range b.calls {
		if send, ok := o.(engine.Send); !ok || send.Write.Op != lease.OpSwap {
			t.Fatalf("without a waiter, the session makes %v", o)
		}
	}
	if h.Now()-died < time.Hour || h.row("lock").Owner.Name != "a" {
		t.Fatalf("the row is %v", h.row("lock"))
	}
	b.acquire("lock")
	if took := h.until(12*time.Second, func() bool { return b.holds("lock") }); took < 10*time.Second {
		t.Errorf("evicted after %v", took)
	}
	if r := h.row("lock"); r.Last.Reason != lease.ReasonExpired || r.Last.From != "a" {
		t.Errorf("acquired as %v", r.Last)
	}
}

// TestLockDelay: after a session was lost, nobody acquires its lease for its lock delay, counted from
// when the waiter sees that the seat is gone; after a release at once.
func TestLockDelay(t *testing.T) {
	const delay = 7 * time.Second
	h := newHall(t, 1)
	a, b, c := h.join("a"), h.join("b"), h.join("c")
	h.Run(time.Second)
	a.acquire("lock", lockDelay(delay))
	h.until(time.Second, func() bool { return a.holds("lock") })
	b.acquire("lock", lockDelay(delay))
	a.release("lock")
	if took := h.until(5*time.Second, func() bool { return b.holds("lock") }); took >= delay {
		t.Errorf("after a release, acquired after %v", took)
	}
	b.Kill()
	c.acquire("lock")
	gone := time.Duration(0)
	h.until(time.Minute, func() bool {
		seats := 0
		for _, r := range h.table.Records("g", lease.KindSeat) {
			if s, ok := r.(lease.Seat); ok && s.Name == "b" {
				seats++
			}
		}
		if seats == 0 && gone == 0 {
			gone = h.Now()
			a.acquire("lock", func(in *engine.Acquire) { in.Try = true })
		}
		return c.holds("lock")
	})
	if waited := h.Now() - gone; gone == 0 || waited < delay || waited > delay+time.Second {
		t.Errorf("acquired %v after the seat was gone, want the lock delay of %v", waited, delay)
	}
	if len(a.refused) != 1 || !a.refused[0].Lost || a.refused[0].Row.Owner.Name != "b" {
		t.Errorf("during the lock delay a try is told %v", a.refused)
	}
}

// TestLockDelayAfterACut: a session that shuts down does not release the lease of a holder that was cut off. The
// lock delay counts from when the session's seat is gone, and the last mark is stored. Without a lock delay, the
// lease is released at once.
func TestLockDelayAfterACut(t *testing.T) {
	for _, delay := range []time.Duration{0, 7 * time.Second} {
		h := newHall(t, 1)
		a, b := h.join("a"), h.join("b")
		h.Run(time.Second)
		a.acquire("lock", lockDelay(delay))
		h.until(time.Second, func() bool { return a.holds("lock") })
		b.acquire("lock")
		a.deaf = true
		a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: "7"}, Seq: 1})
		a.Input(engine.Stop{})
		stopped := h.Now()
		h.until(sessionConfig().Drain+time.Second, a.Engine.Done)
		gone := h.Now()
		if took := gone - stopped; took < sessionConfig().Drain {
			t.Errorf("with a lock delay of %v, the session ends after %v", delay, took)
		}
		waited := h.until(time.Minute, func() bool { return b.holds("lock") })
		if waited < delay || waited > delay+5*time.Second {
			t.Errorf("with a lock delay of %v, acquired %v after the holder was cut off", delay, waited)
		}
		if r := h.row("lock"); r.Checkpoint.Position != "7" {
			t.Errorf("with a lock delay of %v, its last mark is lost: %v", delay, r)
		}
	}
}

// TestLockDelayCountsWithoutACaller: the delay counts from when the session first saw that the holder was
// gone, also while nobody waits. Callers that try now and then, or that wait for less than the delay, get
// the lease, and not before the delay is over.
func TestLockDelayCountsWithoutACaller(t *testing.T) {
	const delay = time.Minute
	for name, poll := range map[string]struct {
		every, wait time.Duration // wait is 0 for a try
	}{"each hour a try": {every: time.Hour}, "a try each second": {every: time.Second}, "a short wait": {every: 20 * time.Second, wait: 5 * time.Second}} {
		h := newHall(t, 1)
		a, b := h.join("a"), h.join("b")
		h.Run(time.Second)
		a.acquire("lock", lockDelay(delay))
		h.until(time.Second, func() bool { return a.holds("lock") })
		a.Kill()
		for _, r := range h.table.Records("g", lease.KindSeat) {
			if s, ok := r.(lease.Seat); ok && s.Name == "a" { // another session has evicted it
				w, err := protocol.Evict(s)
				if _, errWrite := h.store.Write(h.Context(), w); err != nil || errWrite != nil {
					t.Fatal(err, errWrite)
				}
			}
		}
		gone, acquired := h.Now(), time.Duration(0)
		b.started = func(engine.Start) { acquired = h.Now() }
		for polls := 0; !b.holds("lock"); polls++ {
			if polls > int(2*delay/poll.every)+2 {
				t.Errorf("%s: not acquired in %v", name, h.Now()-gone)
				break
			}
			id := b.acquire("lock", func(in *engine.Acquire) { in.Try = poll.wait == 0 })
			h.Run(poll.wait)
			if poll.wait > 0 {
				b.Input(engine.Forgo{Name: "lock", ID: id})
			}
			h.Run(poll.every - poll.wait)
		}
		if since := acquired - gone; acquired > 0 && since < delay {
			t.Errorf("%s: acquired %v after the holder was gone, want at least %v", name, since, delay)
		}
	}
}

// reassign takes the lease "lock" from its holder and reserves it for a name. The time of the command is
// ahead of the sessions' clocks.
func (h *hall) reassign(to string, lasts, ahead time.Duration) {
	h.Helper()
	row := h.row("lock")
	s := protocol.Stamp{ID: "reassign-" + row.WriteID, At: virtual.Epoch().Add(h.Now() + ahead)}
	w, err := protocol.Reassign(row, protocol.Command{Seen: row.Generation, By: "op"}, lease.Reservation{For: to, Lasts: lasts}, s)
	if _, errWrite := h.store.Write(h.Context(), w); err != nil || errWrite != nil {
		h.Fatal(err, errWrite)
	}
}

// TestReservedLeaseGoesToItsName: a lease that was taken from a session that hangs goes to the session
// with the stated name, although others have waited for longer and the named one begins to wait late.
func TestReservedLeaseGoesToItsName(t *testing.T) {
	h := newHall(t, 1)
	a, b, c := h.join("a"), h.join("b"), h.join("c")
	h.Run(time.Second)
	a.acquire("lock")
	h.until(time.Second, func() bool { return a.holds("lock") })
	c.acquire("lock")
	h.Run(time.Minute)
	h.reassign("b", time.Minute, 0)
	h.Run(30 * time.Second)
	if c.holds("lock") {
		t.Fatal("another session has acquired the reserved lease")
	}
	b.acquire("lock")
	if took := h.until(time.Minute, func() bool { return b.holds("lock") }); took > sessionConfig().TTL/3+time.Second {
		t.Errorf("the named session has acquired the lease after %v", took)
	}
	b.release("lock")
	h.until(10*time.Second, func() bool { return c.holds("lock") }) // the next release reserves nothing
}

// TestReservationEnds: if no session with the stated name comes, a session that waits acquires the lease
// when the time is over, and not before, also if the operator's clock was ahead, or if the session has begun
// to wait late. The error of TryAcquire states for whom the lease is reserved.
func TestReservationEnds(t *testing.T) {
	const lasts, pause = time.Minute, 5 * time.Second
	for name, of := range map[string]struct{ late, ahead, least time.Duration }{
		"all wait":             {0, 0, lasts},
		"the command is ahead": {0, time.Hour, lasts},
		"a session comes late": {lasts - time.Second, 0, lasts},
		"and later":            {time.Hour, 0, time.Hour},
	} {
		h := newHall(t, 1)
		a, c, d := h.join("a"), h.join("c"), h.join("d")
		h.Run(time.Second)
		a.acquire("lock")
		h.until(time.Second, func() bool { return a.holds("lock") })
		if of.late == 0 {
			c.acquire("lock")
		}
		h.Run(10 * time.Second)
		h.reassign("nobody", lasts, of.ahead)
		from := h.Now()
		h.Run(of.late)
		if of.late == 0 {
			h.Run(pause)
			d.acquire("lock", func(in *engine.Acquire) { in.Try = true })
			h.Run(pause)
			if len(d.refused) != 1 || d.refused[0].Row.Reserved.For != "nobody" {
				t.Errorf("%s: a try is told %v", name, d.refused)
			}
		} else {
			c.acquire("lock")
		}
		h.until(2*time.Hour, func() bool { return c.holds("lock") })
		if waited := h.Now() - from; waited < of.least || waited > of.least+pause {
			t.Errorf("%s: acquired after %v, want %v", name, waited, of.least)
		}
	}
}

// TestReservationEndsForThoseWhoTry: also for a session that only tries now and then, although the clock of the
// command was ahead: the time counts from its first try.
func TestReservationEndsForThoseWhoTry(t *testing.T) {
	const lasts = time.Minute
	for _, every := range []time.Duration{time.Second, 40 * time.Second, 5 * time.Minute} {
		h := newHall(t, 1)
		a, c := h.join("a"), h.join("c")
		h.Run(time.Second)
		a.acquire("lock")
		h.until(time.Second, func() bool { return a.holds("lock") })
		h.reassign("nobody", lasts, time.Hour)
		from := h.Now()
		for !c.holds("lock") && h.Now()-from < 30*time.Minute {
			c.acquire("lock", func(in *engine.Acquire) { in.Try = true })
			h.Run(every)
		}
		if waited := h.Now() - from; waited < lasts || waited > lasts+2*every {
			t.Errorf("with a try every %v, acquired after %v", every, waited)
		}
	}
}

// TestWaiterReportsAnUnreadableRow: once, and as over when it can be read, or when nobody waits any more.
func TestWaiterReportsAnUnreadableRow(t *testing.T) {
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	h.Run(time.Second)
	a.acquire("lock")
	h.until(time.Second, func() bool { return a.holds("lock") })
	key := lease.Key{Group: "g", Kind: lease.KindLease, Name: "lock"}
	h.table.Unreadable = map[lease.Key]bool{key: true}
	b.acquire("lock")
	h.Run(5 * time.Second)
	if said := b.of(event.Malformed); len(said) != 1 || said[0].Shard != "lock" || said[0].Over {
		t.Errorf("an unreadable row is reported as %v", said)
	}
	delete(h.table.Unreadable, key)
	h.Run(10 * time.Second)
	if said := b.of(event.Malformed); len(said) != 2 || !said[1].Over {
		t.Errorf("after the row was mended, the reports are %v", said)
	}
	h.table.Unreadable[key] = true
	h.Run(10 * time.Second)
	b.Input(engine.Forgo{Name: "lock", ID: h.id})
	h.Run(time.Second)
	if said := b.of(event.Malformed); len(said) < 4 || !said[len(said)-1].Over {
		t.Errorf("when nobody waits any more, the reports are %v", said)
	}
}

// TestWaiterEvictsAnUnreadableSeat: when nothing has written it for ten lease times, and never while its
// session beats.
func TestWaiterEvictsAnUnreadableSeat(t *testing.T) {
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	h.Run(time.Second)
	a.acquire("lock")
	h.until(time.Second, func() bool { return a.holds("lock") })
	h.table.Unreadable = map[lease.Key]bool{{Group: "g", Kind: lease.KindSeat, Name: string(a.Engine.Status().Incarnation)}: true}
	b.acquire("lock")
	h.Run(10 * time.Minute)
	if len(a.ended) > 0 || !a.holds("lock") {
		t.Fatalf("a holder that beats lost %v", a.ended)
	}
	if said := b.of(event.Malformed); len(said) == 0 || said[0].Over {
		t.Errorf("an unreadable seat is reported as %v", said)
	}
	limit := 10 * sessionConfig().TTL
	a.mute = func(engine.Output) bool { return true }
	h.Run(8 * time.Second)
	a.Pause()                             // it keeps its seat
	b.mute = func(o engine.Output) bool { // it beats once more, just before the eviction arrives
		send, ok := o.(engine.Send)
		if !ok || send.Write.Op != lease.OpDelete {
			return false
		}
		b.mute = nil
		r, err := h.store.Get(h.Context(), send.Write.Key())
		if err != nil {
			t.Fatal(err)
		}
		seat := r.(lease.Seat)
		w, err := protocol.NextBeat(seat, seat.Says, protocol.Stamp{ID: "late", At: time.Unix(1, 0)})
		if _, errWrite := h.store.Write(h.Context(), w); err != nil || errWrite != nil {
			t.Fatal(err, errWrite)
		}
		return false
	}
	h.until(limit+10*time.Second, func() bool { return b.mute == nil })
	h.Run(time.Second)
	if b.holds("lock") {
		t.Fatal("evicted by a deletion that the table refuses")
	}
	if took := h.until(limit+10*time.Second, func() bool { return b.holds("lock") }); took < limit-4*time.Second {
		t.Errorf("evicted after %v, want ten lease times", took)
	}
	h.Run(sessionConfig().TTL / 2) // it has a heartbeat to send
	if said := b.of(event.Malformed); !said[len(said)-1].Over || len(b.of(event.PeerEvicted)) != 1 {
		t.Errorf("after the eviction, the reports are %v", said)
	}
}

// TestTryAcquireIsAnswered: who holds the lease; and one that is finished is never acquired.
func TestTryAcquireIsAnswered(t *testing.T) {
	h := newHall(t, 1)
	a, b := h.join("a"), h.join("b")
	h.Run(time.Second)
	a.acquire("lock", func(in *engine.Acquire) { in.Task = "run 7" })
	h.until(time.Second, func() bool { return a.holds("lock") })
	id := b.acquire("lock", func(in *engine.Acquire) { in.Try = true })
	h.Run(time.Second)
	if len(b.refused) != 1 || b.refused[0].ID != id || b.refused[0].Lost || b.refused[0].Row.Owner.Task != "run 7" {
		t.Fatalf("told %v", b.refused)
	}
	a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Finish: true})
	h.Run(time.Second)
	b.acquire("lock")
	h.Run(time.Second)
	if len(b.refused) != 2 || !b.refused[1].Row.Finished {
		t.Errorf("told %v of a finished lease", b.refused)
	}
	b.acquire("other", func(in *engine.Acquire) { in.Try = true })
	h.until(time.Second, func() bool { return b.holds("other") })
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

// TestForgoneLeaseIsReleased: also if the answer to its acquisition arrives afterwards.
func TestForgoneLeaseIsReleased(t *testing.T) {
	h := newHall(t, 1)
	a := h.join("a")
	h.Run(time.Second)
	a.mute = func(o engine.Output) bool { // the creation is stored, and its answer lost
		send, ok := o.(engine.Send)
		if ok && send.Write.Op == lease.OpCreate {
			h.table.Serve(a.Sender(), o)
			a.mute = nil
		}
		return ok && a.mute == nil
	}
	id := a.acquire("lock")
	h.Run(100 * time.Millisecond)
	if r := h.row("lock"); r.Owner.Name != "a" {
		t.Fatalf("not stored: %v", r)
	}
	a.Input(engine.Forgo{Name: "lock", ID: id})
	h.Run(5 * time.Second)
	if r := h.row("lock"); !r.Removed || a.holds("lock") {
		t.Errorf("left %v", r)
	}
}

// TestNewSessionIsNeverTheOldOne: a session that cannot reach the table ends its tenures, and comes
// back under another incarnation, which holds nothing until it acquires it.
func TestNewSessionIsNeverTheOldOne(t *testing.T) {
	h := newHall(t, 1)
	a := h.join("a")
	h.Run(time.Second)
	a.acquire("lock")
	h.until(time.Second, func() bool { return a.holds("lock") })
	old := a.held["lock"].Tenure
	cut := true
	a.mute = func(engine.Output) bool { return cut }
	h.until(10*time.Second, func() bool { return !a.holds("lock") })
	cut = false
	h.Run(10 * time.Second)
	if r := h.row("lock"); r.Generation != old.Generation || a.holds("lock") {
		t.Errorf("without an Acquire, the row is %v", r)
	}
	a.acquire("lock")
	h.until(time.Second, func() bool { return a.holds("lock") })
	if now := h.row("lock"); now.Generation != old.Generation+1 || now.Last.Reason != lease.ReasonExpired {
		t.Errorf("acquired again as %v", now)
	}
	seats := h.table.Records("g", lease.KindSeat)
	if len(seats) != 2 { // with the record of the group
		t.Errorf("left %v", seats)
	}
}

// TestLostRepliesEndNoTenure: requests and answers that get lost or arrive late cost no healthy session
// its leases.
func TestLostRepliesEndNoTenure(t *testing.T) {
	h := newHall(t, 1)
	h.lossy = true
	var all []*guest
	for i := range 10 {
		g := h.join(fmt.Sprint("s", i))
		for n := range 10 {
			g.acquire(fmt.Sprint("lock-", i, "-", n))
		}
		all = append(all, g)
	}
	h.until(time.Minute, func() bool { return !slices.ContainsFunc(all, func(g *guest) bool { return len(g.held) < 10 }) })
	h.Run(10 * time.Minute)
	for _, g := range all {
		if len(g.ended) > 0 {
			t.Errorf("%s lost %v", g.Name, g.ended)
		}
	}
}

// TestSessionStops: it releases its leases, deletes its seat and ends.
func TestSessionStops(t *testing.T) {
	h := newHall(t, 1)
	a := h.join("a")
	h.Run(time.Second)
	for i := range 5 {
		a.acquire(fmt.Sprint("lock-", i))
	}
	h.until(time.Second, func() bool { return len(a.held) == 5 })
	a.Input(engine.Stop{})
	h.until(time.Second, a.Engine.Done)
	if seats := h.table.Records("g", lease.KindSeat); len(seats) != 1 || len(h.table.Records("g", lease.KindLease)) != 0 {
		t.Errorf("left %v", seats)
	}
}

// TestGroupOfTheOtherKind: neither a worker nor a session does anything in the other's group.
func TestGroupOfTheOtherKind(t *testing.T) {
	h := newHall(t, 1)
	a := h.join("a")
	a.acquire("lock")
	h.until(time.Second, func() bool { return a.holds("lock") })
	w := newWorld(t, 3)
	w.use(h.store)
	n := w.join("worker", func() engine.Config { c := config(rebalance.Eager); return c }())
	w.until(20*time.Second, n.Engine.Done)
	if !n.Engine.Status().Foreign || len(h.table.Records("g", lease.KindLease)) != 1 {
		t.Errorf("a worker in a group of sessions: %+v", n.Engine.Status())
	}

	w = newWorld(t, 3)
	n = w.join("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	h = newHall(t, 1)
	h.table.Store = w.store
	a = h.join("a")
	a.acquire("lock")
	h.until(20*time.Second, a.Engine.Done)
	if !a.Engine.Status().Foreign || a.holds("lock") {
		t.Errorf("a session in a group of workers: %+v", a.Engine.Status())
	}
}

// TestSessionTakesNoSeatAmongWorkers: it asks first which kind of group it is.
func TestSessionTakesNoSeatAmongWorkers(t *testing.T) {
	w := newWorld(t, 3)
	n := w.join("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	h := newHall(t, 1)
	h.table.Store = w.store
	a := h.join("a")
	h.until(20*time.Second, a.Engine.Done)
	if len(a.calls) != 1 {
		t.Errorf("in a group of workers a session makes %v", a.calls)
	}
}

// TestSessionHeedsTheSeatsOfWorkers: as long as the seat of a worker names a plan that was deleted by hand, a
// session does not make the group one of sessions.
func TestSessionHeedsTheSeatsOfWorkers(t *testing.T) {
	w := newWorld(t, 3)
	n := w.join("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	w.run(10 * time.Second) // its seat says which plan it knows
	h := newHall(t, 1)
	h.table.Store = w.store
	a := h.join("a")
	plan := lease.Plan{Group: "g"}.Key()
	a.answer = func(in engine.Input) engine.Input {
		switch in := in.(type) {
		case engine.Got:
			if in.Key == plan {
				in.Record = nil
			}
			return in
		case engine.Listed:
			in.Records = slices.DeleteFunc(in.Records, func(r lease.Record) bool { return r.Key() == plan })
			return in
		}
		return in
	}
	h.until(20*time.Second, a.Engine.Done)
	if s := a.Engine.Status(); !s.Foreign || s.Unclear {
		t.Errorf("beside a worker that knows a plan: %+v", s)
	}
	for _, o := range a.calls {
		if send, ok := o.(engine.Send); ok && send.Write.Key() == plan {
			t.Errorf("the session writes the record of the group: %v", o)
		}
	}
}

// TestWorkerOutlastsARecordOfSessions: a worker that knows a plan keeps its shards when a record of sessions
// replaces that plan, and reports a stale plan until the record is deleted.
func TestWorkerOutlastsARecordOfSessions(t *testing.T) {
	w := newWorld(t, 3)
	n := w.join("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	w.table.Store = usurped{w.table.Store, lease.Plan{Group: "g", Revision: 1 << 40, Sessions: true, WriteID: "s", At: time.Unix(1, 0)}}
	w.run(2 * time.Minute)
	if n.Engine.Done() || n.Engine.Status().Foreign || len(n.Handlers) != 3 {
		t.Fatalf("the worker has given up its shards: %+v", n.Engine.Status())
	}
	stale := func() []told {
		return slices.DeleteFunc(slices.Clone(n.told), func(e told) bool { return e.Kind != event.PlanStale })
	}
	if said := stale(); len(said) == 0 || said[len(said)-1].Over {
		t.Errorf("the reports are %v", said)
	}
	w.table.Store = w.store
	w.until(time.Minute, func() bool { said := stale(); return len(said) > 0 && said[len(said)-1].Over })
}

// A usurped store shows a record of sessions in place of the plan.
type usurped struct {
	virtual.Store
	record lease.Plan
}

func (u usurped) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if k == u.record.Key() {
		return u.record, nil
	}
	return u.Store.Get(ctx, k)
}

func (u usurped) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for r, err := range u.Store.List(ctx, q) {
			if err == nil && r.Key() == u.record.Key() {
				r = u.record
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// TestSessionLeavesADeletedPlanToTheWorkers: it has met a record of the group that it could not read, and
// an operator deletes that record. The session ends, and does not make the group one of sessions.
func TestSessionLeavesADeletedPlanToTheWorkers(t *testing.T) {
	w := newWorld(t, 3)
	n := w.join("worker", config(rebalance.Eager))
	w.until(20*time.Second, func() bool { return len(n.Handlers) == 3 })
	h := newHall(t, 1)
	plan, deleted := lease.Plan{Group: "g"}.Key(), false
	h.table.Store = w.store
	h.table.Unreadable = map[lease.Key]bool{plan: true}
	a := h.join("a")
	a.answer = func(in engine.Input) engine.Input {
		if got, ok := in.(engine.Got); ok && got.Key == plan && deleted {
			got.Record, got.Err = nil, nil
			return got
		}
		return in
	}
	a.acquire("lock")
	h.Run(time.Minute)
	if a.Engine.Done() || a.holds("lock") {
		t.Error("the session does not wait for a record that can be read")
	}
	deleted = true
	h.until(20*time.Second, a.Engine.Done)
	if s := a.Engine.Status(); !s.Foreign || !s.Unclear || a.holds("lock") {
		t.Errorf("after the record was deleted: %+v", s)
	}
	for _, o := range a.calls {
		if send, ok := o.(engine.Send); ok && send.Write.Key() == plan {
			t.Errorf("the session writes the record of the group: %v", o)
		}
	}
}

// TestWaitersAreFair: of 100 that wait for one lease, the longest waits at most five times the mean.
func TestWaitersAreFair(t *testing.T) {
	h := newHall(t, 1)
	var waits []time.Duration
	from := time.Duration(0)
	for i := range 100 {
		g := h.join(fmt.Sprint("s", i))
		g.started = func(o engine.Start) {
			waits = append(waits, h.Now()-from)
			g.apply(o.Tenure)
			g.Later(100*time.Millisecond, func() { g.release("lock") })
		}
		h.After(5*time.Second, func() { from = h.Now(); g.acquire("lock") })
	}
	h.until(time.Hour, func() bool { return len(waits) == 100 })
	if mean, longest := fixture.Mean(waits), slices.Max(waits); longest > 5*mean {
		t.Errorf("the longest of 100 waiters waited %v, the mean is %v", longest, mean)
	}
}

// TestSessionsContend: sessions that die, are paused, and lose, delay and repeat requests keep S1 to
// S4, and never have two accepted effects under one generation of a lease.
func TestSessionsContend(t *testing.T) {
	t.Parallel()
	h := newHall(t, *sessionSeed)
	n, leases := *sessionCount, *sessionCount**leaseCount
	h.lossy = true
	tenures := map[string]int{}
	for i := range n {
		g := h.join(fmt.Sprint("s", i))
		want := func() {
			g.acquire(fmt.Sprint("lock-", h.chance.IntN(leases)/2), lockDelay(time.Duration(h.chance.IntN(2))*time.Second))
		}
		g.started = func(o engine.Start) {
			tenures[g.Name]++
			g.apply(o.Tenure)
			g.Later(time.Duration(h.chance.IntN(20_000))*time.Millisecond, func() {
				if g.held[o.Tenure.Shard].Tenure == o.Tenure {
					g.apply(o.Tenure)
					if h.chance.IntN(3) == 0 {
						g.Input(engine.Marks{Tenure: o.Tenure, Mark: checkpoint.Mark{Position: fmt.Sprint(int64(h.Now()))}, Seq: 1})
					}
					g.release(o.Tenure.Shard)
				}
				want()
			})
		}
		g.Later(2*time.Second, func() {
			for range *leaseCount {
				want()
			}
		})
		var trouble func()
		trouble = func() {
			h.After(time.Duration(20+h.chance.IntN(60))*time.Second, func() {
				switch h.chance.IntN(3) {
				case 0:
					g.Kill()
					h.After(time.Duration(h.chance.IntN(20))*time.Second, func() { g.boot(); g.Later(2*time.Second, func() { want(); want() }) })
				case 1:
					g.Pause()
					stale := slices.Collect(maps.Values(g.held))
					h.After(time.Duration(h.chance.IntN(20))*time.Second, func() {
						if !g.Up() {
							return
						}
						for _, o := range stale { // it writes before it notices anything
							g.apply(o.Tenure)
						}
						g.Resume(nil)
					})
				}
				trouble()
			})
		}
		trouble()
	}
	h.Run(5 * time.Minute)
	if len(tenures) < n {
		t.Errorf("only %d of %d sessions ever held a lease", len(tenures), n)
	}
}
