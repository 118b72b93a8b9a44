package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
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

// TestColdStartRaises: a worker that starts 10,000 shards raises the fence of each once, at most 16 at a time, before it
// calls the handler.
func TestColdStartRaises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := open(t.Context(), ":memory:")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.db.Close() })
		shards := fixture.Size(2000, 10_000)
		var names []string
		for i := range shards {
			names = append(names, fmt.Sprintf("shard-%05d", i))
		}
		var mu sync.Mutex
		var busy, most, raised, started int
		w, err := shardlease.New(new(memstore.Store), shardlease.Static(names...), shardlease.Config{
			Group: "orders", Handoff: rebalance.Eager, Targets: []shardlease.Target{{Name: "orders", Raise: func(ctx context.Context, shard string, generation int64) error {
				mu.Lock()
				busy, raised = busy+1, raised+1
				most = max(most, busy)
				mu.Unlock()
				defer func() { mu.Lock(); busy--; mu.Unlock() }()
				time.Sleep(5 * time.Millisecond) // in fake time: the way to the database and back
				return s.raise(ctx, shard, generation)
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended, from := make(chan error, 1), time.Now()
		all := make(chan time.Time, 1)
		go func() {
			ended <- w.Run(ctx, func(ctx context.Context, tn *shardlease.Tenure) error {
				mu.Lock()
				if started++; started == shards {
					all <- time.Now()
				}
				mu.Unlock()
				<-ctx.Done()
				return nil
			})
		}()
		took := (<-all).Sub(from)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		var closed int
		if err := s.db.QueryRowContext(context.WithoutCancel(ctx), `SELECT COUNT(*) FROM fences WHERE fence > 0`).Scan(&closed); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d shards in %v, %d raises at a time", shards, took, most)
		least := time.Duration(shards) / 16 * 5 * time.Millisecond
		if closed != shards || raised != shards || most != 16 || took < least || took > least+5*time.Second {
			t.Errorf("%d fences are raised, by %d raises, %d at a time, in %v", closed, raised, most, took)
		}
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
