// Package journal is a sink that keeps each effect exactly once: a DynamoDB table with an
// item for each key, to which effects are appended.
//
// Two conditions stand in each transaction, and both are needed:
//
//   - The fence: the lease row still names this hold. It keeps out a worker that was
//     paused and replaced, whatever it has computed.
//   - The mark: the item has nothing of this shard yet that is as late. It keeps out what
//     is processed again after a crash, by a worker that has every right to: its
//     checkpoint is older than its last effects.
//
// The mark moves in the transaction in which the effects are kept, so neither is there
// without the other. It is one attribute for each shard that a key was ever in: two or
// three over years of resharding. Positions of different shards are never compared.
//
// To start from this: put what you do with an effect in place of the list, and leave the
// two conditions and the mark as they are.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Journal is the sink. The exported fields are required.
type Journal struct {
	Client *dynamodb.Client
	Table  string
	Leases *dynamostore.Store

	stats stats
}

type stats struct{ kept, known, stale atomic.Int64 }

// Stats counts effects: those that were kept, those that were known already, and the
// writes that the fence refused.
func (j *Journal) Stats() (kept, known, stale int64) {
	return j.stats.kept.Load(), j.stats.known.Load(), j.stats.stale.Load()
}

// What one transaction may hold: a hundred items, of which the fence is one, and four
// megabytes, of which the rest of the request gets one.
const (
	mostKeys  = 99
	mostBytes = 3 << 20
)

// Write keeps the effects, in as few transactions as there can be. Each of them is whole:
// when one fails, those before it are kept, and known the next time.
func (j *Journal) Write(ctx context.Context, h lease.Hold, effects []consumer.Effect) error {
	for len(effects) > 0 {
		pages, left := cut(effects)
		if err := j.keep(ctx, h, pages); err != nil {
			if errors.Is(err, checkpoint.ErrStale) {
				j.stats.stale.Add(1)
			}
			return fmt.Errorf("journal %s: %w", j.Table, err)
		}
		effects = left
	}
	return nil
}

// A page is what is to be appended to one key, in order.
type page []consumer.Effect

// cut takes from the front of effects what one transaction can hold, and sorts it into
// pages: a transaction can touch an item only once.
func cut(effects []consumer.Effect) (pages []page, left []consumer.Effect) {
	at, size := map[string]int{}, 0
	for n, e := range effects {
		i, there := at[e.Record.Key]
		size += len(e.Value) + len(e.Record.Key)
		if n > 0 && (size > mostBytes || !there && len(pages) == mostKeys) {
			return pages, effects[n:]
		}
		if !there {
			i = len(pages)
			at[e.Record.Key], pages = i, append(pages, nil)
		}
		pages[i] = append(pages[i], e)
	}
	return pages, nil
}

// keep makes one transaction, and again without what turns out to be known, until it is
// through. Nobody but the holder gets past the fence, so twice is the most there is to
// it; but a transaction may also meet another on a row.
func (j *Journal) keep(ctx context.Context, h lease.Hold, pages []page) error {
	const longest = time.Second
	for pause := 10 * time.Millisecond; len(pages) > 0; {
		items := []types.TransactWriteItem{j.Leases.Fence(h)}
		for _, p := range pages {
			items = append(items, j.append(p))
		}
		err := j.transact(ctx, items)
		if err == nil {
			for _, p := range pages {
				j.stats.kept.Add(int64(len(p)))
			}
			return nil
		}
		left, again := j.without(pages, err)
		if !again {
			return dynamostore.Fenced(err, h)
		}
		if pages = left; len(pages) > 0 {
			if err := rest(ctx, pause); err != nil {
				return err
			}
		}
		pause = min(2*pause, longest)
	}
	return nil
}

// patience is how long a transaction may take, with the attempts of the SDK. Whether one
// that was given up took effect is not known, and need not be: the marks tell.
const patience = 20 * time.Second

func (j *Journal) transact(ctx context.Context, items []types.TransactWriteItem) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := j.Client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	return err
}

// text is a page as it is kept: one text, which costs less than a list of many.
func (p page) text() types.AttributeValue {
	values := make([]string, len(p))
	for i, e := range p {
		values[i] = e.Value
	}
	text, _ := json.Marshal(values) // of texts: it cannot fail
	return &types.AttributeValueMemberS{Value: string(text)}
}

func (j *Journal) append(p page) types.TransactWriteItem {
	first, last := p[0].Record, p[len(p)-1].Record
	return types.TransactWriteItem{Update: &types.Update{
		TableName:           &j.Table,
		Key:                 keyItem(first.Key),
		ConditionExpression: aws.String("attribute_not_exists(#mark) OR #mark < :first"),
		UpdateExpression:    aws.String("SET #mark = :last, #effects = list_append(if_not_exists(#effects, :none), :new)"),
		ExpressionAttributeNames: map[string]string{
			"#mark": markOf(first.Shard), "#effects": attrEffects,
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":first": &types.AttributeValueMemberS{Value: first.Order()},
			":last":  &types.AttributeValueMemberS{Value: last.Order()},
			":new":   &types.AttributeValueMemberL{Value: []types.AttributeValue{p.text()}},
			":none":  &types.AttributeValueMemberL{},
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// without leaves out what the items have already, as the service tells it. It reports
// false when there is another reason, and no sense in another try.
func (j *Journal) without(pages []page, err error) (left []page, again bool) {
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok || len(cancelled.CancellationReasons) != len(pages)+1 {
		return nil, false
	}
	fence, reasons := cancelled.CancellationReasons[0], cancelled.CancellationReasons[1:]
	again = busy(fence)
	if !again && aws.ToString(fence.Code) != "None" {
		return nil, false
	}
	for i, p := range pages {
		again = again || busy(reasons[i])
		if aws.ToString(reasons[i].Code) == "ConditionalCheckFailed" {
			mark, _ := reasons[i].Item[markOf(p[0].Record.Shard)].(*types.AttributeValueMemberS)
			if mark == nil {
				return nil, false
			}
			known := 0
			for known < len(p) && p[known].Record.Order() <= mark.Value {
				known++
			}
			j.stats.known.Add(int64(known))
			p, again = p[known:], again || known > 0
		}
		if len(p) > 0 {
			left = append(left, p)
		}
	}
	return left, again
}

// busy reports whether an item only was in use, or too much was asked of it.
func busy(reason types.CancellationReason) bool {
	switch aws.ToString(reason.Code) {
	case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		return true
	}
	return false
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
