package workers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/shardlease"
)

// TestSessions: two sessions contend for a lease on DynamoDB Local. A new and a removed lease take two
// requests; data in the lease and its generation pass from one holder to the next.
func TestSessions(t *testing.T) {
	local.Beside(t)
	table, ctx := local.Table(t), t.Context()
	session := func(name string) (*shardlease.Session, *atomic.Int64, func()) {
		requests := new(atomic.Int64) // about lease rows
		net := network.NewFaulty(func(action string, body []byte) network.Fault {
			if action != "Query" && strings.Contains(string(body), "locks/lease") {
				requests.Add(1)
			}
			return network.Fault{}
		})
		s, err := shardlease.NewSession(local.Open(t, local.Client(t, net.Over), table), shardlease.SessionConfig{Group: "locks", Name: name, TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		over := make(chan error, 1)
		go func() { over <- s.Run(running) }()
		return s, requests, func() {
			stop()
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
	}
	a, requestsOfA, endA := session("a")
	defer endA()
	b, requestsOfB, endB := session("b")
	defer endB()

	first, err := a.Acquire(ctx, "lock", shardlease.AcquireOptions{Task: "run 7", LockDelay: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if n := requestsOfA.Load(); n != 2 {
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
	removedLeaseTakesTwoRequests(t, a, b, requestsOfB)
}

// removedLeaseTakesTwoRequests: a session acquires a lease that another one has removed.
func removedLeaseTakesTwoRequests(t *testing.T, a, b *shardlease.Session, requestsOfB *atomic.Int64) {
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
	before := requestsOfB.Load()
	if _, err = b.TryAcquire(ctx, "other", shardlease.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := requestsOfB.Load() - before; n != 2 {
		t.Errorf("a removed lease took %d requests", n)
	}
}
