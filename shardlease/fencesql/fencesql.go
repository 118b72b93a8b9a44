// Package fencesql fences effects in a relational database: a table has the highest generation of
// each shard, and a transaction that has an effect raises it, or is refused. The statements are those
// of PostgreSQL, and SQLite accepts them too. The package imports no driver.
//
// # A writer that is paused in its transaction
//
// The transaction locks the fence of its shard until it ends. A process that is paused in the
// middle keeps the lock, and its successor waits: no stale effect passes, but no effect at all does.
// Let PostgreSQL end such a transaction after a time below the lease time:
//
//	ALTER ROLE orders SET idle_in_transaction_session_timeout = '5s'
//
// A writer that is cut off in a network keeps the lock until the server notices, so set
// tcp_keepalives_idle, tcp_keepalives_interval and tcp_keepalives_count too.
package fencesql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// Schema creates the table of fences. Its rows must never be deleted: a shard without a row
// accepts every generation.
const Schema = `CREATE TABLE IF NOT EXISTS shardlease_fences (
	shard_group TEXT NOT NULL,
	shard TEXT NOT NULL,
	generation BIGINT NOT NULL,
	PRIMARY KEY (shard_group, shard)
)`

// advance locks the row of the shard, waits for a transaction that has locked it, and then compares
// with what that one has stored.
const advance = `INSERT INTO shardlease_fences (shard_group, shard, generation) VALUES ($1, $2, $3)
ON CONFLICT (shard_group, shard) DO UPDATE SET generation = excluded.generation
WHERE shardlease_fences.generation <= excluded.generation`

const observe = `SELECT generation FROM shardlease_fences WHERE shard_group = $1 AND shard = $2`

// A Guard is a [fence.Guard] whose step is a transaction.
type Guard struct {
	DB *sql.DB // required
	// Options are those of the transactions. With a stricter isolation than the default of
	// PostgreSQL, read committed, a transaction may fail because of a concurrent one, and be
	// repeated.
	Options *sql.TxOptions
}

var _ fence.Guard[*sql.Tx] = Guard{}

// Do runs the effect in a transaction that raises the fence first, and commits it. The effect must
// use the transaction for all that it writes, and neither commit nor roll it back. If the connection
// is lost during the commit, Do returns an error and the effect may have happened.
func (g Guard) Do(ctx context.Context, t fence.Token, effect func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := g.DB.BeginTx(ctx, g.Options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit; also if the effect panics
	if err := Advance(ctx, tx, t); err != nil {
		return err
	}
	if err := effect(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the effect of %v: %w", t, err)
	}
	return nil
}

// Advance raises the fence of the token's shard in a transaction of the caller's. It returns a
// *checkpoint.StaleError if the fence is higher already; the caller then rolls back. Advance belongs
// to the beginning of the transaction: what the transaction has read before may be older than what
// the predecessor has written.
func Advance(ctx context.Context, tx *sql.Tx, t fence.Token) error {
	if err := t.Validate(); err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, advance, t.Group, t.Shard, t.Generation)
	if err != nil {
		return fmt.Errorf("raise the fence to %v: %w", t, err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("raise the fence to %v: %w", t, err)
	}
	if rows > 0 {
		return nil
	}
	var observed int64
	if err := tx.QueryRowContext(ctx, observe, t.Group, t.Shard).Scan(&observed); err != nil {
		return fmt.Errorf("read the fence of %v: %w", t, err)
	}
	return t.Refused(observed)
}
