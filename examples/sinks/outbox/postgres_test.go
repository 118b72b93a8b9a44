package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	_ "github.com/lib/pq"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
)

// onPostgreSQL returns how to open an empty outbox on the server at SHARDLEASE_POSTGRES, or skips the test.
// TestExamplesOnDynamoDB in integration runs it.
func onPostgreSQL(t testing.TB) func(context.Context) (sqlBox, error) {
	t.Helper()
	url := os.Getenv("SHARDLEASE_POSTGRES")
	if url == "" {
		t.Skip("SHARDLEASE_POSTGRES is not set: set it to postgres://postgres@127.0.0.1:54329/postgres?sslmode=disable")
	}
	name := "outbox_" + strings.ToLower(rand.Text())
	server, err := sql.Open("postgres", url)
	if err == nil {
		_, err = server.ExecContext(t.Context(), "CREATE DATABASE "+name)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := server.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		if err = errors.Join(err, server.Close()); err != nil {
			t.Error(err)
		}
	})
	return func(ctx context.Context) (sqlBox, error) {
		db, err := sql.Open("postgres", strings.Replace(url, "/postgres?", "/"+name+"?", 1))
		if err != nil {
			return sqlBox{}, err
		}
		for _, table := range schema {
			if _, err := db.ExecContext(ctx, table); err != nil {
				return sqlBox{}, errors.Join(err, db.Close())
			}
		}
		return sqlBox{db, "sinks"}, nil
	}
}

// TestOutboxInPostgreSQL: on a server with many connections too, nothing of a stale owner is staged after the takeover.
func TestOutboxInPostgreSQL(t *testing.T) {
	open := onPostgreSQL(t)
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink { return stages(t, open) })
}

// TestRelayOnPostgreSQL: a relay is killed between a send and its mark, and another one sends the rest.
func TestRelayOnPostgreSQL(t *testing.T) {
	b, err := onPostgreSQL(t)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	fill(t, b, 4, "shard-0")
	checkKilled(t, new(memstore.Store), b)
}
