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
	// Bytes is the size of the answer as Kinesis counts it: data and keys.
	Bytes int64
	// Throttles is how many requests Kinesis refused since the batch before, because the shard or
	// the account was read too fast.
	Throttles int
	// Retention is how long the stream keeps its records. A caller that is farther behind than half
	// of it should warn: records that are not read in time are lost.
	Retention time.Duration
	// Lost reports that records before this batch, or the last records of the shard behind it, expired before
	// the group read them.
	Lost bool
}

// An Answer is what Kinesis sends at a time: the answer to a request, or an event of a subscription. It often
// has no records.
type Answer struct {
	Records []types.Record
	// Behind is how far the end of this answer is from the end of the shard.
	Behind time.Duration
	// End means that the shard is closed, and that this is its last answer.
	End bool
}

// Read is Follow without subscriptions.
func (s *Stream) Read(ctx context.Context, name, after string, room *Room) iter.Seq2[Batch, error] {
	return s.Follow(ctx, name, after, room, nil)
}

// Follow yields the entries of a shard after a position, batch by batch. An empty position means
// where the group begins. It ends with io.EOF when the shard is closed and read to its end, with
// the cause of the context, or with an error that would come again.
//
// Entries that Kinesis sends again are left out: each record is yielded once, and in order.
//
// Errors that may pass are logged, and the read is tried again without limit. To end the tenure
// instead, set shardlease.Config.StallAfter, and call Tenure.Progress or Tenure.Alive at each
// batch, including empty ones, and nowhere else.
//
// While the caller uses one batch, the next one is read. Before each request the reader reserves
// memory in room. The caller returns the Bytes of each entry when the entry is processed. A nil
// room has no bound.
//
// Follow subscribes to the shard when push is ready, and polls it otherwise. Without a push it always polls.
func (s *Stream) Follow(ctx context.Context, name, after string, room *Room, push Push) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		position, err := ParsePosition(after)
		if err != nil {
			yield(Batch{}, err)
			return
		}
		r := &reader{Stream: s, name: name, room: room, push: push, after: position, resumed: position.Sequence}
		answers, end := r.ahead(ctx)
		defer end()
		for {
			next, ok := <-answers
			if !ok {
				next.err = errors.New("the reader ended without an answer")
			}
			if ctx.Err() != nil {
				r.discard(next.batch)
				next = answer{err: context.Cause(ctx)}
			}
			if !yield(next.batch, next.err) || next.err != nil {
				return
			}
		}
	}
}

// An answer is a batch, or the error that ends the reading.
type answer struct {
	batch Batch
	err   error
}

// ahead reads the shard on a goroutine, which waits with each answer until it is received. The
// function end ends the goroutine, and returns when it has ended.
func (r *reader) ahead(ctx context.Context) (answers <-chan answer, end func()) {
	ctx, stop := context.WithCancel(ctx)
	out, left, ended := make(chan answer), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(out)
		defer r.unsubscribe()
		for {
			next := r.answer(ctx)
			select {
			case out <- next:
			case <-left:
				r.discard(next.batch)
				return
			}
			if next.err != nil {
				return
			}
		}
	}()
	return out, func() { stop(); close(left); <-ended }
}

// answer calls next. A panic would end the process here, so it becomes an error.
func (r *reader) answer(ctx context.Context) (a answer) {
	defer recovered(&a.err)
	a.batch, a.err = r.next(ctx)
	return a
}

// discard returns the memory of a batch that nobody receives.
func (r *reader) discard(b Batch) {
	for _, e := range b.Entries {
		r.room.Give(e.Bytes)
	}
}

// A reader reads one shard, on one goroutine.
type reader struct {
	*Stream
	name  string
	room  *Room
	shard *shard   // nil: the next read must request it
	after Position // the position of the last record that was read

	resumed string // the sequence number at which this reader began, until it has read an entry

	iterator *string // nil: the next read must request one
	ended    bool
	due      time.Time // when the next request may be sent
	failures int       // failed requests in a row
	absent   time.Time // since when Kinesis does not have the shard; zero: it has it

	throttles int // requests that were throttled since the last batch

	push   Push
	events func() (Answer, error, bool) // returns the next event of the subscription; nil: there is none
	cancel func()                       // closes the subscription
	rests  time.Time                    // until then the shard is polled, because its subscription has failed
	doubt  bool                         // its consumer is gone, perhaps with the stream, and another one may have the name
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
		batch, err := r.read(ctx)
		if err == nil {
			return batch, nil
		}
		if ctx.Err() != nil {
			return Batch{}, context.Cause(ctx)
		}
		if err := r.failed(ctx, err); errors.Is(err, io.EOF) {
			return Batch{Retention: r.Retention(), Lost: true}, nil // the next call ends the reading
		} else if err != nil {
			return Batch{}, err
		}
	}
}

// read receives one answer, by subscription if possible and by polling otherwise.
func (r *reader) read(ctx context.Context) (Batch, error) {
	if err := r.refresh(ctx); err != nil {
		return Batch{}, err
	}
	if r.shard == nil {
		known, there, err := r.find(ctx, r.name)
		switch {
		case err != nil:
			return Batch{}, err
		case !there:
			return Batch{}, r.gone()
		}
		r.shard = &known
	}
	if subscribed, err := r.subscribed(ctx); err != nil {
		return Batch{}, err
	} else if subscribed {
		return r.receive(ctx)
	}
	return r.poll(ctx)
}

// poll makes one request for records.
//
// The end of a shard finishes it for the group. So an answer without a next iterator is not enough: it must have children, or
// a listing must show the shard as closed.
func (r *reader) poll(ctx context.Context) (Batch, error) {
	taken, err := r.room.take(ctx)
	if err != nil {
		return Batch{}, err
	}
	begun := time.Now()
	out, err := r.request(ctx)
	if err == nil && out.NextShardIterator == nil && len(out.ChildShards) == 0 && !r.shard.closed {
		err = r.close(ctx)
	}
	var batch Batch
	var bytes int64
	if err == nil {
		behind := time.Duration(aws.ToInt64(out.MillisBehindLatest)) * time.Millisecond
		batch, bytes, err = r.take(ctx, Answer{Records: out.Records, Behind: behind, End: out.NextShardIterator == nil})
	}
	r.room.settle(taken, bytes)
	if err != nil {
		return Batch{}, err
	}
	r.iterator = out.NextShardIterator
	r.pace(begun, batch)
	batch.Lost = r.lost(ctx, out.Records)
	return batch, nil
}

// once turns off the retries of the SDK, which would use up its attempts within the limits of the
// shard. The reader knows these limits and repeats requests itself.
func once(o *kinesis.Options) { o.RetryMaxAttempts = 1 }

func (r *reader) request(ctx context.Context) (*kinesis.GetRecordsOutput, error) {
	if r.iterator == nil {
		if err := r.begin(ctx); err != nil {
			return nil, err
		}
	}
	return r.records(ctx, r.iterator, r.Limit)
}

// records reads from an iterator; a limit of 0 is none.
func (s *Stream) records(ctx context.Context, iterator *string, limit int) (*kinesis.GetRecordsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	input := &kinesis.GetRecordsInput{ShardIterator: iterator}
	_, input.StreamARN = s.address()
	if limit > 0 {
		input.Limit = aws.Int32(int32(min(limit, 10000)))
	}
	out, err := s.Client.GetRecords(ctx, input, once)
	return out, s.explain(get, err)
}

// iterator requests an iterator.
func (s *Stream) iterator(ctx context.Context, input *kinesis.GetShardIteratorInput, options ...func(*kinesis.Options)) (*string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	input.StreamName, input.StreamARN = s.address()
	out, err := s.Client.GetShardIterator(ctx, input, options...)
	if err != nil {
		return nil, s.explain(iterate, err)
	}
	return out.ShardIterator, nil
}

// begin requests an iterator at the reader's place.
func (r *reader) begin(ctx context.Context) error {
	if r.doubt {
		if err := r.confirm(ctx, 0); err != nil {
			return err
		}
		r.doubt = false
	}
	input, err := r.place(ctx)
	if err == nil {
		r.iterator, err = r.Stream.iterator(ctx, input, once)
	}
	if err == nil {
		r.absent = time.Time{}
	}
	return err
}

// place returns the request for an iterator at the reader's place: after the last record that was read, or where the
// shard begins for the group. If the group has read a parent to its end, the shard is read from
// its beginning, because its first records follow those of the parent. The time Start would not
// be safe there: the clocks of Kinesis promise no order between shards.
//
// If the position is within a packed entry, the entry is read again, and its records up to the
// position are left out.
func (r *reader) place(ctx context.Context) (*kinesis.GetShardIteratorInput, error) {
	input := &kinesis.GetShardIteratorInput{ShardId: &r.name}
	if r.after.Sequence != "" {
		input.ShardIteratorType, input.StartingSequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &r.after.Sequence
		if r.after.Packed {
			input.ShardIteratorType = types.ShardIteratorTypeAtSequenceNumber
		}
		return input, nil
	}
	if first, ok := r.sequences[r.name]; ok && r.after.Begin != trimHorizon {
		input.ShardIteratorType, input.StartingSequenceNumber = types.ShardIteratorTypeAtSequenceNumber, &first
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

// take converts an answer to a Batch and returns its size. After an error the same request is repeated.
func (r *reader) take(ctx context.Context, out Answer) (Batch, int64, error) {
	batch := Batch{Behind: out.Behind, Retention: r.Retention()}
	size, bytes, last := 0, int64(0), r.after
	if len(out.Records) > 0 {
		batch.Entries = make([]Entry, 0, len(out.Records))
	}
	read := time.Now()
	keep := func(arrived time.Time) (bool, error) { return r.keeps(ctx, read, arrived) }
	for _, record := range out.Records {
		length := len(record.Data) + len(aws.ToString(record.PartitionKey))
		size += length
		entry, err := r.shard.entry(r.name, record, keep)
		if err != nil {
			return Batch{}, 0, err
		}
		entry, fresh := entry.after(last)
		if !fresh {
			continue
		}
		entry.Bytes = int64(length + overhead*(len(entry.Records)+1))
		bytes += entry.Bytes
		batch.Entries = append(batch.Entries, entry)
		last = Position{Sequence: entry.Sequence}
	}
	batch.Bytes, batch.Throttles = int64(size), r.throttles
	r.failures, r.throttles, r.after, r.ended = 0, 0, last, out.End
	return batch, bytes, nil
}

// pace sets when the next request is due.
func (r *reader) pace(begun time.Time, batch Batch) {
	gap := cmp.Or(r.Idle, time.Second)
	if batch.Behind > 0 {
		gap = leastGap
	}
	// One answer may contain as many bytes as Kinesis allows in five seconds. It would then
	// refuse the next requests.
	r.due = begun.Add(max(gap, leastGap, time.Duration(batch.Bytes)*time.Second/bytesPerSec))
}

// close finds out whether the shard is closed. If it is not, the next read requests another iterator.
func (r *reader) close(ctx context.Context) error {
	r.iterator = nil
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := r.list(ctx, nil)
	if err != nil {
		return err
	}
	if r.shard.closed = all[r.name].closed; !r.shard.closed {
		return errOpen
	}
	return nil
}

// failed returns the error of a request, or nil if the request should be repeated.
func (r *reader) failed(ctx context.Context, err error) error {
	if r.ended {
		return err
	}
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		if err := r.missing(ctx, err); err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	} else if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		// An iterator lasts five minutes; this reader was busy or paused for longer. If new
		// iterators expire at once, the service has a fault, so the reader pauses too.
		r.iterator = nil
	} else if !Passing(err) {
		return err
	}
	pause := min(firstPause<<min(r.failures, 16), lastPause)
	r.failures++
	if Throttled(err) {
		r.throttles++
	}
	r.due = time.Now().Add(pause/2 + rand.N(pause/2))
	r.log().Warn("read failed: tries again", "shard", r.name, "failures", r.failures, "err", err)
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
	case findErr != nil && Passing(findErr): // for example ErrPartial
		return nil
	case findErr != nil:
		return errors.Join(err, findErr) // the stream is missing, or is another one
	case there:
		return err
	}
	return r.gone()
}

// lost reports whether records after the position at which the reader began have expired. It asks
// Kinesis only if the oldest record that is left arrived more than half of the retention ago: then
// the group was far behind, and there were records before. A shard in which nothing was put for
// that long may have lost none.
func (r *reader) lost(ctx context.Context, records []types.Record) bool {
	resumed := r.resumed
	if resumed == "" || len(records) == 0 {
		return false
	}
	r.resumed = ""
	arrived := aws.ToTime(records[0].ApproximateArrivalTimestamp)
	if arrived.IsZero() || r.Now().Sub(arrived) < r.Retention()/2 || aws.ToString(records[0].SequenceNumber) == resumed {
		return false
	}
	first, err := r.first(ctx, resumed)
	if err != nil {
		r.log().Warn("cannot find out whether records were lost", "shard", r.name, "err", err)
	}
	if first == "" || first == resumed {
		return false
	}
	r.log().Error("position expired: records that were not read are lost", "shard", r.name)
	return true
}

// first returns the sequence number of the first record that Kinesis has at or after one, or "" if
// it returns none.
func (r *reader) first(ctx context.Context, at string) (string, error) {
	iterator, err := r.Stream.iterator(ctx, &kinesis.GetShardIteratorInput{
		ShardId: &r.name, ShardIteratorType: types.ShardIteratorTypeAtSequenceNumber, StartingSequenceNumber: &at,
	})
	for range 10 { // answers may be empty before the next record
		if err == nil && iterator != nil {
			err = wait(ctx, leastGap)
		}
		if err != nil || iterator == nil {
			break
		}
		var out *kinesis.GetRecordsOutput
		if out, err = r.Stream.records(ctx, iterator, 1); err != nil {
			break
		}
		if len(out.Records) > 0 {
			return *out.Records[0].SequenceNumber, nil
		}
		iterator = out.NextShardIterator
	}
	return "", err
}

// goneAfter is for how long Kinesis must report that it does not have a shard before the shard counts as expired: for a new
// shard, some servers of Kinesis may report that too.
const goneAfter = time.Minute

// gone ends the reading of a shard that has expired: its last record was too old. Kinesis has reported for goneAfter that it
// does not have the shard, so this is as certain as the end of a closed shard. Records that the group has not read are
// lost, so gone logs an error. Before goneAfter it returns errAbsent, and the request is repeated.
func (r *reader) gone() error {
	if r.absent.IsZero() {
		r.absent = time.Now()
	}
	if time.Since(r.absent) < goneAfter {
		return errAbsent
	}
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
