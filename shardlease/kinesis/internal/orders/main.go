// Orders is the program of docs/kinesis.md: any number of processes share the shards of a stream.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	sdk, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	db := dynamodb.NewFromConfig(sdk)
	if err := dynamostore.CreateTable(ctx, db, "leases", dynamostore.TableOptions{}); err != nil {
		return err
	}
	store, err := dynamostore.Open(ctx, db, "leases", dynamostore.Options{Group: "billing"})
	if err != nil {
		return err
	}
	c, err := kinesis.New(awskinesis.NewFromConfig(sdk), store, kinesis.Config{
		Stream: "orders", Group: "billing", Handoff: rebalance.Eager, Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx, func(_ context.Context, r kinesis.Record) error {
		fmt.Printf("%s %s: %s\n", r.Shard, r.Key, r.Data)
		return nil
	})
}
