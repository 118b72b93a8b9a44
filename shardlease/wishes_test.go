package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// soon is how long a wish, or the end of one, may take to have an effect.
const soon = beat + 1500*time.Millisecond

// operator returns a supervisor of the fleet.
func (s *stage) operator() shardlease.Supervisor {
	return shardlease.Supervisor{Store: s.store, Group: "orders", By: "ann"}
}

// TestDrainFromOutside: the shards of a drained worker move to the other workers, in either mode.
// When the drain ends by itself, all three workers share them again.
func TestDrainFromOutside(t *testing.T) {
	t.Parallel()
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		subtest(t, mode.String(), func(t *testing.T) {
			s := staged(t, 12, shardlease.Config{TTL: ttl, Handoff: mode}, nil, "a", "b", "c")
			time.Sleep(time.Minute)
			must(t, s.operator().Drain(t.Context(), "b", time.Minute, "its disk is slow"))
			from := time.Now()
			s.shared(soon, "a", "c")
			time.Sleep(time.Until(from.Add(time.Minute)))
			if n := s.running()["b"]; n != 0 {
				t.Errorf("the drained worker holds %d shards", n)
			}
			s.shared(soon, "a", "b", "c")
			if list, err := s.operator().Wishes(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("the wishes are %v, %v", list, err)
			}
		})
	}
}

// TestPauseFromOutside: during a pause no shard moves to a worker that joins, and the shards of a
// dead worker are still claimed. When the pause is lifted, the workers share the shards evenly.
func TestPauseFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative}
		s := staged(t, 12, config, nil, "a", "b")
		must(t, s.operator().Pause(t.Context(), 0, "the sink is migrated"))
		time.Sleep(soon)
		before := len(s.all())
		s.enter("c", config, nil)
		time.Sleep(time.Minute)
		if moved := len(s.all()) - before; moved != 0 {
			t.Errorf("%d shards moved in the pause", moved)
		}
		s.actor("b").die()
		s.within(ttl+beat+500*time.Millisecond, "all shards are held", func() bool {
			held := s.running()
			return held["a"]+held["c"] == s.shards
		})
		must(t, s.operator().Lift(t.Context(), lease.WishPause, "", "done"))
		s.shared(soon, "a", "c")
	})
}

// TestPinAndCordonFromOutside: a pinned shard moves to its worker and stays there. When that worker
// dies, another one claims the shard. A cordoned worker keeps its shards, and gets none of those of
// a worker that leaves.
func TestPinAndCordonFromOutside(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		config := shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative}
		s := staged(t, 3, config, nil, "a", "b", "c")
		holder := func(shard string) string { return s.row(shard).Owner.Name }
		shard := s.names()[0]
		to := map[string]string{"a": "b", "b": "c", "c": "a"}[holder(shard)]
		must(t, s.operator().Pin(t.Context(), shard, to, 0, "it has the cache"))
		s.within(soon, "the shard is where it is pinned", func() bool { return holder(shard) == to })
		time.Sleep(time.Minute)
		if got := holder(shard); got != to {
			t.Errorf("the pinned shard moved on to %s", got)
		}
		s.actor(to).die()
		s.within(ttl+beat+500*time.Millisecond, "a pin to a dead worker has no effect", func() bool { return holder(shard) != to })
		must(t, s.operator().Lift(t.Context(), lease.WishPin, shard, "done"))

		rest := slices.DeleteFunc([]string{"a", "b", "c"}, func(name string) bool { return name == to })
		s.shared(soon, rest...)
		held := s.running()[rest[0]]
		must(t, s.operator().Cordon(t.Context(), rest[0], time.Hour, "to be replaced"))
		time.Sleep(soon)
		s.enter("d", config, nil)
		time.Sleep(time.Minute)
		check(t, s.actor(rest[1]).stop())
		s.within(soon, "all shards are held", func() bool { return s.running()[rest[0]]+s.running()["d"] == s.shards })
		if now := s.running()[rest[0]]; now > held {
			t.Errorf("a cordoned worker had %d shards and has %d", held, now)
		}
	})
}

// TestWishesOfTwoOperators: if two operators make wishes at the same moment, both are stored. A
// wish replaces one of the same kind for the same subject. A wish whose answer is lost is stored
// once.
func TestWishesOfTwoOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		bob := shardlease.Supervisor{Store: store, Group: "orders", By: "bob"}
		ann := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
		wrote := 0
		link.OnWrite(func(_ context.Context, _ lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			switch wrote++; wrote {
			case 1:
				must(t, bob.Cordon(t.Context(), "b", time.Hour, "bob was first"))
			case 2:
				_, _ = send()
				return nil, errDown
			}
			return send()
		})
		must(t, ann.Cordon(t.Context(), "b", 0, "it is sick"))
		must(t, ann.Pin(t.Context(), "shard-1", "a", 0, "cache"))
		must(t, bob.Pause(t.Context(), time.Minute, "migration"))
		list, err := ann.Wishes(t.Context())
		var told []string
		for _, w := range list {
			told = append(told, w.String())
		}
		want := []string{
			`cordon "b" by "ann" (it is sick)`,
			fmt.Sprintf(`pause by "bob" until %s (migration)`, time.Now().Add(time.Minute).Local().Format(time.RFC3339)),
			`pin "shard-1" to "a" by "ann" (cache)`,
		}
		if err != nil || !slices.Equal(told, want) {
			t.Errorf("the wishes are\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
		must(t, bob.Lift(t.Context(), lease.WishPin, "shard-1", "done"))
		if err := bob.Lift(t.Context(), lease.WishPin, "shard-1", "done"); !errors.Is(err, lease.ErrNotFound) {
			t.Errorf("lifted twice: %v", err)
		}
		wrote = 100
		link.OnWrite(func(context.Context, lease.Write, func() (lease.Record, error)) (lease.Record, error) {
			return nil, errDown
		})
		if err := ann.Pause(t.Context(), 0, "x"); !errors.Is(err, errDown) {
			t.Errorf("a store that never answers: %v", err)
		}
	})
}

// TestInvalidWishes: an invalid wish is refused with a typed error, and the stored wishes do not
// change.
func TestInvalidWishes(t *testing.T) {
	s := shardlease.Supervisor{Store: new(memstore.Store), Group: "orders", By: "ann"}
	must(t, s.Drain(t.Context(), "a", time.Hour, "why"))
	for name, tc := range map[string]struct {
		err  error
		want error
	}{
		"no worker":         {s.Cordon(t.Context(), "", 0, "why"), checkpoint.ErrInvalid},
		"no shard":          {s.Pin(t.Context(), "", "a", 0, "why"), checkpoint.ErrInvalid},
		"a pin to nobody":   {s.Pin(t.Context(), "s", "", 0, "why"), checkpoint.ErrInvalid},
		"a reason in lines": {s.Pause(t.Context(), 0, "a\nb"), checkpoint.ErrInvalid},
		"a negative time":   {s.Cordon(t.Context(), "a", -time.Second, "why"), shardlease.ErrConfig},
		"no operator":       {shardlease.Supervisor{Store: s.Store, Group: "orders"}.Pause(t.Context(), 0, "why"), shardlease.ErrConfig},
		"nothing to lift":   {s.Lift(t.Context(), lease.WishCordon, "a", "done"), lease.ErrNotFound},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
	record, err := s.Store.Get(t.Context(), lease.Wishes{Group: "orders"}.Key())
	must(t, err)
	full := record.(lease.Wishes)
	for i := range lease.MaxWishes - 1 {
		full.List = append(full.List, lease.Wish{Kind: lease.WishCordon, Subject: fmt.Sprint("w", i), By: "ann"})
	}
	fixture.Must[lease.Wishes](t, s.Store)(protocol.SetWishes(full, full.List, fixture.Stamp()))
	if err := s.Cordon(t.Context(), "one more", 0, "why"); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("too many: %v", err)
	}
	if list, err := s.Wishes(t.Context()); err != nil || len(list) != lease.MaxWishes {
		t.Errorf("%d wishes, %v", len(list), err)
	}
	link := storetest.NewLink(s.Store)
	link.OnGet(func(_ context.Context, k lease.Key, _ func() (lease.Record, error)) (lease.Record, error) {
		return nil, &lease.MalformedError{Key: k}
	})
	s.Store = link
	if err := s.Pause(t.Context(), 0, "why"); !errors.Is(err, lease.ErrMalformed) {
		t.Errorf("wishes that cannot be read: %v", err)
	}
}

// A wishList is the record of the wishes of a group, as an operator and other programs change it.
type wishList struct {
	t    *testing.T
	link *storetest.Link
	by   shardlease.Supervisor
}

func newWishList(t *testing.T) *wishList {
	link := storetest.NewLink(new(memstore.Store))
	return &wishList{t, link, shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}}
}

// fill stores two wishes.
func (l *wishList) fill() {
	l.t.Helper()
	must(l.t, l.by.Pause(l.t.Context(), 0, "migration"))
	must(l.t, l.by.Drain(l.t.Context(), "a", time.Hour, "disk"))
}

func (l *wishList) stored() (w lease.Wishes) {
	r, _ := l.link.Get(l.t.Context(), lease.Wishes{Group: "orders"}.Key())
	w, _ = r.(lease.Wishes)
	return w
}

// spoil makes the record unreadable until somebody writes it.
func (l *wishList) spoil() {
	id := l.stored().WriteID
	l.link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		if r, err := send(); err != nil || r.Written() != id {
			return r, err
		}
		return nil, &lease.MalformedError{Key: k, WriteID: id}
	})
}

// TestLiftAll: all wishes end, except the looks of commands.
func TestLiftAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWishList(t)
		must(t, l.by.LiftAll(t.Context(), "done"))
		if id := l.stored().WriteID; id != "" {
			t.Errorf("without wishes, a record was written: %s", id)
		}
		l.fill()
		row := held(t, l.link, "s", "")
		_, err := l.by.ForceRelease(t.Context(), "s", row.Generation, "stuck")
		must(t, err)
		must(t, l.by.LiftAll(t.Context(), "done"))
		if list := l.stored().List; len(list) != 1 || list[0].Kind != "look" {
			t.Errorf("after all was lifted: %v", list)
		}
	})
}

// TestLiftAllOfAnUnreadableRecord: the record is deleted. An answer that is lost does not matter, and LiftAll does not
// try forever.
func TestLiftAllOfAnUnreadableRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWishList(t)
		l.fill()
		l.spoil()
		if err := l.by.Lift(t.Context(), lease.WishPause, "", "done"); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("one wish of a record that cannot be read: %v", err)
		}
		lost := 0
		l.link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			r, err := send()
			if w.Key().Kind == lease.KindJournal {
				return r, err
			}
			if lost++; lost == 1 && w.Spoilt {
				return nil, errDown
			}
			return r, err
		})
		must(t, l.by.LiftAll(t.Context(), "done"))
		if r, err := l.link.Get(t.Context(), lease.Wishes{Group: "orders"}.Key()); !errors.Is(err, lease.ErrNotFound) || lost != 2 {
			t.Errorf("after %d writes there is %v, %v", lost, r, err)
		}

		l.fill()
		l.link.OnGet(func(_ context.Context, k lease.Key, _ func() (lease.Record, error)) (lease.Record, error) {
			return nil, &lease.MalformedError{Key: k, WriteID: "another"}
		})
		if err := l.by.LiftAll(t.Context(), "done"); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("a record that is never deleted: %v", err)
		}
		l.link.OnWrite(func(context.Context, lease.Write, func() (lease.Record, error)) (lease.Record, error) {
			return nil, errDown
		})
		if err := l.by.LiftAll(t.Context(), "done"); !errors.Is(err, errDown) {
			t.Errorf("a table that never answers: %v", err)
		}
	})
}

// TestLiftAllOfARepairedRecord: an unreadable record is deleted only if nobody has written it since it was read. The
// wishes of a repaired one are lifted.
func TestLiftAllOfARepairedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWishList(t)
		l.fill()
		l.spoil()
		l.link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if !w.Spoilt {
				return send()
			}
			l.link.OnWrite(nil)
			repaired := fixture.Must[lease.Wishes](t, l.link)(protocol.SetWishes(lease.Wishes{Group: "orders", WriteID: w.Old.Written()}, []lease.Wish{
				{Kind: lease.WishPause, By: "bob"},
			}, fixture.Stamp()))
			r, err := send()
			if now := l.stored(); now.WriteID != repaired.WriteID {
				t.Errorf("wishes that were repaired meanwhile were deleted: %v", now)
			}
			return r, err
		})
		must(t, l.by.LiftAll(t.Context(), "done"))
		if list := l.stored().List; len(list) != 0 {
			t.Errorf("the repaired wishes were not lifted: %v", list)
		}
	})
}

// TestCommandsAreNoticedAtOnce: the workers notice a command within a heartbeat interval and a plan,
// long before their next audit, although no handler commits anything.
func TestCommandsAreNoticedAtOnce(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{3, 10} { // 10 are a large fleet
		subtest(t, fmt.Sprint(workers), func(t *testing.T) {
			var names []string
			for i := range workers {
				names = append(names, string(rune('a'+i)))
			}
			config := shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative, AuditEvery: 24 * time.Hour}
			s := staged(t, 20, config, serve, names...)
			time.Sleep(time.Minute)
			shard := s.names()[0]
			begun := func() int { return len(s.of(shard)) }
			ended := func() bool {
				spans := s.of(shard)
				s.mu.Lock()
				defer s.mu.Unlock()
				return !spans[len(spans)-1].to.IsZero()
			}
			was := begun()

			row := s.row(shard)
			_, err := s.operator().ForceRelease(t.Context(), shard, row.Generation, "its handler hangs")
			must(t, err)
			s.within(soon, "the released shard has another tenure", func() bool { return begun() == was+1 })

			row, err = s.operator().Quarantine(t.Context(), shard, s.row(shard).Generation, "poison")
			must(t, err)
			s.within(soon, "the tenure of the quarantined shard has ended", ended)
			time.Sleep(time.Minute)

			_, err = s.operator().Unquarantine(t.Context(), shard, row.Generation, "mended")
			must(t, err)
			s.within(soon, "a worker has claimed the shard that left quarantine", func() bool { return begun() == was+2 })

			_, err = s.operator().Rewind(t.Context(), shard, s.row(shard).Generation, checkpoint.Mark{}, "replay")
			must(t, err)
			s.within(soon, "a worker has claimed the rewound shard", func() bool { return begun() == was+3 })
			if list, err := s.operator().Wishes(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("the wishes are %v, %v", list, err)
			}
			time.Sleep(2 * time.Minute)
			record, err := s.store.Get(t.Context(), lease.Wishes{Group: "orders"}.Key())
			if wishes, ok := record.(lease.Wishes); err != nil || !ok || len(wishes.List) != 0 {
				t.Errorf("after two minutes the record of wishes is %v, %v", record, err)
			}
		})
	}
}

// TestEveryWishIsMade: a Supervisor has a method of the name of each kind of wish.
func TestEveryWishIsMade(t *testing.T) {
	for _, kind := range lease.WishKinds() {
		name := strings.ToUpper(string(kind[:1])) + string(kind[1:])
		if _, found := reflect.TypeFor[shardlease.Supervisor]().MethodByName(name); !found {
			t.Errorf("Supervisor has no method %s, which makes the wish %q", name, kind)
		}
	}
}
