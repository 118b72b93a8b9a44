package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A sink is a table with an item for each item of the tables that are read, to which
// effects are appended, each once. Two conditions stand in each transaction:
//
//   - The fence: the lease row still names this hold. It keeps out a worker that was
//     paused and replaced.
//   - The mark: the item has no effect of this shard yet that is as late. It keeps out what
//     is read again after a crash, by a worker that has every right to.
//
// An item has one mark, of the shard its last effect came from. Under another shard's mark
// any record is new: the changes of an item come from one shard, and then from that one's
// child; and who gets past the fence holds a shard that is not finished, so that its
// children have not begun.
type sink struct {
	client *dynamodb.Client
	table  string
	leases *dynamostore.Store
}

// An effect is what came of one change of an item.
type effect struct{ shard, sequence, item, value string }

// mark is the place of the effect in its shard, as a text: a later one has a greater text.
// Sequence numbers are decimal numbers of up to 40 digits.
func (e effect) mark() string {
	return e.shard + "/" + strings.Repeat("0", max(0, 40-len(e.sequence))) + e.sequence
}

// keep keeps an effect, unless it is there. A transaction may meet another one on a row,
// the lease row too: then it is made again.
func (s *sink) keep(ctx context.Context, h lease.Hold, e effect) error {
	const longest = time.Second
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, longest) {
		_, err := s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
			TransactItems: []types.TransactWriteItem{s.leases.Fence(h), s.append(e)},
		})
		cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
		if !ok || len(cancelled.CancellationReasons) != 2 {
			return err
		}
		fence, effect := aws.ToString(cancelled.CancellationReasons[0].Code), aws.ToString(cancelled.CancellationReasons[1].Code)
		switch {
		case fence == "None" && effect == "ConditionalCheckFailed":
			return nil // known
		case !busy(fence) && (fence != "None" || !busy(effect)):
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

// append is what to change for effects of your own; leave the condition and the mark.
func (s *sink) append(e effect) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                &s.table,
		Key:                      id(e.item),
		ConditionExpression:      aws.String("attribute_not_exists(#mark) OR NOT begins_with(#mark, :shard) OR #mark < :mark"),
		UpdateExpression:         aws.String("SET #mark = :mark, #effects = list_append(if_not_exists(#effects, :none), :new)"),
		ExpressionAttributeNames: map[string]string{"#mark": "mark", "#effects": "effects"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":shard": &types.AttributeValueMemberS{Value: e.shard + "/"},
			":mark":  &types.AttributeValueMemberS{Value: e.mark()},
			":new":   &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberS{Value: e.value}}},
			":none":  &types.AttributeValueMemberL{},
		},
	}}
}

// begin gives the time at which a group began: now, if it never has. It is kept in the
// table, so that it is the same for all workers and all time.
//
// It is a whole minute, because the times of records are rounded down: to seconds, as the
// service has documented it of late, or to minutes, as DynamoDB Local does it.
func (s *sink) begin(ctx context.Context, group string, now time.Time) (time.Time, error) {
	item := id("/begin/" + group) // no table has an empty name
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
		return time.Time{}, fmt.Errorf("sink %s: group %s has no time", s.table, group)
	}
	return time.Parse(time.RFC3339, at.Value)
}

func id(id string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}}
}
