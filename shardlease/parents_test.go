package shardlease_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
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
	<-ctx.Done()
	return nil
}

func (b *began) has(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.names, name)
}

// TestChildOfADeletedParentWaits: the row of a listed parent is deleted by hand while the
// parent is processed.
func TestChildOfADeletedParentWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, seen := newBad(), &began{}
		source := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
			time.Sleep(time.Second) // a listing takes a while
			return []shardlease.Shard{{Name: "p"}, {Name: "q"}, {Name: "c", Parents: []string{"p"}}}, nil
		})
		join(t, b, source, shardlease.Config{PollEvery: 10 * time.Minute}, func(ctx context.Context, tn *shardlease.Tenure) error {
			if tn.Shard().Name == "p" {
				time.Sleep(5 * time.Second)
				_ = tn.Mark("1") // the commit of this mark is refused, because the row is gone
			}
			return seen.handler(ctx, tn)
		})
		time.Sleep(3 * time.Second)
		b.gone.Store("p")
		time.Sleep(5 * time.Minute)
		if seen.has("c") {
			t.Error("the child was started although its listed parent is not finished")
		}
		b.gone.Store("")
	})
}

// TestChildOfARemovedParentWaits: an operator removes the row of a listed, unfinished
// parent, so that it is processed again from the beginning.
func TestChildOfARemovedParentWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, seen := new(memstore.Store), &began{}
		source := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
			time.Sleep(time.Second)
			return []shardlease.Shard{{Name: "p"}, {Name: "c", Parents: []string{"p"}}}, nil
		})
		join(t, store, source, shardlease.Config{}, seen.handler)
		join(t, store, source, shardlease.Config{}, seen.handler)
		time.Sleep(5 * time.Second)
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "me"}
		row, err := s.Get(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		if row, err = s.Quarantine(t.Context(), "p", row.Generation, "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if row, err = s.Remove(t.Context(), "p", row.Generation, "again from the beginning"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if seen.has("c") {
			t.Error("the child was started although its listed parent is not finished")
		}
	})
}

// TestIdleHolderNoticesATombstone: a shard is quarantined and removed while its owner has
// nothing to commit. The tenure ends, and the shard, which is still listed, starts from the
// beginning.
func TestIdleHolderNoticesATombstone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, seen := new(memstore.Store), &began{}
		m := join(t, store, shardlease.Static("p"), shardlease.Config{}, seen.handler)
		time.Sleep(5 * time.Second)
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "me"}
		row, err := s.Get(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		if row, err = s.Quarantine(t.Context(), "p", row.Generation, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Remove(t.Context(), "p", row.Generation, "again from the beginning"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		row, _ = s.Get(t.Context(), "p")
		if len(m.of(event.Ended)) == 0 || row.Removed {
			t.Errorf("ten minutes later: %d tenures have ended; %v", len(m.of(event.Ended)), row)
		}
	})
}

// TestChildOfAFreeDeletedParentWaits: the row of a listed parent is deleted by hand, and
// no worker writes to that row.
func TestChildOfAFreeDeletedParentWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, seen := newBad(), &began{}
		source := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
			time.Sleep(time.Second)
			return []shardlease.Shard{{Name: "p"}, {Name: "q"}, {Name: "c", Parents: []string{"p"}}}, nil
		})
		h := func(ctx context.Context, tn *shardlease.Tenure) error {
			return seen.handler(ctx, tn)
		}
		join(t, b, source, shardlease.Config{}, h)
		join(t, b, source, shardlease.Config{}, h)
		time.Sleep(5 * time.Second)
		b.gone.Store("p")
		time.Sleep(5 * time.Minute)
		if seen.has("c") {
			t.Error("the child was started although its listed parent is not finished")
		}
		b.gone.Store("")
	})
}

// TestChildOfAMalformedParentWaits: a parent is no longer listed, and its row cannot be
// read. The parent may be unfinished.
func TestChildOfAMalformedParentWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, seen := newBad(), &began{}
		m := join(t, b, shardlease.Static("p"), shardlease.Config{}, seen.handler)
		time.Sleep(3 * time.Second)
		_ = m.stop()
		b.broken.Store("p")
		m = join(t, b, shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
			return []shardlease.Shard{{Name: "c", Parents: []string{"p"}}}, nil
		}), shardlease.Config{}, seen.handler)
		time.Sleep(3 * time.Minute)
		if seen.has("c") {
			t.Error("the child was started although its parent has a row that cannot be read")
		}
	})
}
