package shardlease_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// began records which shards have been started.
type began struct {
	mu    sync.Mutex
	names []string
}

func (b *began) handler(ctx context.Context, t *shardlease.Tenure) error {
	b.mu.Lock()
	b.names = append(b.names, t.Shard().Name)
	b.mu.Unlock()
	return serve(ctx, t)
}

// without checks that for this time no worker starts the child c.
func (b *began) without(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.names, "c") {
		t.Error("the child was started although its parent is not finished")
	}
}

// parents lists these shards, and c, which is a child of p. A listing takes a while.
func parents(names ...string) shardlease.Source {
	all := []shardlease.Shard{{Name: "c", Parents: []string{"p"}}}
	for _, name := range names {
		all = append(all, shardlease.Shard{Name: name})
	}
	return shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
		time.Sleep(time.Second)
		return all, nil
	})
}

// removeParent quarantines p, and removes it after a time.
func removeParent(t *testing.T, store lease.Store, after time.Duration) {
	t.Helper()
	s := shardlease.Supervisor{Store: store, Group: "orders", By: "me"}
	row, err := s.Quarantine(t.Context(), "p", rowOf(t, store, "p").Generation, "x")
	must(t, err)
	time.Sleep(after)
	if _, err = s.Remove(t.Context(), "p", row.Generation, "again from the beginning"); err != nil {
		t.Fatal(err)
	}
}

// TestChildOfADeletedParentWaits: the row of a listed parent is deleted by hand while the
// parent is processed.
func TestChildOfADeletedParentWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b, seen := newBad(), &began{}
		join(t, b, parents("p", "q"), shardlease.Config{PollEvery: 10 * time.Minute}, func(ctx context.Context, tn *shardlease.Tenure) error {
			if tn.Shard().Name == "p" {
				time.Sleep(5 * time.Second)
				_ = tn.Mark("1") // the commit of this mark is refused, because the row is gone
			}
			return seen.handler(ctx, tn)
		})
		time.Sleep(3 * time.Second)
		b.gone.Store("p")
		seen.without(t, 5*time.Minute)
		b.gone.Store("")
	})
}

// TestChildOfAFreeDeletedParentWaits: the row of a listed parent is deleted by hand, and
// no worker writes to that row.
func TestChildOfAFreeDeletedParentWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b, seen := newBad(), &began{}
		for range 2 {
			join(t, b, parents("p", "q"), shardlease.Config{}, seen.handler)
		}
		time.Sleep(5 * time.Second)
		b.gone.Store("p")
		seen.without(t, 5*time.Minute)
		b.gone.Store("")
	})
}

// TestChildOfARemovedParentWaits: an operator removes the row of a listed, unfinished
// parent, so that it is processed again from the beginning.
func TestChildOfARemovedParentWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b, seen := newBad(), &began{}
		for range 2 {
			join(t, b, parents("p"), shardlease.Config{}, seen.handler)
		}
		time.Sleep(5 * time.Second)
		removeParent(t, b, 2*time.Minute)
		seen.without(t, 5*time.Minute)
	})
}

// TestIdleHolderNoticesATombstone: a shard is quarantined and removed while its owner has
// nothing to commit. The tenure ends, and the shard, which is still listed, starts from the
// beginning.
func TestIdleHolderNoticesATombstone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b := newBad()
		m := join(t, b, shardlease.Static("p"), shardlease.Config{}, serve)
		time.Sleep(5 * time.Second)
		removeParent(t, b, 0)
		time.Sleep(10 * time.Minute)
		if row := rowOf(t, b, "p"); len(m.of(event.Ended)) == 0 || row.Removed {
			t.Errorf("ten minutes later: %d tenures have ended; %v", len(m.of(event.Ended)), row)
		}
	})
}

// TestChildOfAMalformedParentWaits: a parent is no longer listed, and its row cannot be
// read. The parent may be unfinished.
func TestChildOfAMalformedParentWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b, seen := newBad(), &began{}
		m := join(t, b, shardlease.Static("p"), shardlease.Config{}, seen.handler)
		time.Sleep(3 * time.Second)
		m.leave()
		b.broken.Store("p")
		join(t, b, parents(), shardlease.Config{}, seen.handler)
		seen.without(t, 3*time.Minute)
	})
}
