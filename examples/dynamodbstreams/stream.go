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

// Streams is the shardlease.Source of the shards of one or more streams.
type streams struct {
	client *dynamodbstreams.Client
	arns   []string      // the ARNs of the streams, in one account and region
	pace   time.Duration // time between two reads of a shard
	log    *slog.Logger
}

// Shards lists the shards, including closed ones, which DynamoDB lists for a day. If one stream
// cannot be listed, Shards returns the shards of the others together with the error.
//
// The name of a shard consists of the end of its stream's ARN and the shard id. So a worker can
// also read the shards of a stream that was created after it started, when the stream of a
// table was disabled and enabled again.
func (s *streams) Shards(ctx context.Context) ([]shardlease.Shard, error) {
	var shards []shardlease.Shard
	var errs []error
	for _, arn := range s.arns {
		listed, err := s.list(ctx, arn)
		errs = append(errs, err)
		_, stream, _ := strings.Cut(arn, inArn)
		for _, l := range listed {
			next := shardlease.Shard{Name: stream + "/" + *l.ShardId}
			if l.ParentShardId != nil { // also if the parent is no longer listed
				next.Parents = []string{stream + "/" + *l.ParentShardId}
			}
			shards = append(shards, next)
		}
	}
	return shards, errors.Join(errs...)
}

// inArn is the text before the name of the table in the ARN of a stream.
const inArn = ":table/"

// split returns the ARN of a shard's stream, and the id of the shard.
func (s *streams) split(name string) (arn, id string) {
	account, _, _ := strings.Cut(s.arns[0], inArn)
	at := strings.LastIndexByte(name, '/')
	return account + inArn + name[:max(at, 0)], name[at+1:]
}

// list returns all pages of a listing, or an error.
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

// read yields the records of a shard after a position, or from its beginning, one slice per
// read; a slice may be empty. It ends with io.EOF when the shard is closed and read to its end,
// and with any other error that remains after the SDK's attempts.
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
	trimmed bool   // records after it have been trimmed

	iterator *string // nil: the next read must request one
	ended    bool
}

// next makes one read. It also returns no records if it needs a new iterator.
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

// place is the request for an iterator after the last record that was read, or at the
// beginning. It never uses LATEST, because a worker could not return to that place after a
// crash.
func (r *reader) place() *dynamodbstreams.GetShardIteratorInput {
	input := &dynamodbstreams.GetShardIteratorInput{StreamArn: &r.arn, ShardId: &r.id, ShardIteratorType: types.ShardIteratorTypeTrimHorizon}
	if r.after != "" && !r.trimmed {
		input.ShardIteratorType, input.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &r.after
	}
	return input
}

// known reports whether a record was read before. A shard with trimmed records is read from its
// oldest record again, and DynamoDB Local reports records as trimmed that still exist.
func (r *reader) known(record types.Record) bool {
	order, err := checkpoint.Decimal(*record.Dynamodb.SequenceNumber, r.after)
	return err == nil && order <= 0
}

// failed returns the error of a request, or nil if the reader can continue at another place.
func (r *reader) failed(ctx context.Context, err error) error {
	if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		return nil // an iterator lasts 15 minutes; this reader was busy or paused for longer
	}
	if _, trimmed := errors.AsType[*types.TrimmedDataAccessException](err); trimmed {
		r.trimmed = true
		r.log.Error("records trimmed after a day: those that were not read are lost", "shard", r.id, "stream", r.arn, "after", r.after)
		return nil
	}
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return r.gone(ctx, err)
	}
	return err
}

// gone returns io.EOF for a shard that DynamoDB no longer has: like a closed shard, it will have
// no more records. It may still be listed, but not as open. If its stream cannot be listed,
// the stream may be missing and not the shard, and gone returns the errors.
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
	r.log.Error("shard no longer exists: records that were not read are lost", "shard", r.id, "stream", r.arn, "after", r.after)
	return io.EOF
}
