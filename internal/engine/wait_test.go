package engine_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

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

func lockDelay(d time.Duration) func(*engine.Acquire) {
	return func(a *engine.Acquire) { a.LockDelay = d }
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
