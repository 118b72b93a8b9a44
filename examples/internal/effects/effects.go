// Package effects is the sink of the examples that consume a stream: a table of DynamoDB that has the effect of each
// record exactly once. Each transaction has two conditions, and both are needed:
//
//   - The fence: the lease row still names this hold. It refuses a worker that was paused and replaced.
//   - The id: the table does not have the effect yet. It leaves out the records that the rightful owner of the shard
//     processes again after a crash, because its checkpoint is older than its last effects.
//
// The partition key of an item is "id": the group with slashes escaped, a slash, and the key of the record. The sort key is
// "part": "effect/" and the id of the record, or "total". An effect has a "value", and in "at" the nanoseconds of the time at
// which it was stored. The total has the number of the key's "effects": it shows a kind of effect that would be wrong if it
// happened twice, as any other that you put into the transaction.
package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Most is how many effects fit into one call of Store: a transaction has at most 100 items.
const Most = 49

// A Sink is the table. Groups may share it.
type Sink struct {
	Client *dynamodb.Client
	Table  string
	Leases *dynamostore.Store
}

// An Effect is the result of one record. Its value must fit into an item, which has up to 400 KB.
type Effect struct {
	Key   string // of the record
	ID    string // the same whenever the record is processed, and different for each record of the key
	Value []byte
}

// Connect returns a client of DynamoDB. The errors of DynamoDB Local have no checksum, and the SDK would log a warning for
// each. Other endpoints have TLS.
func Connect(sdk aws.Config) *dynamodb.Client {
	return dynamodb.NewFromConfig(sdk, func(o *dynamodb.Options) {
		o.DisableValidateResponseChecksum = strings.HasPrefix(aws.ToString(o.BaseEndpoint), "http:")
	})
}

// CreateTable creates the table if there is none, and waits for it.
func CreateTable(ctx context.Context, client *dynamodb.Client, table string) error {
	id, part := aws.String("id"), aws.String("part")
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: id, AttributeType: types.ScalarAttributeTypeS}, {AttributeName: part, AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{{AttributeName: id, KeyType: types.KeyTypeHash}, {AttributeName: part, KeyType: types.KeyTypeRange}},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	return dynamodb.NewTableExistsWaiter(client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, time.Minute)
}

// Store stores effects in one transaction. It leaves out those that the table has already, and returns how many these
// are. If the transaction conflicts with another one, or with a write of the lease row, Store repeats it.
func (s *Sink) Store(ctx context.Context, h lease.Hold, effects []Effect) (known int, err error) {
	const longest = time.Second
	fence, err := s.Leases.Fence(ctx, h)
	if err != nil {
		return 0, fmt.Errorf("table %s: %w", s.Table, err)
	}
	all := len(effects)
	for pause := 10 * time.Millisecond; len(effects) > 0; pause = min(2*pause, longest) {
		items := append([]types.TransactWriteItem{fence}, s.items(h.Key.Group, effects)...)
		_, err := s.Client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
		if err == nil {
			break
		}
		fresh, again := without(effects, err)
		if !again {
			return 0, fmt.Errorf("table %s: %w", s.Table, dynamostore.Fenced(err, h))
		}
		if len(fresh) < len(effects) {
			effects = fresh
			continue
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return all - len(effects), nil
}

// without leaves out the effects that the table has, according to the error of a transaction. It returns false if the
// transaction would fail again.
func without(effects []Effect, err error) (fresh []Effect, again bool) {
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok || len(cancelled.CancellationReasons) <= len(effects) {
		return nil, false
	}
	known := map[int]bool{}
	for i, reason := range cancelled.CancellationReasons {
		switch aws.ToString(reason.Code) {
		case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
			again = true
		case "ConditionalCheckFailed":
			if i == 0 { // the fence
				return nil, false
			}
			known[i-1], again = true, true
		}
	}
	for i, e := range effects {
		if !known[i] {
			fresh = append(fresh, e)
		}
	}
	return fresh, again
}

// items returns the writes of the effects, in their order, and then those of the totals.
func (s *Sink) items(group string, effects []Effect) (items []types.TransactWriteItem) {
	totals, now := map[string]int{}, number(time.Now().UnixNano())
	for _, e := range effects {
		item := key(group, e.Key, "effect/"+e.ID)
		item["at"] = now
		item["value"] = &types.AttributeValueMemberB{Value: append([]byte{}, e.Value...)} // the SDK sends nil as no value
		items = append(items, types.TransactWriteItem{Put: &types.Put{
			TableName: &s.Table, Item: item, ConditionExpression: aws.String("attribute_not_exists(id)"),
		}})
		totals[e.Key]++
	}
	for of, n := range totals {
		items = append(items, types.TransactWriteItem{Update: &types.Update{
			TableName: &s.Table, Key: key(group, of, "total"), UpdateExpression: aws.String("ADD effects :n"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":n": number(int64(n))},
		}})
	}
	return items
}

func key(group, of, part string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"id":   &types.AttributeValueMemberS{Value: url.PathEscape(group) + "/" + of},
		"part": &types.AttributeValueMemberS{Value: part},
	}
}

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// Read returns the values of a key's effects, in the order in which they were stored, and the total.
func (s *Sink) Read(ctx context.Context, group, of string) (values [][]byte, total int, err error) {
	id := key(group, of, "")["id"]
	var stored []item
	pages := dynamodb.NewQueryPaginator(s.Client, &dynamodb.QueryInput{
		TableName: &s.Table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("id = :id"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":id": id},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("table %s: %w", s.Table, err)
		}
		for _, in := range page.Items {
			if value, ok := in["value"].(*types.AttributeValueMemberB); ok {
				stored = append(stored, item{numberOf(in["at"]), value.Value})
			} else {
				total = int(numberOf(in["effects"]))
			}
		}
	}
	// The effects of one transaction have the same time; their ids are in order.
	slices.SortStableFunc(stored, func(a, b item) int { return cmp.Compare(a.at, b.at) })
	for _, i := range stored {
		values = append(values, i.value)
	}
	return values, total, nil
}

type item struct {
	at    int64
	value []byte
}

func numberOf(v types.AttributeValue) int64 {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	value, _ := strconv.ParseInt(n.Value, 10, 64)
	return value
}
