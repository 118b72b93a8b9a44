package shardlease_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// In these tests the worker that holds a shard dies.

// TestDeathsDelayNothing: the holder of an idle shard is killed six times in a row. Each recovery
// takes T + h + 0.5 s at most, as after any crash. When deaths delayed claims like failures, the
// recoveries at T = 1 s took 1.1, 1.5, 2.8, 4.1, 9.0 and 16.8 s, and the sixth at T = 10 s took
// 16.1 s.
func TestDeathsDelayNothing(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second} {
		subtest(t, ttl.String(), func(t *testing.T) { killHolders(t, ttl) })
	}
}

func killHolders(t *testing.T, ttl time.Duration) {
	s := newStage(t, 1)
	config := shardlease.Config{Handoff: rebalance.Eager, TTL: ttl}
	for _, name := range "abcdefg" {
		s.enter(string(name), config, serve)
	}
	time.Sleep(2 * ttl)
	for kill := range 6 {
		before := s.row("shard-00")
		s.actor(before.Owner.Name).die()
		took := s.within(ttl+ttl/3+500*time.Millisecond, fmt.Sprintf("recovery %d", kill), func() bool { return s.row("shard-00").Generation > before.Generation })
		t.Logf("recovery %d took %v", kill, took)
		if row := s.row("shard-00"); row.Last.Reason != lease.ReasonExpired || row.Attempts() != int64(kill+1) {
			t.Errorf("recovery %d: %v, %d attempts", kill, row, row.Attempts())
		}
		s.within(time.Second, "the handler runs", func() bool { return s.running()[s.row("shard-00").Owner.Name] == 1 })
	}
}

// TestDeathsBetweenFailures: a handler fails twice, the worker that holds the shard dies twice, and
// the handler fails again. The deaths delay no claim. After the third failure the shard rests for
// 8 s, as after a third failure, and not for 32 s, as after a fifth. After each failure it is processed
// again within the rest, a heartbeat and a second: another worker counts from when it sees the row, and
// the plan that gives it the shard is made a second after the one before.
func TestDeathsBetweenFailures(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		const ttl, first = time.Second, 2 * time.Second
		var starts atomic.Int32
		handler := func(ctx context.Context, tn *shardlease.Tenure) error {
			if n := starts.Add(1); n == 1 || n == 2 || n == 5 {
				return errDown
			}
			return serve(ctx, tn)
		}
		config := shardlease.Config{Handoff: rebalance.Eager, TTL: ttl, Backoff: first}
		for _, name := range "abcd" {
			s.enter(string(name), config, handler)
		}
		after := func(rest time.Duration) time.Duration { return rest + ttl/3 + time.Second }
		const death = ttl + ttl/3 + 500*time.Millisecond
		for i, most := range []time.Duration{1500 * time.Millisecond, after(first), after(2 * first), death, death, after(4 * first)} {
			took := s.within(most, fmt.Sprintf("tenure %d", i), func() bool { return int(starts.Load()) > i })
			t.Logf("tenure %d began after %v", i, took)
			if i == 5 && took < 4*first-ttl {
				t.Errorf("the third failure rested for %v", took)
			}
			if i == 2 || i == 3 {
				time.Sleep(100 * time.Millisecond)
				s.actor(s.row("shard-00").Owner.Name).die()
			}
		}
		if row := s.row("shard-00"); row.Attempts() != 5 || row.Failed() != 3 {
			t.Errorf("%d attempts, of which %d failed", row.Attempts(), row.Failed())
		}
	})
}
