// Package postgres checks fencesql on PostgreSQL: on the server at SHARDLEASE_POSTGRES, which
// start-postgres starts. Without it the tests skip, or fail if SHARDLEASE_REQUIRE_POSTGRES is 1.
package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"

	_ "github.com/lib/pq"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/fencesql"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	fixture.SideBySide(16)
	goleak.VerifyTestMain(m)
}

// open returns a new database with the tables of fences and entries.
func open(t testing.TB) *sql.DB {
	t.Helper()
	url := os.Getenv("SHARDLEASE_POSTGRES")
	if url == "" {
		const skip = "SHARDLEASE_POSTGRES is not set: run integration/start-postgres, and set it to " +
			"postgres://postgres@127.0.0.1:54329/postgres?sslmode=disable"
		if os.Getenv("SHARDLEASE_REQUIRE_POSTGRES") == "1" {
			t.Fatal(skip)
		}
		t.Skip(skip)
	}
	name := "test_" + strings.ToLower(rand.Text())
	server := connect(t, url)
	exec(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { _, _ = server.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") })
	db := connect(t, strings.Replace(url, "/postgres?", "/"+name+"?", 1))
	exec(t, db, fencesql.Schema)
	exec(t, db, "CREATE TABLE entries (id BIGSERIAL PRIMARY KEY, shard TEXT NOT NULL, text TEXT NOT NULL)")
	return db
}

func connect(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// entries returns a function that lists the entries of a shard in the order of their insertion.
func entries(db *sql.DB) func(context.Context, string) ([][]byte, error) {
	return func(ctx context.Context, shard string) (list [][]byte, err error) {
		rows, err := db.QueryContext(ctx, "SELECT text FROM entries WHERE shard = $1 ORDER BY id", shard)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var text []byte
			if err := rows.Scan(&text); err != nil {
				return nil, err
			}
			list = append(list, text)
		}
		return list, rows.Err()
	}
}

// insert returns the effect that adds an entry.
func insert(shard, text string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO entries (shard, text) VALUES ($1, $2)", shard, text)
		return err
	}
}
