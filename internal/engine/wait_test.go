package engine_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestFaultOfSeatReadsLasts: the reads of a holder's seat fail, and nothing else. The fault of the waiting session
// lasts as long, although the store answers its other calls.
func TestFaultOfSeatReadsLasts(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	a.acquire("lock")
	f.Run(5 * time.Second)
	b.mute = func(o engine.Output) bool {
		get, ok := o.(engine.Get)
		return ok && get.Key.Kind == lease.KindSeat
	}
	b.acquire("lock")
	f.Run(time.Minute)
	if all := b.reports(event.StoreFault); len(all) == 0 || slices.ContainsFunc(all, func(e told) bool { return e.Over }) {
		t.Errorf("b reports %v", all)
	}
	b.mute = nil
	f.Run(20 * time.Second)
	if all := b.reports(event.StoreFault); len(all) == 0 || !all[len(all)-1].Over {
		t.Errorf("b reports %v", all)
	}
}

// TestFaultOfARowThatNobodyWants: no transition accepts the row of a lost lease, because its counter has reached its limit.
// The caller gives up, and the fault ends.
func TestFaultOfARowThatNobodyWants(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	a.acquire("lock", func(in *engine.Acquire) { in.LockDelay = 5 * time.Second })
	f.Run(5 * time.Second)
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
	f.Run(40 * time.Second)
	b.Input(engine.Forgo{Name: "lock", ID: id})
	f.Run(time.Minute)
	if all := b.reports(event.StoreFault); len(all) == 0 || !all[len(all)-1].Over {
		t.Errorf("b reports %v", all)
	}
}

// TestManyLosses: a session has seen more lost leases than it remembers, and callers try for two more with a lock delay. They
// acquire both, whatever their names are, because the leases that were lost first make room.
func TestManyLosses(t *testing.T) {
	t.Parallel()
	const many = 2100
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	delay := func(in *engine.Acquire) { in.LockDelay = 30 * time.Second }
	f.Run(2 * time.Second)
	name := func(i int) string { return fmt.Sprintf("lease-%05d", i) } // between the names of the two
	for i := range many {
		a.acquire(name(i), delay)
	}
	last := []string{"a", "z"}
	for _, name := range last {
		a.acquire(name, delay)
	}
	f.Run(4 * time.Second)
	a.Kill()
	f.Run(time.Second)
	ids := map[string]uint64{}
	for i := range many {
		ids[name(i)] = b.acquire(name(i), delay)
	}
	f.Run(13 * time.Second)
	for name, id := range ids {
		b.Input(engine.Forgo{Name: name, ID: id})
	}
	for range 12 {
		for _, name := range last {
			if _, held := b.held[name]; !held {
				b.acquire(name, delay, func(in *engine.Acquire) { in.Try, in.Wait = true, -1 })
			}
		}
		f.Run(5 * time.Second)
	}
	for _, name := range last {
		if _, held := b.held[name]; !held {
			t.Errorf("%s is not acquired within a minute", name)
		}
	}
}

func lockDelay(d time.Duration) func(*engine.Acquire) {
	return func(a *engine.Acquire) { a.LockDelay = d }
}

// TestWaiterEvictsTheDead: after the lease time of the dead session, and not before.
func TestWaiterEvictsTheDead(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	b.acquire("lock")
	f.Run(time.Minute)
	died := f.Now()
	a.Kill()
	f.until(leaseTime+beat, func() bool { return b.holds("lock") })
	if took := f.Now() - died; took < leaseTime-beat {
		t.Errorf("evicted after %v", took)
	}
	if r := f.row("lock"); r.Last.Reason != lease.ReasonExpired || r.Last.From != "a" {
		t.Errorf("acquired as %v", r.Last)
	}
}

// TestLockDelay: after a session was lost, nobody acquires its lease for its lock delay, counted from
// when the waiter sees that the seat is gone; after a release at once.
func TestLockDelay(t *testing.T) {
	const delay = 7 * time.Second
	f := newContest(t, 1)
	a, b, c := f.join("a"), f.join("b"), f.join("c")
	f.Run(time.Second)
	a.lock(lockDelay(delay))
	b.acquire("lock", lockDelay(delay))
	a.release("lock")
	if took := f.until(5*time.Second, func() bool { return b.holds("lock") }); took >= delay {
		t.Errorf("after a release, acquired after %v", took)
	}
	b.Kill()
	c.acquire("lock")
	gone := time.Duration(0)
	f.until(time.Minute, func() bool {
		if gone == 0 && f.seat(b.member).Incarnation == "" {
			gone = f.Now()
			a.acquire("lock", try(-1))
		}
		return c.holds("lock")
	})
	if waited := f.Now() - gone; gone == 0 || waited < delay || waited > delay+time.Second {
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
		f := newContest(t, 1)
		a, b := f.join("a"), f.join("b")
		f.Run(time.Second)
		a.lock(lockDelay(delay))
		b.acquire("lock")
		a.Stuck = true
		a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Mark: checkpoint.Mark{Position: "7"}, Seq: 1})
		a.Input(engine.Stop{})
		stopped := f.Now()
		f.until(f.config.Drain+time.Second, a.Engine.Done)
		gone := f.Now()
		if took := gone - stopped; took < f.config.Drain {
			t.Errorf("with a lock delay of %v, the session ends after %v", delay, took)
		}
		waited := f.until(time.Minute, func() bool { return b.holds("lock") })
		if waited < delay || waited > delay+5*time.Second {
			t.Errorf("with a lock delay of %v, acquired %v after the holder was cut off", delay, waited)
		}
		if r := f.row("lock"); r.Checkpoint.Position != "7" {
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
		f := newContest(t, 1)
		a, b := f.join("a"), f.join("b")
		f.Run(time.Second)
		a.lock(lockDelay(delay))
		a.Kill()
		f.write(protocol.Evict(f.seat(a.member))) // another session has evicted it
		gone, acquired := f.Now(), time.Duration(0)
		b.started = func(engine.Start) { acquired = f.Now() }
		for polls := 0; !b.holds("lock"); polls++ {
			if polls > int(2*delay/poll.every)+2 {
				t.Errorf("%s: not acquired in %v", name, f.Now()-gone)
				break
			}
			id := b.acquire("lock", func(in *engine.Acquire) { in.Try = poll.wait == 0 })
			f.Run(poll.wait)
			if poll.wait > 0 {
				b.Input(engine.Forgo{Name: "lock", ID: id})
			}
			f.Run(poll.every - poll.wait)
		}
		if since := acquired - gone; acquired > 0 && since < delay {
			t.Errorf("%s: acquired %v after the holder was gone, want at least %v", name, since, delay)
		}
	}
}

// reassign takes the lease "lock" from its holder and reserves it for a name. The time of the command is
// ahead of the sessions' clocks.
func (c *contest) reassign(to string, lasts, ahead time.Duration) {
	c.Helper()
	row, stamp := c.row("lock"), c.stamp()
	stamp.At = stamp.At.Add(ahead)
	c.write(protocol.Reassign(row, seen(row), lease.Reservation{For: to, Lasts: lasts}, stamp))
}

// TestCommandKeepsTheLockDelay: a command takes a lease from a holder with a lock delay. No session acquires the lease
// before the delay has passed, also not the one for whose name it is reserved, whatever the wall clock of the command
// shows. Then one that waits does, and one that only tries now and then.
func TestCommandKeepsTheLockDelay(t *testing.T) {
	const delay, lasts = 20 * time.Second, 30 * time.Second
	for name, of := range map[string]struct {
		to    string
		none  bool
		ahead time.Duration
		every time.Duration // how often a caller tries; 0: it waits
		least time.Duration
	}{
		"a release":                              {least: delay},
		"a release by a clock that is behind":    {ahead: -time.Hour, least: delay},
		"a release, and a caller that tries":     {every: 5 * time.Second, least: delay},
		"a release, and one that tries rarely":   {every: 3 * time.Minute, least: delay},
		"a release without the delay":            {none: true},
		"for the session that waits":             {to: "b", least: delay},
		"by a clock that is behind":              {to: "b", ahead: -time.Hour, least: delay},
		"for nobody":                             {to: "nobody", least: delay + lasts},
		"for nobody, by a clock that is behind":  {to: "nobody", ahead: -time.Hour, least: delay},
		"for the session that waits, at once":    {to: "b", none: true},
		"for the session that tries, with delay": {to: "b", every: 5 * time.Second, least: delay},
	} {
		f := newContest(t, 1)
		a, b := f.join("a"), f.join("b")
		f.Run(time.Second)
		a.lock(lockDelay(delay))
		if of.every == 0 {
			b.acquire("lock")
			f.Run(time.Second)
		}
		row, stamp := f.row("lock"), f.stamp()
		stamp.At = stamp.At.Add(of.ahead)
		c := seen(row)
		c.NoDelay = of.none
		if of.to == "" {
			f.write(protocol.ForceRelease(row, c, stamp))
		} else {
			f.write(protocol.Reassign(row, c, lease.Reservation{For: of.to, Lasts: lasts}, stamp))
		}
		from, acquired := f.Now(), time.Duration(0)
		b.started = func(engine.Start) { acquired = f.Now() }
		for f.Now() < from+10*time.Minute && !b.holds("lock") {
			if of.every > 0 {
				b.acquire("lock", func(in *engine.Acquire) { in.Try = true })
			}
			f.Run(max(of.every, time.Second))
		}
		late := 2*f.config.TTL/3 + 2*of.every
		if waited := acquired - from; acquired == 0 || waited < of.least || waited > of.least+late {
			t.Errorf("%s: acquired after %v, want %v", name, waited, of.least)
		}
		if of.every > 0 && of.every < delay && (len(b.refused) == 0 || !b.refused[0].Lost) {
			t.Errorf("%s: during the lock delay a try is told %v", name, b.refused)
		}
	}
}

// TestReservedLeaseGoesToItsName: a lease that was taken from a session that hangs goes to the session
// with the stated name, although others have waited for longer and the named one begins to wait late.
func TestReservedLeaseGoesToItsName(t *testing.T) {
	f := newContest(t, 1)
	a, b, c := f.join("a"), f.join("b"), f.join("c")
	f.Run(time.Second)
	a.lock()
	c.acquire("lock")
	f.Run(time.Minute)
	f.reassign("b", time.Minute, 0)
	f.Run(30 * time.Second)
	if c.holds("lock") {
		t.Fatal("another session has acquired the reserved lease")
	}
	b.acquire("lock")
	if took := f.until(time.Minute, func() bool { return b.holds("lock") }); took > beat+time.Second {
		t.Errorf("the named session has acquired the lease after %v", took)
	}
	b.release("lock")
	f.until(10*time.Second, func() bool { return c.holds("lock") }) // the next release reserves nothing
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
		f := newContest(t, 1)
		a, c, d := f.join("a"), f.join("c"), f.join("d")
		f.Run(time.Second)
		a.lock()
		if of.late == 0 {
			c.acquire("lock")
		}
		f.Run(10 * time.Second)
		f.reassign("nobody", lasts, of.ahead)
		from := f.Now()
		f.Run(of.late)
		if of.late == 0 {
			f.Run(pause)
			d.acquire("lock", func(in *engine.Acquire) { in.Try = true })
			f.Run(pause)
			if len(d.refused) != 1 || d.refused[0].Row.Reserved.For != "nobody" {
				t.Errorf("%s: a try is told %v", name, d.refused)
			}
		} else {
			c.acquire("lock")
		}
		f.until(2*time.Hour, func() bool { return c.holds("lock") })
		if waited := f.Now() - from; waited < of.least || waited > of.least+pause {
			t.Errorf("%s: acquired after %v, want %v", name, waited, of.least)
		}
	}
}

// TestReservationEndsForThoseWhoTry: also for a session that only tries now and then, although the clock of the
// command was ahead: the time counts from its first try.
func TestReservationEndsForThoseWhoTry(t *testing.T) {
	const lasts = time.Minute
	for _, every := range []time.Duration{time.Second, 40 * time.Second, 5 * time.Minute} {
		f := newContest(t, 1)
		a, c := f.join("a"), f.join("c")
		f.Run(time.Second)
		a.lock()
		f.reassign("nobody", lasts, time.Hour)
		from := f.Now()
		for !c.holds("lock") && f.Now()-from < 30*time.Minute {
			c.acquire("lock", func(in *engine.Acquire) { in.Try = true })
			f.Run(every)
		}
		if waited := f.Now() - from; waited < lasts || waited > lasts+2*every {
			t.Errorf("with a try every %v, acquired after %v", every, waited)
		}
	}
}

// TestWaiterReportsAnUnreadableRow: once, and as over when it can be read, or when nobody waits any more.
func TestWaiterReportsAnUnreadableRow(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	key := lease.Key{Group: "g", Kind: lease.KindLease, Name: "lock"}
	f.unreadable(key)
	b.acquire("lock")
	f.Run(5 * time.Second)
	if said := b.reports(event.Malformed); len(said) != 1 || said[0].Shard != "lock" || said[0].Over {
		t.Errorf("an unreadable row is reported as %v", said)
	}
	delete(f.table.Unreadable, key)
	f.Run(10 * time.Second)
	if said := b.reports(event.Malformed); len(said) != 2 || !said[1].Over {
		t.Errorf("after the row was mended, the reports are %v", said)
	}
	f.table.Unreadable[key] = true
	f.Run(10 * time.Second)
	b.Input(engine.Forgo{Name: "lock", ID: f.id})
	f.Run(time.Second)
	if said := b.reports(event.Malformed); len(said) < 4 || !said[len(said)-1].Over {
		t.Errorf("when nobody waits any more, the reports are %v", said)
	}
}

// TestWaiterEvictsAnUnreadableSeat: when nothing has written it for ten lease times, and never while its
// session beats.
func TestWaiterEvictsAnUnreadableSeat(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	f.unreadable(f.seat(a.member).Key())
	b.acquire("lock")
	f.Run(10 * time.Minute)
	if len(a.ended) > 0 || !a.holds("lock") {
		t.Fatalf("a holder that beats lost %v", a.ended)
	}
	if said := b.reports(event.Malformed); len(said) == 0 || said[0].Over {
		t.Errorf("an unreadable seat is reported as %v", said)
	}
	limit := 10 * leaseTime
	a.mute = func(engine.Output) bool { return true }
	f.Run(8 * time.Second)
	a.Pause()                             // it keeps its seat
	b.mute = func(o engine.Output) bool { // it beats once more, just before the eviction arrives
		send, ok := o.(engine.Send)
		if !ok || send.Write.Op != lease.OpDelete {
			return false
		}
		b.mute = nil
		seat := f.table.Read(send.Write.Key()).(lease.Seat)
		f.write(protocol.NextBeat(seat, seat.Says, f.stamp()))
		return false
	}
	f.until(limit+10*time.Second, func() bool { return b.mute == nil })
	f.Run(time.Second)
	if b.holds("lock") {
		t.Fatal("evicted by a deletion that the table refuses")
	}
	if took := f.until(limit+10*time.Second, func() bool { return b.holds("lock") }); took < limit-4*time.Second {
		t.Errorf("evicted after %v, want ten lease times", took)
	}
	f.Run(leaseTime / 2) // it has a heartbeat to send
	if said := b.reports(event.Malformed); !said[len(said)-1].Over || len(b.reports(event.PeerEvicted)) != 1 {
		t.Errorf("after the eviction, the reports are %v", said)
	}
}

// TestTryAcquireIsAnswered: who holds the lease; and one that is finished is never acquired.
func TestTryAcquireIsAnswered(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock(func(in *engine.Acquire) { in.Task = "run 7" })
	id := b.acquire("lock", func(in *engine.Acquire) { in.Try = true })
	f.Run(time.Second)
	if len(b.refused) != 1 || b.refused[0].ID != id || b.refused[0].Lost || b.refused[0].Row.Owner.Task != "run 7" {
		t.Fatalf("told %v", b.refused)
	}
	a.Input(engine.Marks{Tenure: a.held["lock"].Tenure, Finish: true})
	f.Run(time.Second)
	b.acquire("lock")
	f.Run(time.Second)
	if len(b.refused) != 2 || !b.refused[1].Row.Finished {
		t.Errorf("told %v of a finished lease", b.refused)
	}
	b.acquire("other", func(in *engine.Acquire) { in.Try = true })
	f.until(time.Second, func() bool { return b.holds("other") })
}

// TestWaitersAreFair: of 100 that wait for one lease, the longest waits at most five times the mean.
func TestWaitersAreFair(t *testing.T) {
	f := newContest(t, 1)
	var waits []time.Duration
	from := time.Duration(0)
	for i := range 100 {
		g := f.join(fmt.Sprint("s", i))
		g.started = func(o engine.Start) {
			waits = append(waits, f.Now()-from)
			g.apply(o.Tenure)
			g.Later(100*time.Millisecond, func() { g.release("lock") })
		}
		f.After(5*time.Second, func() { from = f.Now(); g.acquire("lock") })
	}
	f.until(time.Hour, func() bool { return len(waits) == 100 })
	if mean, longest := fixture.Mean(waits), slices.Max(waits); longest > 5*mean {
		t.Errorf("the longest of 100 waiters waited %v, the mean is %v", longest, mean)
	}
}
