package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/shardlease/shardlease-go/shardlease/fencesql"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A sqlBox is an outbox in a SQL database. Handlers and relays keep their fences in the table of fencesql. The statements
// are those of PostgreSQL, and SQLite accepts them too.
type sqlBox struct {
	db    *sql.DB
	group string // of the workers whose handlers stage effects
}

var schema = []string{fencesql.Schema,
	`CREATE TABLE IF NOT EXISTS outbox_heads (
		shard_group TEXT, shard TEXT, position TEXT NOT NULL, last BIGINT NOT NULL,
		PRIMARY KEY (shard_group, shard))`,
	`CREATE TABLE IF NOT EXISTS outbox (
		shard_group TEXT, shard TEXT, sequence BIGINT,
		id TEXT NOT NULL, generation BIGINT NOT NULL, target TEXT NOT NULL, body TEXT NOT NULL,
		PRIMARY KEY (shard_group, shard, sequence))`,
}

const (
	create = `INSERT INTO outbox_heads (shard_group, shard, position, last) VALUES ($1, $2, '', 0) ON CONFLICT (shard_group, shard) DO NOTHING`
	read   = `SELECT position, last FROM outbox_heads WHERE shard_group = $1 AND shard = $2`
	move   = `UPDATE outbox_heads SET position = $1, last = $2 WHERE shard_group = $3 AND shard = $4 AND position = $5 AND last = $6`
	insert = `INSERT INTO outbox (shard_group, shard, sequence, id, generation, target, body) VALUES ($1, $2, $3, $4, $5, $6, $7)`
	first  = `SELECT sequence, id, generation, target, body FROM outbox WHERE shard_group = $1 AND shard = $2 ORDER BY sequence LIMIT $3`
	remove = `DELETE FROM outbox WHERE shard_group = $1 AND shard = $2 AND sequence <= $3`
)

// begin raises the fence and reads the head, in one transaction: no earlier owner stages anything after it.
func (b sqlBox) begin(ctx context.Context, h lease.Hold) (at head, err error) {
	err = b.under(ctx, h, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, create, b.group, h.Key.Name); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, read, b.group, h.Key.Name).Scan(&at.position, &at.last)
	})
	return at, err
}

// stage stores the effects of a record, and what else the handler changes, in one transaction. It returns where the
// outbox ends now. After an error the outcome may be unknown: the tenure has to end, and the next one begins at the head.
//
// Invariant: the effects of a shard are committed in the order of their sequence, because the transaction locks the fence
// of the shard. So a reader that sees one of them sees all that are before it. A sequence of the database would not do:
// it counts for all shards, and its order is not that of the commits.
func (b sqlBox) stage(ctx context.Context, h lease.Hold, at head, position string, effects []effect,
	change func(context.Context, *sql.Tx) error) (head, error) {
	next, staged, err := at.after(h, position, effects)
	if err != nil {
		return at, err
	}
	err = b.under(ctx, h, func(ctx context.Context, tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, move, next.position, next.last, b.group, h.Key.Name, at.position, at.last)
		if err != nil {
			return err
		}
		if rows, err := result.RowsAffected(); err != nil || rows == 0 {
			return errors.Join(err, errMoved)
		}
		for _, e := range staged {
			if _, err := tx.ExecContext(ctx, insert, b.group, e.shard, e.sequence, e.id, e.generation, e.target, e.body); err != nil {
				return err
			}
		}
		return change(ctx, tx)
	})
	if err != nil {
		return at, err
	}
	return next, nil
}

func (b sqlBox) unsent(ctx context.Context, shard string, most int) (effects []effect, err error) {
	rows, err := b.db.QueryContext(ctx, first, b.group, shard, most)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		e := effect{shard: shard}
		if err := rows.Scan(&e.sequence, &e.id, &e.generation, &e.target, &e.body); err != nil {
			return nil, err
		}
		effects = append(effects, e)
	}
	return effects, rows.Err()
}

func (b sqlBox) sent(ctx context.Context, relay lease.Hold, done []effect) error {
	return b.under(ctx, relay, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, remove, b.group, relay.Key.Name, done[len(done)-1].sequence)
		return err
	})
}

// under runs a transaction that raises the fence of a handler or a relay first.
func (b sqlBox) under(ctx context.Context, h lease.Hold, effect func(context.Context, *sql.Tx) error) error {
	return fencesql.Guard{DB: b.db}.Do(ctx, token(h), effect)
}
