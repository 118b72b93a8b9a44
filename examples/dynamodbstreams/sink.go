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

// A sink is a table in which each change of an item has an effect, once, as one group reads
// it; other groups may use the same table. Its partition key is "id", which is the group, with
// slashes escaped, and the item; its sort key is "part": "head", which has the mark, or
// "effect/" and the place of an effect in its shard. Two conditions stand in each transaction:
//
//   - The fence: the lease row still names this hold. It keeps out a worker that was
//     paused and replaced.
//   - The mark: the item has no effect of this shard yet that is as late. It keeps out what
//     is read again after a crash, by a worker that has every right to.
//
// An item has one mark, of the shard its last effect came from. Under another shard's mark
// any record is new: the changes of an item come from one shard, and then from that one's
// child; and who gets past the fence holds a shard that is not finished, so that its
// children have not begun. DynamoDB names shards by the time when they were made, so the
// effects of an item are sorted by their parts.
type sink struct {
	client *dynamodb.Client
	table  string
	leases *dynamostore.Store
	group  string
}

// An effect is what came of one change of an item. The value may be what fits into an item of
// DynamoDB, which is 400 KB.
type effect struct {
	shard, sequence, item string
	value                 []byte
}

// mark is the place of the effect in its shard, as a text: a later one has a greater text.
// Sequence numbers are decimal numbers of up to 40 digits.
func (e effect) mark() string {
	return e.shard + "/" + strings.Repeat("0", max(0, 40-len(e.sequence))) + e.sequence
}

// keep keeps an effect, unless it is there. A transaction may meet another one on a row,
// the lease row too: then it is made again.
func (s *sink) keep(ctx context.Context, h lease.Hold, e effect) error {
	const longest = time.Second
	if h.Key.Group != s.group {
		return fmt.Errorf("sink %s: it is of group %s, and the hold of group %s", s.table, s.group, h.Key.Group)
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, longest) {
		_, err := s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
			TransactItems: []types.TransactWriteItem{s.leases.Fence(h), s.mark(e), s.put(e)},
		})
		cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
		if !ok || len(cancelled.CancellationReasons) != 3 {
			return err
		}
		code := func(i int) string { return aws.ToString(cancelled.CancellationReasons[i].Code) }
		switch fence := code(0); {
		case fence == "None" && code(1) == "ConditionalCheckFailed":
			return nil // known
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

// busy reports whether an item only was in use, or too much was asked of it.
func busy(code string) bool {
	return code == "TransactionConflict" || code == "ThrottlingError" || code == "ProvisionedThroughputExceeded"
}

// put is what to change for effects of your own; leave the mark and its condition.
func (s *sink) put(e effect) types.TransactWriteItem {
	item := id(s.id(e.item), "effect/"+e.mark())
	item["value"] = &types.AttributeValueMemberB{Value: append([]byte{}, e.value...)} // nil is no value
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

// begin gives the time at which the group began: now, if it never has. It is kept in the
// table, so that it is the same for all workers and all time.
//
// It is a whole minute, because the times of records are rounded down: to seconds, as the
// service has documented it of late, or to minutes, as DynamoDB Local does it.
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
