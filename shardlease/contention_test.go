package shardlease_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestContentionIsTold: a caller waits for a lease and others are refused. The status of their session reports how
// many, and for how long the longest waits; its JSON too. An event reports the same a minute later. A snapshot shows
// the session that waits.
func TestContentionIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		var told []event.Event
		a := runSession(t, store, shardlease.SessionConfig{Name: "a"})
		b := runSession(t, store, shardlease.SessionConfig{Name: "b", Task: "run", Observe: func(e event.Event) {
			if e.Kind == event.Contended {
				told = append(told, e)
			}
		}})
		held := a.lock(t, shardlease.AcquireOptions{})
		for range 3 {
			if _, err := b.TryAcquire(t.Context(), "lock", shardlease.AcquireOptions{}); !errors.Is(err, lease.ErrHeld) {
				t.Error(err)
			}
		}
		got := make(chan *shardlease.Tenure)
		go func() { got <- b.lock(t, shardlease.AcquireOptions{Task: "run/7"}) }()
		time.Sleep(30 * time.Second)
		s := b.Status()
		if s.Refused != 3 || s.Waited != 1 || s.Requested != 1 || (s.LongestWait-30*time.Second).Abs() > time.Second {
			t.Errorf("status %+v", s)
		}
		var back shardlease.Status
		text, err := json.Marshal(s)
		if err := errors.Join(err, json.Unmarshal(text, &back)); err != nil || back.Refused != 3 || back.LongestWait < 29*time.Second {
			t.Errorf("%s, %v", text, err)
		}
		if s := a.Status(); s.Refused+s.Waited > 0 || s.LongestWait != 0 {
			t.Errorf("status of the holder %+v", s)
		}
		seen, err := inspect.Look(t.Context(), store, "locks", inspect.Options{})
		must(t, err)
		n := 0
		for by, age := range seen.Shard("lock").Waiters() {
			if n++; by.Name != "b" || by.Task != "run/7" || age.D < 29*time.Second || age.D > 31*time.Second {
				t.Errorf("%v waits for %v", by, age.D)
			}
		}
		if n != 1 {
			t.Errorf("%d sessions wait", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 1 || told[0].Count != 4 || told[0].Shard != "lock" || told[0].Lasted < 59*time.Second || told[0].Level() != slog.LevelInfo {
			t.Errorf("told %v", told)
		}
		held.Release("")
		(<-got).Release("")
		b.end(t)
		if s := b.Status(); s.Refused != 3 || s.Waited != 1 || s.LongestWait != 0 || len(told) != 1 {
			t.Errorf("after Run: %+v, told %v", s, told)
		}
	})
}

// An oldBuild is the store of a session whose build does not know the waits on seats: it neither writes nor reads them.
type oldBuild struct{ lease.Store }

func (s oldBuild) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	r, err := s.Store.Get(ctx, k)
	return withoutWaits(r), err
}

func (s oldBuild) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	w.Next = withoutWaits(w.Next)
	return s.Store.Write(ctx, w)
}

func withoutWaits(r lease.Record) lease.Record {
	if seat, ok := r.(lease.Seat); ok {
		seat.Waits, seat.WaitsLeft = nil, 0
		return seat
	}
	return r
}

// TestOldSessionBesideNew: a session of an older build knows no waits. It waits for the lease of a session whose seat
// shows waits, evicts that session when it is dead, and acquires the lease; and the other way round.
func TestOldSessionBesideNew(t *testing.T) {
	for _, newDies := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := new(memstore.Store)
			oldLink, newLink := storetest.NewLink(store), storetest.NewLink(store)
			before := runSession(t, oldBuild{oldLink}, shardlease.SessionConfig{Name: "old"})
			after := runSession(t, newLink, shardlease.SessionConfig{Name: "new"})
			first, next, link := after, before, newLink
			if !newDies {
				first, next, link = before, after, oldLink
			}
			_, err := next.Acquire(t.Context(), "other", shardlease.AcquireOptions{}) // for which the first one will wait
			must(t, err)
			first.lock(t, shardlease.AcquireOptions{})
			var waiting sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			waiting.Go(func() { _, _ = first.Acquire(ctx, "other", shardlease.AcquireOptions{}) })
			time.Sleep(20 * time.Second)
			got := make(chan *shardlease.Tenure, 1)
			waiting.Go(func() { got <- next.lock(t, shardlease.AcquireOptions{}) })
			time.Sleep(20 * time.Second)
			link.Cut()
			died := time.Now()
			tn := <-got
			if took := time.Since(died); took > 15*time.Second || tn.Generation() == 0 {
				t.Errorf("acquired after %v", took)
			}
			link.Heal()
			cancel()
			waiting.Wait()
		})
	}
}
