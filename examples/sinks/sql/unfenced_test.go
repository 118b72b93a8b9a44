package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

// TestCheckingFirstIsWorthNothing: a sink that checks the fence first and writes afterwards
// accepts a late write, which overwrites that of the successor.
func TestCheckingFirstIsWorthNothing(t *testing.T) {
	s, err := open(t.Context(), ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.db.Close() }()
	write := func(ctx context.Context, t *shardlease.Tenure, record int, pause func() bool) error {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		shard, generation := t.Shard().Name, t.Generation()
		if err := raise(ctx, tx, shard, generation); err != nil {
			_ = tx.Rollback()
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		pause() // between the check and the write
		_, err = s.db.ExecContext(ctx, order, shard, record, "", generation)
		return err
	}
	var out bytes.Buffer
	late, err := takeover.Play(t.Context(), new(memstore.Store), &out, write)
	if late != nil || err != nil {
		t.Fatalf("late write: %v, scenario: %v\n%s", late, err, out.String())
	}
	overwritten, err3 := s.writer(t.Context(), 3)
	current, err4 := s.writer(t.Context(), 4)
	if err3 != nil || err4 != nil || overwritten >= current {
		t.Errorf("record 3 was written by %d (%v), record 4 by %d (%v): was the late write refused?", overwritten, err3, current, err4)
	}
}
