package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// try makes an acquisition one that only tries, and waits at most so long: see engine.Acquire.
func try(wait time.Duration) func(*engine.Acquire) {
	return func(in *engine.Acquire) { in.Try, in.Wait = true, wait }
}

// deletes reports whether o deletes the seat of another session.
func deletes(o engine.Output) bool {
	send, ok := o.(engine.Send)
	return ok && send.Write.Op == lease.OpDelete
}

// dies lets a session acquire the lease, hold it for a while and die.
func (c *contest) dies(a *session, edit ...func(*engine.Acquire)) {
	c.Helper()
	c.Run(time.Second)
	a.lock(edit...)
	c.Run(20 * time.Second)
	a.Kill()
}

// attempt lets a session try once, and returns how long it waited for the answer.
func (c *contest) attempt(s *session, edit ...func(*engine.Acquire)) time.Duration {
	c.Helper()
	n := len(s.refused)
	s.acquire("lock", append(edit, func(in *engine.Acquire) { in.Try = true })...)
	return c.until(time.Minute, func() bool { return s.holds("lock") || len(s.refused) > n })
}

// TestTriesReplaceTheDead: callers that only try every 30 s, in one session or each in a new one, acquire the lease of
// a dead holder at their second try at the latest, also with a lock delay; and those that never watch do so in one
// session.
func TestTriesReplaceTheDead(t *testing.T) {
	for name, of := range map[string]struct {
		fresh bool
		edit  []func(*engine.Acquire)
		delay time.Duration
	}{
		"one session":                     {},
		"one session that never watches":  {edit: []func(*engine.Acquire){try(-1)}},
		"new sessions":                    {fresh: true},
		"new sessions, with a lock delay": {fresh: true, delay: 5 * time.Second},
	} {
		for after := time.Duration(0); after < 30*time.Second; after += 3 * time.Second {
			f := newContest(t, 1)
			a := f.join("a")
			f.dies(a, lockDelay(of.delay))
			b := f.join("b")
			if f.deaf = func(_ *member, o engine.Output) bool { // nobody finds the dead by a listing
				list, ok := o.(engine.List)
				return ok && list.Query.Eventually
			}; after > 0 {
				f.Run(after)
			}
			f.Run(time.Second)
			for range 2 {
				if of.fresh {
					b.Kill()
					b = f.join(fmt.Sprint("b", f.Now()))
					f.Run(time.Second)
				}
				f.attempt(b, of.edit...)
				if b.holds("lock") {
					break
				}
				f.Run(30 * time.Second)
			}
			if !b.holds("lock") {
				t.Errorf("%s, first %v after the death: not acquired at the second try", name, after)
			}
		}
	}
}

// TestTriesWatchTheDeadForTheirLeaseTime: a try of a new session evicts a holder after the lease time of the holder,
// and not before. One that never watches is told at once who holds the lease, and one with a budget when the budget is
// over. All learn when the last heartbeat was.
func TestTriesWatchTheDeadForTheirLeaseTime(t *testing.T) {
	for wait, took := range map[time.Duration]time.Duration{0: leaseTime, -1: 0, 4 * time.Second: 4 * time.Second, 30 * time.Second: leaseTime} {
		f := newContest(t, 1)
		a := f.join("a")
		f.dies(a)
		f.Run(leaseTime)
		b := f.join("b")
		f.Run(time.Second)
		if got := f.attempt(b, try(wait)); got < took || got > took+beat/2 {
			t.Errorf("with a wait of %v: answered after %v, want %v", wait, got, took)
		}
		if b.holds("lock") != (took == leaseTime) {
			t.Errorf("with a wait of %v: held %t", wait, b.holds("lock"))
		}
		if !b.holds("lock") && !b.refused[0].Beat.Equal(f.seat(a.member).At) {
			t.Errorf("with a wait of %v: told %v", wait, b.refused[0])
		}
	}
}

// TestTriesSpareALivingHolder: the clock of a living holder is wrong. A try in a new session watches the holder until
// its heartbeat moves, and never evicts it. A later try of the same session is answered at once.
func TestTriesSpareALivingHolder(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		f := newContest(t, 1)
		a := f.join("a")
		a.Clock.Wall = ahead
		f.Run(time.Second)
		a.lock()
		f.Run(time.Minute)
		for range 5 {
			b := f.join(fmt.Sprint("b", f.Now()))
			f.Run(time.Second)
			if took := f.attempt(b); took > 2*beat {
				t.Errorf("with a clock that is %v ahead: answered after %v", ahead, took)
			}
			f.Run(beat / 2)
			if took := f.attempt(b); took > time.Second {
				t.Errorf("with a clock that is %v ahead: answered again after %v", ahead, took)
			}
			f.Run(beat)
			if slices.ContainsFunc(b.asked, deletes) {
				t.Errorf("with a clock that is %v ahead: the living holder is evicted", ahead)
			}
		}
		if len(a.ended) > 0 {
			t.Errorf("the holder has lost %v", a.ended)
		}
	}
}

// TestTryWithABudgetWaitsForALivingHolder: until the holder releases the lease, or the budget is over. With every look
// at the holder, the session tells what it would answer.
func TestTryWithABudgetWaitsForALivingHolder(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	if took := f.attempt(b); took > time.Second {
		t.Errorf("without a budget: answered after %v", took)
	}
	if took := f.attempt(b, try(20*time.Second)); b.holds("lock") || took < 20*time.Second || took > 21*time.Second {
		t.Errorf("answered after %v", took)
	}
	f.After(5*time.Second, func() { a.release("lock") })
	if took := f.attempt(b, try(20*time.Second)); !b.holds("lock") || took > 5*time.Second+beat+time.Second {
		t.Errorf("not acquired after a release, but answered after %v", took)
	}
}

// TestDeadSessionIsEvictedWithoutAWaiter: nobody wants its lease, and its seat is gone about a minute after its lease
// time, whatever the clock of the dead session was. One session reports it. The seats of the living stay.
func TestDeadSessionIsEvictedWithoutAWaiter(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		sessions int
		ahead    time.Duration
	}{"two": {sessions: 2}, "ten": {sessions: 10}, "behind": {4, -time.Hour}, "ahead": {4, time.Hour}, "a little ahead": {4, beat / 2}} {
		f := newContest(t, 1)
		a := f.join("a")
		a.Clock.Wall = of.ahead
		var others []*session
		for i := range of.sessions - 1 {
			others = append(others, f.join(fmt.Sprint("b", i)))
		}
		f.Run(20 * time.Minute)
		a.lock()
		f.Run(time.Minute)
		for _, b := range others {
			b.asked = nil
		}
		a.Kill()
		took := f.until(5*time.Minute, func() bool { return f.seat(a.member).Incarnation == "" })
		if took < leaseTime-beat || took > leaseTime+time.Minute+leaseTime {
			t.Errorf("%s: evicted after %v", name, took)
		}
		f.Run(20 * time.Minute)
		reports, sent := 0, 0
		for _, b := range others {
			reports += len(b.reports(event.PeerEvicted))
			for _, o := range b.asked {
				if deletes(o) {
					sent++
				}
			}
			if f.seat(b.member).Incarnation == "" || b.lost > 0 {
				t.Errorf("%s: a living session was evicted", name)
			}
		}
		if reports != 1 || sent == 0 || sent > of.sessions {
			t.Errorf("%s: %d reports of the eviction, %d deletions", name, reports, sent)
		}
	}
}

// TestListingsEvictNoLivingSession: the clocks of living sessions are wrong, and listings lag behind. No
// session sends a deletion, and each reads the seat of each other once: then it knows that a clock is wrong.
func TestListingsEvictNoLivingSession(t *testing.T) {
	f := newContest(t, 1)
	lag := time.Duration(0)
	f.table.Time, f.table.Stale = &f.Time, func() (time.Duration, bool) { return lag, lag > 0 }
	var all []*session
	for i := range 5 {
		s := f.join(fmt.Sprint("s", i))
		s.Clock.Wall = time.Duration(i-2) * time.Hour
		all = append(all, s)
	}
	for i := range 30 {
		lag = time.Duration(i%3) * time.Second
		f.Run(time.Minute)
	}
	for _, s := range all {
		if i := slices.IndexFunc(s.asked, deletes); i >= 0 {
			t.Errorf("%s sends %v", s.Name, s.asked[i])
		}
		looks := 0
		for _, o := range s.asked {
			if get, ok := o.(engine.Get); ok && get.Key.Kind == lease.KindSeat {
				looks++
			}
		}
		if looks > len(all)-1 {
			t.Errorf("%s reads single seats %d times", s.Name, looks)
		}
		s.never(event.Lost)
	}
}

// TestListingsAreSharedByTheGroup: a group lists its seats about four times a minute, whatever its size. A session
// finds out how large the group is, although its first listings show a part.
func TestListingsAreSharedByTheGroup(t *testing.T) {
	t.Parallel()
	for _, n := range fixture.Size([]int{1, 4, 30}, []int{1, 4, 30, 100}) {
		f := newContest(t, 1)
		var all []*session
		for i := range n {
			all = append(all, f.join(fmt.Sprintf("s%03d", i)))
		}
		count := func(d time.Duration) (rolls int) {
			for _, s := range all {
				s.asked = nil
			}
			f.Run(d)
			for _, s := range all {
				rolls += s.rolls()
			}
			return rolls
		}
		count(15 * time.Second)
		if got := count(time.Minute); got > 5*n {
			t.Errorf("%d sessions have listed the seats %d times in their first minute", n, got)
		}
		count(time.Duration(n) * 30 * time.Second)
		d := 10*time.Minute + time.Duration(n)*30*time.Second
		if a := float64(count(d)) / d.Minutes(); a < 3 || a > 5 {
			t.Errorf("%d sessions list the seats %.1f times a minute", n, a)
		}
	}
}

// TestUnreadableSeatThatNobodyWants: a listing finds it, a session reports it, and evicts it when nothing has
// written it for ten lease times.
func TestUnreadableSeatThatNobodyWants(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	f.unreadable(f.seat(a.member).Key())
	f.Run(20 * time.Minute)
	if len(a.ended) > 0 || slices.ContainsFunc(b.asked, deletes) {
		t.Errorf("a holder that beats lost %v", a.ended)
	}
	if said := b.reports(event.Malformed); len(said) == 0 || said[0].Over {
		t.Errorf("an unreadable seat is reported as %v", said)
	}
	a.Kill()
	if took := f.until(10*time.Minute, func() bool { return f.seat(a.member).Incarnation == "" }); took < 10*leaseTime-beat {
		t.Errorf("evicted after %v", took)
	}
	f.Run(leaseTime)
	if said := b.reports(event.Malformed); !said[len(said)-1].Over {
		t.Errorf("after the eviction, the reports are %v", said)
	}
}

// TestNobodySuspectsAHolderThatBeats: for more than an hour, and at full size for a day, sessions wait for the lease of a holder
// that misses no heartbeat. Their reads are as slow as their lease time allows, and they are paused now and then. Each
// interval of reads is tried beside each interval of heartbeats.
func TestNobodySuspectsAHolderThatBeats(t *testing.T) {
	t.Parallel()
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.lock()
	slow, reads := time.Duration(0), 0
	var waiters []*session
	for i, ttl := range []time.Duration{2 * time.Second, 9 * time.Second, 10 * time.Second, 11 * time.Second, 30 * time.Second} {
		c := f.config
		c.TTL = ttl
		b := f.joinWith(fmt.Sprint("b", i), c)
		f.Run(time.Second)
		b.acquire("lock")
		waiters = append(waiters, b)
	}
	f.slow = func(n *member, o engine.Output) time.Duration {
		if get, ok := o.(engine.Get); ok && get.Key.Kind == lease.KindSeat {
			if reads++; reads%2 == 0 { // after one that was answered at once
				return slow
			}
		}
		return 0
	}
	for i := range fixture.Size(8, 24*6) {
		slow = time.Duration(i%4) * time.Second
		f.Run(10*time.Minute - 3*time.Second)
		for _, b := range waiters[1:] {
			b.Pause()
		}
		f.Run(3 * time.Second)
		for _, b := range waiters[1:] {
			b.Resume(nil)
		}
	}
	for _, b := range waiters {
		b.never(event.PeerSuspect)
	}
}

// TestAnEvictionThatIsRefusedIsASignOfLife: the heartbeat moves as the try evicts the holder. The try is told that the
// holder lives.
func TestAnEvictionThatIsRefusedIsASignOfLife(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.dies(a)
	f.Run(leaseTime)
	b := f.join("b")
	f.Run(time.Second)
	b.mute = func(o engine.Output) bool {
		if deletes(o) {
			b.mute = nil
			seat := f.seat(a.member)
			f.write(protocol.NextBeat(seat, seat.Says, f.stamp()))
		}
		return false
	}
	if f.attempt(b); b.holds("lock") || len(b.refused) != 1 || b.refused[0].Lost {
		t.Errorf("told %v", b.refused)
	}
}

// TestWaiterKnowsAtOnceThatTheHolderDied: sessions with a deathwatch. While a session waits, it keeps a connection to
// the holder, and evicts the holder as soon as the process of the holder has died. Nobody else has connections.
func TestWaiterKnowsAtOnceThatTheHolderDied(t *testing.T) {
	f := newContest(t, 1)
	f.wires = &virtual.Wires{}
	a, b, c := f.join("a"), f.join("b"), f.join("c")
	f.Run(time.Second)
	a.lock()
	b.acquire("lock")
	f.Run(time.Minute)
	if a.Peers() != 0 || b.Peers() != 1 || c.Peers() != 0 {
		t.Fatalf("%d, %d and %d connections, want one of b", a.Peers(), b.Peers(), c.Peers())
	}
	a.Kill()
	f.until(time.Second, func() bool { return b.holds("lock") })
	if all := b.reports(event.PeerEvicted); len(all) != 1 || all[0].Err == nil {
		t.Errorf("the eviction is reported as %v", all)
	}
	f.Run(beat)
	if b.Peers() != 0 {
		t.Error("the connection stays although nobody waits")
	}
	c.acquire("lock")
	f.Run(beat)
	b.Pause() // a pause proves nothing
	if took := f.until(time.Minute, func() bool { return c.holds("lock") }); took < leaseTime-beat {
		t.Errorf("a paused holder is evicted after %v", took)
	}
}
