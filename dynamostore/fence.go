package dynamostore

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Fence returns a condition for the caller's own TransactWriteItems: the transaction takes
// effect only if h still holds the shard. This fences an effect in DynamoDB in one atomic
// step; reading the lease row first and writing afterwards would fence nothing.
//
// Fence makes no request, except before the store's first call about a row of the group: then it
// reads how many buckets the group has.
//
// The condition costs two write units, as every condition in a transaction does. [Fenced]
// translates the error of the transaction. DynamoDB cancels a transaction that conflicts
// with another write of the same item, and each commit of the holder writes the lease row.
// So make the transactions of a shard one after the other, and repeat those that were
// cancelled for a conflict. (DynamoDB Local never cancels a transaction for a conflict.)
func (s *Store) Fence(ctx context.Context, h lease.Hold) (types.TransactWriteItem, error) {
	at, err := s.itemKey(ctx, h.Key)
	if err != nil {
		return types.TransactWriteItem{}, fmt.Errorf("fence %v: %w", h.Key, err)
	}
	e := newExpression()
	condition := e.is(attr.Generation, h.Generation) + " AND " + e.is(attr.Incarnation, string(h.Incarnation))
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                           &s.table,
		Key:                                 at,
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: returnItem,
	}}, nil
}

// Fenced adds a [*checkpoint.StaleError] to the error of a transaction that was cancelled
// because h no longer held the shard, and returns any other error unchanged. If the lease row
// does not exist, the service returns no item, and the error stays unchanged too: a
// ConditionalCheckFailed at the position of the fence.
func Fenced(err error, h lease.Hold) error {
	cancelled, _ := errors.AsType[*types.TransactionCanceledException](err)
	if cancelled == nil {
		return err
	}
	for _, reason := range cancelled.CancellationReasons {
		if aws.ToString(reason.Code) != "ConditionalCheckFailed" {
			continue
		}
		r, malformed := decode(reason.Item)
		row, isRow := r.(lease.Row)
		if malformed == nil && isRow && row.Key() == h.Key {
			return errors.Join(&checkpoint.StaleError{
				Shard: row.Shard, Mine: h.Generation, Observed: row.Generation, Owner: row.Owner.Name,
			}, err)
		}
	}
	return err
}
