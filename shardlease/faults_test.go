package shardlease_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// ofRows reports whether a write is one of a lease row's holder.
func ofRows(w lease.Write) bool { return w.Op == lease.OpSwap && w.Key().Kind == lease.KindLease }

// lasted are for how long the reports of a fault say that it has lasted, and whether the last
// one says that it is over.
func lasted(events []shardlease.Event) (times []time.Duration, over bool) {
	for _, e := range events {
		times, over = append(times, e.Lasted.Round(time.Second)), e.Over
	}
	return times, over
}

// TestFailingCommitsAreReported: for an hour the table accepts no commit of twelve shards,
// while heartbeats are answered. That was one event per shard and no more, with Healthy nil.
func TestFailingCommitsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 12)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(beat+1500*time.Millisecond, "a")
		time.Sleep(time.Minute)
		a.refuse(ofRows)
		time.Sleep(3*ttl - time.Second)
		if err := a.Healthy(); err != nil {
			t.Errorf("before the time is up: %v", err)
		}
		time.Sleep(5*time.Second + 3*time.Second) // a commit is due within 5 s; and the fault is looked at again
		if err := a.Healthy(); err == nil || !strings.Contains(err.Error(), "no commit of 12 shards") || !strings.Contains(err.Error(), "shard-09") {
			t.Errorf("healthy: %v", err)
		}
		if !a.Ready() {
			t.Error("not ready: it has its seat and its shards")
		}
		time.Sleep(time.Hour)
		reports := a.of(shardlease.EventCommitsFail)
		want := []time.Duration{30, 40, 60, 100, 180, 340, 660, 1300, 2580}
		times, over := lasted(reports)
		for i := range times {
			times[i] /= time.Second
		}
		if !slices.Equal(times, want) || over {
			t.Errorf("reported after %v s (over: %t), want %v", times, over, want)
		}
		if len(reports) == 0 {
			s.fail("nothing is reported")
		}
		if last := reports[len(reports)-1]; last.Count != 12 || len(last.Shards) != 10 || last.Err == nil {
			t.Errorf("the last report: %v", last)
		}
		if n := len(a.of(shardlease.StoreFault)); n > 12 {
			t.Errorf("%d events of one lasting fault of the store", n)
		}
		if n := len(a.of(shardlease.Ended)); n > 0 {
			t.Errorf("%d tenures ended, and nobody else is there", n)
		}
		a.refuse(nil)
		time.Sleep(10 * time.Second)
		for _, kind := range []shardlease.EventKind{shardlease.EventCommitsFail, shardlease.StoreFault} {
			events := a.of(kind)
			if last := events[len(events)-1]; !last.Over || last.Lasted < time.Hour || last.Err != nil {
				t.Errorf("%v, in the end: %v", kind, last)
			}
		}
		if err := a.Healthy(); err != nil {
			t.Errorf("healed: %v", err)
		}
		s.end()
	})
}

// TestCommitTimeoutOff: a negative CommitTimeout reports and ends nothing.
func TestCommitTimeoutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 2)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager, CommitTimeout: -1}, nil)
		s.shared(beat+1500*time.Millisecond, "a")
		a.refuse(ofRows)
		time.Sleep(time.Hour)
		if n := len(a.of(shardlease.EventCommitsFail)) + len(a.of(shardlease.Ended)); n > 0 || a.Healthy() != nil {
			t.Errorf("%d events, healthy: %v", n, a.Healthy())
		}
		s.end()
	})
}

// TestFailingCommitsHandOver: no write of a row by a succeeds any more, while its heartbeats
// are answered. Its tenures end as stalled after CommitTimeout; and because it cannot release
// the shards either, it gives up its seat, and b processes them all.
func TestFailingCommitsHandOver(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newStage(t, 8)
				a := s.enter("a", shardlease.Config{Handoff: mode}, nil)
				b := s.enter("b", shardlease.Config{Handoff: mode}, nil)
				s.shared(beat+1500*time.Millisecond, "a", "b")
				time.Sleep(time.Minute)
				before := len(a.of(shardlease.Ended))
				a.refuse(func(w lease.Write) bool { return w.Key().Kind == lease.KindLease })
				took := s.within(3*ttl+5*time.Second+beat+3*time.Second, "b holds everything", func() bool { return s.running()["b"] == 8 })
				t.Logf("b holds everything after %v", took)
				for _, e := range a.of(shardlease.Ended)[before:] {
					if e.Cause != shardlease.Stalled {
						t.Errorf("ended: %v", e)
					}
				}
				if lost := a.of(shardlease.Lost); len(lost) != 1 || lost[0].Cause != shardlease.Stalled {
					t.Errorf("lost: %v", lost)
				}
				if n := len(b.of(shardlease.Lost)) + len(b.of(shardlease.EventCommitsFail)); n > 0 {
					t.Errorf("the healthy worker reports %d faults", n)
				}
				a.refuse(nil)
				s.shared(10*time.Minute, "a", "b")
				s.end()
			})
		})
	}
}

// TestNobodyCanCommit: no worker can write a row for half an hour. Nobody is better off than
// the others then; when the table accepts writes again, all shards are processed within a
// lease time.
func TestNobodyCanCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 8)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		b := s.enter("b", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(beat+1500*time.Millisecond, "a", "b")
		time.Sleep(time.Minute)
		for _, w := range []*actor{a, b} {
			w.refuse(func(w lease.Write) bool { return w.Key().Kind == lease.KindLease })
		}
		time.Sleep(30 * time.Minute)
		for _, w := range []*actor{a, b} {
			if _, over := lasted(w.of(shardlease.EventCommitsFail)); over || w.Healthy() == nil {
				t.Errorf("%s: commits-fail is over: %t, healthy: %v; and nothing is processed", w.name, over, w.Healthy())
			}
		}
		lost := len(a.of(shardlease.Lost)) + len(b.of(shardlease.Lost))
		t.Logf("seats given up: %d; running: %v", lost, s.running())
		if lost > 2 {
			t.Errorf("seats were given up %d times, though nobody could take over", lost)
		}
		healed := time.Now()
		a.refuse(nil)
		b.refuse(nil)
		held := s.within(ttl, "all are processed", func() bool { n := s.running(); return n["a"]+n["b"] == 8 })
		t.Logf("processed after %v, even after %v", held, held+s.shared(5*time.Minute, "a", "b"))
		time.Sleep(time.Until(healed.Add(5 * time.Minute)))
		for _, w := range []*actor{a, b} {
			if _, over := lasted(w.of(shardlease.EventCommitsFail)); !over || w.Healthy() != nil {
				t.Errorf("%s, healed: commits-fail is over: %t, healthy: %v", w.name, over, w.Healthy())
			}
		}
		s.end()
	})
}

// TestOneRowThatCannotBeWritten: the commits of one of a's two shards fail. No worker could take
// it, because a cannot release it; so a goes on with it and reports that it cannot commit. The
// other shard goes on untouched.
func TestOneRowThatCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.enter("b", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(beat+1500*time.Millisecond, "a", "b")
		time.Sleep(time.Minute)
		mine := slices.DeleteFunc(s.names(), func(name string) bool { return s.row(name).Owner.Name != "a" })
		a.refuse(func(w lease.Write) bool { return ofRows(w) && w.Key().Name == mine[0] })
		calls := len(s.of(mine[1]))
		time.Sleep(10 * time.Minute)
		reports := a.of(shardlease.EventCommitsFail)
		if len(reports) < 3 || reports[0].Shard != mine[0] || reports[0].Count != 1 {
			t.Errorf("reported: %v", reports)
		}
		if n := len(a.of(shardlease.Lost)); n > 0 {
			t.Error("it gave up its seat over one row")
		}
		if n := len(s.of(mine[1])); n != calls {
			t.Errorf("%d tenures of the other shard began", n-calls)
		}
		if n := s.running()["a"]; n != 2 {
			t.Errorf("a processes %d shards of 2", n)
		}
		if a.Healthy() == nil {
			t.Error("healthy")
		}
		s.end()
	})
}

// TestLastingStoreFault: a table that is away for 20 minutes is one fault, reported when it
// begins, while it lasts and when it is over; not one event for each call.
func TestLastingStoreFault(t *testing.T) {
	t.Run("refuses", func(t *testing.T) { lastingStoreFault(t, (*link).cut, "[0s 10s 30s 1m10s 2m30s 5m10s 10m30s]") })
	t.Run("answers nothing", func(t *testing.T) { lastingStoreFault(t, (*link).hush, "[0s 10s 30s 1m10s 2m30s 5m10s 10m30s]") })
}

func lastingStoreFault(t *testing.T, begin func(*link), want string) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 50)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(beat+1500*time.Millisecond, "a")
		time.Sleep(time.Minute)
		begin(a.link)
		time.Sleep(20 * time.Minute)
		times, over := lasted(a.of(shardlease.StoreFault))
		if fmt.Sprint(times) != want || over {
			t.Errorf("reported after %v (over: %t), want %v", times, over, want)
		}
		a.heal()
		time.Sleep(10 * time.Second)
		times, over = lasted(a.of(shardlease.StoreFault))
		if last := times[len(times)-1]; !over || last < 19*time.Minute || last > 21*time.Minute {
			t.Errorf("over: %t, after %v", over, times)
		}
		s.end()
	})
}

// TestSlowStoreIsReportedWhileItLasts: heartbeats take 400 ms to be answered, more than a
// thirtieth of the lease time.
func TestSlowStoreIsReportedWhileItLasts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 2)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(beat+1500*time.Millisecond, "a")
		a.late(400 * time.Millisecond)
		time.Sleep(2 * time.Minute)
		events := a.of(shardlease.StoreFault)
		times, over := lasted(events)
		if fmt.Sprint(times) != "[0s 10s 30s 1m10s]" || over {
			t.Fatalf("reported after %v, over: %t", times, over)
		}
		slow, ok := errors.AsType[*shardlease.SlowStoreError](events[0].Err)
		if !ok || slow.Answer != 400*time.Millisecond || slow.Least != 12*time.Second || slow.TTL != ttl {
			t.Errorf("reported: %v", events[0])
		}
		a.late(0)
		time.Sleep(ttl)
		if _, over := lasted(a.of(shardlease.StoreFault)); !over {
			t.Error("the store is quick again, and that is not reported")
		}
		s.end()
	})
}

// TestRestoredTableIsReportedWhileItLasts: nothing is claimed until somebody adopts the
// table, so the fault is reported until then.
func TestRestoredTableIsReportedWhileItLasts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &verifier{Store: new(memstore.Store)}
		store.restored.Store(true)
		w := join(t, store, shardlease.Static("1"), shardlease.Config{Name: "a"}, serve)
		pass(time.Hour)
		times, over := lasted(w.of(shardlease.Restored))
		if len(times) < 8 || len(times) > 12 || over {
			t.Errorf("reported after %v, over: %t", times, over)
		}
		store.restored.Store(false)
		pass(10 * time.Second)
		if events := w.of(shardlease.Restored); !events[len(events)-1].Over || len(w.of(shardlease.Started)) != 1 {
			t.Errorf("in the end: %v", events[len(events)-1])
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestFaultsReadAsOneLine: what the log has of a fault that lasts.
func TestFaultsReadAsOneLine(t *testing.T) {
	e := shardlease.Event{
		Kind: shardlease.EventCommitsFail, Worker: "a", Count: 12, Shards: []string{"1", "2"}, Lasted: 40 * time.Second, Err: errors.New("commits are not accepted"),
	}
	const want = `commits-fail: worker a, lasted 40s, count 12, shards [1 2], err commits are not accepted`
	if got := e.String(); got != want {
		t.Errorf("reads\n%s\nnot\n%s", got, want)
	}
}
