package stream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// What Kinesis allows to all readers of a shard together, and how long a reader waits
// after a refusal.
const (
	leastGap    = time.Second / 5
	bytesPerSec = 2 << 20
	firstPause  = leastGap
	lastPause   = 10 * time.Second

	// The SDK waits for an answer for ever, and a connection may die without a sign.
	patience = 20 * time.Second
)

// A Batch is what one read brought: often nothing.
type Batch struct {
	Entries []Entry
	// Behind is how far the end of this batch is from the end of the shard.
	Behind time.Duration
}

// Read yields what a shard has after a position, batch by batch; from where the group
// begins, if that is empty. It ends with io.EOF when the shard is closed and read to its
// end, with the context's cause, or with an error that would come again.
//
// What may pass is tried again for as long as it lasts, and logged. A consumer that wants
// to give the shard up then sets shardlease.Config.StallAfter: a batch, an empty one too,
// is progress, and nothing else is.
func (s *Stream) Read(ctx context.Context, name, after string) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		r := &reader{Stream: s, name: name, after: after}
		known, there, err := s.find(ctx, name)
		if err == nil && !there {
			err = r.gone()
		}
		r.shard = known
		for err == nil {
			var batch Batch
			if batch, err = r.next(ctx); err == nil && !yield(batch, nil) {
				return
			}
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		yield(Batch{}, err)
	}
}

// A reader reads one shard, from one goroutine.
type reader struct {
	*Stream
	name  string
	shard shard
	after string // the last sequence number that was read

	iterator *string // nil: to be asked for
	ended    bool
	due      time.Time // of the next request
	failures int       // in a row
}

// next waits until it may read, and reads until there is an answer.
func (r *reader) next(ctx context.Context) (Batch, error) {
	if r.ended {
		return Batch{}, io.EOF
	}
	for {
		if err := wait(ctx, time.Until(r.due)); err != nil {
			return Batch{}, err
		}
		begun := time.Now()
		out, err := r.request(ctx)
		if err == nil {
			return r.take(begun, out), nil
		}
		if ctx.Err() != nil {
			return Batch{}, context.Cause(ctx)
		}
		if err := r.failed(ctx, begun, err); err != nil {
			return Batch{}, err
		}
	}
}

// once leaves it to the reader to try again: it knows the limits of the shard, and the
// SDK would spend its attempts within them.
func once(o *kinesis.Options) { o.RetryMaxAttempts = 1 }

func (r *reader) request(ctx context.Context) (*kinesis.GetRecordsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.iterator == nil {
		out, err := r.Client.GetShardIterator(ctx, r.place(), once)
		if err != nil {
			return nil, err
		}
		r.iterator = out.ShardIterator
	}
	input := &kinesis.GetRecordsInput{ShardIterator: r.iterator}
	if r.Limit > 0 {
		input.Limit = aws.Int32(int32(min(r.Limit, 10000)))
	}
	return r.Client.GetRecords(ctx, input, once)
}

// place is where the shard goes on, or begins. A child begins at its beginning, wherever
// the group did: the group has read its parents to their end, and what follows is here.
// A time would do as well but for the clocks of Kinesis, which promise no order.
func (r *reader) place() *kinesis.GetShardIteratorInput {
	input := &kinesis.GetShardIteratorInput{StreamName: &r.Stream.Name, ShardId: &r.name}
	switch {
	case r.after != "":
		input.ShardIteratorType, input.StartingSequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &r.after
	case r.Start.IsZero() || r.shard.child:
		input.ShardIteratorType = types.ShardIteratorTypeTrimHorizon
	default:
		input.ShardIteratorType, input.Timestamp = types.ShardIteratorTypeAtTimestamp, &r.Start
	}
	return input
}

// take takes an answer, and says when the next request may be.
func (r *reader) take(begun time.Time, out *kinesis.GetRecordsOutput) Batch {
	r.failures, r.iterator, r.ended = 0, out.NextShardIterator, out.NextShardIterator == nil
	batch := Batch{Behind: time.Duration(aws.ToInt64(out.MillisBehindLatest)) * time.Millisecond}
	size := 0
	for _, record := range out.Records {
		size += len(record.Data) + len(*record.PartitionKey)
		batch.Entries = append(batch.Entries, r.shard.entry(r.name, record))
		r.after = *record.SequenceNumber
	}
	gap := cmp.Or(r.Idle, time.Second)
	if batch.Behind > 0 {
		gap = leastGap
	}
	// A read may bring what is allowed in five seconds; the next ones are refused then.
	r.due = begun.Add(max(gap, leastGap, time.Duration(size)*time.Second/bytesPerSec))
	return batch
}

// failed returns the error of a request unless it is worth another try.
func (r *reader) failed(ctx context.Context, begun time.Time, err error) error {
	if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		// It lasts five minutes: whoever was not read for so long was busy, or paused.
		r.iterator, r.due = nil, begun.Add(leastGap)
		return nil
	}
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		if _, listErr := r.Shards(ctx); listErr != nil {
			return errors.Join(err, listErr) // it is the stream that is missing
		}
		if _, there := r.lookUp(r.name); there {
			return err
		}
		return r.gone()
	}
	if !passing(err) {
		return err
	}
	pause := min(firstPause<<min(r.failures, 16), lastPause)
	r.failures++
	r.due = time.Now().Add(pause/2 + rand.N(pause/2))
	r.log().Warn("read failed, will be tried again", "shard", r.name, "failures", r.failures, "err", err)
	return nil
}

// gone is the end of a shard that Kinesis has forgotten, because its last record is too
// old to be kept: that is as positive an evidence as a closed shard's. If the group has
// not read it to its end, what it has missed is lost, and somebody should know.
func (r *reader) gone() error {
	r.log().Error("the shard is older than what Kinesis keeps; what was not read is lost", "shard", r.name)
	return io.EOF
}

func (s *Stream) log() *slog.Logger {
	if s.Logger != nil {
		return s.Logger
	}
	return slog.New(slog.DiscardHandler)
}

// passing reports whether a request that failed may succeed later, unchanged: throttles,
// faults of the service or of the network. A request that Kinesis has refused for what it
// is would be refused again.
func passing(err error) bool {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		switch api.ErrorCode() {
		case "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException",
			"ThrottlingException", "RequestLimitExceeded", "InternalFailureException":
			return true
		}
	}
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	return !ok || response.HTTPStatusCode()/100 != 4 // 0: there was no answer
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
