package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A complaints has the errors of the reports that ends are not counted.
type complaints struct {
	mu   sync.Mutex
	list []string
}

func (c *complaints) observe(e event.Event) {
	if e.Kind == event.StoreFault {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = append(c.list, e.Err.Error())
	}
}

// want compares the reports, of which each has to contain a text.
func (c *complaints) want(t *testing.T, texts ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := len(c.list) == len(texts)
	for i, text := range texts {
		ok = ok && strings.HasPrefix(c.list[i], "the ends of tenures are not counted: ") && strings.Contains(c.list[i], text)
	}
	if !ok {
		t.Errorf("reported are %q, want %q", c.list, texts)
	}
}

// complaining runs a session that ends a tenure, and returns its reports.
func complaining(t *testing.T, store lease.Store) (*runner, *complaints) {
	c := &complaints{}
	a := runSession(t, store, shardlease.SessionConfig{Name: "a", TTL: time.Minute, Observe: c.observe})
	a.lock(t, shardlease.AcquireOptions{}).Release("done")
	return a, c
}

// hangReads lets the calls of a link about counts hang, whatever becomes of their contexts, until the channel is closed.
func hangReads(link *storetest.Link, until <-chan struct{}) {
	link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		if k.Kind == lease.KindEnds {
			<-until
		}
		return send()
	})
}

// TestHangingAdditionIsReported: an addition that ignores its context is reported once, although nothing else ends. It is not
// repeated while it hangs, and when it has failed its ends are added.
func TestHangingAdditionIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		link, until := storetest.NewLink(store), make(chan struct{})
		hangReads(link, until)
		_, told := complaining(t, link)
		time.Sleep(2 * time.Minute)
		told.want(t)
		time.Sleep(time.Hour)
		told.want(t, "ignores its context")
		close(until)
		time.Sleep(2 * time.Minute)
		wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonReleased: 1})
		told.want(t, "ignores its context")
	})
}

// TestHangingAdditionAtTheStop: a stop that finds an addition hanging, and one whose own addition hangs, report it.
func TestHangingAdditionAtTheStop(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			link, until := storetest.NewLink(new(memstore.Store)), make(chan struct{})
			hangReads(link, until)
			a, told := complaining(t, link)
			want := []string{"up to 1 are lost: no answer", "up to 1 are lost: context canceled"}
			if before {
				time.Sleep(90 * time.Second) // the first addition hangs, and is not reported yet
				a.lock(t, shardlease.AcquireOptions{}).Release("done")
				want = []string{"up to 2 are lost: no answer"}
			}
			a.stop()
			time.Sleep(time.Minute)
			told.want(t, want[:1]...)
			close(until)
			a.end(t)
			told.want(t, want...)
		})
	}
}

// TestCrowdedStopIsReported: a process whose last addition is refused again and again, because others write at the same moment,
// reports how many ends are lost.
func TestCrowdedStopIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		asked := watchEnds(link)
		asked.failing(func(lease.Write) error { others(t, store, 1); return nil }, nil)
		a, told := complaining(t, link)
		a.lock(t, shardlease.AcquireOptions{}).Release("done")
		a.end(t)
		told.want(t, "up to 2 are lost: too many other processes write")
		if _, writes := asked.sent(); len(writes) != 4 {
			t.Errorf("%d tries", len(writes))
		}
	})
}

// TestForgottenAdditionIsReported: an addition that may be lost, because so many others have written since that nobody knows, is
// reported at once. The ends after it are counted.
func TestForgottenAdditionIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		asked, once := watchEnds(link), sync.Once{}
		asked.failing(func(lease.Write) (err error) {
			once.Do(func() { others(t, store, 25); err = errDown })
			return err
		}, nil)
		a, told := complaining(t, link)
		time.Sleep(5 * time.Minute)
		told.want(t, "1 may be lost: so many other processes")
		a.lock(t, shardlease.AcquireOptions{}).Release("done")
		time.Sleep(2 * time.Minute)
		wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonHandoff: 25, lease.ReasonReleased: 1})
	})
}

// TestForgottenAdditionAtTheStop: the ends after such an addition are counted at the stop.
func TestForgottenAdditionAtTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		asked, once, failed := watchEnds(link), sync.Once{}, make(chan struct{})
		asked.failing(func(lease.Write) (err error) {
			once.Do(func() { others(t, store, 25); err = errDown; close(failed) })
			return err
		}, nil)
		a, told := complaining(t, link)
		<-failed
		synctest.Wait()
		a.lock(t, shardlease.AcquireOptions{}).Release("done")
		a.end(t)
		told.want(t, "1 may be lost: so many other processes")
		wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonHandoff: 25, lease.ReasonReleased: 1})
	})
}

// TestDeniedStopAsksOnce: a process that must not read the counts asks for them once at its stop, and reports what is lost.
func TestDeniedStopAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := storetest.NewLink(new(memstore.Store))
		reads := denyReads(link)
		a, told := complaining(t, link)
		began := time.Now()
		a.end(t)
		told.want(t, "up to 1 are lost")
		if took := time.Since(began); reads.Load() != 1 || took > 0 {
			t.Errorf("%d reads in %v", reads.Load(), took)
		}
	})
}

// TestDeniedAdditionsGetRare: a process that must not read the counts asks for them once a minute, and after three failures less
// and less often, down to once an hour. It reports that at growing intervals. When it may, all is counted, once a minute.
func TestDeniedAdditionsGetRare(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		reads := denyReads(link)
		a, told := complaining(t, link)
		const denied = "AccessDeniedException"
		for hour, want := range []int64{7, 8, 9, 10} { // after the first: 1, 2, 4, 8, 16, 32, 64, 124, 184 minutes
			if time.Sleep(time.Hour); reads.Load() != want {
				t.Errorf("%d reads in %d hours, want %d", reads.Load(), hour+1, want)
			}
		}
		time.Sleep(20 * time.Hour)
		told.want(t, denied, denied, denied, denied)
		watchEnds(link)
		time.Sleep(time.Hour)
		a.lock(t, shardlease.AcquireOptions{}).Release("done")
		time.Sleep(2 * time.Minute)
		wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonReleased: 2})
	})
}

// denyReads lets the reads of counts fail, and returns their number.
func denyReads(link *storetest.Link) *atomic.Int64 {
	reads := new(atomic.Int64)
	link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		if k.Kind != lease.KindEnds {
			return send()
		}
		reads.Add(1)
		return nil, errors.New("AccessDeniedException")
	})
	return reads
}

// TestDeniedCommandAsksOnce: a command that must not read the counts asks for them once and without a pause, and says what is not
// counted. One whose write of the counts is not answered writes once more.
func TestDeniedCommandAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := storetest.NewLink(new(memstore.Store))
		reads, lost := denyReads(link), []string{}
		s := shardlease.Supervisor{Store: link, Group: "orders", By: "ann", Uncounted: func(n int64, err error) {
			lost = append(lost, fmt.Sprint(n, " ", err))
		}}
		began := time.Now()
		for i := range 3 {
			row := held(t, link, fmt.Sprint(i), "")
			_, err := s.ForceRelease(t.Context(), row.Shard, row.Generation, "stuck")
			must(t, err)
		}
		if took := time.Since(began); reads.Load() != 3 || took > 0 || strings.Join(lost, ", ") != strings.Repeat("1 AccessDeniedException, ", 2)+"1 AccessDeniedException" {
			t.Errorf("%d reads in %v, told %q", reads.Load(), took, lost)
		}
		asked := watchEnds(link)
		asked.failing(func(lease.Write) error { return errDown }, nil)
		row := held(t, link, "s", "")
		_, err := s.ForceRelease(t.Context(), row.Shard, row.Generation, "stuck")
		must(t, err)
		if _, writes := asked.sent(); len(writes) != 2 || len(lost) != 4 {
			t.Errorf("%d writes, told %q", len(writes), lost)
		}
		s.Uncounted = nil
		row = held(t, link, "t", "")
		_, err = s.ForceRelease(t.Context(), row.Shard, row.Generation, "nobody is told")
		must(t, err)
	})
}

// TestCommandsCountTheirOwnWrites: the answer to a command is lost, and others write before the command is repeated. The command
// counts the tenure that its own write has ended, also if it returns an error, and none that others have ended.
func TestCommandsCountTheirOwnWrites(t *testing.T) {
	claim := func(r lease.Row) (lease.Write, error) {
		return protocol.Claim(r, lease.Owner{Name: "b", Incarnation: "b1"}, fixture.Stamp())
	}
	by := func(name string) func(lease.Row) (lease.Write, error) {
		return func(r lease.Row) (lease.Write, error) {
			return protocol.ForceRelease(r, protocol.Command{Seen: r.Generation, By: name, Note: "stuck"}, fixture.Stamp())
		}
	}
	unquarantine := func(r lease.Row) (lease.Write, error) {
		return protocol.Unquarantine(r, protocol.Command{Seen: r.Generation, By: "bob"}, fixture.Stamp())
	}
	type changes []func(lease.Row) (lease.Write, error)
	for name, tc := range map[string]struct {
		stored, answered bool // the write of the command
		quarantine       bool
		since            changes
		want             int64
	}{
		"answered":                     {true, true, false, nil, 1},
		"claimed since":                {true, false, false, changes{claim}, 1},
		"claimed and released since":   {true, false, false, changes{claim, by("bob")}, 1},
		"a quarantine that bob ended":  {true, false, true, changes{unquarantine, claim}, 1},
		"bob was quicker":              {false, false, false, changes{by("bob"), claim}, 0},
		"ann was quicker elsewhere":    {false, true, false, changes{by("ann"), claim}, 0},
		"bob was quicker, by a moment": {false, true, false, changes{by("bob")}, 0},
	} {
		subtest(t, name, func(t *testing.T) {
			store := new(memstore.Store)
			link := storetest.NewLink(store)
			row := held(t, link, "s", "")
			link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
				link.OnWrite(nil)
				now := row
				var answer lease.Record
				var err error = errDown
				if tc.stored {
					answer, _ = send()
					now = answer.(lease.Row)
				}
				for _, change := range tc.since {
					w, err := change(now)
					now = fixture.Must[lease.Row](t, store)(w, err)
				}
				if tc.answered && !tc.stored {
					return send()
				}
				if tc.answered {
					err = nil
				}
				return answer, err
			})
			s := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
			command := s.ForceRelease
			if tc.quarantine {
				command = s.Quarantine
			}
			_, _ = command(t.Context(), "s", row.Generation, "stuck")
			if n := counted(t, store, "orders")[lease.ReasonForced]; n != tc.want {
				t.Errorf("%d ends are counted, want %d", n, tc.want)
			}
		})
	}
}

// TestCommandsCountAllEnds: a rewind of all shards and a repair count the tenures that they have ended, and so does a command
// whose context ends half-way.
func TestCommandsCountAllEnds(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		s := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
		want := func(what string, n int64) {
			t.Helper()
			if got := counted(t, store, "orders")[lease.ReasonForced]; got != n {
				t.Errorf("after %s %d forced ends are counted, want %d", what, got, n)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			held(t, store, name, "run")
		}
		must(t, s.Pause(t.Context(), time.Hour, "replay"))
		_, err := s.RewindAll(t.Context(), checkpoint.Mark{}, "replay")
		must(t, err)
		want("a rewind of all", 3)
		_, err = s.RewindAll(t.Context(), checkpoint.Mark{}, "replay")
		must(t, err)
		want("a rewind of free shards", 3)
		held(t, store, "c2", "run")
		link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if w.Key().Name != "c2" {
				return send()
			}
			link.OnWrite(nil)
			row, _ := send()
			fixture.Must[lease.Row](t, store)(protocol.Claim(row.(lease.Row), lease.Owner{Name: "b", Incarnation: "b1"}, fixture.Stamp()))
			return nil, errDown // the answer is lost, so the rewind finds another owner, and is repeated
		})
		_, err = s.RewindAll(t.Context(), checkpoint.Mark{}, "replay")
		must(t, err)
		want("a rewind that was repeated", 5)

		row := held(t, store, "d", "")
		repaired := fixture.Must[lease.Row](t, store)(protocol.ForceRelease(row, protocol.Command{Seen: row.Generation, By: "ann"}, fixture.Stamp()))
		must(t, s.Record(t.Context(), lease.Act{Did: "repair", Subject: "d", Generation: repaired.Generation}))
		want("a repair of a held row", 6)
		free := fixture.Must[lease.Row](t, store)(protocol.Quarantine(repaired, protocol.Command{Seen: repaired.Generation, By: "ann"}, lease.ReasonForced, fixture.Stamp()))
		must(t, s.Record(t.Context(), lease.Act{Did: "repair", Subject: "d", Generation: free.Generation}))
		want("a repair of a free row", 6)
		uncounted := int64(0)
		s.Uncounted = func(ended int64, err error) { uncounted += ended }
		must(t, s.Record(t.Context(), lease.Act{Did: "repair", Subject: "nothing", Generation: 7}))
		if s.Uncounted = nil; uncounted != 1 {
			t.Errorf("up to %d ends are uncounted of a row that cannot be read", uncounted)
		}
		must(t, s.Record(t.Context(), lease.Act{Did: "repair", Subject: "nothing", Generation: 7}))
		for _, name := range []string{"e", "f", "g"} {
			held(t, store, name, "run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		released := 0
		link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			r, err := send()
			if w.Key().Kind == lease.KindLease {
				if released++; released == 2 {
					cancel()
				}
			}
			return r, err
		})
		if rows, err := s.ReleaseTask(ctx, "run", "stop"); err == nil || len(rows) != 2 {
			t.Errorf("%d rows are released, %v", len(rows), err)
		}
		want("a command that was interrupted", 8)
	})
}
