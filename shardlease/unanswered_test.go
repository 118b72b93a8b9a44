package shardlease_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// These tests have a store whose client hangs in a call and ignores the context of the call.

// A hang makes calls of one link hang.
type hang struct {
	what   string        // a call of this description hangs
	left   atomic.Int32  // so many of them
	begun  atomic.Int32  // so many have begun to hang
	answer chan struct{} // closed: they end
}

// hangOn returns a link on which the first n calls of that description hang.
func hangOn(s *stage, what string, n int32) (*storetest.Link, *hang) {
	link, h := storetest.NewLink(s.store), &hang{what: what, answer: make(chan struct{})}
	h.left.Store(n)
	link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		h.wait(describe(w))
		return send()
	})
	link.OnVerify(func(_ context.Context, _ string, send func() error) error { h.wait("verify"); return send() })
	link.OnList(func(_ context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		h.wait("list " + q.Kind.String())
		return send()
	})
	return link, h
}

func (h *hang) wait(what string) {
	if what == h.what && h.left.Add(-1) >= 0 {
		h.begun.Add(1)
		<-h.answer
	}
}

// describe names what a write is for.
func describe(w lease.Write) string {
	row, held := w.Next.(lease.Row)
	switch {
	case !held:
		return "seat " + w.Op.String()
	case w.Op == lease.OpSwap && row.Finished:
		return "finish"
	case w.Op == lease.OpSwap && row.Owner.IsZero():
		return "release"
	case w.Op == lease.OpSwap:
		return "commit"
	}
	return "row " + w.Op.String()
}

// TestHangingCallStopsNoShard: one call hangs for hours. The worker gives it up after the time
// limit of a call, at most a lease time, reports the fault and repeats the call. So every shard is
// processed soon, and the late answer changes nothing. Before, some shard was not processed for as
// long as the call hung, and nothing was reported.
func TestHangingCallStopsNoShard(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"verify", "list seat", "list lease", "seat create", "seat swap", "row create", "row transfer", "commit", "release", "finish"} {
		subtest(t, what, func(t *testing.T) {
			s := newStage(t, 3)
			link, h := hangOn(s, what, 1)
			var failed atomic.Bool
			a := s.enterOn(link, "a", shardlease.Config{Handoff: rebalance.Eager}, func(ctx context.Context, tn *shardlease.Tenure) error {
				switch {
				case what == "release" && failed.CompareAndSwap(false, true):
					return errDown
				case what == "finish" && tn.Shard().Name == "shard-00":
					return tn.Finish(tn.Context())
				}
				return plodding(ctx, tn)
			})
			time.Sleep(ttl + 5*beat) // a listing that took long rests before it is repeated
			if h.begun.Load() != 1 {
				t.Fatal("no call hangs")
			}
			want := 3
			if what == "finish" {
				want = 2
			}
			settled := func(when string) {
				if n := s.running()["a"]; n != want || what == "finish" != s.row("shard-00").Finished {
					t.Errorf("%s: a processes %d shards of %d", when, n, want)
				}
			}
			settled("a call hangs")
			events := a.of(event.StoreFault)
			if n := len(events); n < 2 || !events[n-1].Over || !strings.Contains(events[0].Err.Error(), "no answer") {
				t.Errorf("reported: %v", events)
			}
			time.Sleep(time.Duration(fixture.Size(2, 60)) * time.Minute)
			close(h.answer)
			time.Sleep(time.Minute)
			settled("it has returned")
			if n := len(a.of(event.StoreFault)) + len(a.of(event.Lost)) - len(events); n > 0 {
				t.Errorf("%d faults when the call returned", n)
			}
		})
	}
}

// TestHangingListingHidesNoDeath: a listing of the seats hangs in a settled fleet of two, then the
// other worker dies. Its shards are processed a lease time, a heartbeat interval and half a second
// after the end of the listing that hangs. Before, nobody noticed the death as long as it hung.
func TestHangingListingHidesNoDeath(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		link, h := hangOn(s, "list seat", 0)
		s.enterOn(link, "a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		b := s.enter("b", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(30*time.Second, "a", "b")
		time.Sleep(10 * time.Second)
		h.left.Store(1)
		b.die()
		s.within(beat+ttl/4+ttl+beat+time.Second, "a processes all shards", func() bool { return s.running()["a"] == 4 })
		if h.begun.Load() != 1 {
			t.Error("no listing hangs")
		}
		close(h.answer)
	})
}

// TestStoreThatAlwaysHangs: every Verify, or every listing of a kind, hangs for twelve minutes. The
// fault is reported while it lasts and when it ends. At most three calls hang at a time, however
// long it lasts.
func TestStoreThatAlwaysHangs(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{"verify": "store.Verify: no answer", "list seat": "store.List: no answer", "list lease": "store.List: no answer"} {
		subtest(t, what, func(t *testing.T) {
			s := newStage(t, 2)
			link, h := hangOn(s, what, 1000)
			a := s.enterOn(link, "a", shardlease.Config{Handoff: rebalance.Eager}, plodding)
			time.Sleep(12 * time.Minute)
			events := a.of(event.StoreFault)
			times, over := lasted(events)
			if fmt.Sprint(times) != "[0s 10s 30s 1m10s 2m30s 5m10s 10m30s]" || over {
				t.Errorf("reported after %v, over: %t", times, over)
			} else if got := events[0].Err.Error(); !strings.HasPrefix(got, text) {
				t.Errorf("reported: %s", got)
			}
			if n := h.begun.Load(); n != 3 {
				t.Errorf("%d calls hang", n)
			}
			h.left.Store(0)
			close(h.answer)
			time.Sleep(5 * beat) // a read that took long rests before it is repeated
			s.shared(time.Minute, "a")
			if times, over := lasted(a.of(event.StoreFault)); !over || len(times) != 8 {
				t.Errorf("reported after %v, over: %t", times, over)
			}
		})
	}
}

// TestCallThatReturnsLate: the calls about rows return half a second after the end of their contexts,
// as they do when thousands end at once. They have waited in the store, and that is no fault.
func TestCallThatReturnsLate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 3)
		link := storetest.NewLink(s.store)
		var busy atomic.Bool
		link.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if w.Key().Kind == lease.KindLease && busy.Load() {
				<-ctx.Done()
				time.Sleep(ttl / 20)
				return nil, &lease.QueuedError{Waited: ttl / 4, Cause: ctx.Err()}
			}
			return send()
		})
		busy.Store(true)
		a := s.enterOn(link, "a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		time.Sleep(ttl / 2)
		busy.Store(false)
		s.shared(ttl, "a")
		a.never(t, event.StoreFault)
	})
}
