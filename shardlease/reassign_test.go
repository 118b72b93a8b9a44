package shardlease_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// TestReassignToAWorker: a shard whose handler hangs goes from one worker to the named one, and to no
// other, in a small fleet and in a large one.
func TestReassignToAWorker(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"a", "b", "c"}, strings.Split("abcdefghijkl", "")} {
		bubble(t, func(t *testing.T) {
			s := staged(t, 24, shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative}, plodding, names...)
			time.Sleep(time.Minute)
			for _, shard := range s.names()[:4] {
				row := s.row(shard)
				to := "b"
				if row.Owner.Name == "b" {
					to = "c"
				}
				got, err := s.operator().Reassign(t.Context(), shard, row.Generation, to, time.Minute, "its handler hangs")
				if err != nil || !got.Owner.IsZero() || got.Last.Did != "reassigned" || got.Last.From != row.Owner.Name || got.Reserved.For != to {
					t.Errorf("reassigned: %v, %v", got, err)
				}
				s.within(soon, "the named worker holds the shard", func() bool { return s.row(shard).Owner.Name == to })
				if now := s.row(shard); now.Generation != row.Generation+2 || !now.Reserved.IsZero() {
					t.Errorf("between the holders another one held the shard: %v", now)
				}
			}
		})
	}
}

// TestReassignToNobody: if no worker with that name runs, another worker claims the shard when the time is
// over, and not before.
func TestReassignToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := staged(t, 6, shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative}, plodding, "a", "b", "c")
		time.Sleep(time.Minute)
		shard, from := s.names()[0], time.Now()
		_, err := s.operator().Reassign(t.Context(), shard, s.row(shard).Generation, "nobody", time.Minute, "its handler hangs")
		must(t, err)
		s.within(time.Minute+soon, "a worker holds the shard", func() bool { return !s.row(shard).Owner.IsZero() })
		if waited := time.Since(from); waited < time.Minute {
			t.Errorf("claimed after %v", waited)
		}
	})
}

// TestReassignToNobodyIsReported: while a shard is reserved for a name that no worker has, the one worker that should hold
// the shard reports that, and reports the end. Nobody reports a reservation for a worker that runs, in a small fleet and in
// a large one.
func TestReassignToNobodyIsReported(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"a", "b", "c"}, strings.Split("abcdefghijkl", "")} {
		bubble(t, func(t *testing.T) {
			var mu sync.Mutex
			var told []event.Event
			config := shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative, Observe: func(e event.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == event.Full {
					told = append(told, e)
				}
			}}
			s := staged(t, 24, config, serve, names...)
			time.Sleep(time.Minute)
			reassign := func(shard, to string) {
				_, err := s.operator().Reassign(t.Context(), shard, s.row(shard).Generation, to, time.Minute, "its handler hangs")
				must(t, err)
				time.Sleep(2 * time.Minute)
			}
			other := "b"
			if s.row("shard-01").Owner.Name == "b" {
				other = "c"
			}
			reassign("shard-01", other)
			if len(told) > 0 {
				t.Errorf("a reservation for a worker that runs: %v", told)
			}
			reassign("shard-00", "nobody")
			mu.Lock()
			defer mu.Unlock()
			began, ended := 0, 0
			for _, e := range told {
				switch {
				case e.Shard != "shard-00" || e.Worker != told[0].Worker:
					t.Errorf("also told: %v", e)
				case e.Over:
					ended++
				case !strings.Contains(e.Err.Error(), `reserved for "nobody"`):
					t.Errorf("told without the name: %v", e)
				case e.Lasted < 2*ttl:
					began++
				}
			}
			if began != 1 || ended != 1 || !told[len(told)-1].Over {
				t.Errorf("%d began and %d ended: %v", began, ended, told)
			}

			// The plan assigns a reserved shard to another worker: the first one has nothing to report any more.
			told = nil
			mu.Unlock()
			_, err := s.operator().Reassign(t.Context(), "shard-02", s.row("shard-02").Generation, "nobody", 10*time.Minute, "its handler hangs")
			must(t, err)
			time.Sleep(time.Minute)
			mu.Lock()
			if len(told) == 0 || told[len(told)-1].Over {
				t.Fatalf("told %v", told)
			}
			first, next := told[0].Worker, "a"
			if first == next {
				next = "b"
			}
			mu.Unlock()
			must(t, s.operator().Pin(t.Context(), "shard-02", next, time.Hour, "test"))
			time.Sleep(time.Minute)
			mu.Lock()
			if !slices.ContainsFunc(told, func(e event.Event) bool { return e.Over && e.Worker == first }) || told[len(told)-1].Worker != next || told[len(told)-1].Over {
				t.Errorf("then %v", told)
			}
		})
	}
}

// TestReservationEndsEarly: a shard is reserved for a name that no worker has. Another command gives the shard to a
// worker that runs, or frees it for all, and nobody waits for the end of the reservation.
func TestReservationEndsEarly(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 6, shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative}, plodding, "a", "b", "c")
		time.Sleep(time.Minute)
		operator := s.operator()
		for i, shard := range s.names()[:2] {
			reserved, err := operator.Reassign(t.Context(), shard, s.row(shard).Generation, "nobody", 12*time.Hour, "a name that is mistyped")
			must(t, err)
			time.Sleep(time.Minute)
			if now := s.row(shard); !now.Owner.IsZero() {
				t.Fatalf("claimed despite the reservation: %v", now)
			}
			if i == 0 {
				_, err = operator.ForceRelease(t.Context(), shard, reserved.Generation, "the name was mistyped")
				must(t, err)
				s.within(soon, "a worker holds the shard", func() bool { return !s.row(shard).Owner.IsZero() })
				continue
			}
			_, err = operator.Reassign(t.Context(), shard, reserved.Generation, "b", time.Minute, "the name was mistyped")
			must(t, err)
			s.within(soon, "the named worker holds the shard", func() bool { return s.row(shard).Owner.Name == "b" })
		}
	})
}

// TestReassignToASession: the lease of a session that hangs goes to the session with the stated name, with
// its data. The row remembers the task that was interrupted, and the old holder cannot commit.
func TestReassignToASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		a, b, c := runSession(t, store, shardlease.SessionConfig{Name: "a"}), runSession(t, store, shardlease.SessionConfig{Name: "b"}), runSession(t, store, shardlease.SessionConfig{Name: "c"})
		first := a.lock(t, shardlease.AcquireOptions{Task: "deploy/eu"})
		if err := first.MarkState("1", "data"); err != nil || first.Flush(t.Context()) != nil {
			t.Error(err)
		}
		others := make(chan *shardlease.Tenure)
		go func() { others <- c.lock(t, shardlease.AcquireOptions{}) }()
		time.Sleep(time.Minute)

		operator := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		got, err := operator.Reassign(t.Context(), "lock", first.Generation(), "b", time.Minute, "it hangs")
		if err != nil || got.Last.Task != "deploy/eu" {
			t.Errorf("reassigned: %v, %v", got, err)
		}
		if list, err := operator.Wishes(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("a pin in a group of sessions: %v, %v", list, err)
		}
		_, err = a.TryAcquire(t.Context(), "other", shardlease.AcquireOptions{})
		must(t, err)
		_, err = c.TryAcquire(t.Context(), "other", shardlease.AcquireOptions{})
		if held, ok := errors.AsType[*shardlease.HeldError](err); !ok || held.ReservedFor != "" {
			t.Errorf("a lease that is held: %v", err)
		}
		d := runSession(t, store, shardlease.SessionConfig{Name: "d"})
		_, err = d.TryAcquire(t.Context(), "lock", shardlease.AcquireOptions{})
		if held, ok := errors.AsType[*shardlease.HeldError](err); !ok || held.ReservedFor != "b" || !errors.Is(err, lease.ErrHeld) || !strings.Contains(err.Error(), `reserved for "b"`) {
			t.Errorf("a reserved lease: %v", err)
		}
		time.Sleep(20 * time.Second)
		second := b.lock(t, shardlease.AcquireOptions{})
		if second.Generation() != first.Generation()+2 || second.Checkpoint().State != "data" {
			t.Errorf("the named session has generation %d after %d, data %q", second.Generation(), first.Generation(), second.Checkpoint().State)
		}
		if past := lockRow(t, store).History(); past[0].Did != "reassigned" || past[0].Task != "deploy/eu" || past[0].By != "ann" {
			t.Errorf("the history begins with %v", past[0])
		}
		if err := first.MarkState("2", "late"); err == nil && first.Flush(t.Context()) == nil {
			t.Error("the former holder has committed")
		}
		second.Release("done")
		if third := <-others; third.Checkpoint().State != "data" {
			t.Errorf("then acquired at %v", third.Checkpoint())
		}
	})
}

// TestCommandsKeepTheLockDelay: an operator takes a held lease from its session, which has a lock delay. The next session
// acquires the lease when the delay has passed, and not before; with NoDelay at once.
func TestCommandsKeepTheLockDelay(t *testing.T) {
	const delay = time.Minute
	for name, take := range map[string]func(shardlease.Supervisor, *shardlease.Tenure, lease.Incarnation) error{
		"release": func(s shardlease.Supervisor, tn *shardlease.Tenure, _ lease.Incarnation) error {
			_, err := s.ForceRelease(t.Context(), "lock", tn.Generation(), "it hangs")
			return err
		},
		"reassign": func(s shardlease.Supervisor, tn *shardlease.Tenure, _ lease.Incarnation) error {
			_, err := s.Reassign(t.Context(), "lock", tn.Generation(), "b", time.Minute, "it hangs")
			return err
		},
		"evict": func(s shardlease.Supervisor, _ *shardlease.Tenure, inc lease.Incarnation) error {
			_, err := s.Evict(t.Context(), inc, "it hangs")
			return err
		},
		"release-task": func(s shardlease.Supervisor, _ *shardlease.Tenure, _ lease.Incarnation) error {
			_, err := s.ReleaseTask(t.Context(), "run-17", "cancelled")
			return err
		},
	} {
		for _, none := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := new(memstore.Store)
				a := runSession(t, store, shardlease.SessionConfig{Name: "a", Task: "run-17", LockDelay: delay})
				b := runSession(t, store, shardlease.SessionConfig{Name: "b"})
				first := a.lock(t, shardlease.AcquireOptions{})
				waits := make(chan *shardlease.Tenure)
				go func() { waits <- b.lock(t, shardlease.AcquireOptions{}) }()
				time.Sleep(time.Minute)
				check(t, take(shardlease.Supervisor{Store: store, Group: "locks", By: "ann", NoDelay: none}, first, a.Status().Incarnation))
				began := time.Now()
				(<-waits).Release("")
				least := delay
				if none {
					least = 0
				}
				if took := time.Since(began); took < least || took > least+8*time.Second {
					t.Errorf("%s, NoDelay %t: acquired after %v", name, none, took)
				}
			})
		}
	}
}

// TestReassignRefusesBadInput: nothing is written.
func TestReassignRefusesBadInput(t *testing.T) {
	store := new(memstore.Store)
	s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
	row := held(t, store, "s", "")
	for name, tc := range map[string]struct {
		to     string
		within time.Duration
		seen   int64
		why    string
		is     error
		fields []string
	}{
		"nobody for no time": {"", 0, row.Generation, "", shardlease.ErrConfig, []string{"to", "within"}},
		"two lines":          {"b\nc", time.Second, row.Generation, "", shardlease.ErrConfig, []string{"to"}},
		"a year":             {"b", 365 * 24 * time.Hour, row.Generation, "", shardlease.ErrConfig, []string{"within"}},
		"back in time":       {"b", -time.Second, row.Generation, "", shardlease.ErrConfig, []string{"within"}},
		"another generation": {"b", time.Second, row.Generation - 1, "", lease.ErrOutdated, nil},
	} {
		got, err := s.Reassign(t.Context(), "s", tc.seen, tc.to, tc.within, tc.why)
		if fields := blamed(err); !errors.Is(err, tc.is) || !slices.Equal(fields, tc.fields) {
			t.Errorf("%s: %v, %v about %v", name, got, err, fields)
		}
	}
	if now, err := s.Get(t.Context(), "s"); err != nil || now.WriteID != row.WriteID {
		t.Errorf("the row is %v, %v", now, err)
	}
	if wishes, err := s.Wishes(t.Context()); err != nil || len(wishes) != 0 {
		t.Errorf("the wishes are %v, %v", wishes, err)
	}
}

// TestReassignWithoutAPin: if the pin cannot be stored, the error says that the shard is reserved.
func TestReassignWithoutAPin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := storetest.NewLink(new(memstore.Store))
		s := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
		row := held(t, link, "s", "")
		link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if w.Key().Kind == lease.KindWishes {
				return nil, errDown
			}
			return send()
		})
		got, err := s.Reassign(t.Context(), "s", row.Generation, "b", time.Minute, "why")
		if !errors.Is(err, errDown) || !strings.HasPrefix(err.Error(), "reserved") || got.Reserved.For != "b" {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestReassignSurvivesALostAnswer: the answer is lost, and the named worker has claimed the shard before the
// command is repeated. The history shows that the command was carried out, also if it replaced a reservation. A
// forced release by the same operator in the same second is not mistaken for the command.
func TestReassignSurvivesALostAnswer(t *testing.T) {
	for _, tc := range []struct{ forced, reserved bool }{{}, {forced: true}, {reserved: true}, {true, true}} {
		forced := tc.forced
		synctest.Test(t, func(t *testing.T) {
			store, lost := new(memstore.Store), false
			link := storetest.NewLink(store)
			row := held(t, store, "s", "")
			s := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
			put := fixture.Must[lease.Row](t, store)
			if tc.reserved {
				row = put(protocol.Reassign(row, protocol.Command{Seen: row.Generation, By: "ann"}, lease.Reservation{For: "x", Lasts: time.Hour}, fixture.Stamp()))
			}
			link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
				if lost || w.Key().Kind != lease.KindLease {
					return send()
				}
				lost = true
				now := row
				if forced {
					now = put(protocol.ForceRelease(row, protocol.Command{Seen: row.Generation, By: "ann"}, protocol.Stamp{ID: "forced", At: time.Now()}))
				} else if r, err := send(); err == nil {
					now = r.(lease.Row)
				}
				put(protocol.Claim(now, lease.Owner{Name: "b", Incarnation: "b1"}, fixture.Stamp()))
				return nil, errDown
			})
			got, err := s.Reassign(t.Context(), "s", row.Generation, "b", time.Minute, "why")
			if got.Owner.Name != "b" || errors.Is(err, lease.ErrOutdated) != forced || !forced && err != nil {
				t.Errorf("forced %v: %v, %v", forced, got, err)
			}
		})
	}
}
