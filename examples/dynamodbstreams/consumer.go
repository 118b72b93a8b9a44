package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A processor makes the effect of one change of an item. It may be called again for the same
// change, so its other side effects must be idempotent. An error stops the shard before the
// change, and after MaxAttempts the shard is quarantined. For a change that can never be
// processed, store the change elsewhere and return an effect that records this.
type processor func(ctx context.Context, table string, r types.Record) ([]byte, error)

// retention is how long DynamoDB keeps a change.
const retention = 24 * time.Hour

// A consumer processes the shards of its worker, one record at a time.
type consumer struct {
	streams *streams
	start   time.Time // earlier changes are left out
	process processor
	keep    func(ctx context.Context, h lease.Hold, all []effects.Effect) (known int, err error)
}

// handle is the handler for shardlease.Worker.Run: it reads a shard until it has to wind
// down, and finishes it at its end. Only then do its children start, so that the changes of
// an item stay in order.
func (c *consumer) handle(ctx context.Context, t *shardlease.Tenure) error {
	begun := time.Now()
	for records, err := range c.streams.read(ctx, t.Shard().Name, t.Checkpoint().Position) {
		switch {
		case errors.Is(err, io.EOF):
			return t.Finish(t.Context())
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		// A read may return nothing to mark. After a failed attempt an empty read is no progress,
		// which would reset the count of attempts: the change that failed may follow. Until a
		// change is marked, Alive reports only that the tenure is not stalled. DynamoDB does not
		// report whether a reader has caught up; but after a day of empty reads, the change that
		// failed is trimmed. Until then the deaths of an idle shard's workers add up, at most over
		// the four hours or so for which a shard is open.
		if t.Attempt() == 0 || len(records) == 0 && time.Since(begun) > retention {
			t.Progress()
		} else {
			t.Alive()
		}
		for _, r := range records {
			if ctx.Err() != nil {
				return nil
			}
			if err := c.one(t.Context(), t, r); err != nil {
				c.streams.log.Error("change failed: its shard stops before it", "shard", t.Shard().Name,
					"sequence", *r.Dynamodb.SequenceNumber, "attempt", t.Attempt()+1, "err", err)
				return err
			}
		}
	}
	return nil
}

// one processes a record and marks it. After a crash before the commit of the mark, the effect
// is in the sink; the next worker reads the record again, and the sink leaves it out.
func (c *consumer) one(ctx context.Context, t *shardlease.Tenure, r types.Record) error {
	at := r.Dynamodb.ApproximateCreationDateTime
	if at == nil || !at.Before(c.start) {
		table, _, _ := strings.Cut(t.Shard().Name, "/")
		value, err := c.process(ctx, table, r)
		if err != nil {
			return fmt.Errorf("record %s: %w", *r.EventID, err)
		}
		e := effects.Effect{Key: table + "/" + keyText(r.Dynamodb.Keys), ID: t.Shard().Name + "/" + *r.Dynamodb.SequenceNumber, Value: value}
		if _, err := c.keep(ctx, t.Hold(), []effects.Effect{e}); err != nil {
			return err
		}
	}
	return t.Mark(*r.Dynamodb.SequenceNumber)
}

// keyText returns the primary key of an item as a text.
func keyText(keys map[string]types.AttributeValue) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		switch v := keys[name].(type) {
		case *types.AttributeValueMemberS:
			parts = append(parts, fmt.Sprintf("%s=%q", name, v.Value))
		case *types.AttributeValueMemberN:
			parts = append(parts, name+"="+v.Value)
		case *types.AttributeValueMemberB:
			parts = append(parts, fmt.Sprintf("%s=%x", name, v.Value))
		}
	}
	return strings.Join(parts, ",")
}
