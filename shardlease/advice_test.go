package shardlease_test

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// advised writes a plan, targets and wishes that say something else than the workers do.
func (s *stage) advised() (advice []lease.Record) {
	put := func(w lease.Write, err error) {
		s.write(w, err)
		advice = append(advice, w.Next)
	}
	opened, err := protocol.OpenPlan(lease.Plan{Group: "orders"}, protocol.Opening{By: lease.Owner{Name: "z", Incarnation: "z"}}, fixture.Stamp())
	put(opened, err)
	target := lease.Target{Group: "orders", Incarnation: "z", Pages: 1, Revision: 7}
	for _, name := range s.names() {
		target.Hold = append(target.Hold, lease.Assigned{Shard: name})
	}
	put(protocol.WriteTarget(lease.Target{}, target, fixture.Stamp()))
	put(protocol.SetWishes(lease.Wishes{Group: "orders"}, []lease.Wish{
		{Kind: lease.WishPause, By: "op"}, {Kind: lease.WishDrain, Subject: "a", By: "op"},
	}, fixture.Stamp()))
	return advice
}

// unreadable makes the listings of the seats through the link begin with a plan, with wishes and
// with a reserved record of a newer version that cannot be read, for some time.
func unreadable(link *storetest.Link, d time.Duration) *storetest.Link {
	until := time.Now().Add(d)
	link.OnList(func(ctx context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			for _, k := range []lease.Key{lease.Plan{Group: q.Group}.Key(), {Group: q.Group, Name: "!newer"}, lease.Wishes{Group: q.Group}.Key()} {
				if q.Kind == lease.KindSeat && time.Now().Before(until) && !yield(nil, &lease.MalformedError{Key: k, Cause: errDown}) {
					return
				}
			}
			send()(yield)
		}
	})
	return link
}

// TestWorkersIgnoreThePlan: a plan, targets and wishes change nothing so far, readable or not: a
// fleet starts, shares its shards, survives a death and shuts down as without them.
func TestWorkersIgnoreThePlan(t *testing.T) {
	for _, tc := range []struct {
		name              string
		advice, malformed bool
	}{{"none", false, false}, {"stored", true, false}, {"malformed", false, true}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 8)
				var advice []lease.Record
				if tc.advice {
					advice = s.advised()
				}
				enter := func(name string) *actor {
					link := storetest.NewLink(s.store)
					if tc.malformed {
						unreadable(link, 5*beat)
					}
					return s.enterOn(link, name, shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative}, nil)
				}
				s.story(enter)
				for _, r := range advice {
					if now, err := s.store.Get(t.Context(), r.Key()); err != nil || !reflect.DeepEqual(now, r) {
						t.Errorf("%v became %v, %v", r, now, err)
					}
				}
			})
		})
	}
}

// story: a starts alone, b joins, b dies, and a shuts down. In between, nothing happens for longer
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
	from := time.Now()
	s.end()
	if took := time.Since(from); took > beat {
		s.Errorf("a took %v to shut down alone", took)
	}
}

// TestWorkersAreSeats: Workers returns the seats and nothing that is stored beside them; Evict
// deletes no plan.
func TestWorkersAreSeats(t *testing.T) {
	s := &stage{T: t, store: new(memstore.Store), shards: 1}
	s.advised()
	s.write(protocol.Sit(lease.Seat{Group: "orders", Incarnation: "i", Name: "a", TTL: ttl}, fixture.Stamp()))
	for name, store := range map[string]lease.Store{"readable": s.store, "malformed": unreadable(storetest.NewLink(s.store), time.Hour)} {
		supervisor := shardlease.Supervisor{Store: store, Group: "orders"}
		workers, err := supervisor.Workers(t.Context())
		if err != nil || len(workers) != 1 || workers[0].Name != "a" {
			t.Errorf("%s: %v, %v", name, workers, err)
		}
		for _, inc := range []lease.Incarnation{"!plan", "!wishes"} {
			if err := supervisor.Evict(t.Context(), inc); err == nil || errors.Is(err, lease.ErrNotFound) {
				t.Errorf("%s: evicting %s: %v", name, inc, err)
			}
		}
	}
}
