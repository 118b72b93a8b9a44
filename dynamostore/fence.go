package dynamostore

import (
	"errors"

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
// The condition costs two write units, as every condition in a transaction does. [Fenced]
// translates the error of the transaction. DynamoDB cancels a transaction that conflicts
// with another write of the same item, and each commit of the holder writes the lease row.
// So make the transactions of a shard one after the other, and repeat those that were
// cancelled for a conflict. (DynamoDB Local never cancels a transaction for a conflict.)
func (s *Store) Fence(h lease.Hold) types.TransactWriteItem {
	e := newExpression()
	condition := e.is(attr.Generation, h.Generation) + " AND " + e.is(attr.Incarnation, string(h.Incarnation))
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                           &s.table,
		Key:                                 itemKey(h.Key),
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: returnItem,
	}}
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
