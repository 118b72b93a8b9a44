package shardlease_test

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// In these tests a worker reads records that are older than the records it knows.

// through calls see with the records of each listing over the link. see may delay them, and
// returns the records that the worker gets.
func through(link *storetest.Link, see func(q lease.Query, read []lease.Record) []lease.Record) {
	link.OnList(func(_ context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			var read []lease.Record
			for r, err := range send() {
				if err != nil {
					yield(nil, err)
					return
				}
				read = append(read, r)
			}
			for _, r := range see(q, read) {
				if !yield(r, nil) {
					return
				}
			}
		}
	})
}

// TestNewcomerIsNotRobbed: worker a has listed the seats. Then a newcomer takes a seat and claims the
// shard that the plan gives to a, which learns of it because its own claim is refused. The listings
// of the seats that a gets lag behind, without the newcomer. Worker a must not claim the shard: only a
// consistent read of the seats that began after the row was read proves that its owner has no seat.
// (Without this rule a claimed the shard at once, and no fast test failed.)
func TestNewcomerIsNotRobbed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		link, newcomer := storetest.NewLink(s.store), lease.Owner{Name: "newcomer", Incarnation: "n"}
		var claimed atomic.Int64
		link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if row, ok := w.Old.(lease.Row); ok && w.Op == lease.OpTransfer && claimed.Load() == 0 {
				seat, err := protocol.Sit(lease.Seat{Group: "orders", Incarnation: newcomer.Incarnation, Name: newcomer.Name, TTL: ttl}, fixture.Stamp())
				s.write(seat, err)
				s.write(protocol.NextBeat(seat.Next.(lease.Seat), lease.Says{}, fixture.Stamp()))
				claim, err := protocol.Claim(row, newcomer, fixture.Stamp())
				s.write(claim, err)
				claimed.Store(claim.Next.(lease.Row).Generation)
			}
			return send()
		})
		through(link, func(q lease.Query, read []lease.Record) []lease.Record {
			return slices.DeleteFunc(read, func(r lease.Record) bool {
				seat, ok := r.(lease.Seat)
				return ok && q.Eventually && seat.Incarnation == newcomer.Incarnation
			})
		})
		a := s.enterOn(link, "a", shardlease.Config{Handoff: rebalance.Eager}, serve)
		s.within(time.Second, "a claim of a's is refused", func() bool { return len(a.of(event.Contended)) == 1 })
		time.Sleep(2 * beat)
		if row := s.row("shard-00"); row.Generation != claimed.Load() || row.Owner.Name != newcomer.Name {
			t.Errorf("the newcomer's shard is %v", row)
		}
	})
}

// TestLaggingReadsProveNoLife: a worker has died, and every second listing that may lag
// returns the seats as they were before the worker's last heartbeat. The change between the
// old and the new heartbeat is no sign of life: the shards are held again within T + 2h +
// 0.5 s. (That is h more than usual, because only every second poll returns current seats.
// When the change counted as a sign of life, the worker was never evicted, and no fast test
// failed.)
func TestLaggingReadsProveNoLife(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 4, shardlease.Config{Handoff: rebalance.Eager}, nil, "a", "b")
		a, b := s.actor("a"), s.actor("b")
		time.Sleep(20 * time.Second)
		var stale []lease.Record
		for r, err := range s.store.List(t.Context(), lease.Query{Group: "orders", Kind: lease.KindSeat}) {
			must(t, err)
			stale = append(stale, r)
		}
		time.Sleep(beat)
		var looks atomic.Int32
		through(b.Link, func(q lease.Query, read []lease.Record) []lease.Record {
			if q.Kind == lease.KindSeat && q.Eventually && looks.Add(1)%2 == 1 {
				return stale
			}
			return read
		})
		a.die()
		took := s.within(ttl+2*beat+500*time.Millisecond, "b holds everything", func() bool { return s.running()["b"] == 4 })
		t.Logf("held again after %v", took)
		b.OnList(nil)
	})
}

// TestRemovalOutlivesOlderListings: a finished shard was removed. A listing that the source made
// before the removal does not revive the shard, whether the worker handles the listing before it
// learns of the removal or after. (When such a listing revived the shard, the shard was processed
// again from its beginning, and no fast test failed.)
func TestRemovalOutlivesOlderListings(t *testing.T) {
	t.Parallel()
	subtest(t, "taken in before", removedByAnother)
	subtest(t, "taken in after", removedWhileListing)
}

// A feed is a source of two shards. Its listings can omit the first shard, or be delayed.
type feed struct {
	without       atomic.Bool   // listings omit the first shard
	late          atomic.Bool   // the next listing waits until answer is closed
	asked, answer chan struct{} // asked is closed when this listing begins
	slow          atomic.Bool   // listings take five seconds
}

func (f *feed) Shards(context.Context) ([]shardlease.Shard, error) {
	both := []shardlease.Shard{{Name: "shard-00"}, {Name: "shard-01"}}
	if f.slow.Load() {
		time.Sleep(5 * time.Second)
	}
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
		return tn.Finish(tn.Context())
	})
	time.Sleep(5 * time.Second)
	if !s.row("shard-00").Finished {
		s.Fatalf("the first shard is not finished: %v", s.row("shard-00"))
	}
	return s, a, f, calls
}

// removedByAnother: another worker removes the shard. The worker learns of the removal from
// its audit, and lists its source again, which takes a while.
func removedByAnother(t *testing.T) {
	s, _, f, calls := finishing(t, shardlease.Config{PollEvery: time.Hour, AuditEvery: ttl})
	f.without.Store(true)
	f.slow.Store(true)
	row := s.row("shard-00")
	s.write(protocol.Remove(row, protocol.Command{Seen: row.Generation, By: "b"}, fixture.Stamp()))
	time.Sleep(2 * time.Minute)
	if n := calls.Load(); n != 1 || !s.row("shard-00").Removed {
		t.Errorf("processed %d times: %v", n, s.row("shard-00"))
	}
}

// removedWhileListing: the worker removes the shard itself, during a listing that began
// before the removal and still contains the shard.
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
}
