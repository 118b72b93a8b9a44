package outcome

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// Checkpoints compares the leases with the stream, which it reads to its end. Each shard must
// have a lease whose position is the last record of the shard, which is finished if the shard is
// closed, and which names this stream. Checkpoints returns the number of shards.
func (r *Reader) Checkpoints(ctx context.Context) (shards int, err error) {
	items, err := r.query(ctx, r.Leases, "leaseGroup", r.Group+"/lease")
	if err != nil {
		return 0, err
	}
	leases := map[string]item{}
	for _, i := range items {
		leases[i.text("leaseKey")] = i
	}
	stream, err := r.Kinesis.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &r.Stream})
	if err != nil {
		return 0, err
	}
	listed, err := r.Kinesis.ListShards(ctx, &kinesis.ListShardsInput{StreamName: &r.Stream})
	if err != nil {
		return 0, err
	}
	var errs []error
	if listed.NextToken != nil || len(listed.Shards) != len(leases) {
		errs = append(errs, fmt.Errorf("%d shards and %d leases", len(listed.Shards), len(leases)))
	}
	for _, shard := range listed.Shards {
		last, closed, err := r.end(ctx, *shard.ShardId)
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
func (r *Reader) end(ctx context.Context, shard string) (last string, closed bool, err error) {
	begin, err := r.Kinesis.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
		StreamName: &r.Stream, ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		return "", false, err
	}
	for next := begin.ShardIterator; next != nil; {
		out, err := r.Kinesis.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: next, Limit: aws.Int32(10000)})
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

// packed counts the records in an entry of the Kinesis Producer Library. The entry consists of a
// magic number, protocol buffers fields, of which those with number 3 are records, and an MD5
// sum of 16 bytes.
func packed(data []byte) (records int) {
	const magic = "\xf3\x89\x9a\xc2"
	if len(data) < len(magic)+16 || string(data[:4]) != magic {
		return 0
	}
	for rest := data[4 : len(data)-16]; len(rest) > 0; {
		tag := rest[0]
		length, shift, n := 0, 0, 1
		for more := true; more && n < len(rest); n++ {
			length |= int(rest[n]&0x7f) << shift
			more, shift = rest[n] >= 0x80, shift+7
		}
		if tag>>3 == 3 {
			records++
		}
		rest = rest[min(n+length, len(rest)):]
	}
	return records
}
