package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// beats notes when the session sends heartbeats.
func (s *session) beats(note func()) {
	s.mute = func(o engine.Output) bool {
		if sends(o, lease.KindSeat) {
			note()
		}
		return false
	}
}

// afterBeat runs the contest until the session has just stored a heartbeat.
func (s *session) afterBeat() {
	s.c.Helper()
	before := s.c.seat(s.member).Beat
	s.c.until(2*beat, func() bool { return s.c.seat(s.member).Beat > before })
}

// TestWaitStandsOnTheSeat: the seat of a session that waits shows the lease, the task and since when, from its next
// heartbeat on; no heartbeat is sent for that. A wait that ends before that heartbeat is never shown, and one that has
// ended by an acquisition, because its caller gave up or because the session stops is shown no more.
func TestWaitStandsOnTheSeat(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	var last time.Duration
	b.beats(func() {
		if now := f.Now(); last > 0 && now-last < beat*9/10 {
			t.Errorf("a heartbeat follows after %v", now-last)
		}
		last = f.Now()
	})
	waits := func() []lease.Wait { return f.seat(b.member).Waits }
	shows := func(want int) {
		t.Helper()
		b.afterBeat()
		if got := waits(); len(got) != want || f.seat(b.member).WaitsLeft != 0 {
			t.Errorf("the seat shows %v, want %d waits", got, want)
		}
	}
	task := func(in *engine.Acquire) { in.Task = "deploy/7" }

	b.afterBeat()
	id := b.acquire("lock", task)
	f.Run(beat / 2)
	b.Input(engine.Forgo{Name: "lock", ID: id})
	shows(0)

	wall := b.Moment().Wall
	id = b.acquire("lock", task)
	shows(1)
	if w := waits()[0]; w.Lease != "lock" || w.Task != "deploy/7" || w.Since.Sub(wall).Abs() > time.Second {
		t.Errorf("the seat shows %v, the wait began at %v", w, wall)
	}
	since := waits()[0].Since
	f.Run(time.Minute)
	shows(1)
	if w := waits()[0]; !w.Since.Equal(since) {
		t.Errorf("the wait began at %v and at %v", since, w.Since)
	}
	b.Input(engine.Forgo{Name: "lock", ID: id})
	shows(0)

	b.acquire("lock")
	b.acquire("other")
	shows(1)
	a.release("lock")
	f.until(2*beat, func() bool { return b.holds("lock") })
	shows(0)
	f.until(time.Second, func() bool { return b.holds("other") })

	a.acquire("mine")
	f.Run(time.Second)
	b.acquire("mine")
	shows(1)
	b.Stuck = true // its holder takes its time
	b.Input(engine.Stop{})
	shows(0)
}

// TestManyWaits: the seat of a session that waits for many leases names the oldest waits and counts the others, and a
// heartbeat costs one write unit. The seat of a session that waits for nothing has neither attribute.
func TestManyWaits(t *testing.T) {
	t.Parallel()
	many := fixture.Size(1100, 2000)
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	name := func(i int) string { return fmt.Sprintf("%s-%04d", strings.Repeat("n", 35), many-i) } // the last by name first
	for i := range many {
		a.acquire(name(i))
	}
	f.until(time.Minute, func() bool { return len(a.held) == many })
	none := lease.Encode(f.seat(b.member))
	for i := range many {
		b.acquire(name(i))
		if i < 2*lease.MaxWaits {
			f.Run(100 * time.Millisecond)
		}
	}
	f.Run(5 * beat)
	seat := f.seat(b.member)
	if len(seat.Waits) == 0 || len(seat.Waits) > lease.MaxWaits || int64(len(seat.Waits))+seat.WaitsLeft != int64(many) {
		t.Errorf("the seat names %d waits, and counts %d more", len(seat.Waits), seat.WaitsLeft)
	}
	for i, w := range seat.Waits {
		if w.Lease != name(i) {
			t.Errorf("wait %d is for %s, want the oldest", i, w.Lease)
		}
	}
	item := lease.Encode(seat)
	t.Logf("%d bytes, without waits %d", item.Size(), none.Size())
	if size := item.Size(); size > 1024 {
		t.Errorf("the seat has %d bytes", size)
	}
	for _, attribute := range []string{"waits", "waitsLeft"} {
		if _, has := none[attribute]; has {
			t.Errorf("a seat without waits has the attribute %s", attribute)
		}
	}
}

// TestContendedOnceAMinute: callers try for a lease that another session holds, and others wait for it. Each
// acquisition is counted once: in the status, and in one event. There is at most one event a minute, with the
// longest wait; when the session ends, it reports the rest.
func TestContendedOnceAMinute(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	for i := range 15 {
		a.acquire(fmt.Sprint("held-", i))
	}
	f.Run(time.Second)
	try := func(in *engine.Acquire) { in.Try = true }
	id := b.acquire("held-0")
	waited := 1
	for i := range 25 * 6 {
		b.acquire(fmt.Sprint("held-", 1+i%14), try)
		f.Run(2 * time.Second)
		if i%10 == 0 { // a short wait, of which no heartbeat tells
			short := b.acquire("held-14")
			waited++
			f.Run(500 * time.Millisecond)
			b.Input(engine.Forgo{Name: "held-14", ID: short})
		}
	}
	check := func(end bool) {
		t.Helper()
		all, sum := b.reports(event.Contended), 0
		for i, e := range all {
			sum += e.Count
			if gap := e.at - all[max(i-1, 0)].at; i > 0 && gap < time.Minute && !(end && i == len(all)-1) {
				t.Errorf("an event after %v", gap)
			}
			if len(e.Shards) > 10 || e.Count < len(e.Shards) || e.Lasted < 59*time.Second*time.Duration(i+1) {
				t.Errorf("event %d: %v", i, e.Event)
			}
		}
		s := b.Engine.Status()
		if s.Refused != len(b.refused) || s.Waited != waited || len(all) < 5 {
			t.Errorf("%d refused and %d waited; %d and %d are counted, in %d events", len(b.refused), waited, s.Refused, s.Waited, len(all))
		}
		if counted := s.Refused + s.Waited; end && sum != counted || sum > counted {
			t.Errorf("the events count %d, the status %d", sum, counted)
		}
		if end == (s.Waits > 0) {
			t.Errorf("the oldest wait lasts since %v", s.Waits)
		}
	}
	f.Run(61 * time.Second)
	check(false)
	b.Input(engine.Forgo{Name: "held-0", ID: id})
	b.acquire("held-3", try)
	f.Run(time.Second)
	b.Input(engine.Stop{})
	f.until(time.Minute, b.Engine.Done)
	check(true)
	if all := b.reports(event.Contended); all[len(all)-1].Count != 1 || all[len(all)-1].Shard != "held-3" {
		t.Errorf("the last event is %v", all[len(all)-1].Event)
	}
	a.never(event.Contended)
}

// TestWaitsOutliveTheSeat: a session loses its seat while a caller waits. The wait is counted once, and goes on since
// its beginning, on the seat of the next incarnation.
func TestWaitsOutliveTheSeat(t *testing.T) {
	f := newContest(t, 1)
	a, b := f.join("a"), f.join("b")
	f.Run(time.Second)
	a.lock()
	b.acquire("lock")
	f.Run(2 * beat)
	before := f.seat(b.member)
	cut := true
	b.mute = func(engine.Output) bool { return cut }
	f.Run(2 * leaseTime)
	cut = false
	f.Run(3 * beat)
	now := f.seat(b.member)
	if s := b.Engine.Status(); now.Incarnation == before.Incarnation || !slices.Equal(now.Waits, before.Waits) || len(now.Waits) != 1 || s.Waited != 1 {
		t.Errorf("the seat showed %v, and shows %v; status %+v", before.Waits, now.Waits, s)
	}
}

// TestRaceForALease: many sessions wait for one lease. Claims that come too late are no events of their own.
func TestRaceForALease(t *testing.T) {
	t.Parallel()
	f := newContest(t, 1)
	var all []*session
	for i := range 8 {
		all = append(all, f.join(fmt.Sprint("s", i)))
	}
	f.Run(time.Second)
	for _, s := range all {
		s.acquire("lock")
		s.started = func(o engine.Start) { s.Later(5*time.Second, func() { s.release("lock"); s.acquire("lock") }) }
	}
	f.Run(10 * time.Minute)
	for _, s := range all {
		if n := len(s.reports(event.Contended)); n == 0 || n > 10 {
			t.Errorf("%s reports %d events in ten minutes", s.Name, n)
		}
	}
}
