package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// These tests end a tenure before the answer to its last commit has arrived.

// ends runs one worker whose handler commits "1" and then calls act. It returns the cause
// with which the context of the tenure ends.
func ends(t *testing.T, config shardlease.Config, act func(s *stage, a *actor, tn *shardlease.Tenure)) *shardlease.EndError {
	t.Helper()
	s := newStage(t, 1)
	told := make(chan *shardlease.EndError, 1)
	var calls atomic.Int32
	self := make(chan *actor, 1)
	config.Handoff = rebalance.Eager
	self <- s.enter("a", config, func(ctx context.Context, tn *shardlease.Tenure) error {
		if calls.Add(1) > 1 { // claimed again
			return serve(ctx, tn)
		}
		if err := tn.Commit(tn.Context(), "1"); err != nil {
			t.Errorf("the first commit: %v", err)
		}
		act(s, <-self, tn)
		<-tn.Context().Done()
		end, _ := errors.AsType[*shardlease.EndError](context.Cause(tn.Context()))
		told <- end
		return nil
	})
	var end *shardlease.EndError
	select {
	case end = <-told:
	case <-time.After(5 * time.Minute):
		s.Fatal("the tenure does not end")
	}
	s.end()
	if end == nil {
		t.Fatal("the tenure's context ended without an EndError")
	}
	return end
}

// TestOutcomeUnknown: if a tenure ends while a commit is unanswered, its EndError has
// OutcomeUnknown, however the tenure ends. If all its writes are answered, it has not.
// (Before this test, each of the three places that set the flag could be deleted without a
// failure of a fast test.)
func TestOutcomeUnknown(t *testing.T) {
	mark := func(tn *shardlease.Tenure) { _ = tn.Mark("2") }
	commit := func(tn *shardlease.Tenure) {
		go func() { _ = tn.Commit(context.Background(), "2") }()
		time.Sleep(100 * time.Millisecond)
	}
	force := func(s *stage) {
		supervisor := shardlease.Supervisor{Store: s.store, Group: "orders", By: "op"}
		if _, err := supervisor.ForceRelease(s.Context(), "shard-00", s.row("shard-00").Generation, "by hand"); err != nil {
			s.Error(err)
		}
	}
	for name, tc := range map[string]struct {
		act     func(s *stage, a *actor, tn *shardlease.Tenure)
		cause   event.Cause
		unknown bool
	}{
		"trust ends with a commit under way": {func(_ *stage, a *actor, tn *shardlease.Tenure) { a.Silence(); commit(tn) }, event.CauseUnreachable, true},
		"trust ends with an end under way": {func(_ *stage, a *actor, tn *shardlease.Tenure) {
			a.Silence()
			go func() { _ = tn.Finish(context.Background()) }()
		}, event.CauseUnreachable, true},
		"trust ends with nothing under way": {func(_ *stage, a *actor, _ *shardlease.Tenure) { a.Silence() }, event.CauseUnreachable, false},
		"the shard is taken while a commit is repeated": {func(s *stage, a *actor, tn *shardlease.Tenure) {
			a.Cut()
			commit(tn)
			force(s)
			a.Heal()
		}, event.CauseForced, true},
		"the shard is taken before a commit is sent": {func(s *stage, _ *actor, tn *shardlease.Tenure) { force(s); commit(tn) }, event.CauseForced, false},
		"time to wind down ends with a mark to write": {func(_ *stage, _ *actor, tn *shardlease.Tenure) {
			tn.Release("")
			time.Sleep(time.Second)
			mark(tn)
		}, event.CauseGivenUp, true},
		"time to wind down ends with nothing to write": {func(_ *stage, _ *actor, tn *shardlease.Tenure) { tn.Release("") }, event.CauseGivenUp, false},
	} {
		subtest(t, name, func(t *testing.T) {
			config := shardlease.Config{Commit: checkpoint.Policy{Every: time.Hour}}
			if end := ends(t, config, tc.act); end.OutcomeUnknown != tc.unknown || !errors.Is(end, tc.cause) {
				t.Errorf("the EndError is %v", end)
			}
		})
	}
}

// TestCommitThatHasToBeMadeAgain: a commit is refused because the test has written the row
// with the tenure's own Hold. When the owner learns of the refusal, it first has to
// withdraw an offer. The withdrawal is stored without a mark; Commit returns only when the
// repeated commit is stored. (When the refused commit still counted as sent, Commit
// returned nil too early, and the mark was never written. No fast test failed then.)
func TestCommitThatHasToBeMadeAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 2)
		var tenures sync.Map
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Cooperative}, func(ctx context.Context, tn *shardlease.Tenure) error {
			tenures.Store(tn.Shard().Name, tn)
			return serve(ctx, tn)
		})
		s.shared(time.Second, "a")
		time.Sleep(10 * time.Second)
		gate, open := s.gate(lease.OpTransfer)
		b := s.enterOn(gate, "b", shardlease.Config{Handoff: rebalance.Cooperative}, serve)
		var row lease.Row
		s.within(beat+time.Second, "a offers a shard", func() bool {
			for _, name := range s.names() {
				if r := s.row(name); r.OfferedTo != "" {
					row = r
				}
			}
			return row.OfferedTo != ""
		})
		b.die()
		found, _ := tenures.Load(row.Shard)
		tn := found.(*shardlease.Tenure)
		committed := make(chan string, 1)
		go func() {
			err := tn.Commit(context.Background(), "5")
			if r := s.row(row.Shard); err != nil || r.Checkpoint.Position != "5" {
				t.Errorf("the commit returned %v, and the row is %v", err, r)
			}
			committed <- s.row(row.Shard).Checkpoint.Position
		}()
		first := sync.OnceFunc(func() {
			s.write(protocol.Progress(row, tn.Hold(), fixture.Stamp())) // as user code with the Hold may do
		})
		a.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if w.Key().Kind == lease.KindLease {
				first() // just before the commit is stored
			}
			r, err := send()
			time.Sleep(800 * time.Millisecond) // delays every answer to a write, and none to a read
			return r, err
		})
		time.Sleep(1100 * time.Millisecond)
		unseat(t, s, row.OfferedTo)
		select {
		case <-committed:
		case <-time.After(ttl):
			t.Error("Commit does not return")
		}
		open()
	})
}

// unseat deletes a worker's seat.
func unseat(t *testing.T, s *stage, inc lease.Incarnation) {
	t.Helper()
	r, err := s.store.Get(t.Context(), lease.Key{Group: "orders", Kind: lease.KindSeat, Name: string(inc)})
	if err != nil {
		t.Error(err)
		return
	}
	s.write(protocol.Evict(r.(lease.Seat)))
}

// TestStaleErrorOfASink: a handler returns the StaleError of its sink before its worker knows that
// the shard has changed hands, and so before ctx has ended. The shard has no failed attempt and does
// not rest: the table refuses the release that would count one. If the shard has not changed hands,
// the error counts as any other.
func TestStaleErrorOfASink(t *testing.T) {
	for _, changed := range []bool{true, false} {
		subtest(t, fmt.Sprintf("changed hands: %t", changed), func(t *testing.T) {
			s := newStage(t, 1)
			returned := false
			s.enter("a", shardlease.Config{Backoff: 20 * time.Second}, func(ctx context.Context, tn *shardlease.Tenure) error {
				if returned || !sleep(ctx, 5*time.Second) {
					return serve(ctx, tn)
				}
				if changed {
					supervisor := shardlease.Supervisor{Store: s.store, Group: "orders", By: "op"}
					if _, err := supervisor.ForceRelease(ctx, "shard-00", tn.Generation(), "by hand"); err != nil {
						t.Error(err)
					}
				}
				if returned = true; ctx.Err() != nil {
					t.Error("the worker knows of the change before the handler has returned")
				}
				return &checkpoint.StaleError{Shard: "shard-00", Mine: tn.Generation(), Observed: tn.Generation() + 1}
			})
			time.Sleep(15 * time.Second)
			row := s.row("shard-00")
			if failed := row.Attempts() > 0; failed == changed || row.Owner.IsZero() == changed {
				t.Errorf("%v, %d attempts", row, row.Attempts())
			}
		})
	}
}

// TestReleaseThatLanded: a worker shuts down and releases its shard, the answer is lost, and
// another worker claims the shard before the release is repeated. The worker was not fenced: the
// repeated release finds out that the first one was stored.
func TestReleaseThatLanded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		time.Sleep(5 * time.Second)
		var once sync.Once
		a.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (now lease.Record, err error) {
			now, err = send()
			if next, ok := w.Next.(lease.Row); ok && w.Op == lease.OpSwap && next.Owner.IsZero() && err == nil {
				once.Do(func() {
					row := now.(lease.Row)
					s.write(protocol.Claim(row, lease.Owner{Name: "b", Incarnation: "b-1"}, fixture.Stamp()))
					now, err = nil, errDown
				})
			}
			return now, err
		})
		a.leave()
		ended := a.of(event.Ended)
		if len(ended) != 1 || ended[0].Cause != event.CauseStopped || ended[0].Err != nil || ended[0].Pending != 0 {
			t.Errorf("reported: %v", ended)
		}
		a.never(t, event.Refused)
	})
}

// TestFinishThatLanded: a worker finishes its shard, the answer is lost, and the row changes hands
// before the finish is repeated: an operator rewinds the shard, or it is removed. The worker was
// not fenced: Finish succeeds, and the end that is reported is that of a finished shard.
func TestFinishThatLanded(t *testing.T) {
	for name, change := range map[string]func(lease.Row, protocol.Command, protocol.Stamp) (lease.Write, error){
		"rewound": func(r lease.Row, c protocol.Command, st protocol.Stamp) (lease.Write, error) {
			return protocol.Rewind(r, c, checkpoint.Mark{}, st)
		},
		"removed": protocol.Remove,
	} {
		subtest(t, name, func(t *testing.T) {
			s := newStage(t, 1)
			finished := make(chan error, 1)
			var calls atomic.Int32
			a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, func(ctx context.Context, tn *shardlease.Tenure) error {
				if calls.Add(1) > 1 { // claimed again after the rewind
					return serve(ctx, tn)
				}
				check(t, tn.Mark("7"))
				finished <- tn.Finish(tn.Context())
				return nil
			})
			var once sync.Once
			a.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (now lease.Record, err error) {
				now, err = send()
				if row, ok := now.(lease.Row); ok && err == nil && row.Finished {
					once.Do(func() {
						s.write(change(row, protocol.Command{Seen: row.Generation, By: "op"}, protocol.Stamp{ID: "change", At: time.Now()}))
						now, err = nil, errDown
					})
				}
				return now, err
			})
			if err := <-finished; err != nil {
				t.Errorf("Finish returned %v", err)
			}
			time.Sleep(time.Second)
			ended := a.of(event.Ended)
			if len(ended) != 1 || ended[0].Cause != event.CauseFinished || ended[0].Err != nil || ended[0].Pending != 0 {
				t.Errorf("reported: %v", ended)
			}
			a.never(t, event.Refused)
		})
	}
}
