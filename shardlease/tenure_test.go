package shardlease_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func TestMarkGoesForwardOnly(t *testing.T) {
	d := shardlease.NewDesk(checkpoint.Decimal, "100", 0)
	for _, c := range []struct {
		position string
		want     error
	}{
		{"99", checkpoint.ErrBackwards},
		{"100", nil},
		{"200", nil},
		{"101", checkpoint.ErrBackwards},
		{"", checkpoint.ErrInvalid},
		{"abc", checkpoint.ErrInvalid},
		{strings.Repeat("9", checkpoint.MaxPosition+1), checkpoint.ErrInvalid},
		{"200", nil},
	} {
		if err := d.Mark(c.position); !errors.Is(err, c.want) {
			t.Errorf("mark %.20q: %v, not %v", c.position, err, c.want)
		}
	}
	if in, ok := d.Reported(); !ok || in.Seq != 3 || in.Mark.Position != "200" {
		t.Errorf("reported: %v, %+v", ok, in)
	}
	if err := d.MarkState("201", strings.Repeat("x", checkpoint.MaxState+1)); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("a state too long: %v", err)
	}
}

// TestMarkWakesTheLoopSeldom: the loop is woken for the first mark that waits and for the
// mark that makes a commit due, and not in between.
func TestMarkWakesTheLoopSeldom(t *testing.T) {
	d := shardlease.NewDesk(nil, "", 5)
	woken := ""
	mark := func() {
		must(t, d.Mark("x"))
		if d.Woken() {
			woken += "!"
		} else {
			woken += "."
		}
	}
	for range 7 {
		mark()
	}
	d.Reported()
	for range 3 {
		mark() // reported before: the engine knows that a mark waits
	}
	if woken != "!...!....." {
		t.Errorf("woken for these marks: %s", woken)
	}

	// Seven marks are accepted. Three were made later, and were not reported to the engine.
	d.Settle(7, nil)
	if !d.Woken() {
		t.Error("the loop is not woken for marks that the engine does not know")
	}
	if in, _ := d.Reported(); in.Seq != 10 || in.Mark.IsZero() {
		t.Errorf("reported %+v", in)
	}
	d.Settle(10, nil)
	if d.Woken() {
		t.Error("the loop is woken although no mark waits")
	}
	if mark(); !strings.HasSuffix(woken, "!") {
		t.Error("the first mark after a commit does not wake the loop")
	}
}

func TestFlushWaitsForItsMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := shardlease.NewDesk(nil, "", 0)
		if err := d.Flush(t.Context()); err != nil {
			t.Errorf("nothing to flush: %v", err)
		}
		answers := make(chan error, 3)
		commit := func(position string) {
			go func() { answers <- d.Commit(t.Context(), position) }()
			synctest.Wait()
		}
		commit("1")
		if in, _ := d.Reported(); in.Flush != 1 || in.Seq != 1 || in.Mark.Position != "1" {
			t.Errorf("reported %+v", in)
		}
		commit("2")
		d.Settle(1, nil)
		synctest.Wait()
		if err := <-answers; err != nil || len(answers) != 0 {
			t.Errorf("the first commit: %v, and %d more", err, len(answers))
		}
		d.Settle(2, checkpoint.ErrBackwards)
		if err := <-answers; !errors.Is(err, checkpoint.ErrBackwards) {
			t.Errorf("the second commit was refused, and returns %v", err)
		}
		if err := d.Flush(t.Context()); !errors.Is(err, checkpoint.ErrBackwards) {
			t.Errorf("the last mark was refused, and Flush returns %v", err)
		}
	})
}

func TestFlushGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := shardlease.NewDesk(nil, "", 0)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errDown)
		defer cancel()
		if err := d.Commit(ctx, "1"); !errors.Is(err, errDown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a store that does not answer: %v", err)
		}
		d.Settle(1, nil)
		if err := d.Flush(t.Context()); err != nil {
			t.Errorf("accepted in the end: %v", err)
		}
	})
}

// TestCallsAfterTheEnd: after the end every call returns an error with the cause and with
// what was observed.
func TestCallsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := shardlease.NewDesk(nil, "", 0)
		waiting := make(chan error, 2)
		go func() { waiting <- d.Commit(t.Context(), "1") }()
		synctest.Wait()
		go func() { waiting <- d.Finish(t.Context()) }()
		synctest.Wait()
		d.Over(event.CauseFenced, &checkpoint.StaleError{Shard: "s", Mine: 7, Observed: 8, Owner: "b"})
		d.Progress()
		d.Alive()
		d.Release("late")
		for call, err := range map[string]error{
			"waiting": <-waiting, "waiting too": <-waiting,
			"mark": d.Mark("2"), "commit": d.Commit(t.Context(), "2"), "flush": d.Flush(t.Context()), "finish": d.Finish(t.Context()),
			"cause": context.Cause(d.Soft()), "hard cause": context.Cause(d.Context()), "return": d.Close(),
		} {
			if !errors.Is(err, shardlease.ErrEnded) || !errors.Is(err, event.CauseFenced) || !errors.Is(err, checkpoint.ErrStale) {
				t.Errorf("%s: %v", call, err)
			}
		}
		if in, ok := d.Reported(); ok {
			t.Errorf("reported after the end: %+v", in)
		}
	})
}

// TestCallsAfterTheReturn: when the handler has returned, all calls are refused, and its
// marks are reported.
func TestCallsAfterTheReturn(t *testing.T) {
	d := shardlease.NewDesk(nil, "", 0)
	must(t, d.Mark("1"))
	if err := d.Close(); !errors.Is(err, event.CauseGivenUp) || !errors.Is(d.Mark("2"), shardlease.ErrEnded) {
		t.Errorf("after the return: %v, %v", err, d.Mark("2"))
	}
	if in, ok := d.Reported(); !ok || in.Mark.Position != "1" {
		t.Errorf("reported: %v, %+v", ok, in)
	}
}

func TestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := shardlease.NewDesk(nil, "", 0)
		must(t, d.Mark("last"))
		done := make(chan error, 3)
		go func() { done <- d.Flush(t.Context()) }()
		synctest.Wait()
		for range 2 {
			go func() { done <- d.Finish(t.Context()) }()
		}
		synctest.Wait()
		if err := d.Mark("later"); !errors.Is(err, event.CauseFinished) {
			t.Errorf("a mark while the shard is finished: %v", err)
		}
		if in, _ := d.Reported(); !in.Finish || in.Mark.Position != "last" {
			t.Errorf("reported %+v", in)
		}
		d.Over(event.CauseFinished, nil)
		if err := errors.Join(<-done, <-done, <-done, d.Finish(t.Context())); err != nil {
			t.Errorf("finished: %v", err)
		}
		if err := d.Mark("later"); !errors.Is(err, event.CauseFinished) {
			t.Errorf("a mark after the end: %v", err)
		}
		if d.Soft().Err() != nil || d.Context().Err() != nil {
			t.Error("the handler has finished the shard, and one of its contexts ends before it returns")
		}
	})
}

func TestProgressAndReleaseAreToldOnce(t *testing.T) {
	d := shardlease.NewDesk(nil, "", 0)
	d.Progress()
	if d.Woken() {
		t.Error("Progress wakes the loop")
	}
	d.Release("too\nhot " + strings.Repeat("ä", 200))
	if in, _ := d.Reported(); !d.Woken() || !in.Progress || !in.Release || !strings.HasPrefix(in.Note, "toohot ä") || len(in.Note) > lease.MaxNote {
		t.Errorf("reported %+v", in)
	}
	d.Progress()
	if in, _ := d.Reported(); !in.Progress || in.Release || in.Note != "" {
		t.Errorf("reported again: %+v", in)
	}
}

// TestConcurrentMarks: handlers mark from several goroutines.
func TestConcurrentMarks(t *testing.T) {
	d, marks := shardlease.NewDesk(nil, "", 10), fixture.Size(250, 1000)
	var pool sync.WaitGroup
	for i := range 4 {
		pool.Go(func() {
			for n := range marks {
				check(t, d.Mark(strconv.Itoa(n)))
				d.Progress()
				if n%100 == i {
					if err := d.Flush(t.Context()); err != nil && !errors.Is(err, shardlease.ErrEnded) {
						t.Error(err)
					}
				}
			}
		})
	}
	stop := make(chan struct{})
	go func() { pool.Wait(); close(stop) }()
	for reported := uint64(0); ; {
		if in, ok := d.Reported(); ok {
			if in.Seq < reported {
				t.Errorf("reported mark %d after %d", in.Seq, reported)
			}
			reported = in.Seq
			d.Settle(reported, nil)
		}
		select {
		case <-stop:
			if in, ok := d.Reported(); ok {
				reported = in.Seq
			}
			if reported != uint64(4*marks) {
				t.Errorf("%d marks were reported", reported)
			}
			return
		default:
		}
	}
}

func BenchmarkMark(b *testing.B) {
	kinesis := []string{
		"49590338271490256608559692538361571095921575989136588898",
		"49590338271490256608559692538361571095921575989136588899",
	}
	for _, c := range []struct {
		name      string
		order     checkpoint.Order
		positions []string
	}{
		{"Unordered", nil, []string{"1000000001", "1000000002"}},
		{"UnorderedKinesis", nil, kinesis},
		{"Decimal", checkpoint.Decimal, []string{"1000000001", "1000000001"}},
		{"DecimalKinesis", checkpoint.Decimal, []string{kinesis[0], kinesis[0]}},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := shardlease.NewDesk(c.order, "", 0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				must(b, d.Mark(c.positions[i&1]))
			}
		})
	}
}

// TestOldestMarkThatWasNotReported: a mark that the loop has not reported when an earlier one is
// accepted is as old as it is.
func TestOldestMarkThatWasNotReported(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		d := shardlease.NewDesk(nil, "", 0)
		_ = d.Mark("1")
		d.Reported()
		time.Sleep(time.Second)
		_ = d.Mark("2")
		time.Sleep(time.Second)
		if got := d.Oldest(); got != 2*time.Second {
			t.Errorf("before the first mark is accepted: %v", got)
		}
		d.Settle(1, nil)
		if got := d.Oldest(); got != time.Second {
			t.Errorf("when the first mark is accepted: %v", got)
		}
	})
}

// A lockingContext calls a function in its methods, as a context does that waits for a lock.
type lockingContext struct {
	context.Context
	call func()
}

func (c lockingContext) Value(key any) any { c.call(); return c.Context.Value(key) }
func (c lockingContext) Err() error        { c.call(); return c.Context.Err() }

// TestContextsAreCalledWithoutTheLock: a method of a context waits for a lock that another
// goroutine holds while it calls the tenure. Before, both waited for each other forever, and
// the worker's loop with them.
func TestContextsAreCalledWithoutTheLock(t *testing.T) {
	d := shardlease.NewDesk(nil, "", 0)
	must(t, d.Mark("1"))
	for _, name := range []string{"Flush", "Finish"} {
		wait := d.Flush
		if name == "Finish" {
			wait = d.Finish
		}
		ended, end := context.WithCancel(t.Context())
		end()
		err := wait(lockingContext{ended, func() {
			free := make(chan struct{})
			go func() { d.Alive(); close(free) }()
			select {
			case <-free:
			case <-time.After(5 * time.Second):
				t.Errorf("%s calls a method of its context under the lock of the tenure", name)
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s returned %v", name, err)
		}
	}
}

// TestOnlyTheBeginningOfANoteIsRead: a note may be very long. Before, all of it was read, under
// the lock of the tenure.
func TestOnlyTheBeginningOfANoteIsRead(t *testing.T) {
	for note, want := range map[string]string{
		strings.Repeat("\n", lease.MaxNote) + "too late":     "",
		strings.Repeat("é", lease.MaxNote):                   strings.Repeat("é", lease.MaxNote/2),
		strings.Repeat("x", lease.MaxNote-1) + "é":           strings.Repeat("x", lease.MaxNote-1),
		strings.Repeat("\x80", 2*lease.MaxNote):              "?",
		"one\nline\xff" + strings.Repeat("x", lease.MaxNote): "oneline?" + strings.Repeat("x", lease.MaxNote-len("one\nline\xff")),
	} {
		d := shardlease.NewDesk(nil, "", 0)
		d.Release(note)
		if in, _ := d.Reported(); in.Note != want {
			t.Errorf("a note of %d bytes, %.20q, is stored as %q, not %q", len(note), note, in.Note, want)
		}
	}
}

// TestManyCallsWait: a call whose context ends costs the same however many other calls wait.
// Before, 100,000 calls of Flush whose contexts ended together took 9 s under the lock.
func TestManyCallsWait(t *testing.T) {
	d := shardlease.NewDesk(nil, "", 0)
	must(t, d.Mark("1"))
	ended, end := context.WithCancel(t.Context())
	end()
	fastest := func() time.Duration {
		best := time.Hour
		for range 5 {
			from := time.Now()
			for range 1000 {
				_ = d.Flush(ended)
			}
			best = min(best, time.Since(from))
		}
		return best
	}
	alone := fastest()
	const crowd = 5000
	begun, done := make(chan struct{}, crowd), make(chan error, crowd)
	for range crowd {
		go func() { done <- d.Flush(doneContext{t.Context(), begun}) }()
	}
	for range crowd {
		<-begun
	}
	if crowded := fastest(); crowded > 8*alone {
		t.Errorf("1,000 calls took %v alone, and %v while %d others waited", alone, crowded, crowd)
	}
	d.Settle(1, nil)
	for range crowd {
		must(t, <-done)
	}
}

// A doneContext reports the calls of Done, before which a call of a tenure has begun to wait.
type doneContext struct {
	context.Context
	called chan<- struct{}
}

func (c doneContext) Done() <-chan struct{} { c.called <- struct{}{}; return c.Context.Done() }
