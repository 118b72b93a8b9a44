package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const (
	attrID      = "id"
	attrEffects = "effects"
	attrAt      = "at"
)

func keyItem(key string) map[string]types.AttributeValue { return id("key/" + key) }

func markOf(shard string) string { return "mark/" + shard }

func id(id string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{attrID: &types.AttributeValueMemberS{Value: id}}
}

// Begin gives the time at which a group began: now, if it never has. It is kept in the
// table, so that it is the same for all workers and all time.
func Begin(ctx context.Context, client *dynamodb.Client, table, group string, now time.Time) (time.Time, error) {
	item := id("begin/" + group)
	item[attrAt] = &types.AttributeValueMemberS{Value: now.UTC().Format(time.RFC3339Nano)}
	_, err := client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &table, Item: item,
		ConditionExpression:      aws.String("attribute_not_exists(#id)"),
		ExpressionAttributeNames: map[string]string{"#id": attrID},

		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		item, err = failed.Item, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("journal %s: begin: %w", table, err)
	}
	at, _ := item[attrAt].(*types.AttributeValueMemberS)
	if at == nil {
		return time.Time{}, fmt.Errorf("journal %s: the item of group %s has no time", table, group)
	}
	return time.Parse(time.RFC3339Nano, at.Value)
}

// CreateTable makes the table, or finds it made, and waits until it can be used.
func CreateTable(ctx context.Context, client *dynamodb.Client, table string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            &table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(attrID), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(attrID), KeyType: types.KeyTypeHash}},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	return dynamodb.NewTableExistsWaiter(client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, time.Minute)
}

// Effects gives what the journal has of a key, in the order in which it was kept.
func (j *Journal) Effects(ctx context.Context, key string) ([]string, error) {
	out, err := j.Client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &j.Table, Key: keyItem(key), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", j.Table, err)
	}
	list, _ := out.Item[attrEffects].(*types.AttributeValueMemberL)
	if list == nil {
		return nil, nil
	}
	var all []string
	for _, v := range list.Value {
		text, _ := v.(*types.AttributeValueMemberS)
		if text == nil {
			return nil, fmt.Errorf("journal %s: key %s: a page is no text", j.Table, key)
		}
		var page []string
		if err := json.Unmarshal([]byte(text.Value), &page); err != nil {
			return nil, fmt.Errorf("journal %s: key %s: %w", j.Table, key, err)
		}
		all = append(all, page...)
	}
	return all, nil
}
