package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// marks remembers what was marked. It has no lock of its own: the race detector
// notices when marks are made concurrently.
type marks struct {
	made []string
	fail error
}

func (m *marks) mark(position string) error {
	m.made = append(m.made, position)
	return m.fail
}

func (m *marks) last() string {
	if len(m.made) == 0 {
		return ""
	}
	return m.made[len(m.made)-1]
}

// begin announces records that must find room.
func begin(t *testing.T, tracker *checkpoint.Tracker, positions ...string) []checkpoint.Record {
	t.Helper()
	var records []checkpoint.Record
	for _, p := range positions {
		r, err := tracker.Begin(t.Context(), p)
		if err != nil {
			t.Fatalf("begin %s: %v", p, err)
		}
		records = append(records, r)
	}
	return records
}

// TestTrackerMarksTheFinishedPrefix compares every step of one goroutine with a
// model that goes through all records again.
func TestTrackerMarksTheFinishedPrefix(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := 1 + random.IntN(40) // around the first sizes of the ring
		var got marks
		tracker := checkpoint.NewTracker(limit, got.mark)
		var records []checkpoint.Record
		var finished []bool // the model
		prefix := 0
		for range 500 {
			if open := len(records) - prefix; open < limit && random.IntN(2) == 0 {
				records = append(records, begin(t, tracker, strconv.Itoa(len(records)))...)
				finished = append(finished, false)
			} else if len(records) > 0 {
				n := max(0, len(records)-1-random.IntN(limit+2)) // some of them done before
				records[n].Done()
				finished[n] = true
			}
			prefix = len(finished)
			if gap := slices.Index(finished, false); gap >= 0 {
				prefix = gap
			}
			want := ""
			if prefix > 0 {
				want = strconv.Itoa(prefix - 1)
			}
			if got.last() != want {
				t.Fatalf("seed %d: marked %q, want %q", seed, got.last(), want)
			}
			checkBacklog(t, seed, tracker.Backlog(), finished[prefix:], prefix)
		}
	}
}

// checkBacklog compares with what the model says of the records behind prefix.
func checkBacklog(t *testing.T, seed uint64, b checkpoint.Backlog, behind []bool, prefix int) {
	t.Helper()
	waiting, gap := 0, ""
	for _, finished := range behind {
		if finished {
			waiting++
		}
	}
	if len(behind) > 0 {
		gap = strconv.Itoa(prefix)
	}
	if b.Begun != len(behind) || b.Finished != waiting || b.Gap != gap {
		t.Fatalf("seed %d: %d begun, %d finished, gap %q; want %d, %d, %q",
			seed, b.Begun, b.Finished, b.Gap, len(behind), waiting, gap)
	}
}

// TestTrackerManyWorkers: no mark for anything before an unfinished record, each
// mark further than the one before, none concurrently, and in the end all.
func TestTrackerManyWorkers(t *testing.T) {
	const records, workers = 3000, 16
	for seed := range uint64(8) {
		var finished [records]atomic.Bool
		var inside atomic.Int32
		marked := -1 // no lock: see marks
		tracker := checkpoint.NewTracker(1+int(seed)*20, func(position string) error {
			if inside.Add(1) != 1 {
				t.Errorf("seed %d: two marks at a time", seed)
			}
			defer inside.Add(-1)
			n, _ := strconv.Atoi(position)
			if n <= marked {
				t.Errorf("seed %d: marked %d after %d", seed, n, marked)
			}
			for ; marked < n; marked++ {
				if !finished[marked+1].Load() {
					t.Errorf("seed %d: marked %d, and %d is unfinished", seed, n, marked+1)
				}
			}
			return nil
		})
		finish := func(n int, r checkpoint.Record) {
			finished[n].Store(true)
			r.Done()
		}
		runPool(t, tracker, seed, records, workers, finish)
		if err := tracker.Wait(t.Context()); err != nil || marked != records-1 {
			t.Fatalf("seed %d: after Wait (%v) the last mark is %d, want %d", seed, err, marked, records-1)
		}
	}
}

// runPool begins the records in order. Each worker takes any one of those that
// lie there, so none is held back and a full tracker always gets room.
func runPool(t *testing.T, tracker *checkpoint.Tracker, seed uint64, records, workers int, finish func(int, checkpoint.Record)) {
	var mu sync.Mutex
	begun := map[int]checkpoint.Record{}
	ready := make(chan struct{}, records) // one for each of begun
	take := func(random *rand.Rand) (int, checkpoint.Record) {
		mu.Lock()
		defer mu.Unlock()
		numbers := slices.Sorted(maps.Keys(begun))
		n := numbers[random.IntN(len(numbers))]
		defer delete(begun, n)
		return n, begun[n]
	}
	var pool sync.WaitGroup
	defer pool.Wait()
	for worker := range workers {
		pool.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(worker)))
			for range ready {
				finish(take(random))
			}
		})
	}
	defer close(ready)
	for n := range records {
		r := begin(t, tracker, strconv.Itoa(n))[0]
		mu.Lock()
		begun[n] = r
		mu.Unlock()
		ready <- struct{}{}
	}
}

// TestTrackerIsBounded: a full tracker lets nothing in until the oldest record
// is done. Room behind the gap does not count.
func TestTrackerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got marks
		tracker := checkpoint.NewTracker(3, got.mark)
		records := begin(t, tracker, "1", "2", "3")
		var fourth error
		entered := false
		go func() {
			_, fourth = tracker.Begin(t.Context(), "4")
			entered = true
		}()
		records[1].Done()
		records[2].Done()
		synctest.Wait()
		if entered {
			t.Fatalf("a fourth record was let in: %v", tracker.Backlog())
		}
		records[0].Done()
		synctest.Wait()
		if !entered || fourth != nil {
			t.Errorf("there is room again; entered: %v, error: %v", entered, fourth)
		}
		if want := []string{"3"}; !slices.Equal(got.made, want) {
			t.Errorf("marked %q, want %q", got.made, want)
		}
	})
}

// TestTrackerDefaultLimit: nobody gets an unbounded tracker by leaving out the
// limit.
func TestTrackerDefaultLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := checkpoint.NewTracker(0, new(marks).mark)
		for n := range 1000 {
			begin(t, tracker, strconv.Itoa(n))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := tracker.Begin(ctx, "one more"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want it to wait for room", err)
		}
	})
}

func TestTrackerRefusesBadInput(t *testing.T) {
	none := new(marks).mark
	for name, tc := range map[string]struct {
		tracker  *checkpoint.Tracker
		position string
	}{
		"no mark":           {checkpoint.NewTracker(1, nil), "1"},
		"negative limit":    {checkpoint.NewTracker(-1, none), "1"},
		"empty position":    {checkpoint.NewTracker(1, none), ""},
		"position too long": {checkpoint.NewTracker(1, none), strings.Repeat("9", checkpoint.MaxPosition+1)},
	} {
		record, err := tc.tracker.Begin(t.Context(), tc.position)
		if !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: got %v, want an InvalidError", name, err)
		}
		record.Done() // must not finish, or break, anything
		if b := tc.tracker.Backlog(); b.Begun != 0 {
			t.Errorf("%s: refused, and begun: %v", name, b)
		}
	}
}

// TestTrackerShowsTheGap: what holds the position back can be seen, and for how
// long it has.
func TestTrackerShowsTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got marks
		tracker := checkpoint.NewTracker(0, got.mark)
		expect := func(when string, want checkpoint.Backlog) {
			t.Helper()
			if b := tracker.Backlog(); b.Begun != want.Begun || b.Finished != want.Finished || b.Gap != want.Gap || b.Open != want.Open {
				t.Errorf("%s: %v at %q, want %v at %q", when, b, b.Gap, want, want.Gap)
			}
		}
		expect("nothing begun", checkpoint.Backlog{})
		records := begin(t, tracker, "1", "2", "3")
		time.Sleep(time.Second)
		records[2].Done()
		expect("behind the first", checkpoint.Backlog{Begun: 3, Finished: 1, Gap: "1", Open: time.Second})
		records[0].Done()
		expect("the gap moves", checkpoint.Backlog{Begun: 2, Finished: 1, Gap: "2"})
		time.Sleep(time.Minute)
		expect("the second hangs", checkpoint.Backlog{Begun: 2, Finished: 1, Gap: "2", Open: time.Minute})
		records[1].Done()
		expect("all done", checkpoint.Backlog{})
		time.Sleep(time.Minute)
		begin(t, tracker, "4")
		expect("idle time is no gap", checkpoint.Backlog{Begun: 1, Gap: "4"})
	})
}

// TestTrackerDoneTwice: a second Done counts for nothing, neither while the
// record waits nor when its place has been taken by another.
func TestTrackerDoneTwice(t *testing.T) {
	var got marks
	tracker := checkpoint.NewTracker(2, got.mark)
	records := begin(t, tracker, "1", "2")
	records[1].Done()
	records[1].Done()
	if b := tracker.Backlog(); b.Finished != 1 || len(got.made) != 0 {
		t.Errorf("one record done twice: %v, marked %q", b, got.made)
	}
	records[0].Done()
	begin(t, tracker, "3", "4")
	records[0].Done()
	records[1].Done()
	if b := tracker.Backlog(); b.Begun != 2 || b.Finished != 0 || got.last() != "2" {
		t.Errorf("old records done again: %v, marked %q", b, got.made)
	}
}

// TestTrackerKeepsTheErrorOfMark: after an error nothing more is marked or begun,
// and whoever waits hears of it.
func TestTrackerKeepsTheErrorOfMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stale := &checkpoint.StaleError{Shard: "s", Mine: 1, Observed: 2}
		got := marks{fail: stale}
		tracker := checkpoint.NewTracker(2, got.mark)
		records := begin(t, tracker, "1", "2")
		heard := make(chan error, 2)
		go func() { _, err := tracker.Begin(t.Context(), "3"); heard <- err }()
		go func() { heard <- tracker.Wait(t.Context()) }()
		synctest.Wait()
		records[0].Done()
		for range cap(heard) {
			if err := <-heard; !errors.Is(err, checkpoint.ErrStale) {
				t.Errorf("a waiting call got %v, want the error of mark", err)
			}
		}
		records[1].Done()
		if !slices.Equal(got.made, []string{"1"}) {
			t.Errorf("marked %q, want only the one that failed", got.made)
		}
		if b := tracker.Backlog(); b.Begun != 2 || b.Finished != 2 {
			t.Errorf("%v, though no mark covers either", b)
		}
		if _, err := tracker.Begin(t.Context(), "3"); !errors.Is(err, checkpoint.ErrStale) {
			t.Errorf("begin afterwards: %v, want the error of mark", err)
		}
	})
}

// TestTrackerSurvivesAPanicOfMark: the panic is its caller's, and the next Done
// makes the mark.
func TestTrackerSurvivesAPanicOfMark(t *testing.T) {
	var got marks
	healthy := false
	tracker := checkpoint.NewTracker(0, func(position string) error {
		if !healthy {
			panic("mark")
		}
		return got.mark(position)
	})
	records := begin(t, tracker, "1", "2")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		records[0].Done()
	}()
	healthy = true
	records[1].Done()
	if err := tracker.Wait(t.Context()); err != nil || got.last() != "2" {
		t.Errorf("wait: %v, marked %q", err, got.made)
	}
}

// TestTrackerMarkMayLookBack: mark runs outside the lock.
func TestTrackerMarkMayLookBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tracker *checkpoint.Tracker
		var records []checkpoint.Record
		var got marks
		tracker = checkpoint.NewTracker(0, func(position string) error {
			if b := tracker.Backlog(); position == "1" && (b.Begun != 2 || b.Finished != 1 || b.Gap != "2") {
				t.Errorf("seen from mark: %v at %q", b, b.Gap)
			}
			records[1].Done() // somebody else at the same time
			return got.mark(position)
		})
		records = begin(t, tracker, "1", "2")
		records[0].Done()
		if want := []string{"1", "2"}; !slices.Equal(got.made, want) {
			t.Errorf("marked %q, want %q", got.made, want)
		}
	})
}

// TestTrackerWaits: Wait returns when all is marked, and not before.
func TestTrackerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got marks
		tracker := checkpoint.NewTracker(0, got.mark)
		records := begin(t, tracker, "1", "2")
		drained := false
		go func() {
			if err := tracker.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			drained = true
		}()
		records[0].Done()
		synctest.Wait()
		if drained {
			t.Error("drained, and 2 is unfinished")
		}
		records[1].Done()
		synctest.Wait()
		if !drained || got.last() != "2" {
			t.Errorf("drained: %v, marked %q", drained, got.made)
		}
	})
}

// TestTrackerWaitsForTheMark: a mark under way is not made yet. Wait waits for it;
// Done, of other records, does not.
func TestTrackerWaitsForTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		tracker := checkpoint.NewTracker(0, func(string) error { <-slow; return nil })
		records := begin(t, tracker, "1", "2")
		go records[0].Done()
		synctest.Wait()
		records[1].Done()
		drained := false
		go func() { drained = tracker.Wait(t.Context()) == nil }()
		synctest.Wait()
		if drained {
			t.Error("drained during the mark")
		}
		close(slow)
		synctest.Wait()
		if !drained {
			t.Error("marked, and not drained")
		}
	})
}

// TestTrackerHearsTheContext: no call outlives its context, and each says why.
func TestTrackerHearsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handedOff := errors.New("handed off")
		tracker := checkpoint.NewTracker(1, new(marks).mark)
		record := begin(t, tracker, "1")[0]
		ctx, cancel := context.WithCancelCause(t.Context())
		heard := make(chan error, 2)
		go func() { _, err := tracker.Begin(ctx, "2"); heard <- err }()
		go func() { heard <- tracker.Wait(ctx) }()
		synctest.Wait()
		cancel(handedOff)
		for range cap(heard) {
			if err := <-heard; !errors.Is(err, context.Canceled) || !errors.Is(err, handedOff) {
				t.Errorf("got %v, want the context's error and its cause", err)
			}
		}
		record.Done()
		if _, err := tracker.Begin(ctx, "2"); !errors.Is(err, handedOff) {
			t.Errorf("begun after the end, as there was room: %v", err)
		}
		if err := tracker.Wait(ctx); err != nil {
			t.Errorf("all is marked, and Wait says %v", err)
		}
		plain, stop := context.WithCancel(t.Context())
		stop()
		if _, err := tracker.Begin(plain, "2"); err != context.Canceled {
			t.Errorf("got %q, want the context's error as it is", err)
		}
	})
}

// TestBacklogStaysPrivate plants a canary at the gap.
func TestBacklogStaysPrivate(t *testing.T) {
	const canary = "canary"
	tracker := checkpoint.NewTracker(0, new(marks).mark)
	record := begin(t, tracker, canary)[0]
	b := tracker.Backlog()
	var out bytes.Buffer
	for _, v := range []any{b, &b, tracker, record, struct{ B checkpoint.Backlog }{b}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %d %q\n", v, v, v, v, v, v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "value", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "value", v)
	}
	if kind := slog.AnyValue(b).Resolve().Kind(); kind != slog.KindString {
		t.Errorf("a handler gets a %v to look into", kind)
	}
	if strings.Contains(out.String(), canary) {
		t.Errorf("a position leaked:\n%s", out.String())
	}
	if b.Gap != canary || !strings.Contains(out.String(), "a gap at 6 bytes") {
		t.Errorf("says too little to be of use:\n%s", out.String())
	}
}

// BenchmarkTracker is one record from Begin to the mark that covers it.
func BenchmarkTracker(b *testing.B) {
	const position = "49590338271490256608559692538361571095921575989136588898"
	quick := func(string) error { return nil }
	for name, window := range map[string]int{"InOrder": 1, "Backwards64": 64} {
		b.Run(name, func(b *testing.B) {
			tracker := checkpoint.NewTracker(window, quick)
			held := make([]checkpoint.Record, 0, window)
			b.ReportAllocs()
			for b.Loop() {
				r, _ := tracker.Begin(b.Context(), position)
				held = append(held, r)
				if len(held) < window {
					continue
				}
				for _, r := range slices.Backward(held) {
					r.Done()
				}
				held = held[:0]
			}
		})
	}
	b.Run("Pool", func(b *testing.B) {
		tracker := checkpoint.NewTracker(0, quick)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r, _ := tracker.Begin(b.Context(), position)
				r.Done()
			}
		})
	})
}

// TestZeroTracker: it was not made by NewTracker, and says so instead of waiting.
func TestZeroTracker(t *testing.T) {
	var none checkpoint.Tracker
	if _, err := none.Begin(t.Context(), "1"); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
