package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// In these tests a sink is restored from a backup in which no fence was raised, and an operator lets all fences be raised
// again.

// restore restores the sink from its first backup.
func (k *sink) restore() { k.Register = memstore.Register{} }

// closes reports whether the fence of each held shard is that of its generation.
func (s *stage) closes(k *sink) bool {
	for _, shard := range s.names() {
		if k.fence(s, shard) != s.row(shard).Generation {
			return false
		}
	}
	return true
}

// raiseAgain makes the wish, and raisings returns how many wishes stand.
func (s *stage) raiseAgain() { must(s, s.operator().Raise(s.Context(), 0, "restored")) }

func (s *stage) raisings() int {
	wishes, err := s.operator().Wishes(s.Context())
	must(s, err)
	return len(wishes)
}

// raising returns the number of the only wish.
func (s *stage) raising() int64 {
	wishes, err := s.operator().Wishes(s.Context())
	must(s, err)
	if len(wishes) != 1 {
		s.Fatalf("%d wishes stand", len(wishes))
	}
	return wishes[0].Number
}

// TestRaiseAgain: a restored sink accepts the late effect of a worker that was replaced before. After the command it refuses
// such an effect, no handler has ended, no shard has moved, and the wish is gone when all workers have raised their
// fences: also in a large fleet, in which most workers do not list the seats.
func TestRaiseAgain(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{2, 11} {
		subtest(t, fmt.Sprint(workers, " workers"), func(t *testing.T) {
			k := newSink(50 * time.Millisecond)
			s := newStage(t, 24)
			var all []string
			for i := range workers {
				name := fmt.Sprintf("w%02d", i)
				all = append(all, name)
				s.enter(name, k.of(name, shardlease.Config{Handoff: rebalance.Eager}), serve)
				time.Sleep(time.Second)
			}
			s.shared(time.Minute, all...)
			time.Sleep(time.Minute)
			before, names := len(s.all()), s.names()
			moved := names[slices.IndexFunc(names, func(shard string) bool { return s.of(shard)[0].generation < s.row(shard).Generation })]
			first := s.of(moved)[0].generation
			k.restore()
			if err := k.Put(t.Context(), moved, first, "late"); err != nil {
				t.Errorf("the restored sink refuses a late effect: %v", err)
			}
			k.restore()
			calls := k.called
			s.raiseAgain()
			took := s.within(12*time.Second, "the wish is gone", func() bool { return s.raisings() == 0 })
			t.Logf("%d workers: %v", workers, took)
			if !s.closes(k) {
				t.Error("the wish is gone, and not all fences are raised")
			}
			if n := k.called - calls; n != 24 {
				t.Errorf("%d raises of 24 shards", n)
			}
			if err := k.Put(t.Context(), moved, first, "late"); !errors.Is(err, checkpoint.ErrStale) {
				t.Errorf("a late effect: %v", err)
			}
			if n := len(s.all()); n != before {
				t.Errorf("%d handlers were called", n-before)
			}
			time.Sleep(time.Minute)
			seats, err := s.operator().Workers(t.Context())
			must(t, err)
			for _, seat := range seats {
				if seat.Raised != 0 {
					t.Errorf("the seat of %s says %d, although no wish stands", seat.Name, seat.Raised)
				}
			}
			if k.called != calls+24 {
				t.Errorf("%d raises after the wish", k.called-calls-24)
			}
		})
	}
}

// TestRaiseAgainWaitsForAll: the wish stands as long as one worker cannot raise a fence, and that worker reports it. A second
// command makes all raise once more. No two commands make the same wish, also if the first has ended: a worker may not have
// seen its end.
func TestRaiseAgainWaitsForAll(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(50 * time.Millisecond)
		s := newStage(t, 4)
		for _, name := range []string{"a", "b"} {
			s.enter(name, k.of(name, shardlease.Config{Handoff: rebalance.Eager}), nil)
		}
		s.shared(10*time.Second, "a", "b")
		time.Sleep(time.Minute)
		k.set("*", true)
		k.restore()
		s.raiseAgain()
		time.Sleep(time.Minute)
		first := s.raising()
		for _, name := range []string{"a", "b"} {
			if st := s.actor(name).Status(); st.Unraised != 2 || st.Held != 2 || len(s.actor(name).of(event.Raising)) == 0 {
				t.Errorf("%s: %+v", name, st)
			}
		}
		k.set("*", false)
		s.within(3*beat+2*time.Second, "the wish is gone", func() bool { return s.raisings() == 0 })
		if !s.closes(k) {
			t.Error("the wish is gone, and not all fences are raised")
		}
		// The first wish stands, because a cannot obey; b has obeyed it by the second.
		k.restore()
		k.set("a", true)
		s.raiseAgain()
		if second := s.raising(); second <= first {
			t.Errorf("wish %d follows %d", second, first)
		}
		s.within(beat+2*time.Second, "b has raised its fences again", func() bool { return k.raisedBy(s, "b") })
		k.restore()
		s.raiseAgain()
		k.set("a", false)
		s.within(3*beat+2*time.Second, "the wish is gone", func() bool { return s.raisings() == 0 })
		if !s.closes(k) {
			t.Error("the second command raised not all fences again")
		}
	})
}

// TestRaiseAgainRepeatsWhatIsUnderWay: a raise of several targets that began before the sink was restored is repeated.
func TestRaiseAgainRepeatsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k, other := newSink(0), newSink(0)
		s := newStage(t, 1)
		other.set("a", true)
		config := k.of("a", shardlease.Config{Handoff: rebalance.Eager})
		config.Targets = append(config.Targets, shardlease.Target{Name: "other", Raise: other.of("a", shardlease.Config{}).Targets[0].Raise})
		s.enter("a", config, nil)
		time.Sleep(20 * time.Second)
		if !s.closes(k) {
			t.Fatal("the first target is not raised")
		}
		k.restore()
		s.raiseAgain()
		time.Sleep(20 * time.Second)
		if n := s.raisings(); n != 1 {
			t.Errorf("%d wishes stand, and a raise is under way that began before", n)
		}
		other.set("a", false)
		s.within(20*time.Second, "the wish is gone", func() bool { return s.raisings() == 0 })
		if !s.closes(k) {
			t.Error("the wish is gone, and the fence of the first target is not raised again")
		}
	})
}

// TestRaiseAgainInSessions: a session that holds a lease raises its fence again, and its seat says so until the wish is
// lifted.
func TestRaiseAgainInSessions(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k, store := newSink(50*time.Millisecond), new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", Targets: k.of("a", shardlease.Config{}).Targets})
		tn := a.lock(t, shardlease.AcquireOptions{})
		time.Sleep(time.Minute)
		k.restore()
		operator := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		must(t, operator.Raise(t.Context(), 0, "restored"))
		time.Sleep(3 * beat)
		if at := k.fence(t, "lock"); at != tn.Generation() {
			t.Errorf("held under %d, and the fence is %d", tn.Generation(), at)
		}
		wishes, err := operator.Wishes(t.Context())
		must(t, err)
		said := func() int64 {
			seats, err := operator.Workers(t.Context())
			must(t, err)
			return seats[0].Raised
		}
		if len(wishes) != 1 || said() != wishes[0].Number {
			t.Errorf("the seat says %d, and the wishes are %v", said(), wishes)
		}
		must(t, operator.Lift(t.Context(), lease.WishRaise, "", "done"))
		time.Sleep(3 * beat)
		if n := said(); n != 0 {
			t.Errorf("the seat says %d, although no wish stands", n)
		}
	})
}

// TestRaiseAgainBesideAnEarlierVersion: a worker of an earlier version neither raises its fences again nor says so, and the plans
// that it writes do not name the wish. So the wish stands, and no plan follows another, until that worker has left.
func TestRaiseAgainBesideAnEarlierVersion(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(50 * time.Millisecond)
		s := newStage(t, 4)
		link := storetest.NewLink(s.store)
		link.OnWrite(func(ctx context.Context, w lease.Write, _ func() (lease.Record, error)) (lease.Record, error) {
			switch next := w.Next.(type) {
			case lease.Seat:
				next.Raised = 0
				w.Next = next
			case lease.Plan:
				next.Raise = 0
				w.Next = next
			}
			return s.store.Write(ctx, w)
		})
		config := shardlease.Config{Handoff: rebalance.Eager}
		earlier := s.enterOn(link, "earlier", k.of("earlier", config), nil)
		time.Sleep(10 * time.Second) // it is the first watcher, and plans
		s.enter("new", k.of("new", config), nil)
		s.shared(10*time.Second, "earlier", "new")
		time.Sleep(time.Minute)
		k.restore()
		s.raiseAgain()
		time.Sleep(10 * time.Second)
		revision := s.actor("new").Status().Revision
		time.Sleep(time.Minute)
		if now := s.actor("new").Status().Revision; s.raisings() != 1 || now > revision+2 {
			t.Errorf("%d wishes stand, and revision %d became %d", s.raisings(), revision, now)
		}
		earlier.leave()
		s.within(30*time.Second, "the wish is gone", func() bool { return s.raisings() == 0 })
		if !s.closes(k) {
			t.Error("the wish is gone, and not all fences are raised")
		}
	})
}

// TestLastPlanOfAnEarlierVersion: a worker of an earlier version has written the last plan, which knows all wishes and does
// not name the one to raise all fences again, and is gone. Another plan follows, which does.
func TestLastPlanOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		k := newSink(50 * time.Millisecond)
		s := newStage(t, 4)
		s.enter("new", k.of("new", shardlease.Config{Handoff: rebalance.Eager}), nil)
		s.shared(10*time.Second, "new")
		k.set("*", true) // the wish stands
		s.raiseAgain()
		s.within(10*time.Second, "the plan names the wish", func() bool { return s.plan().Raise == s.raising() })
		time.Sleep(time.Minute)
		last := s.plan()
		found := last.Finding
		found.Raise = 0
		open, err := protocol.OpenPlan(last, protocol.Opening{By: lease.Owner{Name: "gone", Incarnation: "gone"}}, fixture.Stamp())
		s.write(open, err)
		s.write(protocol.ClosePlan(s.plan(), s.plan().Revision, "gone", found, fixture.Stamp()))
		s.within(30*time.Second, "the plan names the wish again", func() bool { return s.plan().Raise == s.raising() })
	})
}
