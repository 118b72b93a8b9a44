package shardlease_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// advised writes what a worker has left that is no more: a revision that it has not finished, a target
// with all shards; and wishes, of which one has ended.
func (s *stage) advised() {
	s.write(protocol.OpenPlan(lease.Plan{Group: "orders"}, protocol.Opening{By: lease.Owner{Name: "z", Incarnation: "z"}}, fixture.Stamp()))
	target := lease.Target{Group: "orders", Incarnation: "z", Pages: 1, Revision: 7}
	for _, name := range s.names() {
		target.Hold = append(target.Hold, lease.Assigned{Shard: name})
	}
	s.write(protocol.WriteTarget(lease.Target{}, target, fixture.Stamp()))
	s.write(protocol.SetWishes(lease.Wishes{Group: "orders"}, []lease.Wish{
		{Kind: lease.WishPause, By: "op", Until: time.Now().Add(-time.Second)}, {Kind: lease.WishCordon, Subject: "z", By: "op"},
	}, fixture.Stamp()))
}

// cleared checks that the workers have finished a later revision, and have deleted the target and the
// wish that had ended.
func (s *stage) cleared() {
	s.Helper()
	get := func(of lease.Record) lease.Record {
		r, err := s.store.Get(s.Context(), of.Key())
		if err != nil && !errors.Is(err, lease.ErrNotFound) {
			s.Error(err)
		}
		return r
	}
	if p, ok := get(lease.Plan{Group: "orders"}).(lease.Plan); !ok || p.Open || p.By.Name != "a" || p.Shards != int64(s.shards) {
		s.Errorf("the plan is %v", p)
	}
	if r := get(lease.Target{Group: "orders", Incarnation: "z"}); r != nil {
		s.Errorf("the target of z is %v", r)
	}
	if w, _ := get(lease.Wishes{Group: "orders"}).(lease.Wishes); len(w.List) != 1 || w.List[0].Kind != lease.WishCordon {
		s.Errorf("the wishes are %v", w)
	}
}

// unreadable makes the listings of the seats through the link begin with wishes, with a reserved record of
// a newer version and with others that cannot be read, for some time.
func unreadable(link *storetest.Link, d time.Duration, others ...lease.Key) *storetest.Link {
	until := time.Now().Add(d)
	link.OnList(func(ctx context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			for _, k := range append(others, lease.Key{Group: q.Group, Name: "!newer"}, lease.Wishes{Group: q.Group}.Key()) {
				if q.Kind == lease.KindSeat && time.Now().Before(until) && !yield(nil, &lease.MalformedError{Key: k, Cause: errDown}) {
					return
				}
			}
			send()(yield)
		}
	})
	return link
}

// TestOldAdviceIsHarmless: what a worker that is no more has left of a plan, and wishes about it, or
// wishes and newer records that cannot be read, delay nothing: a fleet starts, shares its shards,
// survives a death and shuts down as without them. It writes its own plans, and removes what is out of
// date.
func TestOldAdviceIsHarmless(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name              string
		advice, malformed bool
	}{{"none", false, false}, {"stored", true, false}, {"malformed", false, true}} {
		subtest(t, tc.name, func(t *testing.T) {
			s := newStage(t, 8)
			if tc.advice {
				s.advised()
			}
			enter := func(name string) *actor {
				link := storetest.NewLink(s.store)
				if tc.malformed {
					unreadable(link, 5*beat)
				}
				return s.enterOn(link, name, shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative}, nil)
			}
			s.story(enter)
			if tc.advice {
				time.Sleep(2 * beat)
				s.cleared() // before the end, which revives the dead worker for a moment: it may plan
			}
			from := time.Now()
			s.end()
			if took := time.Since(from); took > beat {
				t.Errorf("a took %v to shut down alone", took)
			}
		})
	}
}

// story: a starts alone, b joins, and b dies. In between, nothing happens for longer
// than records are unreadable.
func (s *stage) story(enter func(name string) *actor) {
	a := enter("a")
	s.shared(time.Second, "a")
	b := enter("b")
	s.shared(beat+1500*time.Millisecond, "a", "b")
	if moves := len(s.all()) - s.shards; moves != s.shards/2 {
		s.Errorf("%d moves", moves)
	}
	time.Sleep(10 * beat)
	b.die()
	s.shared(ttl+beat+500*time.Millisecond, "a")
	for _, kind := range []event.Kind{event.PeerJoined, event.PeerLeft, event.PeerEvicted} {
		for _, e := range a.of(kind) {
			if e.Peer != "b" {
				s.Errorf("a reports %s of %q", kind, e.Peer)
			}
		}
	}
}

// TestWorkersAreSeats: Workers returns the seats and nothing that is stored beside them; Evict
// deletes no plan.
func TestWorkersAreSeats(t *testing.T) {
	s := &stage{T: t, store: new(memstore.Store), shards: 1}
	s.advised()
	s.write(protocol.Sit(lease.Seat{Group: "orders", Incarnation: "i", Name: "a", TTL: ttl}, fixture.Stamp()))
	for name, store := range map[string]lease.Store{"readable": s.store, "malformed": unreadable(storetest.NewLink(s.store), time.Hour, lease.Plan{Group: "orders"}.Key())} {
		supervisor := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
		workers, err := supervisor.Workers(t.Context())
		if err != nil || len(workers) != 1 || workers[0].Name != "a" {
			t.Errorf("%s: %v, %v", name, workers, err)
		}
		for _, inc := range []lease.Incarnation{"!plan", "!wishes"} {
			if _, err := supervisor.Evict(t.Context(), inc, "gone"); err == nil || errors.Is(err, lease.ErrNotFound) {
				t.Errorf("%s: evicting %s: %v", name, inc, err)
			}
		}
	}
}

// TestEvictSpoiltSeat: a supervisor evicts a seat that cannot be read, if nobody has written it since it was
// looked at; and it does not look forever.
func TestEvictSpoiltSeat(t *testing.T) {
	store := new(memstore.Store)
	put := fixture.Must[lease.Seat](t, store)
	seat := put(protocol.Sit(lease.Seat{Group: "orders", Incarnation: "i", Name: "a", TTL: ttl}, fixture.Stamp()))
	link, looked, wrong := storetest.NewLink(store), 0, lease.WriteID("")
	link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		r, err := send()
		if err != nil {
			return nil, err
		}
		if looked++; looked == 2 { // a heartbeat comes between
			seat = put(protocol.NextBeat(seat, lease.Says{}, fixture.Stamp()))
		}
		return nil, &lease.MalformedError{Key: k, WriteID: cmp.Or(wrong, r.Written())}
	})
	link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		r, err := send()
		if refused, ok := errors.AsType[*lease.RefusedError](err); ok && refused.Now != nil {
			err = &lease.MalformedError{Key: w.Key()}
		}
		return r, err
	})
	supervisor := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
	wrong = "another"
	if _, err := supervisor.Evict(t.Context(), "i", "spoilt"); !errors.Is(err, lease.ErrMalformed) || looked != 2 {
		t.Errorf("looked %d times: %v", looked, err)
	}
	wrong, looked = "", 1
	if _, err := supervisor.Evict(t.Context(), "i", "spoilt"); err != nil || looked != 3 {
		t.Errorf("looked %d times: %v", looked-1, err)
	}
	if _, err := store.Get(t.Context(), seat.Key()); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("the seat is still there: %v", err)
	}
	seat = put(protocol.Sit(lease.Seat{Group: "orders", Incarnation: "j", Name: "a", TTL: ttl}, fixture.Stamp()))
	looked = 0
	link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		r, err := send()
		if looked++; looked == 1 || err != nil { // it is spoilt when it has been read
			put(protocol.NextBeat(seat, lease.Says{}, fixture.Stamp()))
			return r, err
		}
		return nil, &lease.MalformedError{Key: k, WriteID: r.Written()}
	})
	if _, err := supervisor.Evict(t.Context(), "j", "spoilt"); err != nil || looked != 2 {
		t.Errorf("looked %d times: %v", looked, err)
	}
}
