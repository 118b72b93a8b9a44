package shardlease_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// These tests check what does not count as a fault: a pause of the process, answers that get lost,
// and commits that the worker holds back itself.

// TestStallIsConfirmed: handlers call Alive at the very moment at which they would count as
// stalled. Whether the loop turns before or after them is chance.
func TestStallIsConfirmed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 8)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager, StallAfter: 4 * time.Second}, func(ctx context.Context, tn *shardlease.Tenure) error {
			for sleep(ctx, 4*time.Second) {
				tn.Alive()
			}
			return nil
		})
		s.shared(30*time.Second, "a")
		time.Sleep(10 * time.Minute)
		a.never(t, event.Draining)
	})
}

// TestPauseIsNoStall: handlers call Alive once a second, and the whole process is paused for five
// seconds, longer than StallAfter, again and again. After each pause the run loop turns before the
// handlers do. No tenure ends. Before, all of them ended as stalled, and shards were quarantined.
func TestPauseIsNoStall(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 3900 * time.Millisecond} {
		subtest(t, every.String(), func(t *testing.T) {
			s := newStage(t, 8)
			var mu sync.Mutex
			var paused chan struct{}     // not nil: closed when the process goes on
			var first *shardlease.Tenure // of one shard
			a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager, StallAfter: 4 * time.Second, MaxAttempts: 3}, func(ctx context.Context, tn *shardlease.Tenure) error {
				if tn.Shard().Name == "shard-00" {
					mu.Lock()
					first = tn
					mu.Unlock()
				}
				for sleep(ctx, every) {
					mu.Lock()
					wait := paused
					mu.Unlock()
					if wait != nil {
						<-wait
						time.Sleep(200 * time.Millisecond)
					}
					tn.Alive()
				}
				return nil
			})
			s.shared(30*time.Second, "a")
			for i := range 20 {
				time.Sleep(10*time.Second + time.Duration(i)*170*time.Millisecond)
				mu.Lock()
				paused = make(chan struct{})
				mu.Unlock()
				a.freeze()
				go first.Commit(t.Context(), fmt.Sprint(i)) // the loop is frozen when it turns
				time.Sleep(5 * time.Second)
				a.thaw()
				mu.Lock()
				close(paused)
				paused = nil
				mu.Unlock()
			}
			a.never(t, event.Draining, event.Ended, event.Lost)
		})
	}
}

// TestHangingHandlerStallsDespitePauses: the process is paused for five seconds every ten, and one
// handler does hang. It is found.
func TestHangingHandlerStallsDespitePauses(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager, StallAfter: 4 * time.Second}, serve)
		s.shared(time.Second+time.Second, "a")
		for range 2 {
			a.freeze()
			time.Sleep(5 * time.Second)
			a.thaw()
			time.Sleep(5 * time.Second)
		}
		if n := len(a.of(event.Draining)); n == 0 {
			t.Error("the handler that hangs has not stalled")
		}
	})
}

// TestLostAnswersCostNoSeat: with the shortest CommitTimeout, the answers to three commits of each
// shard in a row get lost, and all of them are stored. The worker keeps its seat and its tenures.
// Before, the shortest was a third of TTL: two lost answers cost the seat and quarantined shards.
func TestLostAnswersCostNoSeat(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		for _, lost := range []int{1, 2, 3} {
			subtest(t, fmt.Sprint(ttl, "/", lost), func(t *testing.T) {
				s := newStage(t, 6)
				config := shardlease.Config{TTL: ttl, CommitTimeout: 1, Handoff: rebalance.Eager, MaxAttempts: 1, Commit: checkpoint.Policy{Every: max(200*time.Millisecond, ttl/50)}}
				if _, err := shardlease.New(s.store, s.source, config); err == nil {
					t.Fatal("there is no shortest CommitTimeout")
				}
				config.CommitTimeout = shortest(t, s, config)
				handler := marking(max(100*time.Millisecond, ttl/100), 0) // in each interval between two commits there is a mark
				a := s.enter("a", config, handler)
				s.enter("b", config, handler)
				s.shared(30*time.Second+ttl, "a", "b")
				time.Sleep(ttl)
				var mu sync.Mutex
				left := map[string]int{}
				a.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
					mu.Lock()
					left[w.Key().Name]++
					n := left[w.Key().Name]
					mu.Unlock()
					record, err := send()
					if w.Key().Kind == lease.KindLease && n <= lost {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return record, err
				})
				time.Sleep(20*time.Second + 2*ttl)
				a.never(t, event.Lost, event.CommitsFail, event.Quarantined)
				s.shared(time.Second, "a", "b")
			})
		}
	}
}

// shortest returns the shortest CommitTimeout that New accepts.
func shortest(t *testing.T, s *stage, config shardlease.Config) time.Duration {
	config.Group = "orders"
	for part := time.Duration(1); part <= 30; part++ {
		config.CommitTimeout = config.TTL * part / 10
		if _, err := shardlease.New(s.store, s.source, config); err == nil {
			return config.CommitTimeout
		}
	}
	t.Fatal("no CommitTimeout is accepted")
	return 0
}

// TestHeldCommitsAreNotLate: two workers request shards of a third and take over none, because the
// writes for that do not arrive. While its offers stand, the owner holds its commits for a second,
// which is longer than CommitTimeout. That is no fault of the table: nothing is reported, and the
// owner keeps its seat.
func TestHeldCommitsAreNotLate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 3)
		config := shardlease.Config{TTL: 300 * time.Millisecond, CommitTimeout: 300 * time.Millisecond, Handoff: rebalance.Cooperative, MaxAttempts: 1, Commit: checkpoint.Policy{Every: 50 * time.Millisecond}}
		a := s.enter("a", config, nil)
		s.shared(20*time.Second, "a")
		for _, name := range []string{"b", "c"} {
			link := storetest.NewLink(s.store)
			link.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
				if w.Op == lease.OpTransfer {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return send()
			})
			s.enterOn(link, name, config, nil)
		}
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			must(t, a.Healthy())
		}
		a.never(t, event.CommitsFail, event.Lost)
	})
}
