package shardlease_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// silent runs a session on a store, lets it hold the lease for a minute, and cuts it off from the store until the test
// ends.
func silent(t *testing.T, store lease.Store) {
	t.Helper()
	link := storetest.NewLink(store)
	a := runSession(t, link, shardlease.SessionConfig{Name: "a"})
	a.lock(t, shardlease.AcquireOptions{Task: "deploy 7"})
	time.Sleep(time.Minute)
	link.Cut()
	t.Cleanup(link.Heal) // before the session ends
}

// try calls TryAcquire with a context that ends after a time, and returns how long that took.
func (g *runner) try(limit time.Duration, o shardlease.AcquireOptions) (*shardlease.Tenure, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	tn, err := g.TryAcquire(ctx, "lock", o)
	return tn, time.Since(began), err
}

// TestSingleShots: programs that only ask, each once and in a session of its own. The second one at the latest acquires
// the lease of a dead holder.
func TestSingleShots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		silent(t, store)
		for i := range 2 {
			b := runSession(t, store, shardlease.SessionConfig{Name: "b"})
			tn, took, err := b.try(25*time.Second, shardlease.AcquireOptions{})
			if held, ok := errors.AsType[*shardlease.HeldError](err); err != nil && (i > 0 || !ok || held.Owner.Task != "deploy 7" || took > time.Second) {
				t.Errorf("call %d, after %v: %v", i+1, took, err)
			}
			if tn != nil {
				tn.Release("")
			}
			b.end(t)
			time.Sleep(30*time.Second - took)
		}
	})
}

// TestWhatATryHasSeen: the context of TryAcquire ends while it watches a holder. Its error contains that of the
// context, and what was seen: the holder, its task, its last heartbeat and the time that the call has waited. A call
// with Wait returns the same without an error of a context, and one that never watches at once.
func TestWhatATryHasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		silent(t, store)
		time.Sleep(15 * time.Second)
		b := runSession(t, store, shardlease.SessionConfig{Name: "b"})
		b.Acquire(t.Context(), "other", shardlease.AcquireOptions{}) // its seat is there
		for _, of := range []struct{ limit, wait, took time.Duration }{
			{time.Minute, -1, 0}, {2 * time.Second, 0, 2 * time.Second}, {time.Minute, 3 * time.Second, 3 * time.Second},
		} {
			_, took, err := b.try(of.limit, shardlease.AcquireOptions{Wait: of.wait})
			held, ok := errors.AsType[*shardlease.HeldError](err)
			if !ok || !errors.Is(err, lease.ErrHeld) || errors.Is(err, context.DeadlineExceeded) != (took == of.limit) {
				t.Fatalf("with a wait of %v: %v", of.wait, err)
			}
			if silent := time.Since(held.LastBeat); took < of.took || took > of.took+time.Second/2 || held.Waited != took ||
				held.Owner.Task != "deploy 7" || silent < 15*time.Second || silent > 24*time.Second {
				t.Errorf("with a wait of %v: after %v: %v, waited %v, last heartbeat %v ago", of.wait, took, held, held.Waited, silent)
			}
		}
	})
}

// TestDeadSessionIsGone: its lease is wanted by nobody. A session of the group evicts it, and reports that.
func TestDeadSessionIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		evicted := make(chan event.Event, 10)
		runSession(t, store, shardlease.SessionConfig{Name: "b", Observe: func(e event.Event) {
			if e.Kind == event.PeerEvicted {
				evicted <- e
			}
		}})
		silent(t, store)
		began := time.Now()
		if e, took := <-evicted, time.Since(began); e.Peer != "a" || took > 80*time.Second {
			t.Errorf("after %v: %v", took, e)
		}
	})
}

// TestDeathwatchOfSessions: a session that waits keeps a connection to the holder, and evicts it in a moment when the
// process of the holder seems to be gone, although its lease time is 20 seconds. The holder lives, and reports that it
// was misjudged.
func TestDeathwatchOfSessions(t *testing.T) {
	t.Parallel()
	store, door := new(memstore.Store), newGate(t)
	misjudged := make(chan event.Event, 10)
	config := func(name string, g *gate) shardlease.SessionConfig {
		return shardlease.SessionConfig{
			Name: name, TTL: 10 * time.Second, Drain: -1, Deathwatch: shardlease.Deathwatch{Listener: g},
			Observe: func(e event.Event) {
				if e.Kind == event.Misjudged {
					misjudged <- e
				}
			},
		}
	}
	a, b := runSession(t, store, config("a", door)), runSession(t, store, config("b", newGate(t)))
	first := a.lock(t, shardlease.AcquireOptions{})
	next := make(chan *shardlease.Tenure)
	go func() { next <- b.lock(t, shardlease.AcquireOptions{}) }()
	until(t, func() bool { return door.count() == 1 })
	time.Sleep(100 * time.Millisecond) // it is answered
	door.kill()
	began := time.Now()
	if second := <-next; time.Since(began) > 5*time.Second || second.Generation() <= first.Generation() {
		t.Errorf("acquired after %v", time.Since(began))
	}
	<-first.Context().Done()
	<-misjudged
}

// TestTryDuringOnesOwnLockDelay: the holder of a session was cut off, and its lock delay is not over. A caller of the same
// session that gives up meanwhile learns what it has waited for.
func TestTryDuringOnesOwnLockDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := runSession(t, new(memstore.Store), shardlease.SessionConfig{Name: "a", StallAfter: 5 * time.Second, LockDelay: 5 * time.Second})
		tn := a.lock(t, shardlease.AcquireOptions{})
		<-tn.Context().Done()
		_, _, err := a.try(2*time.Second, shardlease.AcquireOptions{})
		if held, ok := errors.AsType[*shardlease.HeldError](err); !ok || !held.Lost || held.Owner.Name != "a" {
			t.Errorf("TryAcquire returned %v", err)
		}
		if next, took, err := a.try(time.Minute, shardlease.AcquireOptions{}); err != nil || next.Generation() <= tn.Generation() || took > 4*time.Second {
			t.Errorf("after %v, TryAcquire returned %v", took, err)
		}
	})
}

// TestTryThatWaitsForever: no time is too long to wait.
func TestTryThatWaitsForever(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		a, b := runSession(t, store, shardlease.SessionConfig{Name: "a", TTL: time.Minute}), runSession(t, store, shardlease.SessionConfig{Name: "b", TTL: time.Minute})
		tn := a.lock(t, shardlease.AcquireOptions{})
		time.AfterFunc(time.Hour, func() { tn.Release("") })
		if _, took, err := b.try(2*time.Hour, shardlease.AcquireOptions{Wait: math.MaxInt64}); err != nil || took < time.Hour {
			t.Errorf("after %v, TryAcquire returned %v", took, err)
		}
	})
}
