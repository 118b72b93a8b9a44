package dynamostore

import (
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Fence is a condition for a user's own TransactWriteItems: the transaction takes
// effect only while h stands. It is how an effect in DynamoDB is fenced in the
// same atomic step; to look first and to write afterwards is worth nothing.
//
// It costs two write units, as every condition in a transaction does. [Fenced]
// reads the error of the transaction. DynamoDB cancels transactions that meet at one
// item, and a commit of the holder's is a write of the same row: make the transactions
// of a shard one after the other, and repeat those that were cancelled for a conflict.
// (DynamoDB Local never does that.)
func (s *Store) Fence(h lease.Hold) types.TransactWriteItem {
	e := newExpression()
	condition := e.is(attr.Generation, h.Generation) + " AND " + e.is(attr.Incarnation, string(h.Incarnation))
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                           &s.table,
		Key:                                 itemKey(h.Key),
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: tellItem,
	}}
}

// Fenced adds the StaleError to the error of a transaction that was cancelled
// because h no longer stood, and gives any other error back as it is. Where the
// row itself is gone the service tells nothing about it, and the error stays as it
// is: a ConditionalCheckFailed at the fence's place.
func Fenced(err error, h lease.Hold) error {
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
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
