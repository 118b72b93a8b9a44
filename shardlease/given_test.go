package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// An oddError is an error one of whose methods misbehaves after some calls.
type oddError struct {
	method string // "Error", "Is" or "Unwrap"
	deed   string // "panic" or "goexit"
	left   atomic.Int64
}

// newOddError returns an error that misbehaves when it is used again after it has arrived.
func newOddError(method, deed string) *oddError {
	e := &oddError{method: method, deed: deed}
	e.left.Store(map[string]int64{"Error": 1, "Is": 1, "Unwrap": 2}[method])
	return e
}

func (e *oddError) misbehave(method string) {
	switch {
	case method != e.method || e.left.Add(-1) >= 0:
	case e.deed == "panic":
		panic(e) // its Error method may panic again
	default:
		runtime.Goexit()
	}
}

func (e *oddError) Error() string { e.misbehave("Error"); return "odd" }
func (e *oddError) Is(error) bool { e.misbehave("Is"); return false }
func (e *oddError) Unwrap() error { e.misbehave("Unwrap"); return nil }

// An anyError claims to be every error that it is asked for.
type anyError struct{}

func (anyError) Error() string { return "any" }
func (anyError) As(any) bool   { return true }

// oddErrors returns errors that are dangerous to read: nil pointers of every exported type
// inside of other errors, and errors whose methods misbehave.
func oddErrors() []error {
	var all []error
	for _, err := range []error{
		(*checkpoint.StaleError)(nil), (*checkpoint.BackwardsError)(nil), (*checkpoint.InvalidError)(nil),
		(*lease.RuleError)(nil), (*lease.RefusedError)(nil), (*lease.QueuedError)(nil), (*lease.MalformedError)(nil),
		(*shardlease.ConfigError)(nil), (*shardlease.EndError)(nil), (*shardlease.HookError)(nil),
		(*shardlease.SourceError)(nil), (*shardlease.GroupError)(nil), (*shardlease.HeldError)(nil), (*shardlease.SlowStoreError)(nil), (*nilError)(nil),
	} {
		all = append(all, fmt.Errorf("wrapped: %w", err), errors.Join(err, err))
	}
	for _, method := range []string{"Error", "Is", "Unwrap"} {
		for _, deed := range []string{"panic", "goexit"} {
			all = append(all, newOddError(method, deed), &lease.QueuedError{Cause: newOddError(method, deed)})
		}
	}
	return append(all, anyError{}, fmt.Errorf("wrapped: %w", anyError{}), &oddError{method: "Error", deed: "panic"}, &oddError{method: "Error", deed: "goexit"})
}

// A giver is user code that answers the calls of one place with each of its errors in turn, and
// then as it should.
type giver struct {
	place  string
	errors []error
	count  atomic.Int64
}

// err returns the next error of a place, or nil.
func (o *giver) err(place string) error {
	if place != o.place {
		return nil
	}
	if n := int(o.count.Add(1)); n <= len(o.errors) {
		return o.errors[n-1]
	}
	return nil
}

// throw panics with the next error of a place.
func (o *giver) throw(place string) {
	if err := o.err(place); err != nil {
		panic(err)
	}
}

func (o *giver) link(link *storetest.Link) {
	link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		place := "store.Write of a row"
		if w.Key().Kind == lease.KindSeat {
			place = "store.Write of a seat"
		}
		if err := o.err(place); err != nil {
			return nil, err
		}
		return send()
	})
	link.OnGet(func(_ context.Context, _ lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		if err := o.err("store.Get"); err != nil {
			return nil, err
		}
		return send()
	})
	link.OnList(func(_ context.Context, _ lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		if err := o.err("store.List"); err != nil {
			return func(yield func(lease.Record, error) bool) { yield(nil, err) }
		}
		return send()
	})
	link.OnVerify(func(_ context.Context, _ string, send func() error) error {
		if err := o.err("store.Verify"); err != nil {
			return err
		}
		return send()
	})
}

// An oddPlanner panics with odd errors.
type oddPlanner struct {
	rebalance.Even
	*giver
}

func (p oddPlanner) Plan(v rebalance.View) []int { p.throw("Planner"); return p.Even.Plan(v) }

// An oddHandoff panics with odd errors.
type oddHandoff struct{ *giver }

func (h oddHandoff) Terms(string, rebalance.Why) rebalance.Terms {
	h.throw("Handoff")
	return rebalance.Terms{Mode: rebalance.Eager}
}

func (o *giver) config() shardlease.Config {
	return shardlease.Config{
		PollEvery: time.Second, AuditEvery: 10 * time.Second, Backoff: 100 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
		MaxAttempts: -1, Planner: oddPlanner{giver: o}, Handoff: oddHandoff{o},
		Logger: slog.New(slog.NewTextHandler(new(lines), nil)), Observe: func(event.Event) { o.throw("Observe") },
		Prepare: func(context.Context, shardlease.Shard, checkpoint.Checkpoint) error {
			return o.err("Prepare")
		},
		Order: func(a, b string) (int, error) {
			if err := o.err("Order"); err != nil {
				return 0, err
			}
			o.throw("panic in Order")
			return checkpoint.Decimal(a, b)
		},
	}
}

// TestErrorsThatCannotBeRead: each place of user code in turn gives the worker errors that
// are dangerous to read. None of them ends the process, and afterwards the worker runs its
// shards. Before, a wrapped nil pointer from a handler or a store ended the process, as did
// an error whose Error method panicked when it was called again.
func TestErrorsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, place := range fixture.Sample(6, []string{
		"handler", "handler after its ctx", "panic in handler", "source", "panic in source",
		"store.Write of a row", "store.Write of a seat", "store.Get", "store.List", "store.Verify",
		"Prepare", "Order", "panic in Order", "Planner", "Handoff", "Observe",
	}) {
		subtest(t, strings.ReplaceAll(place, " ", "-"), func(t *testing.T) { testErrorsThatCannotBeRead(t, place) })
	}
}

func testErrorsThatCannotBeRead(t *testing.T, place string) {
	s := newStage(t, 4)
	o := &giver{place: place, errors: oddErrors()}
	listed := s.source
	s.source = shardlease.SourceFunc(func(ctx context.Context) ([]shardlease.Shard, error) {
		o.throw("panic in source")
		if err := o.err("source"); err != nil {
			return nil, err
		}
		return listed.Shards(ctx)
	})
	link := storetest.NewLink(s.store)
	o.link(link)
	a := s.enterOn(link, "a", o.config(), func(ctx context.Context, tn *shardlease.Tenure) error {
		tn.Progress()
		o.throw("panic in handler")
		if err := o.err("handler"); err != nil {
			return err
		}
		err := plodding(ctx, tn)
		if odd := o.err("handler after its ctx"); odd != nil {
			return odd
		}
		return err
	})
	for round := 0; int(o.count.Load()) < len(o.errors); round++ {
		if round == 100 {
			t.Fatalf("%s was called %d times, for %d errors", place, o.count.Load(), len(o.errors))
		}
		b := s.enter(fmt.Sprint("b", round), shardlease.Config{}, serve) // it comes and goes, so that shards move
		pass(5 * time.Second)
		if place == "Planner" { // a plans only when b does not do it
			b.die()
			pass(ttl)
		} else {
			_ = b.stop()
		}
		pass(5 * time.Second)
	}
	s.shared(2*time.Minute, "a")
	check(t, a.Healthy())
	a.never(t, event.Restored)
	s.end()
	for _, e := range a.events { // a program can read the errors too
		stale, ok := errors.AsType[*checkpoint.StaleError](e.Err)
		if ok && stale == nil || errors.Is(e.Err, errDown) {
			t.Errorf("%v: is a stale error: %t, %v", e, ok, stale)
		}
	}
}
