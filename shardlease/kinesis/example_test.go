package kinesis_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencesql"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// A consumer reads a stream of one shard, in which one record cannot be processed. Stream and lease table are in
// memory here: use kinesis.NewFromConfig of the AWS SDK, and dynamostore.Open.
func Example() {
	server := kinesistest.New()
	orders := server.Create("orders", 1)
	for _, text := range []string{"apples", "?", "bread"} {
		orders.Put("alice", []byte(text))
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	c, err := kinesis.New(server.Client(), new(memstore.Store), kinesis.Config{
		Stream: "orders", Group: "billing", Handoff: rebalance.Eager,
		Tries: 2, Attempts: 1, // the default is 5 tries in each of 3 attempts
		DeadLetter: func(_ context.Context, r kinesis.Record, err error) error {
			fmt.Printf("%s cannot be processed: %v\n", r.Data, err)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = c.Run(ctx, func(_ context.Context, r kinesis.Record) error {
		if string(r.Data) == "?" {
			return fmt.Errorf("no order")
		}
		fmt.Printf("%s orders %s\n", r.Key, r.Data)
		if string(r.Data) == "bread" {
			stop()
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// alice orders apples
	// ? cannot be processed: no order
	// alice orders bread
	// <nil>
}

const insert = `INSERT INTO orders (id, text) VALUES ($1, $2) ON CONFLICT DO NOTHING`

// Each record has its effect in a SQL database exactly once: the transaction refuses a worker that was
// replaced, and leaves out the records that it has already.
func ExampleConsumer_RunBatch() {
	var db *sql.DB // sql.Open("postgres", …), and once db.Exec(fencesql.Schema)
	guard := fencesql.Guard{DB: db}
	_ = func(ctx context.Context, c *kinesis.Consumer) error {
		return c.RunBatch(ctx, func(ctx context.Context, batch []kinesis.Record) (int, error) {
			err := fence.Do(ctx, guard, func(ctx context.Context, tx *sql.Tx) error {
				for _, r := range batch {
					if _, err := tx.ExecContext(ctx, insert, r.ID(), string(r.Data)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return 0, err // none of the batch is stored
			}
			return len(batch), nil
		})
	}
}

// A worker of one's own runs the consumer's handler.
func ExampleConsumer_Handler() {
	_ = func(ctx context.Context, client *awskinesis.Client, store *memstore.Store) error {
		c, err := kinesis.New(client, store, kinesis.Config{Stream: "orders", Group: "billing", Handoff: rebalance.Cooperative})
		if err != nil {
			return err
		}
		if err := c.Begin(ctx); err != nil {
			return err
		}
		config := c.WorkerConfig()
		config.MaxShards = 10
		w, err := shardlease.New(store, c.Source(), config)
		if err != nil {
			return err
		}
		handle := c.Handler(func(context.Context, kinesis.Record) error { return nil })
		return w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
			log.Print("begins: ", t.Shard().Name)
			return handle(ctx, t)
		})
	}
}
