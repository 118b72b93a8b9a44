package kinesistest_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// count is the code under test: it reads a shard to its end, and counts the records.
func count(ctx context.Context, client *kinesis.Client, stream, shard string) (n int, err error) {
	begin, err := client.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
		StreamName: &stream, ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		return 0, err
	}
	for next := begin.ShardIterator; next != nil; {
		out, err := client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: next, Limit: aws.Int32(10)})
		if err != nil {
			return n, err
		}
		n, next = n+len(out.Records), out.NextShardIterator
	}
	return n, nil
}

func Example() {
	server := kinesistest.New()
	orders := server.Create("orders", 1)
	for i := range 25 {
		orders.Put(fmt.Sprint("customer-", i), []byte("an order"))
	}
	lower, _ := orders.Split("shardId-000000000000")
	orders.PutTo(lower, "customer-7", []byte("after the split"))

	fmt.Println(count(context.Background(), server.Client(), "orders", "shardId-000000000000"))

	server.Fail("GetRecords", &types.ProvisionedThroughputExceededException{Message: aws.String("slow down")}, 1)
	_, err := count(context.Background(), server.Client(), "orders", lower)
	fmt.Println(err != nil)
	// Output:
	// 25 <nil>
	// true
}
