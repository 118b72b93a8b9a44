package shardlease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

// What a handler is told of its last commit when its tenure ends before the answer is there.

// ends runs one worker whose handler commits "1" and then acts, and returns the end of its tenure.
func ends(t *testing.T, config shardlease.Config, act func(s *stage, a *actor, tn *shardlease.Tenure)) *shardlease.EndError {
	t.Helper()
	s := newStage(t, 1)
	told := make(chan *shardlease.EndError, 1)
	self := make(chan *actor, 1)
	config.Handoff = rebalance.Eager
	self <- s.enter("a", config, func(ctx context.Context, tn *shardlease.Tenure) error {
		if err := tn.Commit(ctx, "1"); err != nil {
			t.Errorf("the first commit: %v", err)
		}
		act(s, <-self, tn)
		<-ctx.Done()
		end, _ := errors.AsType[*shardlease.EndError](context.Cause(ctx))
		told <- end
		return nil
	})
	var end *shardlease.EndError
	select {
	case end = <-told:
	case <-time.After(5 * time.Minute):
		s.fail("the tenure does not end")
	}
	s.end()
	if end == nil {
		t.Fatal("the handler's context ended without an EndError")
	}
	return end
}

// TestOutcomeUnknown: a tenure that ends while a commit is under way says that its outcome is
// unknown, however it ends; and a tenure that ends with everything answered says nothing of the kind.
// (Without the flag in any of the three places that set it, no fast test failed.)
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
		cause   shardlease.Cause
		unknown bool
	}{
		"trust ends with a commit under way": {func(_ *stage, a *actor, tn *shardlease.Tenure) { a.hush(); commit(tn) }, shardlease.Unreachable, true},
		"trust ends with an end under way": {func(_ *stage, a *actor, tn *shardlease.Tenure) {
			a.hush()
			go func() { _ = tn.Finish(context.Background()) }()
		}, shardlease.Unreachable, true},
		"trust ends with nothing under way": {func(_ *stage, a *actor, _ *shardlease.Tenure) { a.hush() }, shardlease.Unreachable, false},
		"the shard is taken while a commit is repeated": {func(s *stage, a *actor, tn *shardlease.Tenure) {
			a.cut()
			commit(tn)
			force(s)
			a.heal()
		}, shardlease.Forced, true},
		"the shard is taken before a commit is sent": {func(s *stage, _ *actor, tn *shardlease.Tenure) { force(s); commit(tn) }, shardlease.Forced, false},
		"time to wind down ends with a mark to write": {func(_ *stage, _ *actor, tn *shardlease.Tenure) {
			tn.Release("")
			time.Sleep(time.Second)
			mark(tn)
		}, shardlease.GivenUp, true},
		"time to wind down ends with nothing to write": {func(_ *stage, _ *actor, tn *shardlease.Tenure) { tn.Release("") }, shardlease.GivenUp, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				config := shardlease.Config{Commit: checkpoint.Policy{Every: time.Hour}}
				if end := ends(t, config, tc.act); end.OutcomeUnknown != tc.unknown || !errors.Is(end, tc.cause) {
					t.Errorf("told %v", end)
				}
			})
		})
	}
}
