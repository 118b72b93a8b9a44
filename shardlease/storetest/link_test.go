package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func TestLinkIsAStore(t *testing.T) {
	Run(t, func(*testing.T) lease.Store { return NewLink(new(memstore.Store)) })
}

func TestFaultyIsAStore(t *testing.T) {
	Run(t, func(*testing.T) lease.Store { return Faulty(new(memstore.Store), 1, Rates{}) })
}

// A scripted is a link to a store with one row, and the write of another row.
type scripted struct {
	*Link
	b     *bench
	write lease.Write
}

func newScripted(t *testing.T) *scripted {
	b := &bench{T: t, store: new(memstore.Store)}
	b.free()
	w, err := protocol.Begin(group, "another", nil, "source", b.stamp())
	if err != nil {
		t.Fatal(err)
	}
	return &scripted{NewLink(b.store), b, w}
}

// stored reports whether the write is stored.
func (s *scripted) stored() bool { return s.b.look(s.write.Key()) != nil }

// calls calls each method once and returns the errors by method name.
func (s *scripted) calls(t *testing.T) map[string]error {
	errs := map[string]error{}
	for method, call := range map[string]func(context.Context) error{
		"verify": func(ctx context.Context) error { return s.Verify(ctx, group) },
		"get":    func(ctx context.Context) error { _, err := s.Get(ctx, theRow()); return err },
		"write":  func(ctx context.Context) error { _, err := s.Write(ctx, s.write); return err },
		"list": func(ctx context.Context) (err error) {
			for _, err = range s.List(ctx, lease.Query{Group: group, Kind: lease.KindLease}) {
			}
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		errs[method] = call(ctx)
		cancel()
	}
	return errs
}

func TestLinkStates(t *testing.T) {
	for name, tc := range map[string]struct {
		begin  func(*Link)
		want   error
		stored bool
	}{
		"open":          {(*Link).Heal, nil, true},
		"cut":           {(*Link).Cut, ErrCut, false},
		"silent":        {(*Link).Silence, context.DeadlineExceeded, false},
		"no answers":    {(*Link).LoseAnswers, context.DeadlineExceeded, true},
		"healed":        {func(l *Link) { l.Silence(); l.Heal() }, nil, true},
		"slow":          {func(l *Link) { l.Delay(50 * time.Millisecond) }, nil, true},
		"much too slow": {func(l *Link) { l.Delay(time.Minute) }, context.DeadlineExceeded, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScripted(t)
				tc.begin(s.Link)
				for method, err := range s.calls(t) {
					if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
						t.Errorf("%s: %v, want %v", method, err, tc.want)
					}
				}
				if s.stored() != tc.stored {
					t.Errorf("stored: %t", s.stored())
				}
			})
		})
	}
}

// TestDelayedAnswerIsOfItsTime: a delayed answer has what the store contained when it was called.
func TestDelayedAnswerIsOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		s.Delay(time.Second)
		time.AfterFunc(time.Second/2, func() { s.b.put(s.write, nil) })
		from, listed := time.Now(), 0
		for range s.List(t.Context(), lease.Query{Group: group, Kind: lease.KindLease}) {
			listed++
		}
		if listed != 1 || time.Since(from) != time.Second {
			t.Errorf("%d rows listed after %v, want 1 after 1s", listed, time.Since(from))
		}
	})
}

// TestHookHoldsAWrite: a hook can delay a write while the link serves other calls.
func TestHookHoldsAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, released := newScripted(t), make(chan struct{})
		s.OnWrite(func(_ context.Context, _ lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			<-released
			return send()
		})
		done := make(chan error, 1)
		go func() { _, err := s.Write(t.Context(), s.write); done <- err }()
		synctest.Wait()
		if _, err := s.Get(t.Context(), theRow()); err != nil || s.stored() {
			t.Errorf("while the write is delayed: %v, stored: %t", err, s.stored())
		}
		close(released)
		if err := <-done; err != nil || !s.stored() {
			t.Errorf("after the delay: %v, stored: %t", err, s.stored())
		}
	})
}

// TestHookCutsTheLink: if a hook cuts the link before it sends, nothing is stored; if it cuts the
// link afterwards, the answer is lost.
func TestHookCutsTheLink(t *testing.T) {
	for _, sent := range []bool{false, true} {
		s := newScripted(t)
		s.OnWrite(func(_ context.Context, _ lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if !sent {
				s.Cut()
			}
			r, err := send()
			s.Cut()
			return r, err
		})
		if _, err := s.Write(t.Context(), s.write); !errors.Is(err, ErrCut) || s.stored() != sent {
			t.Errorf("cut after it was sent (%t): %v, stored: %t", sent, err, s.stored())
		}
	}
}

// TestHooksAnswer: the hook of each method can return its own answer.
func TestHooksAnswer(t *testing.T) {
	s := newScripted(t)
	invented := lease.Row{Group: group, Shard: shard, WriteID: "invented"}
	s.OnGet(func(context.Context, lease.Key, func() (lease.Record, error)) (lease.Record, error) {
		return invented, nil
	})
	s.OnVerify(func(context.Context, string, func() error) error { return lease.ErrWentBack })
	s.OnList(func(_ context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			for r, err := range send() {
				if !yield(r, err) {
					return
				}
			}
			yield(nil, &lease.MalformedError{Key: lease.Key{Group: q.Group, Kind: q.Kind, Name: "zz"}})
		}
	})
	if r, err := s.Get(t.Context(), theRow()); err != nil || r.Written() != invented.WriteID {
		t.Errorf("got %v, %v", r, err)
	}
	errs := s.calls(t)
	if !errors.Is(errs["verify"], lease.ErrWentBack) || !errors.Is(errs["list"], lease.ErrMalformed) {
		t.Errorf("got %v", errs)
	}
	s.OnGet(nil)
	s.OnVerify(nil)
	s.OnList(nil)
	s.OnWrite(nil)
	s.write.Op = 0
	for method, err := range s.calls(t) {
		if (err == nil) == (method == "write") {
			t.Errorf("without hooks, %s: %v", method, err)
		}
	}
}

// TestFaultyFollowsItsSeed: two runs with one seed have the same faults, and runs with two seeds
// differ.
func TestFaultyFollowsItsSeed(t *testing.T) {
	run := func(seed uint64) string {
		link, text := Faulty(new(memstore.Store), seed, Rates{Lost: 0.2, ReplyLost: 0.2, Late: 0.2, Twin: 0.2, Arrive: 0.5, Read: 0.5}), ""
		b := &bench{T: t, store: link}
		for i := range 100 {
			w, err := protocol.Begin(group, fmt.Sprint("shard-", i), nil, "source", b.stamp())
			if err != nil {
				t.Fatal(err)
			}
			_, errWrite := link.Write(t.Context(), w)
			_, errGet := link.Get(t.Context(), w.Key())
			text += fmt.Sprintln(errWrite, errGet)
		}
		return text
	}
	if one, two := run(7), run(7); one != two {
		t.Error("two runs with one seed differ")
	}
	if run(7) == run(8) {
		t.Error("runs with two seeds are equal")
	}
}
