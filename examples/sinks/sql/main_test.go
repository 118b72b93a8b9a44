package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencesql"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
)

func TestLateTransactionIsRefusedBySQL(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Error(err)
	}
	story := `(?s)a holds shard-0, generation (\d+)\n.*a is paused.*b holds shard-0, generation (\d+)\n  b writes record 3: done.*` +
		`a wakes up.*\n  a writes record 3: refused: .* written under generation (\d+), now at (\d+)\n.*` +
		`order 2 was written by generation (\d+)\norder 3 was written by generation (\d+)\n`
	found := regexp.MustCompile(story).FindStringSubmatch(out.String())
	if found == nil || found[1] != found[3] || found[2] != found[4] || found[1] != found[5] || found[2] != found[6] || found[1] == found[2] {
		t.Errorf("unexpected output: %q\n%s", found, out.String())
	}
}

// TestOrdersAreFenced: the order of a shard is never that of a stale worker.
func TestOrdersAreFenced(t *testing.T) {
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
		file := "file:" + filepath.Join(t.TempDir(), "orders.db") + "?_pragma=synchronous(off)"
		s, err := open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.db.Close() })
		return fencetest.Sink{
			Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
				return s.put(ctx, f.Shard, f.Generation, 1, string(effect))
			},
			Effects: func(ctx context.Context, shard string) ([][]byte, error) { return s.text(ctx, shard) },
			Raise:   func(ctx context.Context, f fencetest.Fence) error { return s.raise(ctx, f.Shard, f.Generation) },
			Restart: func(ctx context.Context) (err error) {
				if err = s.db.Close(); err == nil {
					s, err = open(ctx, file)
				}
				return err
			},
			Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
		}
	})
}

// TestFencesqlOnSQLite: the statements of package fencesql, which are those of PostgreSQL, fence a
// sink in SQLite too.
func TestFencesqlOnSQLite(t *testing.T) {
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
		s, err := open(t.Context(), ":memory:")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.db.Close() })
		if _, err := s.db.ExecContext(t.Context(), fencesql.Schema); err != nil {
			t.Fatal(err)
		}
		guard := fencesql.Guard{DB: s.db}
		return fencetest.Sink{
			Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
				token := fence.Token{Group: "orders", Shard: f.Shard, Generation: f.Generation}
				return guard.Do(ctx, token, func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, order, f.Shard, 1, string(effect), f.Generation)
					return err
				})
			},
			Effects: s.text,
			Raise: func(ctx context.Context, f fencetest.Fence) error {
				return fence.Raise(guard)(fence.NewContext(ctx, fence.Token{Group: "orders"}), f.Shard, f.Generation)
			},
			Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
		}
	})
}

// TestLateOrderIsRefused: the late order of a worker that was cut off is refused, although its successor has written none.
func TestLateOrderIsRefused(t *testing.T) {
	zombie.Check(t, func(t *testing.T) zombie.Sink {
		s, err := open(t.Context(), ":memory:")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.db.Close() })
		return zombie.Sink{Raise: s.raise, Write: func(ctx context.Context, text string) error {
			token, _ := fence.FromContext(ctx)
			return s.put(ctx, token.Shard, token.Generation, 1, text)
		}}
	})
}

// text returns the text of the first order of a shard.
func (s sink) text(ctx context.Context, shard string) ([][]byte, error) {
	var text string
	err := s.db.QueryRowContext(ctx, `SELECT text FROM orders WHERE shard = ? AND record = 1`, shard).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return [][]byte{[]byte(text)}, err
}
