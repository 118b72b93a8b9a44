package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// In these tests, holders of leases by name die, stall and fail.

func stallAfter(d time.Duration) func(*engine.Acquire) {
	return func(in *engine.Acquire) { in.StallAfter = d }
}

func maxAttempts(n int64) func(*engine.Acquire) {
	return func(in *engine.Acquire) { in.MaxAttempts = n }
}

// fail makes the holder of the lease return an error.
func (s *session) fail(name string) {
	id := s.held[name].Tenure
	delete(s.held, name)
	s.Return(id, true)
}

// try makes a caller of the session try to acquire the lease, and reports whether it does.
func (s *session) try(name string, edit ...func(*engine.Acquire)) bool {
	s.acquire(name, append(edit, func(in *engine.Acquire) { in.Try = true })...)
	s.c.Run(time.Second)
	return s.holds(name)
}

// TestStalledHolderLosesItsLease: a holder that is silent for StallAfter is asked to let go, and loses the lease when
// it has not done so in the drain time. If it has a lock delay, the next holder begins that much later. The row counts
// one failure. A holder that shows signs of progress keeps the lease.
func TestStalledHolderLosesItsLease(t *testing.T) {
	const stall = 15 * time.Second
	for name, of := range map[string]struct {
		stuck bool
		delay time.Duration
		least time.Duration // from the last sign until the next holder begins
	}{
		"lets go":                    {least: stall},
		"hangs":                      {stuck: true, least: stall + 20*time.Second},
		"hangs, with a lock delay":   {stuck: true, delay: 7 * time.Second, least: stall + 27*time.Second},
		"lets go, with a lock delay": {delay: 7 * time.Second, least: stall},
	} {
		f := newContest(t, 1)
		a, b := f.join("a"), f.join("b")
		f.Run(time.Second)
		a.lock(stallAfter(stall), lockDelay(of.delay))
		a.Stuck = of.stuck
		b.acquire("lock")
		for range 10 {
			f.Run(stall - time.Second)
			a.Input(engine.Marks{Tenure: a.held["lock"].Tenure})
		}
		sign := f.Now()
		f.until(2*time.Minute, func() bool { return b.holds("lock") })
		if took := f.Now() - sign; took < of.least || took > of.least+beat+time.Second {
			t.Errorf("%s: acquired %v after the last sign, want %v", name, took, of.least)
		}
		if r := f.row("lock"); r.Attempts() != 1 || r.Failed() != 1 || r.Last.Reason != lease.ReasonStalled {
			t.Errorf("%s: %v with %d attempts", name, r, r.Attempts())
		}
		if all := a.reports(event.Draining); len(all) != 1 || all[0].Cause != event.CauseStalled {
			t.Errorf("%s: a reports %v", name, all)
		}
	}
}

// TestTryDuringOnesOwnLockDelay: a holder has stalled, and its lock delay is not over. A caller of the same session
// that only tries is told so at once.
func TestTryDuringOnesOwnLockDelay(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.lock(stallAfter(10*time.Second), lockDelay(time.Minute))
	a.Stuck = true
	f.until(time.Minute, func() bool { return len(a.ended) == 1 })
	if a.try("lock") || len(a.refused) != 1 || !a.refused[0].Lost {
		t.Errorf("told %v", a.refused)
	}
	f.Run(time.Minute)
	if !a.try("lock") {
		t.Error("not acquired after the lock delay")
	}
}

// TestBudgetDuringOnesOwnLockDelay: a caller that tries waits for the end of its own session's lock delay if that is near, or
// if it wants to wait for so long. Others are told when their time is over. The call is counted as any other that finds a
// lease taken, and so is a call that does not try.
func TestBudgetDuringOnesOwnLockDelay(t *testing.T) {
	for _, of := range []struct{ delay, wait, took time.Duration }{
		{5 * time.Second, -1, 0}, {5 * time.Second, 2 * time.Second, 2 * time.Second},
		{5 * time.Second, 0, 5 * time.Second}, {30 * time.Second, time.Minute, 30 * time.Second}, {30 * time.Second, 0, 0},
	} {
		f := newContest(t, 1)
		a := f.join("a")
		f.Run(time.Second)
		a.lock(stallAfter(10*time.Second), lockDelay(of.delay))
		a.Stuck = true
		f.until(time.Minute, func() bool { return len(a.ended) == 1 })
		got := f.attempt(a, try(of.wait))
		if got < of.took || got > of.took+beat || a.holds("lock") != (of.took == of.delay) {
			t.Errorf("%v: answered after %v, held %t", of, got, a.holds("lock"))
		}
		if !a.holds("lock") && !a.refused[0].Lost {
			t.Errorf("%v: told %v", of, a.refused)
		}
		refused := 0
		if of.took == 0 {
			refused = 1
		}
		if s := a.Engine.Status(); s.Refused != refused || s.Waited != 1-refused || s.Waits > 0 {
			t.Errorf("%v: %d refused and %d waited; one waits since %v", of, s.Refused, s.Waited, s.Waits)
		}
	}
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.lock(stallAfter(10*time.Second), lockDelay(time.Minute))
	a.Stuck = true
	f.until(time.Minute, func() bool { return len(a.ended) == 1 })
	a.acquire("lock")
	f.Run(2 * beat)
	if s := a.Engine.Status(); s.Waited != 1 || s.Waits == 0 || len(f.seat(a.member).Waits) != 1 {
		t.Errorf("%d waited; one waits since %v; the seat shows %v", s.Waited, s.Waits, f.seat(a.member).Waits)
	}
	f.until(time.Minute, func() bool { return a.holds("lock") })
	if s := a.Engine.Status(); s.Waited != 1 || s.Waits > 0 || s.Refused > 0 {
		t.Errorf("after the wait: %d waited, %d refused; one waits since %v", s.Waited, s.Refused, s.Waits)
	}
}

// TestSilentHolderIsReported: once it has shown a sign of progress, or if it has a StallAfter. The holder of a plain lock
// need not show any, and the session says so on its seat.
func TestSilentHolderIsReported(t *testing.T) {
	t.Parallel()
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.lock()
	f.Run(fixture.Size(4*time.Hour, 24*time.Hour))
	a.never(event.Silent)
	a.Input(engine.Marks{Tenure: a.held["lock"].Tenure})
	f.Run(4 * time.Minute)
	a.never(event.Silent)
	f.Run(time.Minute + time.Second)
	if all := a.reports(event.Silent); len(all) != 1 || all[0].Shard != "lock" || all[0].Over {
		t.Fatalf("a reports %v", all)
	}
	f.Run(beat)
	if says := f.seat(a.member).Health; says.Silent != 1 || says.SilentSince.IsZero() {
		t.Errorf("its seat says %+v", says)
	}
	a.Input(engine.Marks{Tenure: a.held["lock"].Tenure})
	f.Run(2 * beat)
	if all := a.reports(event.Silent); len(all) < 2 || !all[len(all)-1].Over || f.seat(a.member).Health.Silent != 0 {
		t.Errorf("a reports %v", all)
	}
	a.release("lock")
	f.Run(time.Second)
	a.Stuck = true
	reported := len(a.reports(event.Silent))
	a.acquire("lock", stallAfter(10*time.Second))
	f.Run(12 * time.Second)
	if all := a.reports(event.Silent); len(all) != reported+1 {
		t.Errorf("a reports %v", all)
	}
}

// TestDeathsQuarantineALease: an item kills each of its holders. When it has killed as many as the limit says, the next
// session that wants it quarantines it, after one listing of the seats, and nobody dies of it again. Sessions may die
// under one name or under several.
func TestDeathsQuarantineALease(t *testing.T) {
	const most = 12
	for _, names := range []int{1, 3} {
		f := newContest(t, 1)
		f.censuses = true
		all, deaths := []*session(nil), 0
		for {
			if deaths < names {
				all = append(all, f.join(fmt.Sprint("s", deaths)))
			} else {
				all[deaths%names].boot()
			}
			s := all[deaths%names]
			f.Run(time.Second)
			s.acquire("item", maxAttempts(most))
			for range 30 {
				if f.Run(time.Second); s.holds("item") || f.row("item").Quarantined {
					break
				}
			}
			if !s.holds("item") {
				r := f.row("item")
				if all := s.reports(event.Quarantined); !r.Quarantined || r.Attempts() != most || len(all) != 1 || all[0].Attempt != most {
					t.Errorf("under %d names: %v with %d attempts; reports %v", names, r, r.Attempts(), all)
				}
				if f.censused != 1 {
					t.Errorf("under %d names: the seats were listed %d times", names, f.censused)
				}
				if s.acquire("item", maxAttempts(-1)); s.try("other") && len(s.refused) > 0 {
					t.Errorf("told %v", s.refused)
				}
				break
			}
			s.Kill()
			deaths++
			if deaths > most {
				break
			}
		}
		if deaths != most {
			t.Errorf("under %d names: %d holders have died", names, deaths)
		}
	}
}

// TestLastCommitOfTheDeadEndsTheCount: the last commit of a dead holder is stored after the next session has read the row,
// and just before that session would quarantine the lease. The holder has progressed, so the session acquires the lease.
func TestLastCommitOfTheDeadEndsTheCount(t *testing.T) {
	f := newContest(t, 1)
	f.censuses = true
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	b.lock(maxAttempts(2))
	b.fail("lock")
	f.Run(time.Second)
	a.lock(maxAttempts(2))
	a.Kill()
	tried := 0
	f.table.Store = beforeWrite{f.table.Store, func(w lease.Write) {
		next, is := w.Next.(lease.Row)
		if !is || !next.Quarantined {
			return
		}
		if tried++; tried == 1 {
			r := f.row("lock")
			f.write(protocol.Commit(r, lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation}, mark("1"), f.stamp()))
		}
	}}
	b.acquire("lock", maxAttempts(2))
	f.Run(time.Minute)
	if r := f.row("lock"); tried != 1 || !b.holds("lock") || r.Attempts() != 1 || r.Checkpoint.Position != "1" {
		t.Errorf("quarantined %d times: %v after %d attempts", tried, r, r.Attempts())
	}
}

// TestOneSessionDoesNotQuarantine: failures under one name do not quarantine a lease while the seats show another
// session: that one may be able to do it. When it has failed too, the lease is quarantined, and a caller that tries is
// told so.
func TestOneSessionDoesNotQuarantine(t *testing.T) {
	f := newContest(t, 1)
	f.censuses = true
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	for range 6 {
		if !a.try("item", maxAttempts(3)) {
			t.Fatalf("not acquired: %v", f.row("item"))
		}
		a.fail("item")
		f.Run(leftFor)
	}
	if !b.try("item", maxAttempts(3)) {
		t.Fatalf("not acquired: %v", f.row("item"))
	}
	b.fail("item")
	f.Run(time.Second)
	if a.try("item", maxAttempts(3)) || len(a.refused) != 1 || !a.refused[0].Row.Quarantined {
		t.Errorf("told %v; the row is %v", a.refused, f.row("item"))
	}
	if r := f.row("item"); r.Last.Reason != lease.ReasonFailed || r.Attempts() != 7 {
		t.Errorf("quarantined as %v after %d attempts", r, r.Attempts())
	}
	f.write(protocol.Unquarantine(f.row("item"), seen(f.row("item")), f.stamp()))
	if !a.try("item", maxAttempts(3)) {
		t.Errorf("not acquired after the quarantine: %v", f.row("item"))
	}
}

// TestFailingListingHoldsNoTry: the seats cannot be listed, so it is not known whether a lease that has failed too often has
// to be quarantined. A caller that tries is refused when a listing has failed, or when its budget is over, and is counted.
// When the seats can be listed again, one that waits gets an answer.
func TestFailingListingHoldsNoTry(t *testing.T) {
	for _, dead := range []bool{false, true} {
		f := newContest(t, 1)
		f.censuses = true
		a, b := f.join("a"), f.join("b")
		f.Run(time.Second)
		a.lock(maxAttempts(2))
		a.fail("lock")
		f.Run(time.Second)
		if b.lock(maxAttempts(2)); dead {
			b.Kill()
			f.until(3*time.Minute, func() bool { return f.seat(b.member).Incarnation == "" })
		} else {
			b.fail("lock")
		}
		f.Run(time.Second)
		f.deaf = func(n *member, o engine.Output) bool {
			if n != a.member || !lists(o, lease.KindSeat) {
				return false
			}
			n.Answer(time.Second, unanswered(o))
			return true
		}
		least := time.Second
		for _, wait := range []time.Duration{-1, 0, 30 * time.Second} {
			if took, want := f.attempt(a, try(wait), maxAttempts(2)), max(least, wait); took < want-100*time.Millisecond || took > want+2*time.Second || a.holds("lock") {
				t.Errorf("its holder is dead: %t, budget %v: answered after %v; held %t", dead, wait, took, a.holds("lock"))
			}
			least = 0 // a listing has failed already
		}
		if s := a.Engine.Status(); s.Refused+s.Waited != 3 || len(a.refused) != 3 || a.refused[0].Row.Quarantined {
			t.Errorf("its holder is dead: %t: status %+v, told %v", dead, s, a.refused)
		}
		a.acquire("lock", maxAttempts(2))
		f.Run(time.Minute)
		f.deaf = nil
		f.until(time.Minute, func() bool { return f.row("lock").Quarantined })
	}
}

// TestNewSessionMayTry: a session that was alone has quarantined a lease. Then another session joins, which may be able
// to do what the first one fails.
func TestNewSessionMayTry(t *testing.T) {
	f := newContest(t, 1)
	f.censuses = true
	a := f.join("a")
	f.Run(time.Second)
	failAll := func(name string) (times int) {
		for ; times < 5 && a.try(name, maxAttempts(3)); times++ {
			a.fail(name)
			f.Run(leftFor)
		}
		return times
	}
	if n := failAll("first"); n != 3 || !f.row("first").Quarantined {
		t.Errorf("alone, it has tried %d times: %v", n, f.row("first"))
	}
	f.join("b")
	f.Run(time.Second)
	if n := failAll("second"); n != 5 {
		t.Errorf("beside another session, it has tried %d times: %v", n, f.row("second"))
	}
}

// TestFailureThatAStopOvertakes: the engine is told to stop before it learns that a holder has failed. That counts if
// nobody had asked the holder to return. An error with which it winds down is no failure.
func TestFailureThatAStopOvertakes(t *testing.T) {
	for unasked, attempts := range map[bool]int64{true: 1, false: 0} {
		f := newContest(t, 1)
		a := f.join("a")
		f.Run(time.Second)
		a.Stuck = true
		if !a.try("item", maxAttempts(5)) {
			t.Fatalf("not acquired: %v", f.row("item"))
		}
		id := a.held["item"].Tenure
		a.Input(engine.Stop{})
		a.Handlers.Remove(id)
		a.Input(engine.Returned{Tenure: id, Failed: true, Unasked: unasked})
		f.Run(time.Second)
		if r := f.row("item"); r.Attempts() != attempts {
			t.Errorf("unasked %v: %v with %d attempts", unasked, r, r.Attempts())
		}
	}
}

// TestFailuresCountUntilASuccess: a lease that has failed keeps its count when it is released, and when an acquisition
// is given back. The count ends with a success: its holder returns without an error, or reports progress. Without a
// limit a release forgets the failures.
func TestFailuresCountUntilASuccess(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	take := func(edit ...func(*engine.Acquire)) {
		t.Helper()
		if !a.try("item", edit...) {
			t.Fatalf("not acquired: %v", f.row("item"))
		}
	}
	want := func(what string, attempts int64, removed bool) {
		t.Helper()
		f.Run(time.Second)
		if r := f.row("item"); r.Attempts() != attempts || r.Removed != removed {
			t.Errorf("%s: %v with %d attempts", what, r, r.Attempts())
		}
	}
	fail := func() {
		t.Helper()
		take(maxAttempts(5))
		a.fail("item")
	}
	fail()
	want("a failure", 1, false)
	take(maxAttempts(5))
	a.release("item")
	want("a release", 1, false)
	fail()
	want("another failure", 2, false)
	id := uint64(0)
	a.mute = func(o engine.Output) bool {
		if sends(o, lease.KindLease) {
			a.mute = nil
			a.Later(0, func() { a.Input(engine.Forgo{Name: "item", ID: id}) })
		}
		return false
	}
	id = a.acquire("item", maxAttempts(5))
	want("an acquisition that nobody wants any more", 2, false)
	if last := f.row("item").Last; last.Note != "not started" {
		t.Errorf("nothing was given back: %v", last)
	}
	take(maxAttempts(5))
	held := a.held["item"].Tenure
	delete(a.held, "item")
	a.Return(held, false)
	want("a success", 0, true)
	fail()
	take()
	a.release("item")
	want("a release without a limit", 0, true)
	fail()
	take(maxAttempts(5))
	a.Input(engine.Marks{Tenure: a.held["item"].Tenure, Progress: true})
	f.Run(time.Second)
	a.release("item")
	want("progress", 0, false)
}
