// Sql is a fenced sink in a relational database: a table of fences, which is updated in the
// same transaction as the effect.
//
//	cd examples/sinks/sql && go run .
//
// It is a module of its own because it depends on a database, SQLite. In PostgreSQL the
// statements are the same, with $1 and $2 in place of the question marks:
//
//	INSERT INTO fences (shard, fence) VALUES ($1, $2)
//	ON CONFLICT (shard) DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence
//
// This statement locks the row of the shard until the transaction ends. The transaction of a
// successor waits, and then reads the effect of this one. The statement must be the first of
// its transaction, and the program must check its number of rows: 0 means refused. If the
// effect is a single row that belongs to one shard, one statement is enough:
//
//	UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// It fences nothing to SELECT the fence first and to write if it is low enough: the worker may
// be paused and replaced between the two statements. unfenced_test.go shows that.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	_ "modernc.org/sqlite"
)

// The rows of fences must never be deleted: a shard without a row accepts any generation.
const schema = `
CREATE TABLE IF NOT EXISTS fences (shard TEXT PRIMARY KEY, fence BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS orders (shard TEXT, record BIGINT, text TEXT, generation BIGINT, PRIMARY KEY (shard, record))`

const advance = `
INSERT INTO fences (shard, fence) VALUES (?, ?)
ON CONFLICT (shard) DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence`

// A successor repeats the records after the last checkpoint; its order replaces the earlier
// order of the same record.
const order = `
INSERT INTO orders (shard, record, text, generation) VALUES (?, ?, ?, ?)
ON CONFLICT (shard, record) DO UPDATE SET text = excluded.text, generation = excluded.generation`

// A sink is a database.
type sink struct{ db *sql.DB }

func (s sink) write(ctx context.Context, t *shardlease.Tenure, record int, pause func() bool) error {
	pause()
	return s.put(ctx, t.Shard().Name, t.Generation(), record, fmt.Sprintf("order %d", record))
}

// raise is for a shardlease.Target: it raises the fence of a shard in a transaction without an effect.
func (s sink) raise(ctx context.Context, shard string, generation int64) error {
	return s.under(ctx, shard, generation, func(*sql.Tx) error { return nil })
}

// put stores an order under a generation.
func (s sink) put(ctx context.Context, shard string, generation int64, record int, text string) error {
	return s.under(ctx, shard, generation, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, order, shard, record, text, generation)
		return err
	})
}

// under runs an effect in a transaction that raises the fence first.
func (s sink) under(ctx context.Context, shard string, generation int64, effect func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after a commit
	if err := raise(ctx, tx, shard, generation); err != nil {
		return err
	}
	if err := effect(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// raise returns a StaleError if a higher generation has written for the shard. Otherwise it
// records the generation, and locks the row so that no other does before the transaction ends.
func raise(ctx context.Context, tx *sql.Tx, shard string, generation int64) error {
	result, err := tx.ExecContext(ctx, advance, shard, generation)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows > 0 {
		return err
	}
	stale := &checkpoint.StaleError{Shard: shard, Mine: generation}
	if err := tx.QueryRowContext(ctx, `SELECT fence FROM fences WHERE shard = ?`, shard).Scan(&stale.Observed); err != nil {
		return err
	}
	return stale
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sql:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	s, err := open(ctx, ":memory:")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.db.Close()) }()
	late, err := takeover.Play(ctx, new(memstore.Store), out, s.write)
	if err != nil {
		return err
	}
	if !errors.Is(late, checkpoint.ErrStale) {
		return fmt.Errorf("a late write was not refused: %v", late)
	}
	for record := range takeover.Records {
		generation, err := s.writer(ctx, record+1)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "order %d was written by generation %d\n", record+1, generation)
	}
	return nil
}

// open opens a database, and creates its tables. It allows one connection, because each connection
// to a database in memory would have a database of its own.
func open(ctx context.Context, name string) (sink, error) {
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return sink{}, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return sink{}, errors.Join(err, db.Close())
	}
	return sink{db}, nil
}

// writer returns the generation under which an order was last written.
func (s sink) writer(ctx context.Context, record int) (generation int64, err error) {
	const query = `SELECT generation FROM orders WHERE shard = ? AND record = ?`
	err = s.db.QueryRowContext(ctx, query, takeover.Shard, record).Scan(&generation)
	return generation, err
}
