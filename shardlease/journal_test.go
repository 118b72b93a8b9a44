package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestJournal: each act of a supervisor leaves one entry, with what it was about, the author, the reason and the end; a refused one
// leaves none.
func TestJournal(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := new(memstore.Store)
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
		began := time.Now()
		for _, name := range []string{"1", "2", "3", "4"} {
			held(t, store, name, "run/"+name)
		}
		seen := func(shard string) int64 {
			row, err := s.Get(t.Context(), shard)
			must(t, err)
			return row.Generation
		}
		ctx := t.Context()
		row := func(_ lease.Row, err error) error { return err }
		rows := func(_ []lease.Row, err error) error { return err }
		for _, act := range []struct {
			give func() error
			want string
		}{
			{func() error { return row(s.ForceRelease(ctx, "1", seen("1"), "w")) }, "release 1"},
			{func() error { return row(s.Quarantine(ctx, "1", seen("1"), "w")) }, "quarantine 1"},
			{func() error { return row(s.Unquarantine(ctx, "1", seen("1"), "w")) }, "unquarantine 1"},
			{func() error { return row(s.Rewind(ctx, "2", seen("2"), checkpoint.Mark{Position: "secret"}, "w")) }, "rewind 2"},
			{func() error { return row(s.Finish(ctx, "1", seen("1"), "w")) }, "finish 1"},
			{func() error { return row(s.Remove(ctx, "1", seen("1"), "w")) }, "remove 1"},
			{func() error { return row(s.Reassign(ctx, "3", seen("3"), "b", time.Minute, "w")) }, "reassign 3 to b"},
			{func() error { return s.Pause(ctx, 0, "w") }, "pause"},
			{func() error { return rows(s.RewindAll(ctx, checkpoint.Mark{Position: "secret"}, "w")) }, "rewind rows 3"},
			{func() error { return s.Lift(ctx, lease.WishPause, "", "done") }, "lift pause"},
			{func() error { return s.Cordon(ctx, "a", time.Hour, "w") }, "cordon a"},
			{func() error { return s.Drain(ctx, "a", 0, "w") }, "drain a"},
			{func() error { return s.Pin(ctx, "4", "a", 0, "w") }, "pin 4 to a"},
			{func() error { return s.Lift(ctx, lease.WishPin, "4", "done") }, "lift pin 4"},
			{func() error { return s.Raise(ctx, 0, "w") }, "raise"},
			{func() error { return s.LiftAll(ctx, "done") }, "lift all"},
			{func() error { return rows(s.Evict(ctx, "nobody", "w")) }, "evict nobody"},
			{func() error { return rows(s.ReleaseTask(ctx, "run/4", "w")) }, "release-task run/4"},
			{func() error { return s.Record(ctx, lease.Act{Did: "adopt", Rows: 7, Why: "w"}) }, "adopt rows 7"},
		} {
			before, err := s.Journal(ctx, began)
			must(t, err)
			if err := act.give(); err != nil {
				t.Errorf("%s: %v", act.want, err)
			}
			now, err := s.Journal(ctx, began)
			if err != nil || len(now) != len(before)+1 {
				t.Fatalf("%s leaves %d entries, %v", act.want, len(now)-len(before), err)
			}
			a := now[len(now)-1]
			got := strings.TrimSpace(a.Did + " " + a.Subject)
			if a.To != "" {
				got += " to " + a.To
			}
			if a.Rows > 0 {
				got += fmt.Sprint(" rows ", a.Rows)
			}
			why := "w"
			if strings.HasPrefix(a.Did, "lift") {
				why = "done"
			}
			one := a.Subject == "1" || a.Did == "rewind" && a.Rows == 0 || a.Did == "reassign"
			if got != act.want || !a.Until.Equal(endOfAct(act.want)) || a.By != "ann" || a.Why != why || !a.At.Equal(time.Now()) || one && a.Generation != seen(a.Subject) || strings.Contains(a.String(), "secret") {
				t.Errorf("got %q, want %q: %v", got, act.want, a)
			}
			time.Sleep(time.Second)
		}
		before, _ := s.Journal(ctx, began)
		if _, err := s.ForceRelease(ctx, "3", 1, "w"); !errors.Is(err, lease.ErrOutdated) {
			t.Error(err)
		}
		if err := s.Lift(ctx, lease.WishPause, "", "done"); !errors.Is(err, lease.ErrNotFound) {
			t.Error(err)
		}
		if now, _ := s.Journal(ctx, began); len(now) != len(before) {
			t.Errorf("refused acts leave %d entries", len(now)-len(before))
		}
		if since, err := s.Journal(ctx, before[3].At); err != nil || len(since) != len(before)-3 {
			t.Errorf("since the fourth act: %d entries, %v", len(since), err)
		}
		time.Sleep(90 * 24 * time.Hour)
		if now, err := s.Journal(ctx, time.Time{}); err != nil || len(now) != 0 {
			t.Errorf("after 90 days: %v, %v", now, err)
		}
	})
}

// endOfAct returns when that ends which an act of now has made; zero: it made nothing that ends.
func endOfAct(act string) time.Time {
	if lasts := map[string]time.Duration{"pause": 24 * time.Hour, "reassign 3 to b": time.Minute, "cordon a": time.Hour}[act]; lasts > 0 {
		return time.Now().Add(lasts)
	}
	return time.Time{}
}

// TestJournalIsBestEffort: an act is carried out although its entry cannot be stored, and the program is told. An entry whose
// answer is lost is written once.
func TestJournalIsBestEffort(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		memory := new(memstore.Store)
		store := storetest.NewLink(memory)
		var lost []lease.Act
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann", Unjournaled: func(act lease.Act, err error) {
			if lost = append(lost, act); !errors.Is(err, errDown) {
				t.Errorf("told: %v", err)
			}
		}}
		row, tries := held(t, store, "s", ""), 0
		stored := false
		store.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if w.Key().Kind != lease.KindJournal {
				return send()
			}
			if tries++; stored {
				r, err := send()
				if tries == 1 {
					return nil, errDown // the answer is lost
				}
				return r, err
			}
			return nil, errDown
		})
		row, err := s.ForceRelease(t.Context(), "s", row.Generation, "w")
		if err != nil || !row.Owner.IsZero() || len(lost) != 1 || lost[0].Did != "release" || lost[0].Subject != "s" || tries != 3 {
			t.Errorf("%v, %v; told of %v after %d tries", row, err, lost, tries)
		}
		stored, tries = true, 0
		must(t, s.Drain(t.Context(), "a", 0, "a reason"))
		if acts, err := s.Journal(t.Context(), time.Time{}); err != nil || len(acts) != 1 || len(lost) != 1 || tries != 2 {
			t.Errorf("%v, %v; told of %v after %d tries", acts, err, lost, tries)
		}
		if err := s.Record(t.Context(), lease.Act{Did: "repair", Subject: "s", Why: strings.Repeat("é", 200) + "\n"}); err != nil {
			t.Errorf("a long reason: %v", err)
		}
		s.Unjournaled, stored = nil, false
		must(t, s.Drain(t.Context(), "a", 0, "nobody is told"))
	})
}
