package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A consumer writes what it processes to a table of its own, in the same transaction that
// checks that its tenure still stands.
type consumer struct {
	client *dynamodb.Client
	store  *dynamostore.Store
	table  string // of the effects
}

// write has the effect of one record, unless another worker has the shard by now. A
// record that is processed twice replaces its item, because the item has the id of the record.
func (c *consumer) write(ctx context.Context, t *shardlease.Tenure, position string) error {
	fence, err := c.store.Fence(ctx, t.Hold())
	if err != nil {
		return err
	}
	_, err = c.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		fence,
		{Put: &types.Put{TableName: &c.table, Item: map[string]types.AttributeValue{
			"id": &types.AttributeValueMemberS{Value: t.Shard().Name + "/" + position},
		}}},
	}})
	return dynamostore.Fenced(err, t.Hold()) // a *checkpoint.StaleError, where the fence refused it
}

// handle stands for a handler that reads records.
func (c *consumer) handle(ctx context.Context, t *shardlease.Tenure) error {
	for n := 1; ctx.Err() == nil; n++ {
		position := fmt.Sprintf("%09d", n)
		if err := c.write(t.Context(), t, position); err != nil {
			return err
		}
		if err := t.Mark(position); err != nil {
			return err
		}
	}
	return nil
}

// run runs one worker until ctx ends. The client is yours, with your region, credentials and
// HTTP transport: dynamodb.NewFromConfig of what config.LoadDefaultConfig returns.
func run(ctx context.Context, client *dynamodb.Client) error {
	// In production Terraform makes the table (docs/deploy/table.tf), and the workers need no
	// permission for it. An existing table is left as it is.
	if err := dynamostore.CreateTable(ctx, client, "leases", dynamostore.TableOptions{}); err != nil {
		return err
	}
	// Open checks the key schema and every permission that a worker of the group needs.
	store, err := dynamostore.Open(ctx, client, "leases", dynamostore.Options{Group: "orders"})
	if errors.Is(err, dynamostore.ErrDenied) {
		return fmt.Errorf("compare docs/iam.md: %w", err)
	}
	if err != nil {
		return err
	}
	worker, err := shardlease.New(store, shardlease.Static("shard-0", "shard-1"), shardlease.Config{
		Group: "orders", Handoff: rebalance.Cooperative,
	})
	if err != nil {
		return err
	}
	c := &consumer{client: client, store: store, table: "orders"}
	return worker.Run(ctx, c.handle)
}

// A dashboard lists the rows of a group with the observer's policy in docs/iam.md.
func ExampleOpenReader() {
	ctx := context.Background()
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1", BaseEndpoint: aws.String("http://localhost:8000")})
	reader, err := dynamostore.OpenReader(ctx, client, "leases", dynamostore.Options{Group: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	for record, err := range reader.List(ctx, lease.Query{Group: "orders", Kind: lease.KindLease, Eventually: true}) {
		if err != nil {
			log.Print(err)
			continue
		}
		row := record.(lease.Row)
		fmt.Println(row.Shard, row.Owner.Name, row.Generation)
	}
}

// The leases are in DynamoDB, and the effects of the handler are fenced by a transaction.
func Example() {
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1", BaseEndpoint: aws.String("http://localhost:8000")})
	if err := run(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}
