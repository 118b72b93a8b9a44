package shardlease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestRewindOfAHeldShard: one write takes the shard from its owner and moves the checkpoint, so nothing is left half-way.
// Commits of the owner in between refuse the write; the command reads the row again, and writes again.
func TestRewindOfAHeldShard(t *testing.T) {
	const commits = 9
	memory := new(memstore.Store)
	store := storetest.NewLink(memory)
	s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann", Order: checkpoint.Decimal}
	row := held(t, store, "s", "run-1")
	hold, made, rows := fixture.Hold(row), 0, 0
	store.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if w.Key().Kind != lease.KindLease {
			return send()
		}
		if now, _ := s.Get(ctx, "s"); made < commits { // the owner is quicker
			made++
			commit := fixture.Write(t)(protocol.Commit(now, hold, checkpoint.Mark{Position: "9"}, fixture.Stamp()))
			if _, err := memory.Write(ctx, commit); err != nil {
				t.Error(err)
			}
		}
		r, err := send()
		if err == nil {
			rows++
		}
		return r, err
	})
	got, err := s.Rewind(t.Context(), "s", row.Generation, checkpoint.Mark{Position: "5"}, "replay")
	if err != nil || got.Checkpoint.Position != "5" || got.Quarantined || !got.Owner.IsZero() || got.Last.Did != "rewound" || got.Last.Note != "replay" {
		t.Errorf("rewound: %v, %v", got, err)
	}
	if rows != 1 || made != commits || got.Generation != row.Generation+1 || got.Last.From != "a" || got.Last.Task != "run-1" || got.Last.By != "ann" {
		t.Errorf("%d writes were stored after %d commits, and the row is %v", rows, made, got)
	}
	if _, err := s.Rewind(t.Context(), "s", row.Generation, checkpoint.Mark{}, "replay"); !errors.Is(err, lease.ErrOutdated) {
		t.Errorf("a command for an older generation: %v", err)
	}
}

// TestRewindChecksThePosition: a position that the order cannot read is refused, and nothing is written.
func TestRewindChecksThePosition(t *testing.T) {
	s := shardlease.Supervisor{Store: new(memstore.Store), Group: "orders", By: "ann", Order: checkpoint.Decimal}
	row := held(t, s.Store, "s", "")
	_, err := s.Rewind(t.Context(), "s", row.Generation, checkpoint.Mark{Position: "secret"}, "replay")
	if now, _ := s.Get(t.Context(), "s"); !errors.Is(err, checkpoint.ErrInvalid) || strings.Contains(err.Error(), "secret") || now.WriteID != row.WriteID {
		t.Errorf("refused with %v; the row is %v", err, now)
	}
	if _, err := s.Rewind(t.Context(), "s", row.Generation, checkpoint.Mark{}, "from the beginning"); err != nil {
		t.Errorf("a rewind to the beginning: %v", err)
	}
}

// TestFinishByAnOperator: the owner is fenced, its own Finish fails, its tenure ends as forced, and the child begins.
func TestFinishByAnOperator(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 0)
		r := &river{}
		r.set(nil, shardlease.Shard{Name: "parent"}, shardlease.Shard{Name: "child", Parents: []string{"parent"}})
		s.source = r
		own := make(chan error, 1)
		a := s.enter("a", shardlease.Config{}, func(ctx context.Context, tn *shardlease.Tenure) error {
			if tn.Shard().Name == "child" {
				return serve(ctx, tn)
			}
			<-ctx.Done()
			own <- tn.Finish(context.WithoutCancel(ctx))
			return nil
		})
		time.Sleep(ttl)
		row, err := s.operator().Finish(t.Context(), "parent", s.row("parent").Generation, "its records have expired")
		if err != nil || !row.Finished || !row.Owner.IsZero() || row.Last.Reason != lease.ReasonForced || row.Last.Did != "finished" || row.Last.From != "a" {
			t.Errorf("finished: %v, %v", row, err)
		}
		time.Sleep(ttl)
		if err := <-own; err == nil {
			t.Error("the owner's own Finish succeeds")
		}
		ended := a.of(event.Ended)
		if len(ended) != 1 || ended[0].Cause != event.CauseForced {
			t.Errorf("reported: %v", ended)
		}
		time.Sleep(ttl)
		if now := s.row("parent"); now.WriteID != row.WriteID || s.row("child").Owner.Name != "a" {
			t.Errorf("the parent is %v, the child %v", now, s.row("child"))
		}
	})
}

// TestRewindAll: all shards of a paused group that are not finished are rewound, also one that changes hands meanwhile. A
// quarantine stays. Without a pause nothing is written.
func TestRewindAll(t *testing.T) {
	memory := new(memstore.Store)
	store := storetest.NewLink(memory)
	s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann", Order: checkpoint.Decimal}
	five := checkpoint.Mark{Position: "5"}
	for _, name := range []string{"a", "b", "c", "d"} {
		held(t, store, name, "")
	}
	get := func(name string) lease.Row {
		row, err := s.Get(t.Context(), name)
		must(t, err)
		return row
	}
	_, err := s.Finish(t.Context(), "b", get("b").Generation, "over")
	must(t, err)
	_, err = s.Quarantine(t.Context(), "c", get("c").Generation, "wait")
	must(t, err)
	if rows, err := s.RewindAll(t.Context(), five, "replay"); !errors.Is(err, protocol.ErrNotPaused) || len(rows) != 0 || get("a").Checkpoint.Position != "" {
		t.Errorf("without a pause: %v, %v", rows, err)
	}
	must(t, s.Pause(t.Context(), time.Minute, "replay"))
	if rows, err := s.RewindAll(t.Context(), checkpoint.Mark{Position: "x"}, "replay"); !errors.Is(err, checkpoint.ErrInvalid) || len(rows) != 0 {
		t.Errorf("to no position: %v, %v", rows, err)
	}
	first := true
	store.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if first && w.Key().Name == "d" { // it changes hands
			first = false
			release := fixture.Write(t)(protocol.Release(get("d"), fixture.Hold(get("d")), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
			if _, err := memory.Write(ctx, release); err != nil {
				t.Error(err)
			}
		}
		return send()
	})
	rows, err := s.RewindAll(t.Context(), five, "replay")
	var names []string
	for _, row := range rows {
		names = append(names, row.Shard)
		if now := get(row.Shard); now.Checkpoint.Position != "5" || !now.Owner.IsZero() || now.Quarantined != (row.Shard == "c") || now.Last.By != "ann" {
			t.Errorf("rewound: %v", now)
		}
	}
	if err != nil || strings.Join(names, " ") != "a c d" || !get("b").Finished || get("b").Checkpoint.Position != "" {
		t.Errorf("rewound %v: %v; b is %v", names, err, get("b"))
	}
	all, err := store.Get(t.Context(), lease.Wishes{Group: "orders"}.Key())
	must(t, err)
	var looks []string
	for _, w := range all.(lease.Wishes).List {
		if w.Kind == protocol.WishLook {
			looks = append(looks, w.Subject)
		}
	}
	if strings.Join(looks, " ") != "* b c" { // b and c had commands of their own before
		t.Errorf("workers look at %q", looks)
	}
}

// TestRewindAllGoesOn: a row cannot be rewound because its numbers have no successor. The rows that were rewound before are
// returned, and in the journal.
func TestRewindAllGoesOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store := storetest.NewLink(new(memstore.Store))
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
		began := time.Now()
		for _, name := range []string{"a", "b", "c"} {
			held(t, store, name, "")
		}
		must(t, s.Pause(t.Context(), time.Minute, "replay"))
		store.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if w.Key().Name == "b" {
				return nil, &checkpoint.InvalidError{Field: "counter", Rule: "has no successor"}
			}
			return send()
		})
		rows, err := s.RewindAll(t.Context(), checkpoint.Mark{}, "replay")
		if !errors.Is(err, checkpoint.ErrInvalid) || len(rows) != 2 {
			t.Errorf("%v, %v", rows, err)
		}
		if acts, err := s.Journal(t.Context(), began.Add(-time.Minute)); err != nil || len(acts) != 2 || acts[1].Rows != 2 {
			t.Errorf("%v, %v", acts, err)
		}
	})
}
