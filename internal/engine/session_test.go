package engine_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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

// beats reports whether a call is a heartbeat.
func beats(o engine.Output) bool {
	send, ok := o.(engine.Send)
	return ok && send.Write.Key().Kind == lease.KindSeat
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
