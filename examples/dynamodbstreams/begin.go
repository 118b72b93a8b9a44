package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
)

// begin returns the time at which the group began, and records now if it is new. The time is
// stored in the table, so it is the same for all workers and never changes.
//
// It is a whole minute, because the times of records are rounded down: to seconds by the
// service, according to its documentation, and to minutes by DynamoDB Local.
func begin(ctx context.Context, sink *effects.Sink, group string, now time.Time) (time.Time, error) {
	item := map[string]types.AttributeValue{
		"id":    &types.AttributeValueMemberS{Value: url.PathEscape(group) + "//begin"}, // no table has an empty name
		"part":  &types.AttributeValueMemberS{Value: "begin"},
		"begun": &types.AttributeValueMemberS{Value: now.UTC().Truncate(time.Minute).Format(time.RFC3339)},
	}
	_, err := sink.Client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &sink.Table, Item: item, ConditionExpression: aws.String("attribute_not_exists(id)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		item, err = failed.Item, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("table %s: begin: %w", sink.Table, err)
	}
	at, _ := item["begun"].(*types.AttributeValueMemberS)
	if at == nil {
		return time.Time{}, fmt.Errorf("table %s: group %s has no time", sink.Table, group)
	}
	return time.Parse(time.RFC3339, at.Value)
}
