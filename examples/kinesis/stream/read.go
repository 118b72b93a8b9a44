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
	// Five reads a second are allowed. The fifth is left to other groups, to the worker that
	// takes the shard over, and to requests that travel for different times.
	leastGap    = time.Second / 4
	bytesPerSec = 2 << 20
	firstPause  = time.Second / 5
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
// What Kinesis sends again is left out: no record comes twice, and none that lies before
// one that has come.
//
// What may pass is tried again for as long as it lasts, and logged. A consumer that wants
// to give the shard up then sets shardlease.Config.StallAfter, and calls Tenure.Progress or
// Tenure.Alive at each batch, an empty one too, and nowhere else.
//
// A reader takes room before it reads, and the consumer gives back the Bytes of each entry
// that it is done with. A nil room has no bound.
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
	shard *shard   // nil: to be asked for
	after Position // of the last record that was read

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

// once leaves it to the reader to try again: it knows the limits of the shard, and the
// SDK would spend its attempts within them.
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

// begin asks for an iterator where the shard goes on, or begins.
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

// place is where the shard goes on, or begins. A child begins at its beginning, wherever
// the group did: the group has read its parents to their end, and what follows is here.
// A time would do as well but for the clocks of Kinesis, which promise no order.
//
// The entry of a position in a packed entry is read again, and its records up to there are
// left out.
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

// take takes an answer, and says when the next request may be.
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
	// A read may bring what is allowed in five seconds; the next ones are refused then.
	r.due = begun.Add(max(gap, leastGap, time.Duration(size)*time.Second/bytesPerSec))
	return batch, bytes
}

// failed returns the error of a request unless it is worth another try.
func (r *reader) failed(ctx context.Context, err error) error {
	if r.ended {
		return err
	}
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		if err := r.missing(ctx, err); err != nil {
			return err
		}
	} else if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		// An iterator lasts five minutes: this reader was busy for so long, or paused. Where
		// new ones expire at once, that is a fault of the service, which may last.
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

// missing looks for a shard that Kinesis says it does not have. It returns nil if it has it
// all the same, and listings leave it out: then there is nothing to do but to ask again.
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
		return errors.Join(err, findErr) // it is the stream that is missing, or another one
	case there:
		return err
	}
	return r.gone()
}

// gone is the end of a shard that Kinesis has forgotten, because its last record is too
// old to be kept. Kinesis was asked for the shard itself, so that is as positive an
// evidence as a closed shard's. If the group has not read it to its end, what it has
// missed is lost, and somebody should know.
func (r *reader) gone() error {
	r.ended = true
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
