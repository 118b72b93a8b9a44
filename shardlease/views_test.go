package shardlease_test

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Reads that are older than what the worker knows, and what must not follow from them.

// A lens is a worker's view of the store: see gets each listing as it was read, may hold it back,
// and returns what the worker gets.
type lens struct {
	lease.Store
	mu  sync.Mutex
	see func(q lease.Query, read []lease.Record) []lease.Record
}

func (l *lens) through(see func(lease.Query, []lease.Record) []lease.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.see = see
}

func (l *lens) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		var read []lease.Record
		for r, err := range l.Store.List(ctx, q) {
			if err != nil {
				yield(nil, err)
				return
			}
			read = append(read, r)
		}
		l.mu.Lock()
		see := l.see
		l.mu.Unlock()
		if see != nil {
			read = see(q, read)
		}
		for _, r := range read {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// TestNewcomerIsNotRobbed: a lists the seats; then a newcomer takes a seat and claims a shard, which
// a learns from a claim of its own that is refused; then the answer to a's listing arrives, and lacks
// the newcomer. Seats that were read before the row prove nothing. (Without that rule the newcomer was
// robbed at once, and no fast test failed.)
func TestNewcomerIsNotRobbed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 2)
		answer, asked, gate := make(chan struct{}), make(chan struct{}), s.gate(lease.OpTransfer)
		view := &lens{Store: gate}
		a := s.enterOn(view, "a", shardlease.Config{Handoff: rebalance.Eager}, serve)
		time.Sleep(100 * time.Millisecond)
		var once sync.Once
		view.through(func(q lease.Query, read []lease.Record) []lease.Record {
			if q.Kind == lease.KindSeat && !q.Eventually {
				once.Do(func() { close(asked); <-answer })
			}
			return read
		})
		<-asked
		s.enter("newcomer", shardlease.Config{Handoff: rebalance.Eager}, serve)
		s.within(time.Second, "the newcomer holds one", func() bool { return s.running()["newcomer"] == 1 })
		gate.open()
		s.within(time.Second, "a claim of a's is refused", func() bool { return len(a.of(shardlease.Contended)) == 1 })
		close(answer)
		time.Sleep(beat)
		for _, sp := range s.all() {
			if sp.worker == "newcomer" && !sp.to.IsZero() || s.row(sp.shard).Owner.Name != sp.worker {
				t.Errorf("%s of %s ended: %v, %v", sp.shard, sp.worker, sp.cause, s.row(sp.shard))
			}
		}
		s.end()
	})
}

// TestLaggingReadsProveNoLife: every second listing that may lag shows the seats as they were before
// the last heartbeat of a worker that has died since. The change from one to the other is no sign of
// life: its shards are held again within T + 2h + 0.5 s, an h more than else because only every second
// look shows anything new. (When it was taken for one, the worker was never evicted, and no fast test failed.)
func TestLaggingReadsProveNoLife(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		view := &lens{Store: s.store}
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.enterOn(view, "b", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.shared(beat+1500*time.Millisecond, "a", "b")
		time.Sleep(20 * time.Second)
		var stale []lease.Record
		for r, err := range s.store.List(t.Context(), lease.Query{Group: "orders", Kind: lease.KindSeat}) {
			if err != nil {
				t.Fatal(err)
			}
			stale = append(stale, r)
		}
		time.Sleep(beat)
		var looks atomic.Int32
		view.through(func(q lease.Query, read []lease.Record) []lease.Record {
			if q.Kind == lease.KindSeat && q.Eventually && looks.Add(1)%2 == 1 {
				return stale
			}
			return read
		})
		a.die()
		took := s.within(ttl+2*beat+500*time.Millisecond, "b holds everything", func() bool { return s.running()["b"] == 4 })
		t.Logf("held again after %v", took)
		view.through(nil)
		s.end()
	})
}

// TestRemovalOutlivesOlderListings: a finished shard was removed. What the source listed before that
// does not bring the shard back, whether the worker took it in before it learnt of the removal or
// after. (When it did, the shard was processed again from its beginning, and no fast test failed.)
func TestRemovalOutlivesOlderListings(t *testing.T) {
	t.Run("taken in before", func(t *testing.T) { bubble(t, removedByAnother) })
	t.Run("taken in after", func(t *testing.T) { bubble(t, removedWhileListing) })
}

// A feed is a source of two shards, the first of which can be left out, or listed late.
type feed struct {
	without, late atomic.Bool // late: of the next listing only
	asked, answer chan struct{}
}

func (f *feed) Shards(context.Context) ([]shardlease.Shard, error) {
	both := []shardlease.Shard{{Name: "shard-00"}, {Name: "shard-01"}}
	switch {
	case f.late.CompareAndSwap(true, false):
		close(f.asked)
		<-f.answer
	case f.without.Load():
		return both[1:], nil
	}
	return both, nil
}

// finishing runs a worker on a feed, and waits until the first shard is finished.
func finishing(t *testing.T, config shardlease.Config) (s *stage, a *actor, f *feed, calls *atomic.Int32) {
	s, f, calls = newStage(t, 2), &feed{asked: make(chan struct{}), answer: make(chan struct{})}, new(atomic.Int32)
	s.source, config.Handoff = f, rebalance.Eager
	a = s.enter("a", config, func(ctx context.Context, tn *shardlease.Tenure) error {
		if tn.Shard().Name != "shard-00" {
			return serve(ctx, tn)
		}
		calls.Add(1)
		return tn.Finish(ctx)
	})
	time.Sleep(5 * time.Second)
	if !s.row("shard-00").Finished {
		s.fail("the first shard is not finished: %v", s.row("shard-00"))
	}
	return s, a, f, calls
}

// Another worker removes the shard. This one learns of it from its audit, long before it asks its
// source again.
func removedByAnother(t *testing.T) {
	s, _, f, calls := finishing(t, shardlease.Config{PollEvery: time.Hour, AuditEvery: ttl})
	f.without.Store(true)
	row := s.row("shard-00")
	w, err := row.Remove(lease.Command{Seen: row.Generation, By: "b"}, lease.Stamp{ID: "removal", At: time.Now()})
	if err == nil {
		_, err = s.store.Write(t.Context(), w)
	}
	time.Sleep(2 * time.Minute)
	if n := calls.Load(); err != nil || n != 1 || !s.row("shard-00").Removed {
		t.Errorf("%v; processed %d times: %v", err, n, s.row("shard-00"))
	}
	s.end()
}

// The worker removes the shard itself, while a listing is under way that was asked for before and
// has it once more.
func removedWhileListing(t *testing.T) {
	s, a, f, calls := finishing(t, shardlease.Config{PollEvery: 10 * time.Second})
	a.watch(func(w lease.Write) {
		if row, ok := w.Next.(lease.Row); ok && row.Removed {
			f.late.CompareAndSwap(false, !s.row("shard-00").Removed)
			<-f.asked
		}
	}, nil)
	f.without.Store(true)
	s.within(time.Minute, "the shard is removed", func() bool { return s.row("shard-00").Removed })
	time.Sleep(time.Second)
	close(f.answer)
	time.Sleep(2 * time.Minute)
	if n := calls.Load(); n != 1 || !s.row("shard-00").Removed {
		t.Errorf("processed %d times: %v", n, s.row("shard-00"))
	}
	s.end()
}
