package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// held creates the row of a shard in a store, held by a worker of a task.
func held(t testing.TB, store lease.Store, shard, task string) lease.Row {
	t.Helper()
	write := fixture.Must[lease.Row](t, store)
	row := write(protocol.Begin("orders", shard, nil, "test", fixture.Stamp()))
	return write(protocol.Claim(row, lease.Owner{Name: "a", Incarnation: lease.Incarnation("a1" + task), Task: task}, fixture.Stamp()))
}

func TestSupervisorCommands(t *testing.T) {
	store := new(memstore.Store)
	s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
	row := held(t, store, "s", "run-1")

	if _, err := s.ForceRelease(t.Context(), "s", row.Generation-1, "stuck"); !errors.Is(err, lease.ErrOutdated) {
		t.Errorf("a command for an older generation: %v", err)
	}
	step := func(name string, got lease.Row, err error, is bool) {
		t.Helper()
		stored, getErr := s.Get(t.Context(), "s")
		if err != nil || getErr != nil || !is || got.Generation != row.Generation+1 || stored.WriteID != got.WriteID || got.Last.By != "ann" || got.Last.Note != name {
			t.Errorf("%s: %v, %v", name, got, errors.Join(err, getErr))
		}
		row = got
	}
	got, err := s.ForceRelease(t.Context(), "s", row.Generation, "force")
	step("force", got, err, got.Owner.IsZero())
	got, err = s.Quarantine(t.Context(), "s", row.Generation, "quarantine")
	step("quarantine", got, err, got.Quarantined)
	got, err = s.Rewind(t.Context(), "s", row.Generation, checkpoint.Mark{Position: "5"}, "rewind")
	step("rewind", got, err, got.Quarantined && got.Checkpoint.Position == "5")
	got, err = s.Unquarantine(t.Context(), "s", row.Generation, "unquarantine")
	step("unquarantine", got, err, !got.Quarantined)
	got, err = s.Remove(t.Context(), "s", row.Generation, "remove")
	step("remove", got, err, got.Removed)

	if _, err := s.Get(t.Context(), "none"); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("get of a shard without a row: %v", err)
	}
	if _, err := s.ForceRelease(t.Context(), "none", 1, "force"); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("a command for a shard without a row: %v", err)
	}
}

// TestRefusedCommandShowsTheRow: a command that the row does not allow returns a RuleError
// together with the row.
func TestRefusedCommandShowsTheRow(t *testing.T) {
	s := shardlease.Supervisor{Store: new(memstore.Store), Group: "orders", By: "ann"}
	type command func(ctx context.Context, shard string, seen int64, why string) (lease.Row, error)
	rewind := func(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
		return s.Rewind(ctx, shard, seen, checkpoint.Mark{}, why)
	}
	for name, tc := range map[string]struct {
		done  []command
		asked command
		shows func(lease.Row) bool
		rule  lease.Rule // the rule, if it is exported
	}{
		"rewind a removed shard":      {[]command{s.Quarantine, s.Remove}, rewind, func(r lease.Row) bool { return r.Removed }, ""},
		"remove a held shard":         {nil, s.Remove, func(r lease.Row) bool { return r.Owner.Name == "a" }, lease.ErrHeld},
		"force-release a free shard":  {[]command{s.ForceRelease}, s.ForceRelease, func(r lease.Row) bool { return r.Owner.IsZero() }, ""},
		"quarantine twice":            {[]command{s.Quarantine}, s.Quarantine, func(r lease.Row) bool { return r.Quarantined }, ""},
		"unquarantine what is in use": {nil, s.Unquarantine, func(r lease.Row) bool { return !r.Quarantined }, ""},
		"remove twice":                {[]command{s.Quarantine, s.Remove}, s.Remove, func(r lease.Row) bool { return r.Removed }, ""},
	} {
		row := held(t, s.Store, name, "")
		for _, done := range tc.done {
			var err error
			if row, err = done(t.Context(), name, row.Generation, "before"); err != nil {
				t.Fatal(err)
			}
		}
		got, err := tc.asked(t.Context(), name, row.Generation, "refused")
		refused, ok := errors.AsType[*lease.RuleError](err)
		if verb, _, _ := strings.Cut(name, " "); ok && refused.Transition != verb {
			t.Errorf("%s: the error names the transition %q", name, refused.Transition)
		}
		if !ok || refused.Key != row.Key() || tc.rule != "" && !errors.Is(err, tc.rule) {
			t.Errorf("%s: %v", name, err)
		}
		if got.WriteID != row.WriteID || !tc.shows(got) {
			t.Errorf("%s: returned with the error: %v", name, got)
		}
	}
}

func TestReleaseTask(t *testing.T) {
	store := new(memstore.Store)
	s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
	held(t, store, "1", "run-1")
	held(t, store, "2", "run-2")
	held(t, store, "3", "run-1")
	rows, err := s.ByTask(t.Context(), "run-1")
	if err != nil || len(rows) != 2 || rows[0].Shard != "1" || rows[1].Shard != "3" {
		t.Errorf("held by run-1: %v, %v", rows, err)
	}
	released, err := s.ReleaseTask(t.Context(), "run-1", "it is dead")
	if err != nil || len(released) != 2 || !released[0].Owner.IsZero() {
		t.Errorf("released: %v, %v", released, err)
	}
	if rows, _ := s.List(t.Context()); len(rows) != 3 || rows[1].Owner.IsZero() {
		t.Errorf("rows: %v", rows)
	}
	if _, err := s.ReleaseTask(t.Context(), "", "all"); !errors.Is(err, shardlease.ErrConfig) {
		t.Errorf("without a task: %v", err)
	}
}

// TestReleaseTaskFindsDescendants: a task has the leases of its descendants too, and no other lease whose
// task begins with the same letters.
func TestReleaseTaskFindsDescendants(t *testing.T) {
	store := new(memstore.Store)
	s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
	for shard, task := range map[string]string{"1": "deploy", "2": "deploy/eu/db", "3": "deployment", "4": ""} {
		held(t, store, shard, task)
	}
	if rows, err := s.ByTask(t.Context(), "deploy"); err != nil || len(rows) != 2 || rows[0].Shard != "1" || rows[1].Shard != "2" {
		t.Errorf("of deploy: %v, %v", rows, err)
	}
	if rows, err := s.ByTask(t.Context(), ""); err != nil || len(rows) != 1 || rows[0].Shard != "4" {
		t.Errorf("without a task: %v, %v", rows, err)
	}
	if rows, err := s.ByTask(t.Context(), "deploy/"); !errors.Is(err, shardlease.ErrConfig) || len(rows) != 0 {
		t.Errorf("of a name that no task can have: %v, %v", rows, err)
	}
	if rows, err := s.ReleaseTask(t.Context(), "deploy//eu", "why"); !errors.Is(err, shardlease.ErrConfig) || len(rows) != 0 {
		t.Errorf("released %v: %v", rows, err)
	}
	if released, err := s.ReleaseTask(t.Context(), "deploy/eu", "why"); err != nil || len(released) != 1 || released[0].Last.Task != "deploy/eu/db" {
		t.Errorf("released %v: %v", released, err)
	}
}

// TestReleaseTaskSparesOtherLeases: a session with another task loses only the leases that it holds for
// the task. A worker whose seat cannot be read is evicted.
func TestReleaseTaskSparesOtherLeases(t *testing.T) {
	store := new(memstore.Store)
	link := storetest.NewLink(store)
	s := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
	row, seat := fixture.Must[lease.Row](t, store), fixture.Must[lease.Seat](t, store)
	hold := func(name string, by lease.Owner) { row(protocol.BeginHeld("orders", name, by, fixture.Stamp())) }
	a, spoilt := lease.Owner{Name: "a", Incarnation: "a1"}, lease.Owner{Name: "b", Incarnation: "b1", Task: "deploy/eu"}
	hold("1", lease.Owner{Name: "a", Incarnation: "a1", Task: "deploy/db"})
	hold("2", a)
	hold("3", spoilt)
	for _, o := range []lease.Owner{a, spoilt, {Name: "c", Incarnation: "c1", Task: "deploy"}} {
		seat(protocol.Sit(lease.Seat{Group: "orders", Incarnation: o.Incarnation, Name: o.Name, Task: o.Task, TTL: ttl}, fixture.Stamp()))
	}
	bad := func(k lease.Key, r lease.Record, err error) (lease.Record, error) {
		if k.Kind == lease.KindSeat && k.Name == "b1" && err == nil {
			return nil, &lease.MalformedError{Key: k, WriteID: r.Written()}
		}
		return r, err
	}
	link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		r, err := send()
		return bad(k, r, err)
	})
	link.OnList(func(_ context.Context, _ lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			for r, err := range send() {
				if !yield(bad(r.Key(), r, err)) {
					return
				}
			}
		}
	})
	released, err := s.ReleaseTask(t.Context(), "deploy", "why")
	if len(released) != 2 || released[0].Shard != "1" || released[1].Shard != "3" {
		t.Errorf("released %v: %v", released, err)
	}
	for inc, stays := range map[lease.Incarnation]bool{"a1": true, "b1": false, "c1": false} {
		if _, err := store.Get(t.Context(), lease.Key{Group: "orders", Kind: lease.KindSeat, Name: string(inc)}); (err == nil) != stays {
			t.Errorf("the seat of %s: %v", inc, err)
		}
	}
	if now, err := s.Get(t.Context(), "2"); err != nil || now.Owner != a {
		t.Errorf("the lease without a task: %v, %v", now, err)
	}
}

// TestEvictIsOnRecord: the rows of the evicted worker record the operator and the reason. No failed
// attempt is counted, even for a shard that the worker claims meanwhile.
func TestEvictIsOnRecord(t *testing.T) {
	store := new(memstore.Store)
	link := storetest.NewLink(store)
	s := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
	held(t, store, "1", "")
	held(t, store, "2", "")
	other := fixture.Must[lease.Row](t, store)
	other(protocol.Claim(other(protocol.Begin("orders", "3", nil, "test", fixture.Stamp())), lease.Owner{Name: "b", Incarnation: "b1"}, fixture.Stamp()))
	seat := fixture.Must[lease.Seat](t, store)(protocol.Sit(lease.Seat{Group: "orders", Incarnation: "a1", Name: "a", TTL: ttl}, fixture.Stamp()))

	if released, err := s.Evict(t.Context(), "a1", "host\nis gone"); !errors.Is(err, checkpoint.ErrInvalid) || len(released) != 0 {
		t.Errorf("released %v for a reason of two lines: %v", released, err)
	}
	if _, err := store.Get(t.Context(), seat.Key()); err != nil {
		t.Errorf("an invalid command deleted the seat: %v", err)
	}
	link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if w.Op == lease.OpDelete { // the worker has claimed a shard again
			row, err := shardlease.Supervisor{Store: store, Group: "orders"}.Get(t.Context(), "2")
			check(t, err)
			other(protocol.Claim(row, lease.Owner{Name: "a", Incarnation: "a1"}, fixture.Stamp()))
		}
		return send()
	})
	link.OnList(func(_ context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			if yield(nil, &lease.MalformedError{Key: lease.Key{Group: q.Group, Kind: q.Kind, Name: "bad"}, Cause: checkpoint.ErrInvalid}) {
				send()(yield)
			}
		}
	})
	released, err := s.Evict(t.Context(), "a1", "host is gone")
	if link.OnList(nil); !errors.Is(err, lease.ErrMalformed) || len(released) != 2 { // a row that cannot be read keeps no worker from being evicted
		t.Errorf("released %v, %v", released, err)
	}
	rows, err := s.List(t.Context())
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	for _, row := range rows[:2] {
		if last := row.Last; !row.Owner.IsZero() || last.Reason != lease.ReasonForced || last.By != "ann" || last.Note != "host is gone" || row.Attempts() != 0 {
			t.Errorf("after the eviction: %v", row)
		}
	}
	if rows[2].Owner.Name != "b" {
		t.Errorf("a shard of another worker: %v", rows[2])
	}
	if _, err := store.Get(t.Context(), seat.Key()); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("the seat is still there: %v", err)
	}
	if released, err := s.Evict(t.Context(), "a1", "host is gone"); err != nil || len(released) != 0 {
		t.Errorf("the second time: %v, %v", released, err)
	}
	if _, err := (shardlease.Supervisor{Store: store, Group: "orders"}).Evict(t.Context(), "b1", "why"); !errors.Is(err, shardlease.ErrConfig) {
		t.Errorf("without an operator: %v", err)
	}
}

// TestEvictionsQuarantineNothing: a healthy worker is evicted again and again. It comes back, and its
// shards are not set aside.
func TestEvictionsQuarantineNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := staged(t, 4, shardlease.Config{TTL: ttl, Handoff: rebalance.Eager, MaxAttempts: 2}, working, "a", "b")
		for range 5 {
			time.Sleep(time.Minute)
			var worker lease.Incarnation
			for _, name := range s.names() {
				if owner := s.row(name).Owner; owner.Name == "a" {
					worker = owner.Incarnation
				}
			}
			if released, err := s.operator().Evict(t.Context(), worker, "it looked sick"); err != nil || len(released) != 2 {
				t.Errorf("released %v, %v", released, err)
			}
			s.within(ttl, "all shards are held", func() bool { return s.running()["a"]+s.running()["b"] == s.shards })
		}
		for _, name := range s.names() {
			if row := s.row(name); row.Quarantined || row.Attempts() != 0 {
				t.Errorf("after the evictions: %v", row)
			}
		}
	})
}

func TestSupervisorLacksSomething(t *testing.T) {
	_, err := shardlease.Supervisor{}.List(t.Context())
	if got := blamed(err); !slices.Equal(got, []string{"Group", "Store"}) {
		t.Errorf("the error is about %v: %v", got, err)
	}
	_, err = shardlease.Supervisor{Store: new(memstore.Store), Group: "orders"}.Quarantine(t.Context(), "s", 1, "why")
	if got := blamed(err); !slices.Equal(got, []string{"By"}) {
		t.Errorf("the error is about %v: %v", got, err)
	}
}

// TestCommandSurvivesLostAnswers: a command whose answer was lost is repeated unchanged,
// and recognized as stored.
func TestCommandSurvivesLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)))
		store, lose, sent := storetest.NewLink(new(memstore.Store)), 0, []lease.WriteID(nil)
		store.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			record, err := send()
			if w.Key().Kind != lease.KindLease {
				return record, err
			}
			sent = append(sent, w.ID())
			if lose--; lose >= 0 {
				return nil, errDown
			}
			return record, err
		})
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
		row := held(t, store, "s", "")
		lose, sent = 3, nil
		got, err := s.ForceRelease(t.Context(), "s", row.Generation, "stuck")
		if err != nil || got.Generation != row.Generation+1 || len(slices.Compact(sent)) != 1 {
			t.Errorf("got %v, error %v, sent %v", got, err, sent)
		}
		lose = 1000
		if _, err := s.Quarantine(t.Context(), "s", got.Generation, "x"); !errors.Is(err, errDown) {
			t.Errorf("a store that never answers: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := s.Unquarantine(ctx, "s", got.Generation+1, "x"); !errors.Is(err, errDown) || time.Since(start) > time.Millisecond {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// TestForceReleaseThatLanded: a forced release was stored, the answer was lost, and a worker
// claimed the shard before the release was repeated. ForceRelease succeeds. It does not take the
// release of another operator for its own, and other commands do not compare histories.
func TestForceReleaseThatLanded(t *testing.T) {
	type command func(ctx context.Context, shard string, seen int64, why string) (lease.Row, error)
	force := func(s shardlease.Supervisor) command { return s.ForceRelease }
	quarantine := func(s shardlease.Supervisor) command { return s.Quarantine }
	type change func(lease.Row) (lease.Write, error)
	bob := func(r lease.Row) protocol.Command { return protocol.Command{Seen: r.Generation, By: "bob"} }
	forceByBob := func(r lease.Row) (lease.Write, error) { return protocol.ForceRelease(r, bob(r), fixture.Stamp()) }
	unquarantine := func(r lease.Row) (lease.Write, error) { return protocol.Unquarantine(r, bob(r), fixture.Stamp()) }
	claim := func(r lease.Row) (lease.Write, error) {
		return protocol.Claim(r, lease.Owner{Name: "b", Incarnation: "b1"}, fixture.Stamp())
	}
	for name, tc := range map[string]struct {
		lost    bool // the write itself is lost, not only the answer
		command func(shardlease.Supervisor) command
		since   []change // what happens before the command is repeated
		want    error
		verb    string // the first word of the error
	}{
		"claimed since":                {false, force, []change{claim}, nil, ""},
		"released by another operator": {true, force, []change{forceByBob, claim}, lease.ErrOutdated, "force-release"},
		"a quarantine":                 {false, quarantine, []change{unquarantine}, lease.ErrOutdated, "quarantine"},
	} {
		subtest(t, name, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 7, 1, 0, 0, 0, 7e8, time.UTC)))
			link := storetest.NewLink(new(memstore.Store))
			row := held(t, link, "s", "")
			link.OnWrite(func(_ context.Context, _ lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
				link.OnWrite(nil)
				now := row
				if !tc.lost {
					record, err := send()
					if now, _ = record.(lease.Row); err != nil {
						t.Error(err)
					}
				}
				for _, change := range tc.since {
					w, err := change(now)
					now = fixture.Must[lease.Row](t, link)(w, err)
				}
				return nil, errDown
			})
			s := shardlease.Supervisor{Store: link, Group: "orders", By: "ann"}
			got, err := tc.command(s)(t.Context(), "s", row.Generation, "stuck")
			if !errors.Is(err, tc.want) || got.Generation != row.Generation+2 {
				t.Errorf("%v, %v", got, err)
			}
			if text := " lease orders/s: the row has changed hands since it was seen"; err != nil && err.Error() != tc.verb+text {
				t.Errorf("the error reads %q", err)
			}
		})
	}
}

// TestListGoesOnAfterMalformedRows: the listing has a record that cannot be read before the others.
func TestListGoesOnAfterMalformedRows(t *testing.T) {
	store := storetest.NewLink(new(memstore.Store))
	held(t, store, "s", "")
	store.OnList(func(_ context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			if yield(nil, &lease.MalformedError{Key: lease.Key{Group: q.Group, Kind: q.Kind, Name: "bad"}, Cause: errDown}) {
				send()(yield)
			}
		}
	})
	rows, err := shardlease.Supervisor{Store: store, Group: "orders"}.List(t.Context())
	if len(rows) != 1 || !errors.Is(err, lease.ErrMalformed) {
		t.Errorf("the rows are %v, error %v", rows, err)
	}
}

// TestCommandsForgetOldLooks: in a group whose sessions hold their leases for moments only, nobody removes the wishes of
// commands. Later commands remove those that ended an hour ago, or all that have ended where there is no room.
func TestCommandsForgetOldLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
		command := func(i int) {
			row := fixture.Must[lease.Row](t, store)(protocol.BeginHeld("orders", fmt.Sprint(i), lease.Owner{Name: "a", Incarnation: "a1"}, fixture.Stamp()))
			_, err := s.ForceRelease(t.Context(), row.Shard, row.Generation, "why")
			must(t, err)
		}
		looks := func() []lease.Wish {
			r, err := store.Get(t.Context(), lease.Wishes{Group: "orders"}.Key())
			must(t, err)
			return r.(lease.Wishes).List
		}
		for i := range 3 {
			command(i)
		}
		time.Sleep(30 * time.Minute)
		if command(3); len(looks()) != 4 {
			t.Errorf("after half an hour: %v", looks())
		}
		time.Sleep(2 * time.Hour)
		if command(4); len(looks()) != 1 || looks()[0].Subject != "4" {
			t.Errorf("after more than an hour: %v", looks())
		}
		full := lease.Wishes{Group: "orders"}
		for i := range lease.MaxWishes {
			full.List = append(full.List, lease.Wish{Kind: protocol.WishLook, Subject: fmt.Sprint("old", i), By: "ann", Until: time.Now().Add(-time.Second)})
		}
		r, err := store.Get(t.Context(), full.Key())
		must(t, err)
		w, err := protocol.SetWishes(r.(lease.Wishes), full.List, fixture.Stamp())
		must(t, err)
		_, err = store.Write(t.Context(), w)
		must(t, err)
		if command(5); len(looks()) != 1 || looks()[0].Subject != "5" {
			t.Errorf("of a full list %d are left", len(looks()))
		}
	})
}
