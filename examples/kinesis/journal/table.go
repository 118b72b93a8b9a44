package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const (
	attrID      = "id"
	attrPart    = "part"
	attrPages   = "pages"
	attrEffects = "effects"
	attrParts   = "parts"
	attrData    = "data"
	attrAt      = "at"

	attrSequence = "sequence"
	attrIndex    = "index"
	attrKey      = "key"
	attrReason   = "reason"
	attrFailures = "failures"
	attrVerdict  = "verdict"

	partHead  = "head"
	partPage  = "page/"
	partBegin = "begin"

	longestKey = 1024 // bytes; DynamoDB allows 2,048 for an id
)

func markOf(shard string) string { return "mark/" + shard }

func rankOf(shard string) string { return "rank/" + shard }

// scope returns the part of an id that is unique to the stream and group.
func (j *Journal) scope(kind string) string {
	return kind + "/" + url.PathEscape(j.Stream) + "/" + url.PathEscape(j.Group)
}

// keyID returns the id for a partition key. A key in Kinesis has up to 256 characters, but the
// key of a packed record can be any bytes.
func (j *Journal) keyID(key string) string {
	if len(key) <= longestKey && utf8.ValidString(key) {
		return j.scope("key") + "/" + key
	}
	digest := sha256.Sum256([]byte(key))
	return j.scope("digest") + "/" + hex.EncodeToString(digest[:])
}

func item(id, part string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{attrID: text(id), attrPart: text(part)}
}

// Begin returns the time at which the group began to read the stream, and records now if the
// group is new. The time is stored in the table, so it is the same for all workers and never
// changes.
func (j *Journal) Begin(ctx context.Context, now time.Time) (time.Time, error) {
	if j.Stream == "" || j.Group == "" {
		return time.Time{}, fmt.Errorf("journal %s: begin: %w", j.Table, ErrScope)
	}
	begun := item(j.scope("begin"), partBegin)
	begun[attrAt] = text(now.UTC().Format(time.RFC3339Nano))
	_, err := j.Client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &j.Table, Item: begun,
		ConditionExpression:      aws.String("attribute_not_exists(#id)"),
		ExpressionAttributeNames: map[string]string{"#id": attrID},

		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		begun, err = failed.Item, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("journal %s: begin: %w", j.Table, err)
	}
	at, _ := begun[attrAt].(*types.AttributeValueMemberS)
	if at == nil {
		return time.Time{}, fmt.Errorf("journal %s: the item of group %s has no time", j.Table, j.Group)
	}
	return time.Parse(time.RFC3339Nano, at.Value)
}

// CreateTable creates the table unless it exists, and waits until it is active.
func CreateTable(ctx context.Context, client *dynamodb.Client, table string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrID), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(attrPart), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attrID), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(attrPart), KeyType: types.KeyTypeRange},
		},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	return dynamodb.NewTableExistsWaiter(client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, time.Minute)
}
