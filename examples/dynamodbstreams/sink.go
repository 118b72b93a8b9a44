package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A sink is a table that stores the effect of each change of an item exactly once, for one
// group; other groups may use the same table. The partition key "id" consists of the group,
// with slashes escaped, and the item. The sort key "part" is "head" for the mark of an item, or
// "effect/" and the place of an effect in its shard. Each transaction has two conditions:
//
//   - The fence: the lease row still names this hold. It refuses a worker that was paused and
//     replaced.
//   - The mark: the item has no effect of this shard that is as late or later. It leaves out
//     records that the rightful owner of the shard reads again after a crash.
//
// An item has one mark: the place of its last effect. If the mark is of another shard, any record
// is new. The changes of an item are in one shard, and then in a child of that shard; and a
// worker that passes the fence holds a shard that is not finished, so that its children have
// not begun. DynamoDB names shards by their creation time, so the effects of an item are sorted
// by their parts.
type sink struct {
	client *dynamodb.Client
	table  string
	leases *dynamostore.Store
	group  string
}

// An effect is the result of one change of an item. Its value must fit into a DynamoDB item,
// which has up to 400 KB.
type effect struct {
	shard, sequence, item string
	value                 []byte
}

// mark returns the place of the effect in its shard, as a text: a later effect has a greater
// text. Sequence numbers are decimal numbers of up to 40 digits.
func (e effect) mark() string {
	return e.shard + "/" + strings.Repeat("0", max(0, 40-len(e.sequence))) + e.sequence
}

// keep stores an effect, unless the sink has it already. If the transaction conflicts with
// another one, or with a write of the lease row, keep repeats it.
func (s *sink) keep(ctx context.Context, h lease.Hold, e effect) error {
	const longest = time.Second
	if h.Key.Group != s.group {
		return fmt.Errorf("sink %s: it belongs to group %s, and the hold to group %s", s.table, s.group, h.Key.Group)
	}
	fence, err := s.leases.Fence(ctx, h)
	if err != nil {
		return fmt.Errorf("sink %s: %w", s.table, err)
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, longest) {
		_, err := s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
			TransactItems: []types.TransactWriteItem{fence, s.mark(e), s.put(e)},
		})
		cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
		if !ok || len(cancelled.CancellationReasons) != 3 {
			return err
		}
		code := func(i int) string { return aws.ToString(cancelled.CancellationReasons[i].Code) }
		switch fence := code(0); {
		case fence == "None" && code(1) == "ConditionalCheckFailed":
			return nil // the effect is stored already
		case !busy(fence) && (fence != "None" || !busy(code(1)) && !busy(code(2))):
			return fmt.Errorf("sink %s: %w", s.table, dynamostore.Fenced(err, h))
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// busy reports whether a transaction was cancelled for a conflict or throttled.
func busy(code string) bool {
	return code == "TransactionConflict" || code == "ThrottlingError" || code == "ProvisionedThroughputExceeded"
}

// put stores the effect. Change it for effects of your own, but keep the mark and its condition.
func (s *sink) put(e effect) types.TransactWriteItem {
	item := id(s.id(e.item), "effect/"+e.mark())
	item["value"] = &types.AttributeValueMemberB{Value: append([]byte{}, e.value...)} // the SDK sends nil as no value
	return types.TransactWriteItem{Put: &types.Put{TableName: &s.table, Item: item}}
}

func (s *sink) mark(e effect) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                &s.table,
		Key:                      id(s.id(e.item), "head"),
		ConditionExpression:      aws.String("attribute_not_exists(#mark) OR NOT begins_with(#mark, :shard) OR #mark < :mark"),
		UpdateExpression:         aws.String("SET #mark = :mark"),
		ExpressionAttributeNames: map[string]string{"#mark": "mark"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":shard": &types.AttributeValueMemberS{Value: e.shard + "/"},
			":mark":  &types.AttributeValueMemberS{Value: e.mark()},
		},
	}}
}

// begin returns the time at which the group began, and records now if it is new. The time is
// stored in the table, so it is the same for all workers and never changes.
//
// It is a whole minute, because the times of records are rounded down: to seconds by the
// service, according to its documentation, and to minutes by DynamoDB Local.
func (s *sink) begin(ctx context.Context, now time.Time) (time.Time, error) {
	item := id(s.id("/begin"), "head") // no table has an empty name
	item["at"] = &types.AttributeValueMemberS{Value: now.UTC().Truncate(time.Minute).Format(time.RFC3339)}
	_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.table, Item: item, ConditionExpression: aws.String("attribute_not_exists(id)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		item, err = failed.Item, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("sink %s: begin: %w", s.table, err)
	}
	at, _ := item["at"].(*types.AttributeValueMemberS)
	if at == nil {
		return time.Time{}, fmt.Errorf("sink %s: group %s has no time", s.table, s.group)
	}
	return time.Parse(time.RFC3339, at.Value)
}

func (s *sink) id(item string) string { return url.PathEscape(s.group) + "/" + item }

func id(id, part string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}, "part": &types.AttributeValueMemberS{Value: part}}
}
