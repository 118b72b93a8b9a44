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
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A processor makes the effect of one change of an item. It may be called again for the
// same change: what it does beside its effect it has to do twice without harm. An error stops
// the shard before the change. After MaxAttempts it is quarantined; a change that can never be
// processed has to be put elsewhere and answered with an effect that says so.
type processor func(ctx context.Context, table string, r types.Record) ([]byte, error)

// retention is how long DynamoDB keeps a change.
const retention = 24 * time.Hour

// A consumer processes the shards that are its worker's, one record at a time.
type consumer struct {
	streams *streams
	start   time.Time // what was changed before is left out
	process processor
	keep    func(ctx context.Context, h lease.Hold, e effect) error
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
		// There may be nothing to mark. After a failure the change that failed may come next,
		// and if a read were progress, the count of attempts would begin again: until a change is
		// marked the tenure is only alive, and no stall. DynamoDB does not say whether a reader has
		// caught up; but after a day of empty reads the change that failed is trimmed.
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
				c.streams.log.Error("a change failed, and its shard stops before it", "shard", t.Shard().Name,
					"sequence", *r.Dynamodb.SequenceNumber, "attempt", t.Attempt()+1, "err", err)
				return err
			}
		}
	}
	return nil
}

// one processes a record and marks it. A crash before the mark is stored leaves the effect
// kept; the next worker reads the record again, and the sink knows it.
func (c *consumer) one(ctx context.Context, t *shardlease.Tenure, r types.Record) error {
	at := r.Dynamodb.ApproximateCreationDateTime
	if at == nil || !at.Before(c.start) {
		table, _, _ := strings.Cut(t.Shard().Name, "/")
		value, err := c.process(ctx, table, r)
		if err != nil {
			return fmt.Errorf("record %s: %w", *r.EventID, err)
		}
		e := effect{t.Shard().Name, *r.Dynamodb.SequenceNumber, table + "/" + keyText(r.Dynamodb.Keys), value}
		if err := c.keep(ctx, t.Hold(), e); err != nil {
			return err
		}
	}
	return t.Mark(*r.Dynamodb.SequenceNumber)
}

// keyText is the primary key of an item as a text.
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
