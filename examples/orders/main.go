// Orders is the program of docs/consumer.md: any number of processes share the shards of a
// stream.
package main

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func main() {
	table := flag.String("table", "", "the lease table in DynamoDB; without one, leases are in memory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *table); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, table string) error {
	store, err := open(ctx, table)
	if err != nil {
		return err
	}
	source := shardlease.Static("shard-0", "shard-1", "shard-2", "shard-3")
	w, err := shardlease.New(store, source, shardlease.Config{
		Group:   "orders",
		Handoff: rebalance.Cooperative,
		Order:   checkpoint.Decimal, // positions are numbers: one that goes back is refused
		Logger:  slog.Default(),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx, handle)
}

// open returns the store that holds the leases.
func open(ctx context.Context, table string) (lease.Store, error) {
	if table == "" {
		return new(memstore.Store), nil // workers of one process that share it are a fleet
	}
	c, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := dynamodb.NewFromConfig(c, func(o *dynamodb.Options) {
		// The errors of DynamoDB Local have no checksum, and the SDK would log a warning for each. Other endpoints have TLS.
		o.DisableValidateResponseChecksum = strings.HasPrefix(aws.ToString(o.BaseEndpoint), "http:")
	})
	if err := dynamostore.CreateTable(ctx, client, table, dynamostore.TableOptions{}); err != nil {
		return nil, err
	}
	return dynamostore.Open(ctx, client, table, dynamostore.Options{Group: "orders"}) // checks the permissions for this group
}

// handle processes one shard for as long as this worker holds it.
func handle(ctx context.Context, t *shardlease.Tenure) error {
	for record, err := range read(ctx, t.Checkpoint().Position) {
		if err != nil {
			return err
		}
		fmt.Println(t.Shard().Name, record)
		if err := t.Mark(record); err != nil {
			return err
		}
	}
	return nil
}

// read stands for a stream: it yields a record a second after a position, until ctx ends.
func read(ctx context.Context, position string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		last, _ := strconv.Atoi(position) // empty at the very beginning
		for record := last + 1; ; record++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			if !yield(strconv.Itoa(record), nil) {
				return
			}
		}
	}
}
