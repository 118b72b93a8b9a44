package fencehttp_test

import (
	"context"
	"database/sql"
	"io"
	"net/http"

	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

// A guard keeps the fences in the database of the orders:
//
//	CREATE TABLE fences (worker_group TEXT, shard TEXT, fence BIGINT NOT NULL, PRIMARY KEY (worker_group, shard))
type guard struct{ db *sql.DB }

// Do runs an effect in the transaction that raises the fence.
func (g guard) Do(ctx context.Context, t fence.Token, effect func(context.Context, *sql.Tx) error) error {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after a commit
	if err := raise(ctx, tx, t); err != nil {
		return err
	}
	if err := effect(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// raise locks the fence until the transaction ends. It must be the first statement.
func raise(ctx context.Context, tx *sql.Tx, t fence.Token) error {
	result, err := tx.ExecContext(ctx, `INSERT INTO fences (worker_group, shard, fence) VALUES ($1, $2, $3)
		ON CONFLICT (worker_group, shard) DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence`,
		t.Group, t.Shard, t.Generation)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows > 0 {
		return err
	}
	var observed int64
	row := tx.QueryRowContext(ctx, `SELECT fence FROM fences WHERE worker_group = $1 AND shard = $2`, t.Group, t.Shard)
	if err := row.Scan(&observed); err != nil {
		return err
	}
	return t.Refused(observed)
}

func orders(db *sql.DB) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", fencehttp.Handler[*sql.Tx]{
		Guard: guard{db},
		Effect: func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
			order, err := io.ReadAll(r.Body)
			if err != nil {
				return err // the client gets a 500
			}
			if len(order) == 0 {
				http.Error(w, "the order is empty", http.StatusBadRequest) // rolls back
				return nil
			}
			w.WriteHeader(http.StatusCreated) // is sent after the commit
			_, err = tx.ExecContext(r.Context(), `INSERT INTO orders (text) VALUES ($1)`, string(order))
			return err
		},
	})
	return mux
}

// The guard is a table of fences in the database of the effects, and its step is a transaction.
func ExampleHandler_sql() {
	_ = orders // needs a database, in PostgreSQL or SQLite
}
