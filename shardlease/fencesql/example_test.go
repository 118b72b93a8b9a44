package fencesql_test

import (
	"context"
	"database/sql"
	"io"
	"net/http"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
	"github.com/shardlease/shardlease-go/shardlease/fencesql"
)

const insert = `INSERT INTO orders (id, text) VALUES ($1, $2)`

// A handler of a worker writes to the database itself. The contexts of the tenure have the token.
func ExampleGuard() {
	var db *sql.DB // sql.Open("postgres", …), and once db.Exec(fencesql.Schema)
	guard := fencesql.Guard{DB: db}
	_ = func(_ context.Context, t *shardlease.Tenure) error {
		return fence.Do(t.Context(), guard, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, insert, 17, "an order")
			return err
		})
	}
}

// A service gets the token over HTTP. The effect of a request is a part of the transaction, and the
// response is sent after the commit.
func ExampleGuard_http() {
	var db *sql.DB
	http.Handle("POST /orders", fencehttp.Handler[*sql.Tx]{
		Guard: fencesql.Guard{DB: db},
		Effect: func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(r.Context(), insert, r.Header.Get("Order"), string(text))
			w.WriteHeader(http.StatusCreated)
			return err
		},
	})
}

// A transaction of one's own raises the fence first.
func ExampleAdvance() {
	_ = func(ctx context.Context, tx *sql.Tx, t *shardlease.Tenure) error {
		token := fence.Token{Group: "orders", Shard: t.Shard().Name, Generation: t.Generation()}
		if err := fencesql.Advance(ctx, tx, token); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, insert, 17, "an order")
		return err
	}
}
