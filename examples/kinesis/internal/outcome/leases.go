package outcome

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// Leases are the leases of one group, and its stream.
type Leases struct {
	DynamoDB *dynamodb.Client
	Kinesis  *kinesis.Client
	Table    string
	Stream   string
	Group    string
}

// A row is the item of a lease.
type row map[string]dynamotypes.AttributeValue

func (r row) text(name string) string {
	switch v := r[name].(type) {
	case *dynamotypes.AttributeValueMemberS:
		return v.Value
	case *dynamotypes.AttributeValueMemberB: // the state
		return string(v.Value)
	}
	return ""
}

func (l Leases) rows(ctx context.Context) (map[string]row, error) {
	pages := dynamodb.NewQueryPaginator(l.DynamoDB, &dynamodb.QueryInput{
		TableName: &l.Table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("leaseGroup = :group"),
		ExpressionAttributeValues: map[string]dynamotypes.AttributeValue{":group": &dynamotypes.AttributeValueMemberS{Value: l.Group + "/lease"}},
	})
	all := map[string]row{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("query %s: %w", l.Table, err)
		}
		for _, in := range page.Items {
			all[row(in).text("leaseKey")] = in
		}
	}
	return all, nil
}

// Check compares the leases with the stream, which it reads to its end. Each shard must have a
// lease whose position is the last record of the shard, which is finished if the shard is closed,
// and which names this stream. Check returns the number of shards.
func (l Leases) Check(ctx context.Context) (shards int, err error) {
	leases, err := l.rows(ctx)
	if err != nil {
		return 0, err
	}
	stream, err := l.Kinesis.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &l.Stream})
	if err != nil {
		return 0, err
	}
	listed, err := l.Kinesis.ListShards(ctx, &kinesis.ListShardsInput{StreamName: &l.Stream})
	if err != nil {
		return 0, err
	}
	var errs []error
	if listed.NextToken != nil || len(listed.Shards) != len(leases) {
		errs = append(errs, fmt.Errorf("%d shards and %d leases", len(listed.Shards), len(leases)))
	}
	for _, shard := range listed.Shards {
		last, closed, err := l.end(ctx, *shard.ShardId)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", *shard.ShardId, err)
		}
		lease := leases[*shard.ShardId]
		_, finished := lease["finished"]
		position, state := lease.text("checkpoint"), lease.text("state")
		if last == "" && finished { // a shard without records has its first sequence number as position
			last = aws.ToString(shard.SequenceNumberRange.StartingSequenceNumber)
		}
		if position != last || finished != closed {
			errs = append(errs, fmt.Errorf("%s ends at %q, closed %t; its lease is at %q, finished %t", *shard.ShardId, last, closed, position, finished))
		}
		if position != "" && !strings.HasPrefix(state, *stream.StreamDescriptionSummary.StreamARN+"@") {
			errs = append(errs, fmt.Errorf("the lease of %s names the stream %q", *shard.ShardId, state))
		}
		if _, held := lease["leaseOwner"]; held {
			errs = append(errs, fmt.Errorf("%s still has an owner", *shard.ShardId))
		}
	}
	return len(listed.Shards), errors.Join(errs...)
}

// end reads a shard to its end, and returns the position of its last record: the sequence number,
// and the index of the last record if the entry is packed.
func (l Leases) end(ctx context.Context, shard string) (last string, closed bool, err error) {
	begin, err := l.Kinesis.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
		StreamName: &l.Stream, ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		return "", false, err
	}
	for next := begin.ShardIterator; next != nil; {
		out, err := l.Kinesis.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: next, Limit: aws.Int32(10000)})
		if err != nil {
			return "", false, err
		}
		for _, r := range out.Records {
			last = *r.SequenceNumber
			if n := packed(r.Data); n > 0 {
				last += "/" + strconv.Itoa(n-1)
			}
		}
		if next = out.NextShardIterator; next != nil && aws.ToInt64(out.MillisBehindLatest) == 0 && len(out.Records) == 0 {
			return last, false, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
	return last, true, nil
}

// An entry of the Kinesis Producer Library consists of a magic number, a message of protocol buffers, and the MD5 sum of
// the message. The fields of the message with number 1 are partition keys; those with number 3 are records.
const magic = "\xf3\x89\x9a\xc2"

// Pack returns an entry with records of one key.
func Pack(key string, data ...[]byte) []byte {
	field := func(to []byte, number byte, value []byte) []byte {
		return append(binary.AppendUvarint(append(to, number<<3|2), uint64(len(value))), value...)
	}
	message := field(nil, 1, []byte(key))
	for _, d := range data {
		message = field(message, 3, field([]byte{1 << 3, 0}, 3, d)) // the key with the index 0
	}
	sum := md5.Sum(message)
	return append(append([]byte(magic), message...), sum[:]...)
}

// packed counts the records in an entry.
func packed(data []byte) (records int) {
	if len(data) < len(magic)+md5.Size || string(data[:4]) != magic {
		return 0
	}
	for rest := data[4 : len(data)-md5.Size]; len(rest) > 0; {
		length, n := binary.Uvarint(rest[1:])
		if rest[0]>>3 == 3 {
			records++
		}
		rest = rest[min(1+n+int(length), len(rest)):]
	}
	return records
}
