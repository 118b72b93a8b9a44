package shardlease_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// isByHolder reports whether w is a write of a lease row by its holder.
func isByHolder(w lease.Write) bool { return w.Op == lease.OpSwap && w.Key().Kind == lease.KindLease }

// lasted returns Lasted of each report of a fault, and whether the last report is about its
// end.
func lasted(events []event.Event) (times []time.Duration, over bool) {
	for _, e := range events {
		times, over = append(times, e.Lasted.Round(time.Second)), e.Over
	}
	return times, over
}

// TestFailingCommitsAreReported: for an hour (in a sample, 15 minutes) the table accepts no commit of twelve shards,
// while heartbeats are answered. The fault is reported while it lasts, and Healthy returns an
// error. Before, there was one event per shard in all that time, and Healthy returned nil.
func TestFailingCommitsAreReported(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 12, shardlease.Config{Handoff: rebalance.Eager}, plodding, "a")
		a := s.actor("a")
		time.Sleep(time.Minute)
		a.refuse(isByHolder)
		time.Sleep(3*ttl - time.Second)
		if err := a.Healthy(); err != nil {
			t.Errorf("unhealthy before CommitTimeout: %v", err)
		}
		time.Sleep(5*time.Second + 3*time.Second) // a commit is due within 5 s, and the engine finds the fault within 3 s more
		if err := a.Healthy(); err == nil || !strings.Contains(err.Error(), "no commit of 12 shards") || !strings.Contains(err.Error(), "shard-09") {
			t.Errorf("Healthy returned %v", err)
		}
		if err := a.Ready(); err != nil {
			t.Errorf("not ready, although it has its seat and its shards: %v", err)
		}
		lasts := fixture.Size(15*time.Minute, time.Hour)
		time.Sleep(lasts)
		reports := a.of(event.CommitsFail)
		want := []time.Duration{30, 40, 60, 100, 180, 340, 660, 1300, 2580}
		times, over := lasted(reports)
		for i := range times {
			times[i] /= time.Second
		}
		want = slices.DeleteFunc(want, func(after time.Duration) bool { return after*time.Second > lasts+time.Minute })
		if !slices.Equal(times, want) || over {
			t.Errorf("reported after %v s (over: %t), want %v", times, over, want)
		}
		if len(reports) == 0 {
			s.Fatal("the failing commits are not reported")
		}
		if last := reports[len(reports)-1]; last.Count != 12 || len(last.Shards) != 10 || last.Err == nil {
			t.Errorf("the last report: %v", last)
		}
		if n := len(a.of(event.StoreFault)); n > 12 {
			t.Errorf("%d events about one lasting fault of the store", n)
		}
		a.never(t, event.Ended)
		a.refuse(nil)
		time.Sleep(10 * time.Second)
		for _, kind := range []event.Kind{event.CommitsFail, event.StoreFault} {
			events := a.of(kind)
			if last := events[len(events)-1]; !last.Over || last.Lasted < lasts || last.Err != nil {
				t.Errorf("the last report of %v: %v", kind, last)
			}
		}
		if err := a.Healthy(); err != nil {
			t.Errorf("not healthy after the fault: %v", err)
		}
	})
}

// TestCommitTimeoutOff: with a negative CommitTimeout no fault is reported and no tenure ends.
func TestCommitTimeoutOff(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 2, shardlease.Config{Handoff: rebalance.Eager, CommitTimeout: -1}, plodding, "a")
		a := s.actor("a")
		a.refuse(isByHolder)
		time.Sleep(fixture.Size(15*time.Minute, time.Hour))
		if n := len(a.of(event.CommitsFail)) + len(a.of(event.Ended)); n > 0 || a.Healthy() != nil {
			t.Errorf("%d events, healthy: %v", n, a.Healthy())
		}
	})
}

// TestFailingCommitsHandOver: every write of a row by worker a fails, while its heartbeats
// are answered. The tenures of a end as stalled after CommitTimeout. Worker a cannot
// release its shards either, so it gives up its seat, and worker b processes all shards.
func TestFailingCommitsHandOver(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode rebalance.Mode) {
		s := staged(t, 8, shardlease.Config{Handoff: mode}, nil, "a", "b")
		a, b := s.actor("a"), s.actor("b")
		time.Sleep(time.Minute)
		before := len(a.of(event.Ended))
		a.refuse(func(w lease.Write) bool { return w.Key().Kind == lease.KindLease })
		took := s.within(3*ttl+5*time.Second+beat+3*time.Second, "b holds everything", func() bool { return s.running()["b"] == 8 })
		t.Logf("b holds all shards after %v", took)
		for _, e := range a.of(event.Ended)[before:] {
			if e.Cause != event.CauseStalled {
				t.Errorf("ended: %v", e)
			}
		}
		if lost := a.of(event.Lost); len(lost) != 1 || lost[0].Cause != event.CauseStalled {
			t.Errorf("lost: %v", lost)
		}
		b.never(t, event.Lost, event.CommitsFail)
		a.refuse(nil)
		s.shared(10*time.Minute, "a", "b")
	})
}

// TestNobodyCanCommit: no worker can write a row for half an hour, so a move would help no
// shard. When the table accepts writes again, all shards are processed within a lease time.
func TestNobodyCanCommit(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 8, shardlease.Config{Handoff: rebalance.Eager}, plodding, "a", "b")
		a, b := s.actor("a"), s.actor("b")
		time.Sleep(time.Minute)
		for _, w := range []*actor{a, b} {
			w.refuse(func(w lease.Write) bool { return w.Key().Kind == lease.KindLease })
		}
		time.Sleep(fixture.Size(10*time.Minute, 30*time.Minute))
		for _, w := range []*actor{a, b} {
			if _, over := lasted(w.of(event.CommitsFail)); over || w.Healthy() == nil {
				t.Errorf("%s: commits-fail is over: %t, healthy: %v, although nothing is processed", w.name, over, w.Healthy())
			}
		}
		lost := len(a.of(event.Lost)) + len(b.of(event.Lost))
		t.Logf("seats given up: %d; running: %v", lost, s.running())
		if lost > 2 {
			t.Errorf("seats were given up %d times, although no other worker could write rows", lost)
		}
		healed := time.Now()
		a.refuse(nil)
		b.refuse(nil)
		held := s.within(ttl, "all are processed", func() bool { n := s.running(); return n["a"]+n["b"] == 8 })
		t.Logf("processed after %v, even after %v", held, held+s.shared(5*time.Minute, "a", "b"))
		time.Sleep(time.Until(healed.Add(5 * time.Minute)))
		for _, w := range []*actor{a, b} {
			if _, over := lasted(w.of(event.CommitsFail)); !over || w.Healthy() != nil {
				t.Errorf("%s, healed: commits-fail is over: %t, healthy: %v", w.name, over, w.Healthy())
			}
		}
	})
}

// TestOneRowThatCannotBeWritten: the commits of one of a's two shards fail. No other worker
// could claim that shard, because a cannot release it. So a continues to process both
// shards, and reports that the commits of one fail.
func TestOneRowThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 4, shardlease.Config{Handoff: rebalance.Eager}, plodding, "a", "b")
		a := s.actor("a")
		time.Sleep(time.Minute)
		mine := slices.DeleteFunc(s.names(), func(name string) bool { return s.row(name).Owner.Name != "a" })
		a.refuse(func(w lease.Write) bool { return isByHolder(w) && w.Key().Name == mine[0] })
		calls := len(s.of(mine[1]))
		time.Sleep(10 * time.Minute)
		reports := a.of(event.CommitsFail)
		if len(reports) < 3 || reports[0].Shard != mine[0] || reports[0].Count != 1 {
			t.Errorf("reported: %v", reports)
		}
		a.never(t, event.Lost)
		if n := len(s.of(mine[1])); n != calls {
			t.Errorf("%d tenures of the other shard began", n-calls)
		}
		if n := s.running()["a"]; n != 2 {
			t.Errorf("a processes %d shards of 2", n)
		}
		if err := a.Healthy(); err == nil || !strings.Contains(err.Error(), "no commit of 1 shard for") {
			t.Errorf("Healthy returned %v", err)
		}
	})
}

// TestLastingStoreFault: a worker does not reach its table for 20 minutes. That is one fault,
// reported when it begins, while it lasts and when it ends, and not one event for each call.
func TestLastingStoreFault(t *testing.T) {
	t.Parallel()
	t.Run("refuses", func(t *testing.T) {
		lastingStoreFault(t, (*storetest.Link).Cut, "[0s 10s 30s 1m10s 2m30s 5m10s 10m30s]")
	})
	t.Run("answers nothing", func(t *testing.T) {
		lastingStoreFault(t, (*storetest.Link).Silence, "[0s 10s 30s 1m10s 2m30s 5m10s 10m30s]")
	})
}

func lastingStoreFault(t *testing.T, begin func(*storetest.Link), want string) {
	bubble(t, func(t *testing.T) {
		s := staged(t, 50, shardlease.Config{Handoff: rebalance.Eager}, plodding, "a")
		a := s.actor("a")
		time.Sleep(time.Minute)
		begin(a.Link)
		time.Sleep(20 * time.Minute)
		times, over := lasted(a.of(event.StoreFault))
		if fmt.Sprint(times) != want || over {
			t.Errorf("reported after %v (over: %t), want %v", times, over, want)
		}
		a.Heal()
		time.Sleep(10 * time.Second)
		times, over = lasted(a.of(event.StoreFault))
		if last := times[len(times)-1]; !over || last < 19*time.Minute || last > 21*time.Minute {
			t.Errorf("over: %t, reported after %v", over, times)
		}
	})
}

// TestSlowStoreIsReportedWhileItLasts: answers to heartbeats take 400 ms, more than a thirtieth of
// the lease time.
func TestSlowStoreIsReportedWhileItLasts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 2, shardlease.Config{Handoff: rebalance.Eager}, nil, "a")
		a := s.actor("a")
		a.Delay(400 * time.Millisecond)
		time.Sleep(2 * time.Minute)
		events := a.of(event.StoreFault)
		times, over := lasted(events)
		if fmt.Sprint(times) != "[0s 10s 30s 1m10s]" || over {
			t.Fatalf("reported after %v, over: %t", times, over)
		}
		slow, ok := errors.AsType[*shardlease.SlowStoreError](events[0].Err)
		if !ok || slow.Answer != 400*time.Millisecond || slow.Least != 12*time.Second || slow.TTL != ttl {
			t.Errorf("reported: %v", events[0])
		}
		a.Delay(0)
		time.Sleep(ttl)
		if _, over := lasted(a.of(event.StoreFault)); !over {
			t.Error("the store is quick again, and that is not reported")
		}
	})
}

// TestRestoredTableIsReportedWhileItLasts: a worker claims nothing until somebody adopts the
// restored table, and reports the fault until then.
func TestRestoredTableIsReportedWhileItLasts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := storetest.NewLink(new(memstore.Store))
		store.OnVerify(restored)
		w := join(t, store, shardlease.Static("1"), shardlease.Config{Name: "a"}, serve)
		pass(time.Hour)
		times, over := lasted(w.of(event.Restored))
		if len(times) < 8 || len(times) > 12 || over {
			t.Errorf("reported after %v, over: %t", times, over)
		}
		store.OnVerify(nil)
		pass(10 * time.Second)
		if events := w.of(event.Restored); !events[len(events)-1].Over || len(w.of(event.Started)) != 1 {
			t.Errorf("the last report: %v", events[len(events)-1])
		}
	})
}

// TestFaultsReadAsOneLine: the text of a fault that lasts is one line.
func TestFaultsReadAsOneLine(t *testing.T) {
	e := event.Event{
		Kind: event.CommitsFail, Worker: "a", Count: 12, Shards: []string{"1", "2"}, Lasted: 40 * time.Second, Err: errors.New("commits are not accepted"),
	}
	const want = `commits-fail: worker a, lasted 40s, count 12, shards [1 2], err commits are not accepted`
	if got := e.String(); got != want {
		t.Errorf("reads\n%s\nnot\n%s", got, want)
	}
}
