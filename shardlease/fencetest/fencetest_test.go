package fencetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A recorder is a test that records its failures.
type recorder struct {
	testing.TB
	ctx    context.Context
	mu     sync.Mutex
	errors []string
	logs   []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Error(args ...any)        { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Log(args ...any)          { r.Logf("%s", fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

// report plays a sink and returns what Play reports.
func report(t *testing.T, play func(testing.TB, func(*T) Sink), open func(*T) Sink) (faults, logs string) {
	r := &recorder{ctx: t.Context()}
	play(r, open)
	return strings.Join(r.errors, "\n"), strings.Join(r.logs, "\n")
}

// finds checks that the report on a sink is one line that contains a text.
func finds(t *testing.T, play func(testing.TB, func(*T) Sink), open func(*T) Sink, want string) {
	t.Helper()
	faults, _ := report(t, play, open)
	t.Log(faults)
	if !strings.Contains(faults, want) || strings.Contains(faults, "\n") {
		t.Errorf("the report does not contain %q, or has another line", want)
	}
}

func TestRightSinksPass(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*T) Sink{
		"one transaction": right, "one value for each shard": oneValue, "one writer at a time": locked,
		"compares with a lease table": leased, "conflicts": optimistic, "busy": busy,
		"uses no context": func(*T) Sink {
			return around(right(nil), func(_ context.Context, f Fence, effect []byte, apply applies) error {
				return apply(context.Background(), f, effect)
			})
		},
	} {
		t.Run(name, func(t *testing.T) { Play(t, open) })
	}
}

// TestHolesAreFound: each sink that is wrong on purpose fails, and the report has the mistake.
func TestHolesAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		open func(*T) Sink
		want string
	}{
		"check, then write":                {checkFirst, "accepted an effect of generation 7 after one of generation 8: it checks first and writes after"},
		"check, then write, with pauses":   {func(t *T) Sink { return checkFirstDeaf(t.Pause) }, "it checks first and writes after"},
		"name only":                        {byName, "Compare the generation, not the name of the owner"},
		"name only, once":                  {byNameOnce, "compare the generation, not the name"},
		"wall clock":                       {byClock, "it does not compare the generation. If the last write wins, by its arrival or by a clock"},
		"fence in another transaction":     {apart, "it commits the fence in another transaction than the effect"},
		"effect before the comparison":     {effectFirst, "applied it all the same: it compares in another step than it writes"},
		"per worker, not per shard":        {keyed(func(f Fence) string { return f.Owner + "/" + f.Shard }), "Keep the fence for each shard, not for each worker"},
		"per worker, for all shards":       {keyed(func(f Fence) string { return f.Owner }), "not for each worker"},
		"one for all shards":               {keyed(func(Fence) string { return "" }), "keep one fence for each shard, not one for all"},
		"as text":                          {compared(func(mine, stored int64) bool { return strconv.FormatInt(mine, 10) < strconv.FormatInt(stored, 10) }), "compare numbers, not text"},
		"as a 32-bit number":               {compared(func(mine, stored int64) bool { return int32(mine) < int32(stored) }), "(store the generation in 64 bits): the sink refused"},
		"as a floating-point number":       {compared(func(mine, stored int64) bool { return float64(mine) < float64(stored) }), "as JSON in many languages does): the sink accepted"},
		"equal is refused":                 {compared(func(mine, stored int64) bool { return mine <= stored }), "a writer and its successor: the sink refused an effect of generation 7 of shard-1: it has accepted this generation before. A writer writes more than once: refuse lower generations only"},
		"lost in a restart":                {forgetful, "its fence was lost"},
		"success without an effect":        {polite, "a late writer: the sink reported success for an effect of generation 7 after one of generation 8, and did not apply it"},
		"the last shard only":              {lastShard, "it has accepted effects of another shard since"},
		"the first effect of a shard":      {createsFirst, "in the first effect of the shard, and replaced, at point 2 of 2: the sink accepted an effect of generation 7"},
		"the fence after the effect":       {raisesLater, "the successor was stopped, and the writer wrote, at point 2 of 2: the sink accepted an effect of generation 7 after one of generation 8: it raises the fence after the effect"},
		"a fence that is lowered":          {lowers, "has lowered the fence"},
		"the first fence after the effect": {raisesFirstLater, "the successor was stopped in the first effect of the shard"},
		"check, write and check":           {checksTwice, "the writer was stopped, and replaced, at point 2 of 3: the sink refused an effect of generation 7, and applied it"},
		"readers see a sorted list":        {sorted, "it checks first and writes after"},
		"a refusal that erases":            {erases, "before a late effect of generation 7, and [] after it"},
		"check, then overwrite":            {checkFirstOneValue, "it checks first and writes after"},
		"a conflict without an error":      {loses, `reported success for the effect "shard`},
		"check, write, and wait": {func(*T) Sink {
			return around(checkFirst(nil), func(ctx context.Context, f Fence, effect []byte, apply applies) error {
				return errors.Join(apply(ctx, f, effect), ctx.Err())
			})
		}, "it checks first and writes after"},
		"late repetition":   {trusting, "a late repetition of it applied it again"},
		"another error":     {otherError, "an error that Refusal does not recognize"},
		"nothing is stored": {forgetsAll, "reported success for the effect"},
		"no functions":      {func(*T) Sink { return Sink{} }, "needs Apply and Effects"},
	} {
		t.Run(name, func(t *testing.T) {
			finds(t, Play, tc.open, tc.want)
		})
	}
}

func otherError(t *T) Sink {
	s := right(t)
	s.Refusal = func(error) bool { return false }
	return s
}

func forgetsAll(*T) Sink {
	return Sink{
		Apply:   func(context.Context, Fence, []byte) error { return nil },
		Effects: func(context.Context, string) ([][]byte, error) { return nil, nil },
	}
}

// TestCrowdFindsWhatCannotBeStopped: a sink that checks first and uses no context is left to the
// crowd, which finds it with some luck. The report says that no writer could be stopped.
func TestCrowdFindsWhatCannotBeStopped(t *testing.T) {
	const gap = time.Millisecond // after the check: on a busy machine a writer is seldom interrupted there
	for name, tc := range map[string]struct {
		play func(testing.TB, func(*T) Sink)
		open func(*T) Sink
		want string
	}{
		"fence": {Play, func(*T) Sink { return checkFirstDeaf(func() { time.Sleep(gap) }) }, "a crowd of writers: the sink accepted an effect"},
		"ids": {PlayRepeats, func(*T) Sink { return looksFirst(func(context.Context) error { time.Sleep(gap); return nil }) },
			"an effect of a crowd of writers: readers see the effect"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				faults, logs := report(t, tc.play, tc.open)
				if !strings.Contains(logs, "no writer could be stopped") {
					t.Fatalf("the log is %q", logs)
				}
				if strings.Contains(faults, tc.want) {
					return
				}
			}
			t.Error("the crowd has not found the hole in 50 plays")
		})
	}
}

// TestMustPause: a sink that demands it passes only if a writer was stopped at a call of T.Pause, so
// a right sink and one that checks first differ each time.
func TestMustPause(t *testing.T) {
	must := func(open func(*T) Sink) func(*T) Sink {
		return func(t *T) Sink {
			s := open(t)
			s.MustPause = true
			return s
		}
	}
	deaf := func(between func()) Sink { // compares and writes under one lock, and uses no context
		db := newTable()
		return Sink{Effects: db.list, Raise: db.raiseOnly, Apply: func(_ context.Context, f Fence, effect []byte) error {
			return db.tx(context.Background(), func() error {
				if err := atOnce(db.compare, db.raise)(f, effect); err != nil {
					return err
				}
				between()
				return db.write(f, effect)
			})
		}}
	}
	nothing := func() {}
	for name, tc := range map[string]struct {
		play func(testing.TB, func(*T) Sink)
		open func(*T) Sink
		want string // empty: passes
	}{
		"right, with pauses":         {Play, func(t *T) Sink { return deaf(t.Pause) }, ""},
		"right, without":             {Play, func(*T) Sink { return deaf(nothing) }, "no writer could be stopped"},
		"right, with a context only": {Play, locked, "none of them a call of T.Pause"},
		"checks first, with pauses":  {Play, func(t *T) Sink { return checkFirstDeaf(t.Pause) }, "it checks first and writes after"},
		"checks first, without":      {Play, func(*T) Sink { return checkFirstDeaf(nothing) }, "no writer could be stopped"},
		"checks first, a pause among many points": {Play, func(t *T) Sink {
			return around(checkFirstDeaf(t.Pause), func(ctx context.Context, f Fence, effect []byte, apply applies) error {
				for range 40 {
					_ = ctx.Err()
				}
				err := apply(ctx, f, effect)
				for range 60 {
					_ = ctx.Err()
				}
				return err
			})
		}, "it checks first and writes after"},
		"ids, without": {PlayRepeats, func(*T) Sink { return looksFirst(func(context.Context) error { return nil }) },
			"no writer could be stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			faults, logs := report(t, tc.play, must(tc.open))
			if !strings.Contains(faults, tc.want) || (faults == "") != (tc.want == "") {
				t.Errorf("the report is %q", faults)
			}
			if tc.want == "" && strings.Contains(logs, " 0 of them calls") {
				t.Errorf("the log is %q", logs)
			}
		})
	}
}

// TestRepeatedEffects: a sink that recognizes effects passes, and each that does not in some case
// fails.
func TestRepeatedEffects(t *testing.T) {
	PlayRepeats(t, once(byEffect))
	for name, tc := range map[string]struct {
		open func(*T) Sink
		want string
	}{
		"no ids":               {right, "2 times, want once: its writer has repeated it"},
		"generation in the id": {once(func(f Fence, e []byte) string { return fmt.Sprint(f.Generation, string(e)) }), "The id must not contain"},
		"the same id for two":  {once(func(f Fence, _ []byte) string { return f.Shard }), "0 times, want once: it is the second effect"},
		"lost in a restart":    {onceUntilRestart, "has forgotten the id"},
		"look, then write":     {func(*T) Sink { return looksFirst(context.Context.Err) }, "Look for the id and write in one atomic step"},
		"look, then wait, then write": {func(*T) Sink {
			return looksFirst(func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				default:
				}
				return nil
			})
		}, "its writer was stopped at point 1 of 1"},
		"look, then write, pause": {func(t *T) Sink { return looksFirst(func(context.Context) error { t.Pause(); return nil }) }, "its writer was stopped at point 1 of 1"},
		"refuses the repetition":  {onceOrError, "the sink refused the effect"},
	} {
		t.Run(name, func(t *testing.T) {
			finds(t, PlayRepeats, tc.open, tc.want)
		})
	}
}

// TestAdapterFaultsAreReported: an error of the test's own functions fails the test.
func TestAdapterFaultsAreReported(t *testing.T) {
	wrong := errors.New("no connection")
	for name, tc := range map[string]struct {
		change func(*Sink)
		want   string
	}{
		"Effects": {func(s *Sink) { s.Effects = func(context.Context, string) ([][]byte, error) { return nil, wrong } }, "Effects: no connection"},
		"Grant": {func(s *Sink) {
			s.Grant = func(context.Context, string, string) (Fence, error) { return Fence{}, wrong }
		}, "Grant: no connection"},
		"Restart": {func(s *Sink) { s.Restart = func(context.Context) error { return wrong } }, "Restart: no connection"},
		"foreign effects": {func(s *Sink) {
			s.Effects = func(context.Context, string) ([][]byte, error) { return [][]byte{[]byte("x")}, nil }
		}, "no writer has sent"},
		"generations that do not grow": {func(s *Sink) {
			s.Grant = func(_ context.Context, shard, owner string) (Fence, error) { return Fence{shard, owner, 7}, nil }
		}, "generations must grow"},
	} {
		t.Run(name, func(t *testing.T) {
			faults, _ := report(t, Play, func(*T) Sink {
				s := right(nil)
				tc.change(&s)
				return s
			})
			if !strings.Contains(faults, tc.want) {
				t.Errorf("the report is %q", faults)
			}
		})
	}
}
