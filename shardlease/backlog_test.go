package shardlease_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A pulse measures the times between heartbeats.
type pulse struct {
	mu      sync.Mutex
	last    time.Time     // when the last heartbeat was sent
	longest time.Duration // the longest time between two heartbeats
}

// over measures the heartbeats over the link.
func (p *pulse) over(link *storetest.Link) {
	link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if w.Key().Kind == lease.KindSeat {
			p.note(time.Now())
		}
		return send()
	})
}

func (p *pulse) note(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		p.longest = max(p.longest, now.Sub(p.last))
	}
	p.last = now
}

func (p *pulse) slowest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest
}

// slow makes each step of the worker's loop take so long, as on a slow CPU.
func slow(step time.Duration) func(*shardlease.Worker) {
	return func(w *shardlease.Worker) {
		shardlease.SetWall(w, func() time.Time {
			time.Sleep(step)
			return time.Now()
		})
	}
}

// many is how many shards the worker of backlog has.
func many() int { return fixture.Size(500, 2000) }

// backlog runs a worker on many new shards. With 2,000, the worker needs 13 s of CPU time for the answers
// to the creations of their rows, and 13 s for the answers to the claims.
func backlog(t *testing.T, store lease.Store, handler shardlease.Handler) *member {
	t.Helper()
	names := make([]string, many())
	for i := range names {
		names[i] = fmt.Sprintf("shard-%04d", i)
	}
	config := shardlease.Config{EventQueue: 100_000, Order: checkpoint.Decimal, Backoff: time.Hour}
	return join(t, store, shardlease.Static(names...), config, handler, slow(6500*time.Microsecond))
}

// TestHeartbeatsComeBeforeABacklog: answers to heartbeats arrive behind a backlog of answers
// about rows. When all answers waited in one queue, heartbeats were sent up to 22 s apart, the
// seat was lost every 9 s, and shards were started only to be lost again. Now heartbeats are
// sent 3.4 s apart, and no seat is lost.
func TestHeartbeatsComeBeforeABacklog(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p, link := new(pulse), storetest.NewLink(new(memstore.Store))
		p.over(link)
		var started atomic.Int64
		m := backlog(t, link, func(ctx context.Context, tn *shardlease.Tenure) error {
			started.Add(1)
			return serve(ctx, tn)
		})
		for range 60 {
			if time.Sleep(time.Second); int(started.Load()) == many() {
				break
			}
		}
		if n := int(started.Load()); n != many() {
			t.Errorf("%d of %d tenures have started", n, many())
		}
		m.never(t, event.Lost)
		if d := p.slowest(); d > beat+time.Second/2 {
			t.Errorf("two heartbeats were sent %v apart", d)
		}
	})
}

// TestStopComesBeforeABacklog: a worker stops while it has a backlog of answers. The contexts
// of the running handlers end after 13 ms; before, they ended after 6.4 s.
func TestStopComesBeforeABacklog(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		told, began := make(chan time.Time, many()), make(chan bool, many())
		m := backlog(t, new(memstore.Store), func(ctx context.Context, tn *shardlease.Tenure) error {
			began <- true
			<-ctx.Done()
			told <- time.Now()
			return nil
		})
		for range 200 {
			<-began
		}
		from := time.Now()
		m.leave()
		if d := (<-told).Sub(from); d > 100*time.Millisecond {
			t.Errorf("the first handler's context ended after %v", d)
		}
	})
}

// TestNoReturnWithoutItsMarks: many handlers mark, and then return in another order. The worker
// handles them in several batches. Every last mark is stored.
func TestNoReturnWithoutItsMarks(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		all := make(chan struct{})
		returns := make(map[string]chan struct{}, many())
		for i := range many() {
			returns[fmt.Sprintf("shard-%04d", i)] = make(chan struct{})
		}
		m := backlog(t, store, func(ctx context.Context, tn *shardlease.Tenure) error {
			<-all
			err := tn.Mark("7")
			<-returns[tn.Shard().Name]
			return err
		})
		time.Sleep(time.Minute) // until all tenures have started
		close(all)
		synctest.Wait()
		for i := many() - 1; i >= 0; i-- {
			close(returns[fmt.Sprintf("shard-%04d", i)])
		}
		time.Sleep(2 * time.Minute)
		m.leave()
		rows, err := shardlease.Supervisor{Store: store, Group: "orders"}.List(t.Context())
		for _, row := range rows {
			if row.Checkpoint.Position != "7" {
				t.Fatalf("mark lost: %v", row)
			}
		}
		if len(rows) != many() || err != nil {
			t.Errorf("listed %d rows, error %v", len(rows), err)
		}
	})
}
