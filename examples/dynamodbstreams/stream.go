package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
)

// Streams are the streams of some tables, as the shards of one group. It is a
// shardlease.Source.
type streams struct {
	client *dynamodbstreams.Client
	arns   []string      // of the streams: one account, one region
	pace   time.Duration // time between two reads of a shard
	log    *slog.Logger
}

// Shards lists the shards, closed ones included: DynamoDB lists those for a day. Where one
// stream cannot be listed the others are there.
//
// A shard is named by its stream, as in the stream's ARN, and its id. So it can be read by a
// worker that was started before its table's stream was disabled and enabled again, which
// makes another stream.
func (s *streams) Shards(ctx context.Context) ([]shardlease.Shard, error) {
	var shards []shardlease.Shard
	var errs []error
	for _, arn := range s.arns {
		listed, err := s.list(ctx, arn)
		errs = append(errs, err)
		_, stream, _ := strings.Cut(arn, inArn)
		for _, l := range listed {
			next := shardlease.Shard{Name: stream + "/" + *l.ShardId}
			if l.ParentShardId != nil { // named for ever, listed or not
				next.Parents = []string{stream + "/" + *l.ParentShardId}
			}
			shards = append(shards, next)
		}
	}
	return shards, errors.Join(errs...)
}

// inArn is what comes before the name of a table in the ARN of its stream.
const inArn = ":table/"

// split gives the ARN of a shard's stream, and the id of the shard.
func (s *streams) split(name string) (arn, id string) {
	account, _, _ := strings.Cut(s.arns[0], inArn)
	at := strings.LastIndexByte(name, '/')
	return account + inArn + name[:max(at, 0)], name[at+1:]
}

// list gives all pages of a listing, or none.
func (s *streams) list(ctx context.Context, arn string) ([]types.Shard, error) {
	var shards []types.Shard
	input := &dynamodbstreams.DescribeStreamInput{StreamArn: &arn}
	for {
		out, err := s.client.DescribeStream(ctx, input)
		if err != nil {
			return nil, fmt.Errorf("list the shards of %s: %w", arn, err)
		}
		shards = append(shards, out.StreamDescription.Shards...)
		input.ExclusiveStartShardId = out.StreamDescription.LastEvaluatedShardId
		if input.ExclusiveStartShardId == nil {
			return shards, nil
		}
	}
}

// read yields what a shard has after a position, or from its beginning, read by read:
// often nothing. It ends with io.EOF when the shard is closed and read to its end, and
// with any other error that the SDK's attempts did not get over.
func (s *streams) read(ctx context.Context, name, after string) iter.Seq2[[]types.Record, error] {
	return func(yield func([]types.Record, error) bool) {
		r := &reader{streams: s, after: after}
		r.arn, r.id = s.split(name)
		for {
			due := time.After(s.pace)
			records, err := r.next(ctx)
			if !yield(records, err) || err != nil {
				return
			}
			select {
			case <-due:
			case <-ctx.Done():
			}
		}
	}
}

// A reader reads one shard, from one goroutine.
type reader struct {
	*streams
	arn, id string
	after   string // the last sequence number that was read
	trimmed bool   // what follows it, at least in part

	iterator *string // nil: to be asked for
	ended    bool
}

// next makes one read. It brings nothing, too, when it has to find its place again.
func (r *reader) next(ctx context.Context) ([]types.Record, error) {
	if r.ended {
		return nil, io.EOF
	}
	if r.iterator == nil {
		out, err := r.client.GetShardIterator(ctx, r.place())
		if err != nil {
			return nil, r.failed(ctx, err)
		}
		r.iterator = out.ShardIterator
	}
	out, err := r.client.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: r.iterator})
	if err != nil {
		r.iterator = nil
		return nil, r.failed(ctx, err)
	}
	r.iterator, r.ended = out.NextShardIterator, out.NextShardIterator == nil
	records := slices.DeleteFunc(out.Records, r.known)
	if n := len(records); n > 0 {
		r.after, r.trimmed = *records[n-1].Dynamodb.SequenceNumber, false
	}
	return records, nil
}

// place is where the shard goes on, or begins. LATEST is not asked for: that is no place
// one could come back to after a crash.
func (r *reader) place() *dynamodbstreams.GetShardIteratorInput {
	input := &dynamodbstreams.GetShardIteratorInput{StreamArn: &r.arn, ShardId: &r.id, ShardIteratorType: types.ShardIteratorTypeTrimHorizon}
	if r.after != "" && !r.trimmed {
		input.ShardIteratorType, input.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &r.after
	}
	return input
}

// known reports whether a record was read before, so that nothing goes back where a shard
// is read from its oldest record on. DynamoDB Local calls things trimmed that are there.
func (r *reader) known(record types.Record) bool {
	order, err := checkpoint.Decimal(*record.Dynamodb.SequenceNumber, r.after)
	return err == nil && order <= 0
}

// failed returns the error of a request, unless another place to read on is known.
func (r *reader) failed(ctx context.Context, err error) error {
	if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		return nil // it lasts 15 minutes: whoever comes so late was busy, or paused
	}
	if _, trimmed := errors.AsType[*types.TrimmedDataAccessException](err); trimmed {
		r.trimmed = true
		r.log.Error("what followed is older than a day and trimmed; what was not read is lost", "shard", r.id, "stream", r.arn, "after", r.after)
		return nil
	}
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return r.gone(ctx, err)
	}
	return err
}

// gone is the end of a shard that DynamoDB has forgotten, which is as positive an evidence
// as a closed shard's. It may still be listed, but not as one that is open; and if its
// stream cannot be listed, it is not the shard that is missing.
func (r *reader) gone(ctx context.Context, err error) error {
	listed, listErr := r.list(ctx, r.arn)
	for _, l := range listed {
		open := l.SequenceNumberRange == nil || l.SequenceNumberRange.EndingSequenceNumber == nil
		if *l.ShardId == r.id && open {
			return err
		}
	}
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	r.log.Error("the shard is gone; what was not read is lost", "shard", r.id, "stream", r.arn, "after", r.after)
	return io.EOF
}
