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
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestShutdownNamesWhatItWaitsFor: two of three handlers do not return, one since an operator has released its shard, and one
// since the shutdown. The process says so as soon as it shuts down, when the second one hangs too, and then every minute, until
// both have returned. Before the shutdown the event ended says it, and the seat.
func TestShutdownNamesWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []event.Event
		var at []time.Duration
		began := time.Now()
		store, back := new(memstore.Store), make(chan struct{})
		config := shardlease.Config{Drain: 7 * time.Second, Observe: func(e event.Event) {
			if e.Kind == event.Hangs {
				mu.Lock()
				defer mu.Unlock()
				told, at = append(told, e), append(at, time.Since(began))
			}
		}}
		w := newMember(t, store, shardlease.Static("1", "2", "3"), config, func(ctx context.Context, tn *shardlease.Tenure) error {
			<-ctx.Done()
			if tn.Shard().Name != "3" {
				<-back
			}
			return nil
		})
		pass(time.Minute)
		row := rowOf(t, store, "1")
		s := shardlease.Supervisor{Store: store, Group: row.Group, By: "ann"}
		if _, err := s.ForceRelease(t.Context(), "1", row.Generation, "hangs"); err != nil {
			t.Error(err)
		}
		pass(2 * time.Minute)
		if len(told) > 0 {
			t.Errorf("it does not shut down, and reports %v", told)
		}
		seat, err := store.Get(t.Context(), lease.Key{Group: "orders", Kind: lease.KindSeat, Name: string(w.Status().Incarnation)})
		must(t, err)
		if news := seat.(lease.Seat).News; !slices.Contains(news, lease.News{Kind: lease.NewsHangs, Shard: "1"}) {
			t.Errorf("the seat has the news %v", news)
		}
		began = time.Now()
		stopped := make(chan error)
		go func() { stopped <- w.stop() }()
		pass(4*time.Minute + 30*time.Second)
		close(back)
		check(t, <-stopped)
		mu.Lock()
		defer mu.Unlock()
		if len(told) != 6 || at[0] > time.Second || at[1] > 8*time.Second {
			t.Fatalf("after %v: %v", at, told)
		}
		if e := told[0]; e.Shard != "1" || e.Count != 1 || e.Lasted < 115*time.Second || e.Lasted > 2*time.Minute {
			t.Errorf("at first: %v", e)
		}
		for i, e := range told[1:] {
			if !slices.Equal(e.Shards, []string{"1", "2"}) || e.Count != 2 || at[i+1]-at[i] > 61*time.Second {
				t.Errorf("after %v: %v", at[i+1], e)
			}
		}
	})
}
