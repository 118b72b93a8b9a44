// Dynamodb is a fenced sink in DynamoDB: one transaction contains the effect and the condition
// that the worker still holds the shard. The sink itself stores no fences.
//
//	examples/dynamodbstreams/run-local go -C ../.. run ./examples/sinks/dynamodb
//
// This command starts a DynamoDB Local, for which it needs Node and Java. To use one that
// runs already, set -endpoint or DYNAMODB_ENDPOINT. The program creates two tables, and
// deletes them at its end.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A sink is a table of orders, next to the lease table.
type sink struct {
	client         *dynamodb.Client
	leases, orders string
	store          *dynamostore.Store
}

// write stores the order of a record if the tenure still holds its shard.
func (s *sink) write(ctx context.Context, t *shardlease.Tenure, record int, pause func() bool) error {
	return s.put(ctx, t.Hold(), fmt.Sprintf("%s/%d", t.Shard().Name, record), fmt.Sprintf("order %d", record), func() { pause() })
}

// put stores an order if h still holds its shard. The SDK adds a token to each transaction, so a
// transaction that it sends twice takes effect once.
func (s *sink) put(ctx context.Context, h lease.Hold, id, text string, pause func()) error {
	order := types.TransactWriteItem{Put: &types.Put{
		TableName: &s.orders,
		Item: map[string]types.AttributeValue{
			"id":         &types.AttributeValueMemberS{Value: id},
			"text":       &types.AttributeValueMemberS{Value: text},
			"generation": &types.AttributeValueMemberN{Value: strconv.FormatInt(h.Generation, 10)},
		},
	}}
	fence, err := s.store.Fence(ctx, h)
	if err != nil {
		return err
	}
	pause()
	_, err = s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{fence, order},
	})
	return dynamostore.Fenced(err, h)
}

// writers returns, for each order, the generation under which it was last written.
func (s *sink) writers(ctx context.Context) (map[string]string, error) {
	out, err := s.client.Scan(ctx, &dynamodb.ScanInput{TableName: &s.orders, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, err
	}
	writers := map[string]string{}
	for _, item := range out.Items {
		id, _ := item["id"].(*types.AttributeValueMemberS)
		generation, _ := item["generation"].(*types.AttributeValueMemberN)
		writers[id.Value] = generation.Value
	}
	return writers, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	endpoint := flag.String("endpoint", os.Getenv("DYNAMODB_ENDPOINT"), "the address of a DynamoDB Local")
	flag.Parse()
	if err := run(ctx, *endpoint, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dynamodb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, endpoint string, out io.Writer) (err error) {
	if endpoint == "" {
		return errors.New("needs -endpoint: docker run -d -p 8000:8000 amazon/dynamodb-local, and then http://localhost:8000")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	s := &sink{client: connect(endpoint, transport)}
	if err := s.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.drop(context.WithoutCancel(ctx))) }()
	late, err := takeover.Play(ctx, s.store, out, s.write)
	if err != nil {
		return err
	}
	if !errors.Is(late, checkpoint.ErrStale) {
		return fmt.Errorf("a late write was not refused: %v", late)
	}
	writers, err := s.writers(ctx)
	for record := range takeover.Records {
		id := fmt.Sprintf("%s/%d", takeover.Shard, record+1)
		fmt.Fprintf(out, "order %s was written by generation %s\n", id, writers[id])
	}
	return err
}

func connect(endpoint string, transport http.RoundTripper) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1", HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("example", "example", ""),
	})
}

// open creates the two tables.
func (s *sink) open(ctx context.Context) (err error) {
	run := rand.Text()[:6]
	s.leases, s.orders = "leases-"+run, "orders-"+run
	// These tables are deleted again. In production leave both protections on.
	unprotected := dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}
	if err := dynamostore.CreateTable(ctx, s.client, s.leases, unprotected); err != nil {
		return err
	}
	if s.store, err = dynamostore.Open(ctx, s.client, s.leases, dynamostore.Options{}); err != nil {
		return err
	}
	_, err = s.client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &s.orders, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	return err
}

func (s *sink) drop(ctx context.Context) error {
	var errs []error
	for _, table := range []string{s.leases, s.orders} {
		_, err := s.client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
