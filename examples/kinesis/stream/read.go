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

// Limits of Kinesis for all readers of a shard together, and the pauses of a reader.
const (
	// Kinesis allows five reads per second. A reader makes at most four, and leaves the fifth to
	// other groups, to the successor in a move, and to requests with varying delays.
	leastGap    = time.Second / 4
	bytesPerSec = 2 << 20
	firstPause  = time.Second / 5
	lastPause   = 10 * time.Second

	// By default the SDK waits forever for an answer, and a connection may break unnoticed.
	patience = 20 * time.Second
)

// A Batch contains the entries of one read; it is often empty.
type Batch struct {
	Entries []Entry
	// Behind is how far the end of this batch is from the end of the shard.
	Behind time.Duration
}

// Read yields the entries of a shard after a position, batch by batch. An empty position means
// where the group begins. It ends with io.EOF when the shard is closed and read to its end, with
// the cause of the context, or with an error that would come again.
//
// Entries that Kinesis sends again are left out: each record is yielded once, and in order.
//
// Errors that may pass are logged, and the read is tried again without limit. To end the tenure
// instead, set shardlease.Config.StallAfter, and call Tenure.Progress or Tenure.Alive at each
// batch, including empty ones, and nowhere else.
//
// Before each request the reader reserves memory in room. The consumer returns the Bytes of each
// entry when the entry is processed. A nil room has no bound.
func (s *Stream) Read(ctx context.Context, name, after string, room *Room) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		r := &reader{Stream: s, name: name, room: room}
		var err error
		r.after, err = ParsePosition(after)
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
	room  *Room
	shard *shard   // nil: the next read must request it
	after Position // the position of the last record that was read

	iterator *string // nil: the next read must request one
	ended    bool
	due      time.Time // when the next request may be sent
	failures int       // failed requests in a row
}

// next waits until a request is due, and repeats it until it succeeds or fails for good.
func (r *reader) next(ctx context.Context) (Batch, error) {
	if r.ended {
		return Batch{}, io.EOF
	}
	for {
		if err := wait(ctx, time.Until(r.due)); err != nil {
			return Batch{}, err
		}
		taken, err := r.room.take(ctx)
		if err != nil {
			return Batch{}, err
		}
		begun := time.Now()
		out, err := r.request(ctx)
		if err == nil {
			batch, bytes := r.take(begun, out)
			r.room.settle(taken, bytes)
			return batch, nil
		}
		r.room.settle(taken, 0)
		if ctx.Err() != nil {
			return Batch{}, context.Cause(ctx)
		}
		if err := r.failed(ctx, err); err != nil {
			return Batch{}, err
		}
	}
}

// once turns off the retries of the SDK, which would use up its attempts within the limits of the
// shard. The reader knows these limits and repeats requests itself.
func once(o *kinesis.Options) { o.RetryMaxAttempts = 1 }

func (r *reader) request(ctx context.Context) (*kinesis.GetRecordsOutput, error) {
	if r.shard == nil {
		known, there, err := r.find(ctx, r.name)
		switch {
		case err != nil:
			return nil, err
		case !there:
			return nil, r.gone()
		}
		r.shard = &known
	}
	if r.iterator == nil {
		if err := r.begin(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	input := &kinesis.GetRecordsInput{ShardIterator: r.iterator}
	if r.Limit > 0 {
		input.Limit = aws.Int32(int32(min(r.Limit, 10000)))
	}
	return r.Client.GetRecords(ctx, input, once)
}

// begin requests an iterator at the reader's place.
func (r *reader) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	input, err := r.place(ctx)
	if err != nil {
		return err
	}
	out, err := r.Client.GetShardIterator(ctx, input, once)
	if err == nil {
		r.iterator = out.ShardIterator
	}
	return err
}

// place returns the request for an iterator after the last record that was read, or where the
// shard begins for the group. If the group has read a parent to its end, the shard is read from
// its beginning, because its first records follow those of the parent. The time Start would not
// be safe there: the clocks of Kinesis promise no order between shards.
//
// If the position is within a packed entry, the entry is read again, and its records up to the
// position are left out.
func (r *reader) place(ctx context.Context) (*kinesis.GetShardIteratorInput, error) {
	input := &kinesis.GetShardIteratorInput{StreamName: &r.Stream.Name, ShardId: &r.name}
	if r.after.Sequence != "" {
		input.ShardIteratorType, input.StartingSequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &r.after.Sequence
		if r.after.Packed {
			input.ShardIteratorType = types.ShardIteratorTypeAtSequenceNumber
		}
		return input, nil
	}
	oldest := r.Start.IsZero() || r.after.Begin == trimHorizon
	if !oldest && r.after.Begin == "" {
		var err error
		if oldest, err = r.continues(ctx, *r.shard); err != nil {
			return nil, err
		}
	}
	input.ShardIteratorType, input.Timestamp = types.ShardIteratorTypeAtTimestamp, &r.Start
	if oldest {
		input.ShardIteratorType, input.Timestamp = types.ShardIteratorTypeTrimHorizon, nil
	}
	return input, nil
}

// take converts an answer to a Batch and returns its size. It sets when the next request is due.
func (r *reader) take(begun time.Time, out *kinesis.GetRecordsOutput) (Batch, int64) {
	r.failures, r.iterator, r.ended = 0, out.NextShardIterator, out.NextShardIterator == nil
	batch := Batch{Behind: time.Duration(aws.ToInt64(out.MillisBehindLatest)) * time.Millisecond}
	size, bytes := 0, int64(0)
	for _, record := range out.Records {
		length := len(record.Data) + len(*record.PartitionKey)
		size += length
		entry, fresh := r.shard.entry(r.name, record).after(r.after)
		if !fresh {
			continue
		}
		entry.Bytes = int64(length + overhead*(len(entry.Records)+1))
		bytes += entry.Bytes
		batch.Entries = append(batch.Entries, entry)
		r.after = Position{Sequence: entry.Sequence}
	}
	gap := cmp.Or(r.Idle, time.Second)
	if batch.Behind > 0 {
		gap = leastGap
	}
	// One answer may contain as many bytes as Kinesis allows in five seconds. It would then
	// refuse the next requests.
	r.due = begun.Add(max(gap, leastGap, time.Duration(size)*time.Second/bytesPerSec))
	return batch, bytes
}

// failed returns the error of a request, or nil if the request should be repeated.
func (r *reader) failed(ctx context.Context, err error) error {
	if r.ended {
		return err
	}
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		if err := r.missing(ctx, err); err != nil {
			return err
		}
	} else if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		// An iterator lasts five minutes; this reader was busy or paused for longer. If new
		// iterators expire at once, the service has a fault, so the reader pauses too.
		r.iterator = nil
	} else if !passing(err) {
		return err
	}
	pause := min(firstPause<<min(r.failures, 16), lastPause)
	r.failures++
	r.due = time.Now().Add(pause/2 + rand.N(pause/2))
	r.log().Warn("read failed, will be tried again", "shard", r.name, "failures", r.failures, "err", err)
	return nil
}

// missing finds out whether a shard has expired after Kinesis reported that it does not have it.
// It returns nil if the shard exists but listings leave it out; then the request is repeated.
func (r *reader) missing(ctx context.Context, err error) error {
	r.iterator, r.shard = nil, nil
	r.forget(r.name)
	there, findErr := false, r.confirm(ctx, 0) // another stream may have a shard of this name
	if findErr == nil {
		_, there, findErr = r.find(ctx, r.name)
	}
	switch {
	case errors.Is(findErr, ErrPartial):
		return nil
	case findErr != nil:
		return errors.Join(err, findErr) // the stream is missing, or is another one
	case there:
		return err
	}
	return r.gone()
}

// gone ends the reading of a shard that has expired, because its last record was too old. Kinesis
// has answered for the shard itself, so this is as certain as the end of a closed shard. Records
// that the group has not read are lost, so gone logs an error.
func (r *reader) gone() error {
	r.ended = true
	r.log().Error("shard expired: records that were not read are lost", "shard", r.name)
	return io.EOF
}

func (s *Stream) log() *slog.Logger {
	if s.Logger != nil {
		return s.Logger
	}
	return slog.New(slog.DiscardHandler)
}

// passing reports whether a failed request may succeed later, unchanged: after throttling, or a
// fault of the service or the network. Kinesis would refuse an invalid or forbidden request
// again.
func passing(err error) bool {
	if errors.Is(err, ErrRecreated) {
		return false
	}
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
