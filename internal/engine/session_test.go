package engine_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	sessionCount = flag.Int("session.count", 20, "how many sessions contend in TestSessionsContend")
	leaseCount   = flag.Int("session.leases", 10, "how many leases there are for each of them")
	sessionSeed  = flag.Uint64("session.seed", 1, "the seed of TestSessionsContend")
)

// A contest has sessions in place of workers. A register for each lease checks the effects of its holders.
type contest struct {
	*fleet
	registers map[string]judge.Register
	lossy     bool
	id        uint64
	censuses  bool // sessions may list the seats
	censused  int  // how often they have
}

func newContest(t testing.TB, seed uint64) *contest {
	c := &contest{fleet: newFleet(t, 0, 0, rebalance.Eager), registers: map[string]judge.Register{}}
	c.chance = rand.New(rand.NewPCG(seed, seed))
	c.config.CommitTimeout = 30 * time.Second
	return c
}

// A session is one session of a contest.
type session struct {
	*member
	c       *contest
	config  engine.Config
	asked   []engine.Output // of the table
	held    map[string]engine.Start
	refused []engine.Unavailable
	ended   []engine.Over
	started func(engine.Start)
	lost    int // counts heartbeats without an answer, and half of those before the last answer
	answer  func(engine.Input) engine.Input
}

func (c *contest) join(name string) *session { return c.joinWith(name, c.config) }

func (c *contest) joinWith(name string, config engine.Config) *session {
	s := &session{c: c, config: config, member: c.newMember(name, config)}
	s.Shell = s
	if c.wires != nil {
		c.wires.Join(&s.Process)
		s.config.Deathwatch, s.config.Address = true, name
	}
	c.nodes = append(c.nodes, s.member)
	s.boot()
	return s
}

func (s *session) boot() {
	c := s.config
	c.Name, s.held = s.Name, map[string]engine.Start{}
	s.Boot(s.c.Now(), func() virtual.Engine { return virtual.NewSession(c, s.Moment()) })
}

func (s *session) Poll() { s.c.Error("a session has listed a source") }

func (s *session) Call(o engine.Output) {
	if list, ok := o.(engine.List); ok && s.Engine.Status().Planned && s.c.censuses && list.Query.Kind == lease.KindSeat && !list.Query.Eventually {
		s.c.censused++
	} else if ok && (list.Query.Kind != lease.KindSeat || s.Engine.Status().Planned && !list.Query.Eventually) {
		s.c.Errorf("a session has listed records: %v", list.Query)
	}
	s.asked = append(s.asked, o)
	if s.c.deaf != nil && s.c.deaf(s.member, o) {
		return
	}
	beats, by := sends(o, lease.KindSeat), s.Sender()
	lossy := s.c.lossy && (!beats || s.lost < 2) // three in a row may cost the seat, and so may two of a heartbeat and two of the next
	arrives := func(after time.Duration) { s.c.After(after+s.latency(), func() { s.c.table.Serve(by, o) }) }
	switch n := s.c.chance.IntN(100); {
	case s.mute != nil && s.mute(o), lossy && n < 3: // it does not arrive
	case lossy && n < 6: // its answer is lost
		arrives(0)
	case lossy && n < 8: // it arrives much later, when it was repeated already
		arrives(3 * time.Second)
	default:
		if beats {
			s.lost /= 2
		}
		s.Deliver(s.latency(), s.latency()+s.late(o), func() engine.Input {
			in := s.c.table.Serve(by, o)
			if s.answer != nil {
				in = s.answer(in)
			}
			return in
		})
		return
	}
	if beats {
		s.lost++
	}
	s.Answer(s.patience, unanswered(o))
}

func (s *session) Stepped(in engine.Input, out []engine.Output) {
	s.oneAtATime(in, out)
	for _, o := range out {
		if o, ok := o.(engine.Unavailable); ok && !o.Waits {
			s.refused = append(s.refused, o)
		}
	}
}

func (s *session) Start(_ *virtual.Handler, o engine.Start) {
	s.held[o.Tenure.Shard] = o
	if s.started != nil {
		s.started(o)
	}
}

// Drain ends a tenure's soft context: its holder returns a moment later, unless it ignores that.
func (s *session) Drain(_ *virtual.Handler, o engine.Drain) {
	if !s.Stuck {
		s.end(o.Tenure)
	}
}

func (s *session) Over(_ *virtual.Handler, o engine.Over) {
	s.ended = append(s.ended, o)
	s.end(o.Tenure)
}

func (s *session) end(id engine.Tenure) {
	if s.held[id.Shard].Tenure == id {
		delete(s.held, id.Shard)
	}
	s.Later(time.Millisecond, func() { s.Return(id, false) })
}

// apply is an effect under a tenure, in a sink that compares generations.
func (s *session) apply(of engine.Tenure) {
	r := s.c.registers[of.Shard]
	if _, err := r.Effect(judge.Tenure(of), s.Name); err != nil {
		s.c.Error(err)
	}
	s.c.registers[of.Shard] = r
}

func (s *session) acquire(name string, edit ...func(*engine.Acquire)) uint64 {
	s.c.id++
	in := engine.Acquire{Name: name, ID: s.c.id}
	for _, e := range edit {
		e(&in)
	}
	s.Input(in)
	return in.ID
}

// lock acquires the lease that most tests use, and waits until the session holds it.
func (s *session) lock(edit ...func(*engine.Acquire)) {
	s.c.Helper()
	s.acquire("lock", edit...)
	s.c.until(time.Second, func() bool { return s.holds("lock") })
}

func (s *session) release(name string) {
	s.Input(engine.Marks{Tenure: s.held[name].Tenure, Release: true})
}

// rolls counts the listings of the seats that the session has made, and removes them from what it has asked.
func (s *session) rolls() int {
	n := len(s.asked)
	s.asked = slices.DeleteFunc(s.asked, func(o engine.Output) bool { list, ok := o.(engine.List); return ok && list.Query.Eventually })
	return n - len(s.asked)
}

func (s *session) holds(name string) bool { _, ok := s.held[name]; return ok }

// TestSessionAcquiresInTwoRequests: a Get and one conditional write, whether the lease is new, free or
// a tombstone; and the generation grows each time.
func TestSessionAcquiresInTwoRequests(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	last := int64(0)
	for _, state := range []string{"new", "a tombstone", "free, with a checkpoint"} {
		b := a
		if state == "a tombstone" { // another session: a has the row in memory, and would need one request
			b = f.join("b")
			f.Run(time.Second)
		}
		b.asked = nil
		b.lock(func(in *engine.Acquire) { in.Task = state })
		b.asked = slices.DeleteFunc(b.asked, func(o engine.Output) bool { return sends(o, lease.KindSeat) })
		if len(b.asked) != 2 {
			t.Fatalf("%s: acquired with %v", state, b.asked)
		}
		if _, get := b.asked[0].(engine.Get); !get {
			t.Errorf("%s: the first request is %v", state, b.asked[0])
		}
		r := f.row("lock")
		if r.Generation <= last || r.Owner.Task != state || r.Owner.Name != b.Name {
			t.Errorf("%s: acquired as %v after generation %d", state, r, last)
		}
		last = r.Generation
		if state == "a tombstone" {
			id := b.held["lock"].Tenure
			b.Input(engine.Marks{Tenure: id, Mark: checkpoint.Mark{Position: "1", State: "data"}, Seq: 1, Flush: 1})
			f.Run(time.Second)
		}
		b.release("lock")
		f.Run(5 * time.Second)
		if r := f.row("lock"); r.Removed == (r.Checkpoint.Position != "") || r.Last.Reason != lease.ReasonReleased || r.Generation != last+1 {
			t.Errorf("%s: released as %v", state, r)
		}
		last++
	}
}

// TestSessionAtRestWritesItsSeatAlone: a session without marks writes only its seat and reads only the wishes,
// however many leases it holds. It lists the seats four times a minute, because there is no other session.
func TestSessionAtRestWritesItsSeatAlone(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	for i := range 100 {
		a.acquire(fmt.Sprint("lock-", i))
	}
	f.until(time.Second, func() bool { return len(a.held) == 100 })
	f.Run(10 * time.Second) // the first listing comes later
	a.asked = nil
	f.Run(60 * time.Second)
	if n := a.rolls(); n < 3 || n > 5 {
		t.Errorf("%d listings in a minute, want four", n)
	}
	reads := 0
	for _, o := range a.asked {
		if get, ok := o.(engine.Get); ok && get.Key.Kind == lease.KindWishes {
			reads++
		} else if !sends(o, lease.KindSeat) {
			t.Errorf("at rest the session makes %v", o)
		}
	}
	if n := len(a.asked) - reads; n < 17 || n > 22 || reads < 17 || reads > 22 {
		t.Errorf("%d heartbeats and %d reads in a minute, want one of each per 3 s", n, reads)
	}
	for name := range a.held {
		a.release(name)
	}
	f.Run(10 * time.Second)
	a.asked = nil
	f.Run(60 * time.Second)
	a.rolls()
	if i := slices.IndexFunc(a.asked, func(o engine.Output) bool { return !sends(o, lease.KindSeat) }); i >= 0 {
		t.Errorf("without a lease the session makes %v", a.asked[i])
	}
}

// TestForgoneLeaseIsReleased: also if the answer to its acquisition arrives afterwards.
func TestForgoneLeaseIsReleased(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.mute = func(o engine.Output) bool { // the creation is stored, and its answer lost
		send, ok := o.(engine.Send)
		if ok && send.Write.Op == lease.OpCreate {
			f.table.Serve(a.Sender(), o)
			a.mute = nil
		}
		return ok && a.mute == nil
	}
	id := a.acquire("lock")
	f.Run(100 * time.Millisecond)
	if r := f.row("lock"); r.Owner.Name != "a" {
		t.Fatalf("not stored: %v", r)
	}
	a.Input(engine.Forgo{Name: "lock", ID: id})
	f.Run(5 * time.Second)
	if r := f.row("lock"); !r.Removed || a.holds("lock") {
		t.Errorf("left %v", r)
	}
}

// TestNewSessionIsNeverTheOldOne: a session that cannot reach the table ends its tenures, and comes
// back under another incarnation, which holds nothing until it acquires it.
func TestNewSessionIsNeverTheOldOne(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.lock()
	old := a.held["lock"].Tenure
	cut := true
	a.mute = func(engine.Output) bool { return cut }
	f.until(10*time.Second, func() bool { return !a.holds("lock") })
	cut = false
	f.Run(10 * time.Second)
	if r := f.row("lock"); r.Generation != old.Generation || a.holds("lock") {
		t.Errorf("without an Acquire, the row is %v", r)
	}
	a.lock()
	if now := f.row("lock"); now.Generation != old.Generation+1 || now.Last.Reason != lease.ReasonExpired {
		t.Errorf("acquired again as %v", now)
	}
	seats := f.table.Records("g", lease.KindSeat)
	if len(seats) != 2 { // with the record of the group
		t.Errorf("left %v", seats)
	}
}

// TestLostRepliesEndNoTenure: requests and answers that get lost or arrive late cost no healthy session
// its leases.
func TestLostRepliesEndNoTenure(t *testing.T) {
	f := newContest(t, 1)
	f.lossy = true
	var all []*session
	for i := range 10 {
		g := f.join(fmt.Sprint("s", i))
		for n := range 10 {
			g.acquire(fmt.Sprint("lock-", i, "-", n))
		}
		all = append(all, g)
	}
	f.until(time.Minute, func() bool { return !slices.ContainsFunc(all, func(g *session) bool { return len(g.held) < 10 }) })
	f.Run(10 * time.Minute)
	for _, g := range all {
		if len(g.ended) > 0 {
			t.Errorf("%s lost %v", g.Name, g.ended)
		}
	}
}

// TestSessionStops: it releases its leases, deletes its seat and ends.
func TestSessionStops(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	for i := range 5 {
		a.acquire(fmt.Sprint("lock-", i))
	}
	f.until(time.Second, func() bool { return len(a.held) == 5 })
	a.Input(engine.Stop{})
	f.until(time.Second, a.Engine.Done)
	if seats := f.table.Records("g", lease.KindSeat); len(seats) != 1 || len(f.table.Records("g", lease.KindLease)) != 0 {
		t.Errorf("left %v", seats)
	}
}

// TestSessionsContend: sessions that die, are paused, and lose, delay and repeat requests keep S1 to
// S4, and never have two accepted effects under one generation of a lease.
func TestSessionsContend(t *testing.T) {
	t.Parallel()
	f := newContest(t, *sessionSeed)
	n, leases := *sessionCount, *sessionCount**leaseCount
	f.lossy = true
	tenures := map[string]int{}
	for i := range n {
		g := f.join(fmt.Sprint("s", i))
		want := func() {
			g.acquire(fmt.Sprint("lock-", f.chance.IntN(leases)/2), lockDelay(time.Duration(f.chance.IntN(2))*time.Second))
		}
		g.started = func(o engine.Start) {
			tenures[g.Name]++
			g.apply(o.Tenure)
			g.Later(time.Duration(f.chance.IntN(20_000))*time.Millisecond, func() {
				if g.held[o.Tenure.Shard].Tenure == o.Tenure {
					g.apply(o.Tenure)
					if f.chance.IntN(3) == 0 {
						g.Input(engine.Marks{Tenure: o.Tenure, Mark: checkpoint.Mark{Position: fmt.Sprint(int64(f.Now()))}, Seq: 1})
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
			f.After(time.Duration(20+f.chance.IntN(60))*time.Second, func() {
				switch f.chance.IntN(3) {
				case 0:
					g.Kill()
					f.After(time.Duration(f.chance.IntN(20))*time.Second, func() { g.boot(); g.Later(2*time.Second, func() { want(); want() }) })
				case 1:
					g.Pause()
					stale := slices.Collect(maps.Values(g.held))
					f.After(time.Duration(f.chance.IntN(20))*time.Second, func() {
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
	f.Run(5 * time.Minute)
	if len(tenures) < n {
		t.Errorf("only %d of %d sessions ever held a lease", len(tenures), n)
	}
}

// TestSessionThatCannotRead: the reads of a session fail and its heartbeats pass. It keeps what it holds, reports one fault
// of the store that lasts, and waits for other leases until it can read.
func TestSessionThatCannotRead(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.acquire("mine")
	b.acquire("other")
	f.until(time.Second, func() bool { return a.holds("mine") && b.holds("other") })
	deaf := true
	a.mute = func(o engine.Output) bool { return deaf && reads(o) != 0 }
	f.Run(time.Minute)
	a.acquire("other")
	f.Run(time.Minute)
	b.Kill()
	f.Run(30 * time.Minute)
	all := a.reports(event.StoreFault)
	if len(a.ended) > 0 || !a.holds("mine") || len(all) == 0 || slices.ContainsFunc(all, func(e told) bool { return e.Over }) {
		t.Errorf("it has lost %v, and reports %v", a.ended, all)
	}
	deaf = false
	f.until(leaseTime+2*beat, func() bool { return a.holds("other") })
	f.Run(leaseTime)
	if all := a.reports(event.StoreFault); !all[len(all)-1].Over {
		t.Errorf("it reports %v", all)
	}
}

// TestReleaseWhileASessionCannotRead: a lease is released, and the wish that tells so has ended before the reads of its
// holder pass again. Then the holder reads the rows of all that it holds.
func TestReleaseWhileASessionCannotRead(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.acquire("mine")
	f.until(time.Second, func() bool { return a.holds("mine") })
	f.Run(time.Minute)
	deaf := true
	a.mute = func(o engine.Output) bool { return deaf && reads(o) != 0 }
	f.Run(beat)
	f.release("mine")
	f.Run(2 * time.Minute)
	if !a.holds("mine") {
		t.Fatal("it has noticed the release although it cannot read")
	}
	deaf = false
	f.until(beat+1500*time.Millisecond, func() bool { return !a.holds("mine") })
}

// TestHealthyHolderIsNotSuspected: sessions wait for a lease for an hour, and its holder beats. When it is dead, they report
// that it has missed a heartbeat.
func TestHealthyHolderIsNotSuspected(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	b.acquire("lock")
	f.Run(time.Hour)
	b.never(event.PeerSuspect)
	a.Kill()
	f.until(leaseTime, func() bool { return len(b.reports(event.PeerSuspect)) == 1 })
}
