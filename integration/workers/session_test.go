package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A counted store counts the calls about lease rows.
type counted struct {
	lease.Store
	calls atomic.Int64
}

func (c *counted) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if k.Kind == lease.KindLease {
		c.calls.Add(1)
	}
	return c.Store.Get(ctx, k)
}

func (c *counted) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if w.Key().Kind == lease.KindLease {
		c.calls.Add(1)
	}
	return c.Store.Write(ctx, w)
}

// TestSessions: two sessions contend for a lease on DynamoDB Local. A new and a removed lease take two
// requests; data in the lease and its generation pass from one holder to the next.
func TestSessions(t *testing.T) {
	local.Beside(t)
	table, ctx := local.Table(t), t.Context()
	session := func(name string) (*shardlease.Session, *counted, func()) {
		store := &counted{Store: local.Open(t, local.Client(t, nil), table)}
		s, err := shardlease.NewSession(store, shardlease.SessionConfig{Group: "locks", Name: name, TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		over := make(chan error, 1)
		go func() { over <- s.Run(running) }()
		return s, store, func() {
			stop()
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
	}
	a, callsOfA, endA := session("a")
	defer endA()
	b, callsOfB, endB := session("b")
	defer endB()

	first, err := a.Acquire(ctx, "lock", shardlease.AcquireOptions{Task: "run 7", LockDelay: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if n := callsOfA.calls.Load(); n != 2 {
		t.Errorf("a new lease took %d requests", n)
	}
	_, err = b.TryAcquire(ctx, "lock", shardlease.AcquireOptions{})
	if held, ok := errors.AsType[*shardlease.HeldError](err); !ok || held.Owner.Name != "a" || held.Owner.Task != "run 7" || held.Owner.LockDelay != time.Second {
		t.Errorf("TryAcquire returned %v", err)
	}
	first.Release("no data")
	second, err := b.Acquire(ctx, "lock", shardlease.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if second.Generation() <= first.Generation() {
		t.Errorf("generation %d after %d", second.Generation(), first.Generation())
	}
	if err := errors.Join(second.MarkState("1", "data"), second.Flush(ctx)); err != nil {
		t.Error(err)
	}
	second.Release("with data")
	third, err := a.Acquire(ctx, "lock", shardlease.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if third.Checkpoint().State != "data" || third.Generation() <= second.Generation() {
		t.Errorf("acquired at %v under %d", third.Checkpoint(), third.Generation())
	}
	third.Release("")
	removedLeaseTakesTwoRequests(t, a, b, callsOfB)
}

// removedLeaseTakesTwoRequests: a session acquires a lease that another one has removed.
func removedLeaseTakesTwoRequests(t *testing.T, a, b *shardlease.Session, callsOfB *counted) {
	ctx := t.Context()
	other, err := a.Acquire(ctx, "other", shardlease.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other.Release("")
	<-other.Context().Done()
	for row, err := range b.Watch(ctx, "other") {
		if err != nil {
			t.Fatal(err)
		}
		if row.Removed {
			break
		}
	}
	before := callsOfB.calls.Load()
	if _, err = b.TryAcquire(ctx, "other", shardlease.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := callsOfB.calls.Load() - before; n != 2 {
		t.Errorf("a removed lease took %d requests", n)
	}
}
