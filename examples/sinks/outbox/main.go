// Outbox sends effects to systems that cannot compare generations: queues, mails and streams. A handler does not send.
// It stages the effect, as a row in the transaction that is fenced, and a relay sends what is staged. The relay is the
// handler of another group of workers, in which one worker at a time sends the effects of a shard.
//
//	cd examples/sinks/outbox && go run .
//
// It is a module of its own because it depends on a database, SQLite; dynamodb.go is the same in DynamoDB. The README says
// what each kind of target can promise.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencesql"
	_ "modernc.org/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

// run plays two takeovers: that of a shard whose handler is paused before it stages, and that of a relay which dies
// between a send and its mark.
func run(ctx context.Context, out io.Writer) (err error) {
	b, err := open(ctx, ":memory:")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.db.Close()) }()
	late, err := takeover.Play(ctx, new(memstore.Store), out, b.write)
	if err != nil {
		return err
	}
	if !errors.Is(late, checkpoint.ErrStale) {
		return fmt.Errorf("a late effect was staged: %v", late)
	}
	staged, err := b.unsent(ctx, takeover.Shard, mostEffects)
	if err != nil {
		return err
	}
	k := newTargets(time.Hour)
	p := play{
		store: new(memstore.Store), shards: []string{takeover.Shard}, ttl: time.Second, raise: b.raise(),
		relay:  relay{box: b, targets: k.all(), batch: 3, idle: 50 * time.Millisecond, patience: time.Minute, log: slog.New(slog.DiscardHandler)},
		mishap: mishap{step: "sent", nth: 5},
	}
	fmt.Fprintf(out, "%d effects are staged; relay c is killed after it has sent the %dth and before it marks it\n", len(staged), p.nth)
	if err := p.run(ctx); err != nil {
		return err
	}
	for _, of := range []struct {
		name string
		got  []effect
	}{{"queue", k.queue.all()}, {"mail", k.mail.all()}, {"stream", k.stream.all()}} {
		v := judge(only(staged, of.name), of.got)
		fmt.Fprintf(out, "%s: %d effects, %d lost, %d sent twice, in order: %t\n", of.name, len(of.got), v.lost, v.twice, !v.disorder)
	}
	return nil
}

// write stages the effects of a record: one for each target. A handler with a loop calls begin once, when its tenure
// begins. Play calls write for each record.
func (b sqlBox) write(ctx context.Context, t *shardlease.Tenure, record int, pause func() bool) error {
	at, err := b.begin(ctx, t.Hold())
	if err != nil {
		return err
	}
	if before, err := strconv.Atoi(at.position); err == nil && before >= record {
		return nil // an earlier owner has staged them, and did not come to its checkpoint
	}
	pause()
	_, err = b.stage(ctx, t.Hold(), at, strconv.Itoa(record), effectsOf(record),
		func(context.Context, *sql.Tx) error { return nil }) // here the handler changes its own tables
	return err
}

func effectsOf(record int) (effects []effect) {
	for _, target := range []string{"queue", "mail", "stream"} {
		effects = append(effects, effect{name: "confirm by " + target, target: target, body: fmt.Sprintf("order %d is confirmed", record)})
	}
	return effects
}

// raise closes the outbox to the earlier owner of a shard, at its takeover.
func (b sqlBox) raise() []shardlease.Target {
	return []shardlease.Target{{Name: "outbox", Raise: fence.Raise(fencesql.Guard{DB: b.db})}}
}

// open opens a database, and creates its tables. It allows one connection, because each connection to a database in memory
// would have a database of its own.
func open(ctx context.Context, name string) (sqlBox, error) {
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return sqlBox{}, err
	}
	db.SetMaxOpenConns(1)
	for _, table := range schema {
		if _, err := db.ExecContext(ctx, table); err != nil {
			return sqlBox{}, errors.Join(err, db.Close())
		}
	}
	return sqlBox{db, takeover.Group}, nil
}
