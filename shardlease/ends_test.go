package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// counted returns how many tenures of the group have ended, by reason, as the table has it.
func counted(t *testing.T, store lease.Store, group string) map[lease.Reason]int64 {
	t.Helper()
	all := map[lease.Reason]int64{}
	for r, err := range store.List(t.Context(), lease.Query{Group: group, Kind: lease.KindEnds}) {
		must(t, err)
		for reason, n := range r.(lease.Ends).Counts {
			all[reason] += n
		}
	}
	return all
}

// wantCounts compares the counts of a group.
func wantCounts(t *testing.T, store lease.Store, group string, want map[lease.Reason]int64) {
	t.Helper()
	if got := counted(t, store, group); !maps.Equal(got, want) {
		t.Errorf("the table counts %v, want %v", got, want)
	}
}

// An additions is what a link has sent about counts.
type additions struct {
	mu     sync.Mutex
	reads  []time.Time
	writes []time.Time
	fail   func(lease.Write) error // called before a write is sent; nil: no write fails
	after  func(lease.Write) error // called after a write was stored
}

// watchEnds notes the calls of a link about counts, and lets writes of counts fail. Other calls pass.
func watchEnds(link *storetest.Link) *additions {
	a := &additions{}
	link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		if k.Kind == lease.KindEnds {
			a.mu.Lock()
			a.reads = append(a.reads, time.Now())
			a.mu.Unlock()
		}
		return send()
	})
	link.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if w.Key().Kind != lease.KindEnds {
			return send()
		}
		a.mu.Lock()
		a.writes = append(a.writes, time.Now())
		fail, after := a.fail, a.after
		a.mu.Unlock()
		if fail != nil {
			if err := fail(w); err != nil {
				return nil, err
			}
		}
		r, err := send()
		if err == nil && after != nil {
			err = after(w)
		}
		return r, err
	})
	return a
}

// failing lets writes of counts fail from now on.
func (a *additions) failing(before, after func(lease.Write) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail, a.after = before, after
}

func (a *additions) sent() (reads, writes []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]time.Time(nil), a.reads...), append([]time.Time(nil), a.writes...)
}

// TestRatioOfALock: of a lock that was released 100 times and whose holder died once, the table says 100 : 1, although the
// row of a released lock is a tombstone. The session that acquires the lease counts the death.
func TestRatioOfALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a, link := runSession(t, store, shardlease.SessionConfig{Name: "a", TTL: ttl}), storetest.NewLink(store)
		for range 100 {
			a.lock(t, shardlease.AcquireOptions{}).Release("done")
			time.Sleep(time.Second)
		}
		b := runSession(t, link, shardlease.SessionConfig{Name: "b", TTL: ttl})
		b.lock(t, shardlease.AcquireOptions{})
		link.Cut()
		a.lock(t, shardlease.AcquireOptions{})
		time.Sleep(2 * time.Minute)
		wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonReleased: 100, lease.ReasonExpired: 1})
		s, err := inspect.Look(t.Context(), store, "locks", inspect.Options{})
		must(t, err)
		for _, tally := range s.Tallies() {
			if want := map[lease.Reason]int64{lease.ReasonReleased: 100, lease.ReasonExpired: 1}[tally.Reason]; tally.Count != want {
				t.Errorf("the snapshot has %d ends for %s, want %d", tally.Count, tally.Reason, want)
			}
		}
	})
}

// TestEndsOfAFleet: moves, failures, finished shards and deaths are counted, each once, by the process that made the write.
func TestEndsOfAFleet(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 4, shardlease.Config{TTL: ttl}, nil, "a", "b")
		a := s.actor("a")
		fails := s.enter("c", shardlease.Config{TTL: ttl, Backoff: time.Hour}, func(ctx context.Context, tn *shardlease.Tenure) error {
			<-time.After(time.Minute)
			return errors.New("poison")
		})
		time.Sleep(5 * time.Minute)
		moved, failed := counted(t, s.store, "orders")[lease.ReasonHandoff], counted(t, s.store, "orders")[lease.ReasonFailed]
		if moved < 1 || failed < 1 {
			t.Errorf("after a worker came that fails, %d moves and %d failures are counted", moved, failed)
		}
		fails.leave()
		held := a.Status().Held
		a.die()
		time.Sleep(5 * time.Minute)
		if got := counted(t, s.store, "orders")[lease.ReasonExpired]; got != int64(held) {
			t.Errorf("%d expired tenures are counted of a worker that died with %d shards", got, held)
		}
		total := int64(0)
		for _, name := range s.names() {
			total += generations(s.row(name))
		}
		sum := int64(0)
		for _, n := range counted(t, s.store, "orders") {
			sum += n
		}
		if sum != total {
			t.Errorf("%d ends are counted, and the rows have had %d", sum, total)
		}
	})
}

// generations returns how many tenures have ended in the history of a row.
func generations(row lease.Row) (n int64) {
	for _, tr := range append(row.History(), row.Last) {
		if tr.From != "" {
			n++
		}
	}
	return n
}

// TestSettledFleetCountsNothing: while no tenure ends, the fleet makes no request about counts.
func TestSettledFleetCountsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		link := storetest.NewLink(s.store)
		asked := watchEnds(link)
		s.enterOn(link, "a", shardlease.Config{TTL: 30 * time.Second}, marking(10*time.Second, 0))
		s.shared(time.Minute, "a")
		s.enter("b", shardlease.Config{TTL: 30 * time.Second}, marking(10*time.Second, 0))
		s.shared(time.Minute, "a", "b")
		time.Sleep(5 * time.Minute) // the move of two shards is counted
		reads, writes := asked.sent()
		time.Sleep(time.Duration(fixture.Size(56, 180)) * time.Minute) // over the turn of an hour
		if r, w := asked.sent(); len(r) != len(reads) || len(w) != len(writes) {
			t.Errorf("a settled worker has made %d reads and %d writes of counts", len(r)-len(reads), len(w)-len(writes))
		}
		if len(writes) != 1 || len(reads) != 1 {
			t.Errorf("one move has cost %d reads and %d writes of counts", len(reads), len(writes))
		}
	})
}

// TestEndsAreAddedOnceAMinute: a session that ends tenures all the time reads and writes the counts once a minute at most,
// and a crash loses no more than a minute of its ends.
func TestEndsAreAddedOnceAMinute(t *testing.T) {
	t.Parallel()
	minutes := fixture.Size(15, 60)
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		asked, began := watchEnds(link), time.Now()
		a := runSession(t, link, shardlease.SessionConfig{Name: "a", TTL: ttl})
		ended := int64(0)
		for ; time.Since(began) < time.Duration(minutes)*time.Minute; ended++ {
			a.lock(t, shardlease.AcquireOptions{}).Release("done")
			time.Sleep(time.Second)
			if missing := ended + 1 - counted(t, store, "locks")[lease.ReasonReleased]; missing > 61 {
				t.Fatalf("%d ends are not counted: more than those of a minute", missing)
			}
		}
		reads, writes := asked.sent()
		if len(writes) < minutes-1 || len(reads) != len(writes) {
			t.Errorf("%d reads and %d writes in %d minutes", len(reads), len(writes), minutes)
		}
		for i := range writes[1:] {
			if pause := writes[i+1].Sub(writes[i]); pause < time.Minute {
				t.Errorf("a write after %v", pause)
			}
		}
		a.end(t)
		wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonReleased: ended})
	})
}

// TestEndsAreSpread: when hundreds of sessions end a tenure at the same moment, each reads and writes the counts once, and again
// at most once a minute if its write was refused. So they cost at most a read and a write for each session and minute, and
// soon all are counted.
func TestEndsAreSpread(t *testing.T) {
	sessions := fixture.Size(40, 300)
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		var asked []*additions
		var held []*shardlease.Tenure
		for i := range sessions {
			link := storetest.NewLink(store)
			link.Delay(20 * time.Millisecond)
			asked = append(asked, watchEnds(link))
			s := runSession(t, link, shardlease.SessionConfig{Name: fmt.Sprint("session-", i), TTL: time.Minute})
			tn, err := s.Acquire(t.Context(), fmt.Sprint("lock-", i), shardlease.AcquireOptions{})
			must(t, err)
			held = append(held, tn)
		}
		for _, tn := range held {
			tn.Release("deploy")
		}
		time.Sleep(5 * time.Minute)
		wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonReleased: int64(sessions)})
		total := 0
		for _, a := range asked {
			reads, writes := a.sent()
			total += len(writes)
			if len(reads) != len(writes) {
				t.Errorf("%d reads and %d writes", len(reads), len(writes))
			}
			for i := range writes {
				if i > 0 && writes[i].Sub(writes[i-1]) < time.Minute-time.Second {
					t.Errorf("a refused write was repeated after %v", writes[i].Sub(writes[i-1]))
				}
			}
		}
		if total > 2*sessions {
			t.Errorf("%d writes for %d sessions", total, sessions)
		}
	})
}

// others adds to the counts that many times, as other sessions do.
func others(t *testing.T, store lease.Store, n int) {
	t.Helper()
	for range n {
		e := lease.Ends{Group: "locks", Hour: protocol.HourOf(time.Now())}
		if r, err := store.Get(t.Context(), e.Key()); err == nil {
			e = r.(lease.Ends)
		}
		fixture.Must[lease.Ends](t, store)(protocol.AddEnds(e, map[lease.Reason]int64{lease.ReasonHandoff: 1}, fixture.Stamp()))
	}
}

// TestLostAnswerCountsOnce: an addition whose answer is lost is sent again with the same bytes, and counts once, also if others
// have written in between. If so many have that nobody knows whether it was stored, it does not count twice.
func TestLostAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stored bool // the answer is lost, and not the write
		others int
		want   int64
		sent   int // how often an addition is sent: twice the same, and then another one if the first was not stored
	}{
		"stored, and the record is as it was": {true, 0, 1, 2}, "stored, and others have written": {true, 10, 1, 2}, "stored, and forgotten": {true, 25, 1, 2},
		"not stored": {false, 0, 1, 2}, "not stored, and others have written": {false, 10, 1, 3}, "not stored, and nobody knows": {false, 25, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := new(memstore.Store)
				link := storetest.NewLink(store)
				asked, ids := watchEnds(link), []lease.WriteID(nil)
				lose := func(w lease.Write) error {
					if ids = append(ids, w.ID()); len(ids) > 1 {
						return nil
					}
					if !tc.stored {
						others(t, store, tc.others)
					}
					return storetest.ErrCut
				}
				note := func(w lease.Write) error {
					if tc.stored && len(ids) == 1 {
						ids = append(ids, w.ID())
						others(t, store, tc.others)
					}
					return nil
				}
				if asked.failing(note, lose); !tc.stored {
					asked.failing(lose, nil)
				}
				a := runSession(t, link, shardlease.SessionConfig{Name: "a", TTL: ttl})
				a.lock(t, shardlease.AcquireOptions{}).Release("done")
				time.Sleep(10 * time.Minute)
				if got := counted(t, store, "locks"); got[lease.ReasonReleased] != tc.want || got[lease.ReasonHandoff] != int64(tc.others) {
					t.Errorf("counted are %v", got)
				}
				if len(ids) != tc.sent || ids[0] != ids[1] {
					t.Errorf("sent were the additions %v", ids)
				}
				if _, writes := asked.sent(); len(writes) != tc.sent || writes[1].Sub(writes[0]) < time.Minute {
					t.Errorf("sent at %v", writes)
				}
			})
		})
	}
}

// TestFaultAfterAnAddition: a store that stores an addition, and then panics or calls runtime.Goexit, is asked again, and counts once.
func TestFaultAfterAnAddition(t *testing.T) {
	for _, fault := range []func(){runtime.Goexit, func() { panic("a store with a fault") }} {
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			link := storetest.NewLink(store)
			watchEnds(link).failing(nil, func(lease.Write) error { fault(); return nil })
			a := runSession(t, link, shardlease.SessionConfig{Name: "a", TTL: ttl})
			a.lock(t, shardlease.AcquireOptions{}).Release("done")
			time.Sleep(10 * time.Minute)
			wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonReleased: 1})
		})
	}
}

// TestRefusedAdditionIsMadeLater: an addition that is refused, because others have written since its read, is made again a
// minute later, from another read: also if the process was paused meanwhile, and so many have written that the record has
// forgotten the one that was read.
func TestRefusedAdditionIsMadeLater(t *testing.T) {
	for _, n := range []int{1, 25} {
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			link := storetest.NewLink(store)
			asked, once := watchEnds(link), sync.Once{}
			asked.failing(func(lease.Write) error { once.Do(func() { others(t, store, n) }); return nil }, nil)
			a := runSession(t, link, shardlease.SessionConfig{Name: "a", TTL: ttl})
			a.lock(t, shardlease.AcquireOptions{}).Release("done")
			time.Sleep(10 * time.Minute)
			wantCounts(t, store, "locks", map[lease.Reason]int64{lease.ReasonReleased: 1, lease.ReasonHandoff: int64(n)})
			reads, writes := asked.sent()
			if len(reads) != 2 || len(writes) != 2 || writes[1].Sub(writes[0]) != time.Minute {
				t.Errorf("reads %v, writes %v", reads, writes)
			}
		})
	}
}

// TestFailingAdditionsHarmNobody: a store that does not accept counts neither makes a worker unhealthy nor delays its commits. The
// worker reports it and asks again at growing intervals, the latter at most an hour, and when it is over all is counted.
func TestFailingAdditionsHarmNobody(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(lease.Write) error{
		"denied": func(lease.Write) error { return errors.New("AccessDeniedException") },
		"panics": func(lease.Write) error { panic("a store with a fault") },
		"exits":  func(lease.Write) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newStage(t, 4)
				link := storetest.NewLink(s.store)
				asked := watchEnds(link)
				asked.failing(fail, nil)
				a := s.enterOn(link, "a", shardlease.Config{TTL: 30 * time.Second}, marking(10*time.Second, 0))
				s.shared(time.Minute, "a")
				b := s.enter("b", shardlease.Config{TTL: 30 * time.Second}, marking(10*time.Second, 0))
				s.shared(time.Minute, "a", "b")
				b.leave()
				c := s.enter("c", shardlease.Config{TTL: 30 * time.Second}, marking(10*time.Second, 0))
				for range 600 {
					time.Sleep(time.Second)
					if err := a.Healthy(); err != nil {
						t.Fatalf("the worker is unhealthy: %v", err)
					}
				}
				if faults := a.of(event.StoreFault); len(faults) != 1 {
					t.Errorf("%d reports in ten minutes: %v", len(faults), faults)
				}
				time.Sleep(20 * time.Minute)
				if _, writes := asked.sent(); len(a.of(event.StoreFault)) != 2 || len(writes) != 6 {
					t.Errorf("%d reports and %d attempts in half an hour", len(a.of(event.StoreFault)), len(writes))
				}
				asked.failing(nil, nil)
				time.Sleep(30 * time.Minute)
				c.leave()
				a.leave()
				sum, ended := int64(0), int64(0)
				for _, n := range counted(t, s.store, "orders") {
					sum += n
				}
				for _, name := range s.names() {
					ended += generations(s.row(name))
				}
				if sum != ended {
					t.Errorf("%d ends are counted in the end, and the rows have had %d", sum, ended)
				}
			})
		})
	}
}

// TestStopAddsEnds: what a worker releases at its stop is counted when Run returns. A store that does not answer delays its
// return by a third of the lease time at most.
func TestStopAddsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 4)
		a := s.enter("a", shardlease.Config{TTL: ttl}, plodding)
		s.shared(time.Minute, "a")
		a.leave()
		wantCounts(t, s.store, "orders", map[lease.Reason]int64{lease.ReasonReleased: 4})

		link := storetest.NewLink(s.store)
		var silent atomic.Bool
		b := s.enterOn(link, "b", shardlease.Config{TTL: ttl}, plodding)
		s.shared(time.Minute, "b")
		link.OnGet(func(ctx context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
			if k.Kind == lease.KindEnds {
				silent.Store(true)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return send()
		})
		began := time.Now()
		b.leave()
		if took := time.Since(began); !silent.Load() || took > ttl/3+time.Second {
			t.Errorf("Run returned after %v", took)
		}
	})
}

// TestCommandsCountTheirEnds: a command counts the tenures that it has ended, with one addition, and no others.
func TestCommandsCountTheirEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := staged(t, 4, shardlease.Config{TTL: ttl}, plodding, "a")
		link := storetest.NewLink(s.store)
		asked := watchEnds(link)
		operator := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
		row := s.row("shard-00")
		_, err := operator.Quarantine(t.Context(), row.Shard, row.Generation, "")
		must(t, err)
		row, err = operator.Unquarantine(t.Context(), row.Shard, row.Generation+1, "")
		must(t, err)
		wantCounts(t, s.store, "orders", map[lease.Reason]int64{lease.ReasonForced: 1})
		time.Sleep(time.Minute)
		_, err = operator.Evict(t.Context(), s.row("shard-01").Owner.Incarnation, "it hangs")
		must(t, err)
		if _, writes := asked.sent(); len(writes) != 2 {
			t.Errorf("%d additions for two commands that ended tenures", len(writes))
		}
		wantCounts(t, s.store, "orders", map[lease.Reason]int64{lease.ReasonForced: 5})
		time.Sleep(time.Minute)
		row = s.row("shard-02")
		_, err = operator.Rewind(t.Context(), row.Shard, row.Generation, fixture.At("1"), "again")
		must(t, err)
		if n := counted(t, s.store, "orders")[lease.ReasonForced]; n != 6 {
			t.Errorf("%d forced ends are counted in the end", n)
		}
	})
}
