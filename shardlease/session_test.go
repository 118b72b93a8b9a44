package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A runner is a session that runs, and how its Run ended.
type runner struct {
	*shardlease.Session
	stop context.CancelFunc
	over chan error
}

// runSession runs a session until the test ends, which checks the result of Run.
func runSession(t *testing.T, store lease.Store, c shardlease.SessionConfig) *runner {
	t.Helper()
	c.Group = "locks"
	s, err := shardlease.NewSession(store, c)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	g := &runner{Session: s, stop: stop, over: make(chan error, 1)}
	go func() { g.over <- s.Run(ctx); close(g.over) }()
	t.Cleanup(func() { g.end(t) })
	return g
}

func (g *runner) end(t *testing.T) {
	t.Helper()
	g.stop()
	if err := <-g.over; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// lock acquires the lease that most tests use.
func (g *runner) lock(t *testing.T, o shardlease.AcquireOptions) *shardlease.Tenure {
	t.Helper()
	tn, err := g.Acquire(t.Context(), "lock", o)
	must(t, err)
	return tn
}

func lockRow(t *testing.T, store lease.Store) lease.Row {
	t.Helper()
	r, err := store.Get(t.Context(), lease.Key{Group: "locks", Kind: lease.KindLease, Name: "lock"})
	must(t, err)
	return r.(lease.Row)
}

// TestSessionLife: a lease is acquired, its data is stored, it is released, and another session
// acquires it at the checkpoint under a higher generation.
func TestSessionLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a, b := runSession(t, store, shardlease.SessionConfig{Name: "a", Task: "deploy"}), runSession(t, store, shardlease.SessionConfig{Name: "b"})
		first := a.lock(t, shardlease.AcquireOptions{Task: "deploy 7"})
		if r := lockRow(t, store); r.Owner.Name != "a" || r.Owner.Task != "deploy 7" || r.Generation != first.Generation() {
			t.Errorf("acquired as %v", r)
		}
		_, err := b.TryAcquire(t.Context(), "lock", shardlease.AcquireOptions{})
		held, ok := errors.AsType[*shardlease.HeldError](err)
		if !ok || held.Owner.Name != "a" || held.Owner.Task != "deploy 7" || held.Generation != first.Generation() || held.Since.IsZero() || !errors.Is(err, lease.ErrHeld) {
			t.Errorf("TryAcquire returned %v", err)
		}
		if err := first.MarkState("1", "data"); err != nil || first.Flush(t.Context()) != nil {
			t.Error(err)
		}
		next := make(chan *shardlease.Tenure)
		go func() { next <- b.lock(t, shardlease.AcquireOptions{}) }()
		time.Sleep(time.Minute)
		first.Release("done")
		second := <-next
		if second.Generation() <= first.Generation() || second.Checkpoint().State != "data" {
			t.Errorf("acquired at %v under %d after %d", second.Checkpoint(), second.Generation(), first.Generation())
		}
		if err := first.Mark("2"); !errors.Is(err, shardlease.ErrEnded) || first.Soft().Err() == nil || first.Context().Err() == nil {
			t.Errorf("after its release a tenure accepts marks: %v", err)
		}
		synctest.Wait() // the status is published after the holder has its tenure
		if s := b.Status(); s.Held != 1 || s.Requested != 0 || s.Phase != "serving" || b.Ready() != nil || b.Healthy() != nil {
			t.Errorf("status %+v", s)
		}
		second.Release("")
		b.end(t)
		a.end(t)
		if r := lockRow(t, store); r.Removed || !r.Owner.IsZero() || r.Checkpoint.State != "data" {
			t.Errorf("left %v", r)
		}
	})
}

// TestSeatOfASession: the seat shows the build of the session, and no handoff strategy, because a session moves
// nothing.
func TestSeatOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", Build: "v1.4.2"})
		a.lock(t, shardlease.AcquireOptions{}).Release("")
		seats, err := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}.Workers(t.Context())
		if err != nil || len(seats) != 1 || seats[0].Build != "v1.4.2" || seats[0].Since.IsZero() || seats[0].Handoff != "" {
			t.Errorf("seats %+v, %v", seats, err)
		}
	})
}

// TestStatusCountsEnds: the status counts the tenures that a session has released and those that it has lost,
// and neither those that an operator has ended nor those that it holds.
func TestStatusCountsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		operator := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", TTL: ttl})
		a.lock(t, shardlease.AcquireOptions{}).Release("done")
		time.Sleep(time.Minute)
		a.lock(t, shardlease.AcquireOptions{})
		_, err := operator.Evict(t.Context(), a.Status().Incarnation, "it looked dead")
		must(t, err)
		time.Sleep(time.Minute)
		forced := a.lock(t, shardlease.AcquireOptions{})
		_, err = operator.ForceRelease(t.Context(), "lock", forced.Generation(), "it hangs")
		must(t, err)
		if err := forced.MarkState("1", "late"); err != nil || forced.Flush(t.Context()) == nil {
			t.Error("a released lease has taken a commit")
		}
		time.Sleep(time.Minute)
		a.lock(t, shardlease.AcquireOptions{})
		synctest.Wait()
		if s := a.Status(); s.Held != 1 || s.Released != 1 || s.Lost != 1 {
			t.Errorf("status %+v", s)
		}
		a.end(t)
		if s := a.Status(); s.Released != 2 || s.Lost != 1 || s.Phase != "stopped" {
			t.Errorf("after Run: %+v", s)
		}
	})
}

// TestSessionOfOneName: what a session holds or waits for it does not acquire twice; what was released
// it does, at once.
func TestSessionOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a, b := runSession(t, store, shardlease.SessionConfig{}), runSession(t, store, shardlease.SessionConfig{})
		last := int64(0)
		for range 5 {
			tn := a.lock(t, shardlease.AcquireOptions{})
			if tn.Generation() <= last {
				t.Errorf("generation %d after %d", tn.Generation(), last)
			}
			if _, err := a.Acquire(t.Context(), "lock", shardlease.AcquireOptions{}); !errors.Is(err, shardlease.ErrHolding) {
				t.Errorf("the lease is held, and Acquire returns %v", err)
			}
			last = tn.Generation()
			tn.Release("")
			tn.Release("twice")
		}
		_ = a.lock(t, shardlease.AcquireOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() { _, err := b.Acquire(ctx, "lock", shardlease.AcquireOptions{}); waits <- err }()
		synctest.Wait()
		if _, err := b.Acquire(t.Context(), "lock", shardlease.AcquireOptions{}); !errors.Is(err, shardlease.ErrWaiting) {
			t.Errorf("another call waits, and Acquire returns %v", err)
		}
		cancel()
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Errorf("after its context, Acquire returns %v", err)
		}
		if _, err := b.Acquire(t.Context(), "", shardlease.AcquireOptions{LockDelay: 48 * time.Hour}); !errors.Is(err, shardlease.ErrConfig) {
			t.Errorf("Acquire accepts anything: %v", err)
		}
	})
}

// TestFinishedLeaseIsLetGo: the session keeps nothing of a lease that its holder has finished, and
// nobody acquires it again.
func TestFinishedLeaseIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{})
		tn := a.lock(t, shardlease.AcquireOptions{})
		if err := tn.Finish(tn.Context()); err != nil || !errors.Is(context.Cause(tn.Context()), event.CauseFinished) || tn.Soft().Err() == nil {
			t.Errorf("Finish returned %v, and the tenure ended with %v", err, context.Cause(tn.Context()))
		}
		_, err := a.Acquire(t.Context(), "lock", shardlease.AcquireOptions{})
		if held, ok := errors.AsType[*shardlease.HeldError](err); !ok || !held.Finished {
			t.Errorf("Acquire of a finished lease returned %v", err)
		}
		if err := tn.Finish(t.Context()); err != nil {
			t.Errorf("a second Finish returned %v", err)
		}
		tn.Release("after its end")
		time.Sleep(time.Minute)
		if s := a.Status(); s.Abandoned != 0 || s.Held != 0 || s.Requested != 0 {
			t.Errorf("status %+v", s)
		}
		a.end(t)
		if r := lockRow(t, store); !r.Finished {
			t.Errorf("left %v", r)
		}
	})
}

// TestSessionBeforeAndAfterRun: calls wait for Run, and fail after it.
func TestSessionBeforeAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks"})
		must(t, err)
		got := make(chan *shardlease.Tenure)
		go func() {
			tn, err := s.Acquire(context.Background(), "lock", shardlease.AcquireOptions{})
			check(t, err)
			got <- tn
		}()
		time.Sleep(time.Hour)
		ctx, stop := context.WithCancel(context.Background())
		over := make(chan error)
		go func() { over <- s.Run(ctx) }()
		tn := <-got
		stop()
		<-tn.Soft().Done()
		if tn.Context().Err() != nil {
			t.Error("the holder has no time to release its lease")
		}
		if _, err := s.Acquire(context.Background(), "other", shardlease.AcquireOptions{}); !errors.Is(err, shardlease.ErrSessionOver) {
			t.Errorf("after Run: %v", err)
		}
		began := time.Now()
		if err := <-over; err != nil || tn.Context().Err() == nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("a holder that does not release its lease was given %v", took)
		}
		if err := s.Run(context.Background()); !errors.Is(err, shardlease.ErrRunning) {
			t.Errorf("a second Run returns %v", err)
		}
	})
}

// TestTryAcquireSaysWhatItWaitedFor: for Run, for a seat, or for an answer of the store.
func TestTryAcquireSaysWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		try := func(s *shardlease.Session, name, want string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.TryAcquire(ctx, name, shardlease.AcquireOptions{})
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
				t.Errorf("TryAcquire returned %q, want it to say %q", err, want)
			}
		}
		s, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks"})
		must(t, err)
		try(s, "lock", "it waited for the session: ")
		link := storetest.NewLink(new(memstore.Store))
		link.Cut()
		a := runSession(t, link, shardlease.SessionConfig{})
		try(a.Session, "lock", "it waited for the session: ")
		link.Heal()
		a.lock(t, shardlease.AcquireOptions{})
		link.Cut()
		try(a.Session, "other", "it waited for an answer of the store")
		link.Heal()
		time.Sleep(10 * time.Second)
	})
}

// TestAbandonedAcquisitionIsNotLeaked: the context of Acquire ends at any moment of it.
func TestAbandonedAcquisitionIsNotLeaked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		a := runSession(t, link, shardlease.SessionConfig{})
		a.lock(t, shardlease.AcquireOptions{}).Release("")
		for i := range 60 {
			link.Delay(5 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*500*time.Microsecond)
			tn, err := a.Acquire(ctx, "lock", shardlease.AcquireOptions{})
			cancel()
			if err == nil {
				tn.Release("")
			}
			time.Sleep(5 * time.Second)
			if r := lockRow(t, store); !r.Removed {
				t.Errorf("%v after Acquire returned %v: %v", time.Duration(i)*500*time.Microsecond, err, r)
			}
		}
	})
}

// TestAnswerIsForTheCallThatWaits: a call of Acquire has given up. Its answer is not given to the next call for the same
// name.
func TestAnswerIsForTheCallThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks"})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, "lock", shardlease.AcquireOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first call: %v", err)
		}
		second := make(chan error, 1)
		go func() { _, err := s.Acquire(t.Context(), "lock", shardlease.AcquireOptions{}); second <- err }()
		synctest.Wait()
		if shardlease.Deliver(s, "lock", 1) {
			t.Error("the second call has the tenure of the first one")
		}
		shardlease.Refuse(s, "lock", 1)
		synctest.Wait()
		if len(second) > 0 {
			t.Error("the second call has the answer to the first one")
		}
		shardlease.Refuse(s, "lock", 2)
		if _, ok := errors.AsType[*shardlease.HeldError](<-second); !ok {
			t.Error("the second call does not have its answer")
		}
	})
}

// The method Done of a lateContext takes a second, and then ends the context. So the lease can arrive first, and Acquire
// finds both the lease and the end of its context.
type lateContext struct {
	context.Context
	end context.CancelFunc
}

func (c lateContext) Done() <-chan struct{} {
	time.Sleep(time.Second)
	c.end()
	return c.Context.Done()
}

// TestLeaseArrivesAsItsCallerGivesUp: if the lease and the end of its context reach Acquire together, Acquire
// returns the tenure, or it returns an error and releases the lease.
func TestLeaseArrivesAsItsCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{})
		for range 30 { // Acquire chooses one of the two at random
			ctx, end := context.WithCancel(t.Context())
			tn, err := a.Acquire(lateContext{ctx, end}, "lock", shardlease.AcquireOptions{})
			if err == nil {
				tn.Release("")
			}
			time.Sleep(5 * time.Second)
			if r := lockRow(t, store); !r.Removed {
				t.Fatalf("Acquire returned %v, and the row is %v", err, r)
			}
		}
	})
}

// TestLeaseThatEndedIsNotHeld: as soon as a holder learns that its tenure is over, it can acquire the lease again:
// Acquire does not return ErrHolding.
func TestLeaseThatEndedIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := runSession(t, new(memstore.Store), shardlease.SessionConfig{})
		for i := range 30 { // again and again, because the session learns of the end at the same moment as the holder
			name := fmt.Sprint("lock-", i)
			tn, err := a.Acquire(t.Context(), name, shardlease.AcquireOptions{})
			if err != nil || tn.Finish(t.Context()) != nil {
				t.Fatal(err)
			}
			if _, err := a.Acquire(t.Context(), name, shardlease.AcquireOptions{}); errors.Is(err, shardlease.ErrHolding) {
				t.Errorf("after the end of its tenure: %v", err)
			}
		}
	})
}

// TestLockDelayIsRoundedUp: rows store lock delays in whole milliseconds, and round them up. So no delay is shorter
// than the configured one.
func TestLockDelayIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{LockDelay: 2*time.Millisecond + 1})
		a.lock(t, shardlease.AcquireOptions{})
		if got := lockRow(t, store).Owner.LockDelay; got != 3*time.Millisecond {
			t.Errorf("the lock delay is %v", got)
		}
	})
}

// TestPausedSessionIsReplaced: its seat is evicted after its lease time, its writes are refused, and
// its tenures end.
func TestPausedSessionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		link := storetest.NewLink(store)
		var lost []event.Cause
		a := runSession(t, link, shardlease.SessionConfig{Name: "a", LockDelay: 3 * time.Second, Observe: func(e event.Event) {
			if e.Kind == event.Ended {
				lost = append(lost, e.Cause)
			}
		}})
		b := runSession(t, store, shardlease.SessionConfig{Name: "b"})
		old := a.lock(t, shardlease.AcquireOptions{})
		time.Sleep(time.Minute)
		link.Cut()
		began := time.Now()
		tn := b.lock(t, shardlease.AcquireOptions{})
		if took := time.Since(began); took < 10*time.Second || took > 18*time.Second {
			t.Errorf("acquired after %v, want the lease time and the lock delay", took)
		}
		if old.Context().Err() == nil || !errors.Is(context.Cause(old.Context()), event.CauseUnreachable) {
			t.Errorf("the old tenure: %v", context.Cause(old.Context()))
		}
		link.Heal()
		time.Sleep(time.Minute)
		if _, err := a.TryAcquire(t.Context(), "lock", shardlease.AcquireOptions{}); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("the new session of a: %v", err)
		}
		tn.Release("")
		a.end(t)
		b.end(t)
		if len(lost) != 1 {
			t.Errorf("a lost %v", lost)
		}
	})
}

// TestWatchYieldsChanges: the lease as it is, and each change of hands and of its data.
func TestWatchYieldsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := runSession(t, new(memstore.Store), shardlease.SessionConfig{Name: "a"})
		ctx, cancel := context.WithCancel(t.Context())
		var saw []string
		done := make(chan bool)
		go func() {
			defer close(done)
			for r, err := range a.Watch(ctx, "lock") {
				saw = append(saw, fmt.Sprint(r.Owner.Name, r.Checkpoint.Position, r.Removed, err))
			}
		}()
		time.Sleep(10 * time.Second)
		tn := a.lock(t, shardlease.AcquireOptions{})
		time.Sleep(10 * time.Second)
		tn.Release("")
		time.Sleep(10 * time.Second)
		cancel()
		<-done
		if want := []string{"false <nil>", "afalse <nil>", "true <nil>"}; fmt.Sprint(saw) != fmt.Sprint(want) {
			t.Errorf("saw %q", saw)
		}
	})
}

// TestWatchRefusesABadName: it yields the typed error once, and ends.
func TestWatchRefusesABadName(t *testing.T) {
	s, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "g"})
	must(t, err)
	yields := 0
	for row, err := range s.Watch(t.Context(), "") {
		if of, ok := errors.AsType[*shardlease.ConfigError](err); !ok || of.Field != "name" || row.Generation != 0 {
			t.Errorf("yields %v, %v", row, err)
		}
		yields++
	}
	if yields != 1 {
		t.Errorf("%d yields, want one", yields)
	}
}

// TestGroupsAreOfOneKind: Run returns a typed error in a group of the other kind.
func TestGroupsAreOfOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{})
		a.lock(t, shardlease.AcquireOptions{}).Release("")
		w, err := shardlease.New(store, shardlease.Static("x"), shardlease.Config{Group: "locks", Handoff: rebalance.Eager})
		must(t, err)
		err = w.Run(t.Context(), func(context.Context, *shardlease.Tenure) error { t.Error("a shard was claimed"); return nil })
		if of, ok := errors.AsType[*shardlease.GroupError](err); !ok || !of.Sessions || of.Group != "locks" {
			t.Errorf("the worker's Run returned %v", err)
		}
		a.end(t)

		store = new(memstore.Store)
		w, err = shardlease.New(store, shardlease.Static("x"), shardlease.Config{Group: "locks", Handoff: rebalance.Eager})
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			over <- w.Run(ctx, func(ctx context.Context, _ *shardlease.Tenure) error { <-ctx.Done(); return nil })
		}()
		time.Sleep(10 * time.Second)
		a = runSession(t, store, shardlease.SessionConfig{})
		_, err = a.Acquire(t.Context(), "lock", shardlease.AcquireOptions{})
		if of, ok := errors.AsType[*shardlease.GroupError](err); !ok || of.Sessions {
			t.Errorf("Acquire returned %v", err)
		}
		if of, ok := errors.AsType[*shardlease.GroupError](<-a.over); !ok || of.Sessions {
			t.Errorf("the session's Run returned %v", of)
		}
		stop()
		check(t, <-over)
	})
}

// TestSessionConfigReportsEveryFault at once.
func TestSessionConfigReportsEveryFault(t *testing.T) {
	_, err := shardlease.NewSession(nil, shardlease.SessionConfig{TTL: time.Millisecond, LockDelay: 48 * time.Hour, Order: checkpoint.Decimal})
	for _, field := range []string{"store", "Group", "TTL", "LockDelay"} {
		if !strings.Contains(fmt.Sprint(err), ": "+field+": ") {
			t.Errorf("%s is not reported in %v", field, err)
		}
	}
}

// TestSteeringSessionsIsRefused: a wish for the plan of a group of sessions is refused, and nothing is
// written. Lift works, so that an operator can end a wish that an earlier version has stored.
func TestSteeringSessionsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a"})
		a.lock(t, shardlease.AcquireOptions{})
		s := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		for name, err := range map[string]error{
			"cordon": s.Cordon(t.Context(), "a", 0, "test"), "drain": s.Drain(t.Context(), "a", time.Hour, "test"),
			"pause": s.Pause(t.Context(), 0, "test"), "pin": s.Pin(t.Context(), "lock", "a", 0, "test"),
		} {
			refused, ok := errors.AsType[*lease.RuleError](err)
			if !ok || !errors.Is(err, lease.ErrSessions) || refused.Transition != name {
				t.Errorf("%s: %v", name, err)
			}
		}
		check(t, s.LiftAll(t.Context(), "done"))
		if _, err := store.Get(t.Context(), lease.Wishes{Group: "locks"}.Key()); !errors.Is(err, lease.ErrNotFound) {
			t.Errorf("the record of the wishes: %v", err)
		}
	})
}

// TestCommandsForSessions: a holder notices the release of its lease within a heartbeat interval and 1.5 s, and loses
// all its leases within a heartbeat interval when it is evicted.
func TestCommandsForSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a"})
		s := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		first := a.lock(t, shardlease.AcquireOptions{})
		row, err := s.ForceRelease(t.Context(), "lock", first.Generation(), "stuck")
		if err != nil || !row.Owner.IsZero() {
			t.Fatalf("released: %v, %v", row, err)
		}
		released := time.Now()
		<-first.Context().Done()
		if took, cause := time.Since(released), context.Cause(first.Context()); took > 10*time.Second/3+1500*time.Millisecond || !errors.Is(cause, event.CauseForced) {
			t.Errorf("noticed after %v: %v", took, cause)
		}

		second := a.lock(t, shardlease.AcquireOptions{})
		other, err := a.Acquire(t.Context(), "other", shardlease.AcquireOptions{})
		must(t, err)
		began := time.Now()
		seats, _ := s.Workers(t.Context())
		rows, err := s.Evict(t.Context(), seats[0].Incarnation, "stuck")
		if err != nil || len(rows) != 2 {
			t.Errorf("released %v, %v", rows, err)
		}
		<-second.Context().Done()
		<-other.Context().Done()
		if took := time.Since(began); took > 10*time.Second/3 {
			t.Errorf("noticed after %v", took)
		}
		a.lock(t, shardlease.AcquireOptions{}).Release("")
	})
}

// TestReleaseTaskEvictsSessions: a session with a descendant of the task loses all its leases, and another session
// acquires them, without a lock delay if the operator says so.
func TestReleaseTaskEvictsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", Task: "run-17/step-1", LockDelay: time.Hour})
		tenure := a.lock(t, shardlease.AcquireOptions{})
		if _, err := a.Acquire(t.Context(), "other", shardlease.AcquireOptions{}); err != nil {
			t.Fatal(err)
		}
		rows, err := shardlease.Supervisor{Store: store, Group: "locks", By: "ann", NoDelay: true}.ReleaseTask(t.Context(), "run-17", "cancelled")
		if err != nil || len(rows) != 2 {
			t.Errorf("released %v, %v", rows, err)
		}
		<-tenure.Context().Done()
		began := time.Now()
		b := runSession(t, store, shardlease.SessionConfig{Name: "b"})
		b.lock(t, shardlease.AcquireOptions{}).Release("")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("acquired after %v", took)
		}
	})
}

// TestReleaseTaskTellsASessionThatItSpares: a session with another task keeps its other leases, and notices as soon as
// after a release that it has lost those of the task.
func TestReleaseTaskTellsASessionThatItSpares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a := runSession(t, store, shardlease.SessionConfig{Name: "a", Task: "daemon"})
		kept := a.lock(t, shardlease.AcquireOptions{})
		var lost []*shardlease.Tenure
		for _, name := range []string{"1", "2"} {
			tenure, err := a.Acquire(t.Context(), name, shardlease.AcquireOptions{Task: "run-17/" + name})
			must(t, err)
			lost = append(lost, tenure)
		}
		time.Sleep(time.Minute)
		rows, err := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}.ReleaseTask(t.Context(), "run-17", "cancelled")
		if err != nil || len(rows) != 2 {
			t.Errorf("released %v, %v", rows, err)
		}
		time.Sleep(10*time.Second/3 + 1500*time.Millisecond)
		for _, tenure := range lost {
			if cause := context.Cause(tenure.Context()); !errors.Is(cause, event.CauseForced) {
				t.Errorf("the holder of %q is told %v", tenure.Shard().Name, cause)
			}
		}
		if err := kept.Context().Err(); err != nil {
			t.Errorf("the lease without the task: %v", err)
		}
	})
}
