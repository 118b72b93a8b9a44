package engine_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// In these tests, the holders of a session fail again and again, and their session asks again at once.

// leftFor is for how long a session leaves a lease to others after a failure.
const leftFor = beat + beat/8

// newFailing returns a contest in which sessions may list the seats for a quarantine.
func newFailing(t testing.TB) *contest {
	f := newContest(t, 1)
	f.censuses = true
	return f
}

// failing makes the session acquire the lease, fail a moment later, and ask again at once, forever. It returns how often
// the session has failed so far, and the longest time from a failure until the next tenure began.
func (s *session) failing(edit ...func(*engine.Acquire)) (failures func() int, longest func() time.Duration) {
	n, last, most := 0, time.Duration(0), time.Duration(0)
	s.started = func(engine.Start) {
		if n > 0 {
			most = max(most, s.c.Now()-last)
		}
		s.Later(10*time.Millisecond, func() {
			n, last = n+1, s.c.Now()
			s.fail("lock")
			s.acquire("lock", edit...)
		})
	}
	s.acquire("lock", edit...)
	return func() int { return n }, func() time.Duration { return most }
}

// TestFailingSessionStarvesNobody: the holders of a session fail or stall, and the session asks again at once. A session
// that waits acquires the lease within about a heartbeat interval, and one that joins later within two.
func TestFailingSessionStarvesNobody(t *testing.T) {
	t.Parallel()
	const stall = 5 * time.Second
	for name, of := range map[string]struct {
		stalls, late bool
	}{
		"at once":                  {},
		"at once, beside nobody":   {late: true},
		"by stalls":                {stalls: true},
		"by stalls, beside nobody": {stalls: true, late: true},
	} {
		f := newFailing(t)
		a := f.join("a")
		if of.late {
			f.Run(5 * time.Minute)
		}
		if of.stalls {
			a.started = func(engine.Start) { a.Later(stall+time.Second/10, func() { a.acquire("lock", stallAfter(stall)) }) }
			a.acquire("lock", stallAfter(stall))
		} else {
			a.failing()
		}
		most := leftFor + stall
		if of.late {
			f.Run(time.Minute)
			most += beat
		}
		b := f.join("b")
		f.Run(time.Second)
		b.acquire("lock")
		f.until(most, func() bool { return b.holds("lock") })
		f.Run(time.Minute)
		if !b.holds("lock") || len(b.ended) > 0 {
			t.Errorf("%s: the other session has lost the lease again", name)
		}
	}
}

// TestSessionAloneMayFailAtOnce: the holders of a session fail again and again, and no other session is there, or no
// other any more. The session acquires the lease as soon as without failures, and lists the seats once per heartbeat
// interval. Beside another session, even if that one's seat cannot be read, it does not list them for this purpose, and
// fails less often.
func TestSessionAloneMayFailAtOnce(t *testing.T) {
	t.Parallel()
	const often = int(time.Minute / beat)
	for name, of := range map[string]struct{ other, leaves, unreadable, alone bool }{
		"alone":                           {alone: true},
		"alone again":                     {other: true, leaves: true, alone: true},
		"beside another":                  {other: true},
		"beside one that nobody can read": {other: true, unreadable: true},
	} {
		f := newFailing(t)
		a := f.join("a")
		if of.other {
			b := f.join("b")
			f.Run(time.Minute)
			if of.unreadable {
				f.unreadable(f.seat(b.member).Key())
			}
			if of.leaves {
				b.Input(engine.Stop{})
			}
		}
		f.Run(time.Minute)
		a.rolls()
		failures, longest := a.failing()
		f.Run(time.Minute)
		n, gap, lists := failures(), longest(), a.rolls()
		if of.alone && (gap > 250*time.Millisecond || n < 240 || lists < often-3 || lists > often+1) {
			t.Errorf("%s: %d failures and %d listings in a minute, with up to %v between two tenures", name, n, lists, gap)
		}
		if !of.alone && (n > often || n < often-4 || lists > 6) {
			t.Errorf("%s: %d failures and %d listings in a minute", name, n, lists)
		}
	}
}

// TestReleaseLeavesNothingToOthers: a holder that has succeeded or has released its lease gets it again at once, also beside
// another session, and also soon after a failure that a success has followed. That costs no listing.
func TestReleaseLeavesNothingToOthers(t *testing.T) {
	f := newFailing(t)
	a := f.join("a")
	f.join("b")
	f.Run(time.Minute)
	a.rolls()
	for range 5 {
		a.lock()
		a.release("lock")
	}
	for range 5 {
		a.lock()
		a.end(a.held["lock"].Tenure)
	}
	if f.Run(time.Second); a.rolls() > 0 {
		t.Error("the session has listed the seats")
	}

	f = newFailing(t)
	a = f.join("a")
	f.Run(time.Minute)
	a.lock()
	a.fail("lock")
	a.lock() // alone
	f.Run(beat - time.Second)
	a.fail("lock")
	a.lock()
	a.release("lock")
	f.join("b")
	f.Run(time.Second)
	a.lock()
}

// TestCallersLearnThatALeaseIsLeft: a session leaves a lease to others after a failure. A caller of that session that only
// tries is told so: at once, when its time is over, or not at all, if it waits for long enough. A caller that waits is
// shown as one.
func TestCallersLearnThatALeaseIsLeft(t *testing.T) {
	for _, of := range []struct{ wait, took time.Duration }{
		{-1, beat / 4}, {time.Second, beat/4 + time.Second}, {0, leftFor}, {time.Minute, leftFor},
	} {
		f := newFailing(t)
		a := f.join("a")
		f.join("b")
		f.Run(time.Minute)
		a.lock()
		a.fail("lock")
		began := f.Now()
		f.Run(beat / 4)
		took := f.attempt(a, try(of.wait)) + beat/4
		if held := of.took == leftFor; held != a.holds("lock") || (took-of.took).Abs() > time.Second/4 {
			t.Errorf("%v: answered after %v, held %t", of.wait, took, a.holds("lock"))
		} else if !held {
			told := a.refused[0]
			ends := f.Now() + told.Left
			if told.Lost || !told.Row.Owner.IsZero() || (ends-began-leftFor).Abs() > 50*time.Millisecond {
				t.Errorf("%v: told %+v", of.wait, told)
			}
		}
		if s := a.Engine.Status(); s.Refused+s.Waited != 1 || (s.Refused == 1) != (of.wait < 0) {
			t.Errorf("%v: %d refused and %d waited", of.wait, s.Refused, s.Waited)
		}
	}
	f := newFailing(t)
	a := f.join("a")
	f.join("b")
	f.Run(time.Minute)
	a.lock()
	a.fail("lock")
	a.acquire("lock")
	a.afterBeat()
	if s := a.Engine.Status(); s.Waited != 1 || s.Waits == 0 || len(f.seat(a.member).Waits) != 1 {
		t.Errorf("%d waited; one waits since %v; the seat shows %v", s.Waited, s.Waits, f.seat(a.member).Waits)
	}
	f.until(leftFor, func() bool { return a.holds("lock") })

	a.afterBeat()
	a.fail("lock")
	a.afterBeat() // the session forgets at times what nobody wants
	if f.attempt(a, try(-1)); len(a.refused) != 1 || a.refused[0].Left == 0 {
		t.Errorf("a heartbeat after the failure: told %v; held %t", a.refused, a.holds("lock"))
	}
}

// TestLeaseIsLeftToAll: after a failure, another session acquires the lease and soon releases it. The session whose holder
// has failed leaves the tombstone to a third one, too.
func TestLeaseIsLeftToAll(t *testing.T) {
	f := newFailing(t)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Minute)
	a.lock()
	a.fail("lock")
	failed := f.Now()
	a.acquire("lock")
	b.lock()
	b.release("lock")
	f.until(2*leftFor, func() bool { return a.holds("lock") })
	if took := f.Now() - failed; took < leftFor {
		t.Errorf("acquired %v after the failure", took)
	}
}

// TestLeaseIsNotLeftForLong: the seats cannot be listed, or a reservation is for the session whose holder has failed. In
// the first case the session acquires the lease when the time is over, and a caller that only tries gets an answer. In
// the second it does not leave to others what they may not acquire.
func TestLeaseIsNotLeftForLong(t *testing.T) {
	f := newFailing(t)
	a := f.join("a")
	f.Run(time.Second)
	f.deaf = func(n *member, o engine.Output) bool {
		if !lists(o, lease.KindSeat) {
			return false
		}
		n.Answer(time.Second, unanswered(o))
		return true
	}
	a.lock()
	a.fail("lock")
	if took := f.attempt(a, try(-1)); took > 2*time.Second || len(a.refused) != 1 || a.refused[0].Left == 0 {
		t.Errorf("answered after %v: %v", took, a.refused)
	}
	a.acquire("lock")
	f.until(leftFor, func() bool { return a.holds("lock") })

	f = newFailing(t)
	slow := f.config
	slow.TTL = 10 * leaseTime // so a's time is not over
	a = f.joinWith("a", slow)
	b := f.join("b")
	f.Run(time.Second)
	a.lock()
	a.fail("lock")
	a.acquire("lock")
	f.Run(time.Second)
	b.lock()
	r := f.row("lock")
	hold := lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation}
	f.write(protocol.Reserve(r, hold, lease.Reservation{For: "a", Lasts: time.Hour}, "ann", protocol.End{Reason: lease.ReasonHandoff}, f.stamp()))
	f.until(10*beat+time.Second, func() bool { return a.holds("lock") })
}

// TestTwoFailingSessionsQuarantine: the holders of two sessions fail, and both ask again at once. Their failures are under
// two names, so the lease is quarantined after as many failures as the limit says, although a third session has not tried.
func TestTwoFailingSessionsQuarantine(t *testing.T) {
	const most = 5
	f := newFailing(t)
	a, b := f.join("a"), f.join("b")
	f.join("c")
	f.Run(time.Minute)
	ofA, _ := a.failing(maxAttempts(most))
	ofB, _ := b.failing(maxAttempts(most))
	f.until(2*most*beat, func() bool { return f.row("lock").Quarantined })
	r := f.row("lock")
	if r.Attempts() != most || ofA()+ofB() != most || ofA() == 0 || ofB() == 0 {
		t.Errorf("a has failed %d times, b %d times: %v", ofA(), ofB(), r)
	}
	if all := append(a.reports(event.Quarantined), b.reports(event.Quarantined)...); len(all) != 1 {
		t.Errorf("reported %v", all)
	}
}
