package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A dynamoBox is an outbox in a table of DynamoDB. The fence is the lease row itself: there is nothing to raise.
//
// The partition of a shard has an item for each effect, under its sequence, and two others: the head, and the mark of the
// relay, which is the sequence of the last effect that it has removed.
type dynamoBox struct {
	client *dynamodb.Client
	table  string
	leases *dynamostore.Store // of the handlers and of the relays
	group  string             // of the workers whose handlers stage effects
}

const (
	headAt = -1
	markAt = 0
)

var errHole = errors.New("an effect is missing in the outbox")

// begin reads the head. Transactions of earlier owners are refused from the takeover on, so none is stored after it.
func (b dynamoBox) begin(ctx context.Context, h lease.Hold) (head, error) {
	out, err := b.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &b.table, Key: b.key(h.Key.Name, headAt), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return head{}, err
	}
	return head{text(out.Item["position"]), integer(out.Item["last"])}, nil
}

// stage stores the effects of a record, and what else the handler changes, in one transaction. It returns where the
// outbox ends now. After an error the outcome may be unknown: the tenure has to end, and the next one begins at the head.
func (b dynamoBox) stage(ctx context.Context, h lease.Hold, at head, position string, effects []effect,
	changes ...types.TransactWriteItem) (head, error) {
	next, staged, err := at.after(h, position, effects)
	if err != nil {
		return at, err
	}
	items := []types.TransactWriteItem{b.move(h.Key.Name, at, next)}
	for _, e := range staged {
		item := b.key(e.shard, e.sequence)
		item["effect"], item["generation"] = str(e.id), number(e.generation)
		item["target"], item["body"] = str(e.target), str(e.body)
		items = append(items, types.TransactWriteItem{Put: &types.Put{TableName: &b.table, Item: item}})
	}
	if err := b.transact(ctx, h, append(items, changes...)); err != nil {
		if why := reasons(err); len(why) > 1 && why[1] == refusedItem && !errors.Is(err, checkpoint.ErrStale) {
			return at, errors.Join(errMoved, err)
		}
		return at, err
	}
	return next, nil
}

// move puts the next head in place of the one that this tenure knows.
func (b dynamoBox) move(shard string, at, next head) types.TransactWriteItem {
	item := b.key(shard, headAt)
	item["position"], item["last"] = str(next.position), number(next.last)
	put := &types.Put{TableName: &b.table, Item: item, ConditionExpression: aws.String("attribute_not_exists(id)")}
	if at != (head{}) {
		put.ConditionExpression = aws.String("#position = :position AND #last = :last")
		put.ExpressionAttributeNames = map[string]string{"#position": "position", "#last": "last"}
		put.ExpressionAttributeValues = map[string]types.AttributeValue{":position": str(at.position), ":last": number(at.last)}
	}
	return types.TransactWriteItem{Put: put}
}

// unsent reads the mark and the effects after it. A query is no snapshot: it may pass the place of an effect before that
// effect is stored, and then find a later one. A second query finds both, because the first of them was stored before the
// second one was sent.
func (b dynamoBox) unsent(ctx context.Context, shard string, most int) ([]effect, error) {
	for range 2 {
		effects, mark, err := b.query(ctx, shard, most)
		if err != nil {
			return nil, err
		}
		whole := true
		for i, e := range effects {
			whole = whole && e.sequence == mark+1+int64(i)
		}
		if whole {
			return effects[:min(len(effects), most)], nil
		}
	}
	return nil, fmt.Errorf("%s: %w", shard, errHole)
}

func (b dynamoBox) query(ctx context.Context, shard string, most int) (effects []effect, mark int64, err error) {
	key := b.key(shard, markAt)
	out, err := b.client.Query(ctx, &dynamodb.QueryInput{
		TableName: &b.table, ConsistentRead: aws.Bool(true), Limit: aws.Int32(int32(most) + 1), // one more: the mark
		KeyConditionExpression:    aws.String("id = :id AND #sequence >= :mark"),
		ExpressionAttributeNames:  map[string]string{"#sequence": "sequence"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":id": key["id"], ":mark": key["sequence"]},
	})
	if err != nil {
		return nil, 0, err
	}
	for _, item := range out.Items {
		sequence := integer(item["sequence"])
		if sequence == markAt {
			mark = integer(item["last"])
			continue
		}
		effects = append(effects, effect{
			shard: shard, sequence: sequence, id: text(item["effect"]), generation: integer(item["generation"]),
			target: text(item["target"]), body: text(item["body"]),
		})
	}
	return effects, mark, nil
}

func (b dynamoBox) sent(ctx context.Context, relay lease.Hold, done []effect) error {
	mark := b.key(relay.Key.Name, markAt)
	mark["last"] = number(done[len(done)-1].sequence)
	items := []types.TransactWriteItem{{Put: &types.Put{TableName: &b.table, Item: mark}}}
	for _, e := range done {
		items = append(items, types.TransactWriteItem{Delete: &types.Delete{TableName: &b.table, Key: b.key(e.shard, e.sequence)}})
	}
	return b.transact(ctx, relay, items)
}

// transact makes a transaction on condition that h still holds its shard. It repeats one that was cancelled because of a
// conflict, as with a commit of the same worker.
func (b dynamoBox) transact(ctx context.Context, h lease.Hold, items []types.TransactWriteItem) error {
	fence, err := b.leases.Fence(ctx, h)
	if err != nil {
		return err
	}
	items = append([]types.TransactWriteItem{fence}, items...)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		// The SDK adds a token to each transaction: one that it sends twice takes effect once.
		_, err := b.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
		if !conflicts(err) {
			return dynamostore.Fenced(err, h)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

const refusedItem = "ConditionalCheckFailed"

// reasons returns why a transaction was cancelled, for each of its items.
func reasons(err error) (codes []string) {
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		for _, reason := range cancelled.CancellationReasons {
			codes = append(codes, aws.ToString(reason.Code))
		}
	}
	return codes
}

// conflicts reports whether a transaction was cancelled and may pass if it is repeated.
func conflicts(err error) bool {
	again := false
	for _, code := range reasons(err) {
		switch code {
		case refusedItem:
			return false
		case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
			again = true
		}
	}
	return again
}

// createTable creates the table of an outbox.
func createTable(ctx context.Context, client *dynamodb.Client, table string) error {
	id, sequence := aws.String("id"), aws.String("sequence")
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: id, AttributeType: types.ScalarAttributeTypeS}, {AttributeName: sequence, AttributeType: types.ScalarAttributeTypeN},
		},
		KeySchema: []types.KeySchemaElement{{AttributeName: id, KeyType: types.KeyTypeHash}, {AttributeName: sequence, KeyType: types.KeyTypeRange}},
	})
	if err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	return dynamodb.NewTableExistsWaiter(client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, time.Minute)
}

func (b dynamoBox) key(shard string, sequence int64) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"id": str(url.PathEscape(b.group) + "/" + shard), "sequence": number(sequence)}
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func text(v types.AttributeValue) string {
	s, ok := v.(*types.AttributeValueMemberS)
	if !ok {
		return ""
	}
	return s.Value
}

func integer(v types.AttributeValue) int64 {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	value, _ := strconv.ParseInt(n.Value, 10, 64)
	return value
}
