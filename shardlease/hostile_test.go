package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// bad is a link that can be made to misbehave about lease rows.
type bad struct {
	*storetest.Link
	mute   atomic.Bool  // writes of rows are never answered
	gone   atomic.Value // string: that row was deleted by hand
	broken atomic.Value // string: that row is malformed
	writes atomic.Int64 // the number of writes of rows
	spoilt atomic.Int64 // the number of writes of the malformed row
}

func newBad() *bad {
	b := &bad{Link: storetest.NewLink(new(memstore.Store))}
	b.OnList(b.list)
	b.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		if b.is(&b.gone, k.Name) {
			return nil, lease.ErrNotFound
		}
		if b.is(&b.broken, k.Name) {
			return nil, &lease.MalformedError{Key: k}
		}
		return send()
	})
	b.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if w.Key().Kind == lease.KindLease {
			b.writes.Add(1)
			time.Sleep(2 * time.Millisecond)
			if err := b.spoils(w); err != nil {
				return nil, err
			}
		}
		return send()
	})
	return b
}

func (b *bad) is(v *atomic.Value, name string) bool {
	s, _ := v.Load().(string)
	return s != "" && s == name
}

func (b *bad) list(_ context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for r, err := range send() {
			if r != nil && q.Kind == lease.KindLease {
				if b.is(&b.gone, r.Key().Name) {
					continue
				}
				if b.is(&b.broken, r.Key().Name) {
					r, err = nil, &lease.MalformedError{Key: r.Key()}
				}
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// spoils returns the answer to a write that is not sent; nil: it is sent.
func (b *bad) spoils(w lease.Write) error {
	switch {
	case b.mute.Load():
		return storetest.ErrCut
	case b.is(&b.gone, w.Key().Name) && w.Op != lease.OpCreate:
		return &lease.RefusedError{Op: w.Op, Key: w.Key()}
	case b.is(&b.gone, w.Key().Name):
		return storetest.ErrCut
	case b.is(&b.broken, w.Key().Name):
		b.spoilt.Add(1)
		return &lease.MalformedError{Key: w.Key()}
	}
	return nil
}

// stops checks that a worker stops within limit. heal then ends the fault, so that the test
// can end.
func stops(t *testing.T, m *member, limit time.Duration, heal func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- m.stop() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Errorf("Run has not returned %v after its context was cancelled", limit)
		heal()
		<-done
	}
}

// TestStopEndsThoughRowsAreMute: writes of rows are not answered, as in a throttled
// partition or with a permission revoked. Heartbeats are answered, so trust never ends.
func TestStopEndsThoughRowsAreMute(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b := newBad()
		m := join(t, b, shardlease.Static("s"), shardlease.Config{Order: checkpoint.Decimal}, count)
		time.Sleep(3 * time.Second)
		b.mute.Store(true)
		stops(t, m, 35*time.Second, func() { b.mute.Store(false) })
	})
}

// TestStopEndsThoughARowIsMalformed: a worker stops although a row cannot be read. It plans
// without that row, because nobody can claim it.
func TestStopEndsThoughARowIsMalformed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b := newBad()
		fixture.Must[lease.Row](t, b)(protocol.Begin("orders", "s", nil, "x", fixture.Stamp()))
		b.broken.Store("s")
		m := join(t, b, shardlease.Static("s", "r"), shardlease.Config{Order: checkpoint.Decimal}, count)
		time.Sleep(3 * time.Second)
		if n := b.spoilt.Load(); n > 0 {
			t.Errorf("%d writes of a row that cannot be read", n)
		}
		stops(t, m, 35*time.Second, func() { b.broken.Store("") })
	})
}

// TestDeletedRowIsLeftInPeace: somebody deletes a row by hand. Its owner ends its tenure
// and does not write the row again and again.
func TestDeletedRowIsLeftInPeace(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b := newBad()
		m := join(t, b, shardlease.Static("s", "r"), shardlease.Config{Order: checkpoint.Decimal}, count)
		time.Sleep(3 * time.Second)
		b.gone.Store("s")
		time.Sleep(10 * time.Second)
		from := b.writes.Load()
		time.Sleep(10 * time.Second)
		if n := b.writes.Load() - from; n > 30 {
			t.Errorf("%d writes of rows in 10 s", n)
		}
		stops(t, m, 35*time.Second, func() { b.gone.Store("") })
	})
}

// TestStopEndsAHandlerThatLingers: the handler has finished its shard and waits until its
// context ends.
func TestStopEndsAHandlerThatLingers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		m := join(t, new(memstore.Store), shardlease.Static("s"), shardlease.Config{}, func(ctx context.Context, tn *shardlease.Tenure) error {
			if err := tn.Finish(tn.Context()); err != nil {
				return err
			}
			select {
			case <-tn.Context().Done():
			case <-let:
			}
			return nil
		})
		time.Sleep(3 * time.Second)
		stops(t, m, 35*time.Second, func() { close(let) })
	})
}

// TestWaitingForTheStoreIsNoStall: a handler that waits for a commit is not stalled.
func TestWaitingForTheStoreIsNoStall(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b := newBad()
		m := join(t, b, shardlease.Static("s"), shardlease.Config{StallAfter: 5 * time.Second, Order: checkpoint.Decimal},
			func(ctx context.Context, tn *shardlease.Tenure) error {
				for i := 1; ; i++ {
					time.Sleep(100 * time.Millisecond)
					if err := tn.Commit(ctx, fmt.Sprint(i)); err != nil {
						return err
					}
				}
			})
		time.Sleep(3 * time.Second)
		b.mute.Store(true)
		time.Sleep(7 * time.Second)
		b.mute.Store(false)
		time.Sleep(3 * time.Second)
		m.never(t, event.Draining, event.Ended)
	})
}

// TestUnknownOutcomeIsSaid: a commit is stored and its answer is lost; then a supervisor
// releases the shard. The EndError reports, wherever it is returned, that the outcome of
// the commit is unknown.
func TestUnknownOutcomeIsSaid(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		got := make(chan error, 1)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, func(ctx context.Context, tn *shardlease.Tenure) error {
			if err := tn.Commit(tn.Context(), "1"); err != nil {
				return err
			}
			select {
			case got <- tn.Commit(context.WithoutCancel(ctx), "2"):
			default:
			}
			<-tn.Context().Done()
			return nil
		})
		a.watch(nil, func(w lease.Write) {
			if r, ok := w.Next.(lease.Row); ok && r.Checkpoint.Position == "2" && r.Owner.Name == "a" && r.Generation == w.Old.(lease.Row).Generation {
				a.watch(nil, nil)
				a.Cut() // the answer of the commit is lost
				_, err := shardlease.Supervisor{Store: s.store, Group: "orders", By: "me"}.ForceRelease(context.Background(), "shard-00", r.Generation, "x")
				check(t, err)
				time.AfterFunc(50*time.Millisecond, a.Heal)
			}
		})
		err := <-got
		end, _ := errors.AsType[*shardlease.EndError](err)
		stale, _ := errors.AsType[*checkpoint.StaleError](err)
		if end == nil || stale == nil || !end.OutcomeUnknown || !stale.OutcomeUnknown {
			t.Errorf("the calls returned %v", err)
		}
	})
}

// TestMalformedAgain: a row is unreadable for ten minutes, is repaired, and is unreadable again.
// Each time that is reported, repeated while it lasts, and reported to be over. Before, a worker
// reported a row once for good, so the second fault was silent.
func TestMalformedAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b := newBad()
		a := join(t, b, shardlease.Static("1", "2"), shardlease.Config{AuditEvery: 10 * time.Second}, serve)
		time.Sleep(10 * time.Second)
		for round := 1; round <= 3; round++ {
			before := len(a.of(event.Malformed))
			b.broken.Store("1")
			time.Sleep(10 * time.Minute)
			events := a.of(event.Malformed)[before:]
			if n := len(events); n < 5 || n > 7 || events[0].Lasted != 0 || !errors.Is(events[0].Err, lease.ErrMalformed) || events[n-1].Lasted < 4*time.Minute || events[n-1].Over {
				t.Errorf("round %d: reported %v", round, events)
			}
			b.broken.Store("")
			time.Sleep(time.Minute)
			events = a.of(event.Malformed)[before+len(events):]
			if len(events) != 1 || events[0].Shard != "1" || !events[0].Over || events[0].Lasted < 9*time.Minute {
				t.Errorf("round %d, repaired: reported %v", round, events)
			}
		}
		check(t, a.stop())
	})
}
