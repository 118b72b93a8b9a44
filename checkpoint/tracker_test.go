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

// marks records the positions that were marked. It has no lock of its own, so the race detector
// finds concurrent marks.
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

// begin begins records for which there must be room.
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

// TestTrackerMarksTheFinishedPrefix compares every step of one goroutine with a model that examines
// all records each time.
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

// checkBacklog compares a backlog with the model's records behind the prefix.
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

// TestTrackerManyWorkers: no mark passes an unfinished record, each mark is further than the one
// before, no two are concurrent, and in the end all records are marked.
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
					t.Errorf("seed %d: marked %d, but %d is unfinished", seed, n, marked+1)
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

// runPool begins the records in order. Each worker finishes any of the begun records, so no record
// stays unfinished and a full tracker always gets room.
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

// TestTrackerIsBounded: a full tracker begins no record until the oldest one is done. Finished
// records behind the gap make no room.
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
			t.Fatalf("a fourth record was begun: %v", tracker.Backlog())
		}
		records[0].Done()
		synctest.Wait()
		if !entered || fourth != nil {
			t.Errorf("after the oldest record is done: begun %v, error %v", entered, fourth)
		}
		if want := []string{"3"}; !slices.Equal(got.made, want) {
			t.Errorf("marked %q, want %q", got.made, want)
		}
	})
}

// TestTrackerDefaultLimit: a tracker without a limit of its own has the default limit.
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
		record.Done() // must have no effect
		if b := tc.tracker.Backlog(); b.Begun != 0 {
			t.Errorf("%s: refused, but begun: %v", name, b)
		}
	}
}

// TestTrackerShowsTheGap: Backlog shows the record that stops the marks, and for how long.
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
		expect("idle time does not count as a gap", checkpoint.Backlog{Begun: 1, Gap: "4"})
	})
}

// TestTrackerDoneTwice: a second Done has no effect, neither while the record waits nor after
// another record has taken its place.
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

// TestTrackerKeepsTheErrorOfMark: after an error of mark no record is marked or begun, and every
// waiting call returns that error.
func TestTrackerKeepsTheErrorOfMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stale := &checkpoint.StaleError{Shard: "s", Mine: 1, Observed: 2}
		got := marks{fail: stale}
		tracker := checkpoint.NewTracker(2, got.mark)
		records := begin(t, tracker, "1", "2")
		results := make(chan error, 2)
		go func() { _, err := tracker.Begin(t.Context(), "3"); results <- err }()
		go func() { results <- tracker.Wait(t.Context()) }()
		synctest.Wait()
		records[0].Done()
		for range cap(results) {
			if err := <-results; !errors.Is(err, checkpoint.ErrStale) {
				t.Errorf("a waiting call got %v, want the error of mark", err)
			}
		}
		records[1].Done()
		if !slices.Equal(got.made, []string{"1"}) {
			t.Errorf("marked %q, want only the one that failed", got.made)
		}
		if b := tracker.Backlog(); b.Begun != 2 || b.Finished != 2 {
			t.Errorf("%v, want two records that no mark covers", b)
		}
		if _, err := tracker.Begin(t.Context(), "3"); !errors.Is(err, checkpoint.ErrStale) {
			t.Errorf("begin afterwards: %v, want the error of mark", err)
		}
	})
}

// TestTrackerSurvivesAPanicOfMark: the caller of Done receives the panic, and the next Done makes
// the mark.
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

// TestTrackerMarkMayLookBack: mark may call Backlog, because it runs without the lock.
func TestTrackerMarkMayLookBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tracker *checkpoint.Tracker
		var records []checkpoint.Record
		var got marks
		tracker = checkpoint.NewTracker(0, func(position string) error {
			if b := tracker.Backlog(); position == "1" && (b.Begun != 2 || b.Finished != 1 || b.Gap != "2") {
				t.Errorf("Backlog called by mark: %v at %q", b, b.Gap)
			}
			records[1].Done() // as another goroutine may at the same time
			return got.mark(position)
		})
		records = begin(t, tracker, "1", "2")
		records[0].Done()
		if want := []string{"1", "2"}; !slices.Equal(got.made, want) {
			t.Errorf("marked %q, want %q", got.made, want)
		}
	})
}

// TestTrackerWaits: Wait returns when all records are marked, and not before.
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
			t.Error("Wait has returned, but 2 is unfinished")
		}
		records[1].Done()
		synctest.Wait()
		if !drained || got.last() != "2" {
			t.Errorf("Wait has returned: %v, marked %q", drained, got.made)
		}
	})
}

// TestTrackerWaitsForTheMark: Wait waits for a mark that is under way. Done of another record
// does not.
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
			t.Error("Wait has returned during the mark")
		}
		close(slow)
		synctest.Wait()
		if !drained {
			t.Error("Wait has not returned after the mark")
		}
	})
}

// TestTrackerHearsTheContext: every call ends with its context, and returns the context's cause.
func TestTrackerHearsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handedOff := errors.New("handed off")
		tracker := checkpoint.NewTracker(1, new(marks).mark)
		record := begin(t, tracker, "1")[0]
		ctx, cancel := context.WithCancelCause(t.Context())
		results := make(chan error, 2)
		go func() { _, err := tracker.Begin(ctx, "2"); results <- err }()
		go func() { results <- tracker.Wait(ctx) }()
		synctest.Wait()
		cancel(handedOff)
		for range cap(results) {
			if err := <-results; !errors.Is(err, context.Canceled) || !errors.Is(err, handedOff) {
				t.Errorf("got %v, want the context's error and its cause", err)
			}
		}
		record.Done()
		if _, err := tracker.Begin(ctx, "2"); !errors.Is(err, handedOff) {
			t.Errorf("Begin after the end of the context, with room: %v", err)
		}
		if err := tracker.Wait(ctx); err != nil {
			t.Errorf("Wait with all records marked: %v", err)
		}
		plain, stop := context.WithCancel(t.Context())
		stop()
		if _, err := tracker.Begin(plain, "2"); err != context.Canceled {
			t.Errorf("got %q, want the unchanged error of the context", err)
		}
	})
}

// TestBacklogStaysPrivate puts a canary into the position of the gap.
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
		t.Errorf("the log value is a %v, want a string", kind)
	}
	if strings.Contains(out.String(), canary) {
		t.Errorf("the output contains the position:\n%s", out.String())
	}
	if b.Gap != canary || !strings.Contains(out.String(), "a gap at 6 bytes") {
		t.Errorf("the output lacks the gap:\n%s", out.String())
	}
}

// BenchmarkTracker measures one record from Begin to the mark that covers it.
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

// TestZeroTracker: a tracker that NewTracker did not make returns an error instead of waiting.
func TestZeroTracker(t *testing.T) {
	var none checkpoint.Tracker
	if _, err := none.Begin(t.Context(), "1"); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
