// Package fanout reads shards by enhanced fan-out: a group has a registered consumer in AWS, with the name of the
// group, subscribes to a shard as this registered consumer, and Kinesis pushes the records.
package fanout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/schemas"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/transport/http/protocol/awsjson"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
)

const (
	// life is how long a subscription lasts, less the time that two clocks may differ.
	life = 5*time.Minute - 10*time.Second
	// Kinesis refuses a subscription within 5 s of another one of the same shard and registered consumer, and
	// allows one call per second.
	refusedFor = 5 * time.Second
	pace       = time.Second
	firstPause = time.Second
	lastPause  = 10 * time.Second
	// After inactivity a subscription is given up. An idle shard sends empty events; a broken connection sends nothing.
	inactivity = 35 * time.Second
	// present is more than the usual time between two events. After a longer one, this process may have been paused,
	// and another worker may hold the shard.
	present = 10 * time.Second
	// The SDK waits forever for the first frame of a subscription.
	patience = 20 * time.Second
	// Read gives fan-out up when subscriptions have failed for so long: less than a worker waits for a sign of life.
	longest = 4 * time.Minute
)

// Counters count what happened to the subscriptions of a Reader.
type Counters struct {
	Subscriptions atomic.Int64 // subscriptions that Kinesis accepted
	Silent        atomic.Int64 // subscriptions that were given up because nothing arrived
	TakeOvers     atomic.Int64 // subscriptions that were refused, or ended, because of another one to the same shard
	Broken        atomic.Int64 // subscriptions that ended before their time without an error
}

// A Reader subscribes to shards as one registered consumer.
type Reader struct {
	Client   *kinesis.Client // see Client
	Consumer string          // the ARN of the registered consumer: see Register and Active
	Logger   *slog.Logger    // receives a line for each subscription that is tried again; default: no logging
	Counters *Counters       // required
	// Patience is for how long subscriptions may fail in a row. Default and maximum: 4 minutes.
	Patience time.Duration
}

// Client returns a copy of c for subscriptions. It has its own connections, so that a subscription that is not read
// cannot block other requests of the process, and no time limits for answers: the answer to a subscription lasts for
// minutes, and Read notices if it is silent. An HTTP client that is not the SDK's stays as it is. See
// stream.Pings.
func Client(c *kinesis.Client) *kinesis.Client {
	return kinesis.New(c.Options(), func(o *kinesis.Options) {
		if client, ok := o.HTTPClient.(*awshttp.BuildableClient); ok {
			o.HTTPClient = client.WithTimeout(0).WithReadTimeout(0)
		}
		stream.Pings(o)
	})
}

// Read yields the records of a shard from a position, answer by answer. It ends after an answer with
// End, with the cause of the context, or with an error that would come again or has come for minutes: then
// the shard should be polled.
//
// Read has at most one subscription, and closes it before it returns. If a subscription ends, Read
// subscribes again after the last answer, so the records are yielded in order. If the position is within an
// entry, the whole entry is yielded. A shard ends only with an event that says so. The end of the event
// stream is no such sign: the SDK reports it also when the connection breaks within a frame.
//
// A new subscription ends an older one of the same registered consumer to the same shard. A worker that has
// lost the shard must not take the records from its successor. So Read calls holds before it subscribes again,
// and ends with its error, unless the last subscription lasted its 5 minutes and this process was not
// paused meanwhile.
//
// While the caller processes an answer, Read receives nothing, and Kinesis waits. Up to two more answers are
// in the memory of the SDK then.
func (r *Reader) Read(ctx context.Context, shard string, from types.StartingPosition, holds func(context.Context) error) iter.Seq2[stream.Answer, error] {
	return func(yield func(stream.Answer, error) bool) {
		if from.Type == types.ShardIteratorTypeLatest {
			yield(stream.Answer{}, errors.New("fan-out cannot begin at LATEST: each subscription would skip records; begin at a time"))
			return
		}
		s := &subscriber{Reader: r, shard: shard, from: from, holds: holds}
		var err error
		for err == nil {
			err = s.next(ctx, yield)
		}
		switch {
		case errors.Is(err, errDone):
		case ctx.Err() != nil:
			yield(stream.Answer{}, context.Cause(ctx))
		default:
			yield(stream.Answer{}, err)
		}
	}
}

var (
	errDone     = errors.New("the shard is at its end, or the caller has stopped")
	errWithheld = errors.New("no answer to a subscription")
	errSilent   = errors.New("a subscription is silent")
	errEarly    = errors.New("a subscription ended before its time")
	errNoEnd    = errors.New("an event has no place to continue at, and no children either")
)

// A subscriber reads one shard, from one goroutine.
type subscriber struct {
	*Reader
	shard string
	from  types.StartingPosition
	holds func(context.Context) error

	due      time.Time // when the next call may be made
	failures int       // calls and subscriptions without an answer, in a row
	begun    time.Time // when the last call was made
	failing  time.Time // since when nothing was received
	doubt    bool      // another worker may hold the shard
	seen     time.Time // when the last event was received
	away     bool      // during the subscription this process was paused, or the caller busy, for a while
}

// next subscribes once, and yields what arrives. It returns nil to subscribe again.
func (s *subscriber) next(ctx context.Context, yield func(stream.Answer, error) bool) error {
	if err := wait(ctx, time.Until(s.due)); err != nil {
		return err
	}
	if s.doubt {
		if err := s.holds(ctx); err != nil {
			return err
		}
	}
	s.begun = time.Now()
	s.due = s.begun.Add(pace)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.subscribe(ctx, cancel)
	if err != nil {
		return s.failed(ctx, err)
	}
	// Invariant: Read has no subscription after it returns. Without Close the SDK's goroutines would stay after the
	// end of the context.
	defer func() { _ = events.Close() }()
	s.Counters.Subscriptions.Add(1)
	s.seen, s.away = time.Now(), false
	s.due = s.seen.Add(refusedFor + jitter(pace))
	err = s.receive(ctx, events, yield)
	if errors.Is(err, errEarly) && time.Since(s.begun) >= life && !s.away {
		s.doubt, s.failures = false, 0
		return nil
	}
	return s.failed(ctx, err)
}

// subscribe calls SubscribeToShard, and cancels the call if the answer does not begin in time. A deadline of the context
// would end the answer too.
func (s *subscriber) subscribe(ctx context.Context, cancel func()) (*kinesis.SubscribeToShardEventStream, error) {
	late := time.AfterFunc(patience, cancel)
	out, err := s.Client.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
		ConsumerARN: &s.Consumer, ShardId: &s.shard, StartingPosition: &s.from,
	}, once, alone)
	if inTime := late.Stop(); !inTime {
		if err == nil {
			_ = out.GetStream().Close()
		}
		return nil, errWithheld
	}
	if err != nil {
		return nil, err
	}
	return out.GetStream(), nil
}

// once turns off the retries of the SDK, which are faster than Kinesis allows.
func once(o *kinesis.Options) { o.RetryMaxAttempts = 1 }

// alone gives a subscription a decoder of its own. All requests of a client share one, which they
// change without a lock.
func alone(o *kinesis.Options) { o.Protocol = awsjson.New11(schemas.Kinesis_20131202) }

// receive yields the events of a subscription. Its error is never nil.
func (s *subscriber) receive(ctx context.Context, events *kinesis.SubscribeToShardEventStream, yield func(stream.Answer, error) bool) error {
	idle := time.NewTimer(inactivity)
	defer idle.Stop()
	for ctx.Err() == nil {
		idle.Reset(inactivity) // the time for which the caller was busy does not count
		select {
		case event, open := <-events.Events():
			s.away = s.away || time.Since(s.seen) >= present
			s.seen = time.Now()
			if !open {
				return either(events.Err(), errEarly)
			}
			member, known := event.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent)
			if !known {
				continue
			}
			answer, err := s.answer(member.Value)
			if err != nil {
				return err
			}
			if !yield(answer, nil) || answer.End {
				return errDone
			}
		case <-idle.C:
			return errSilent
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// answer converts an event, and notes where the next subscription begins.
//
// The end of a shard finishes it for the group, so it needs two signs: no place to continue at, and
// children. Without children, polling decides.
func (s *subscriber) answer(e types.SubscribeToShardEvent) (stream.Answer, error) {
	a := stream.Answer{Records: e.Records, Behind: time.Duration(aws.ToInt64(e.MillisBehindLatest)) * time.Millisecond}
	if aws.ToString(e.ContinuationSequenceNumber) == "" {
		if len(e.ChildShards) == 0 {
			return a, errNoEnd
		}
		a.End = true
		return a, nil
	}
	s.failures = 0
	s.from = types.StartingPosition{Type: types.ShardIteratorTypeAfterSequenceNumber, SequenceNumber: e.ContinuationSequenceNumber}
	return a, nil
}

// failed returns the error of a subscription, or nil if the shard should be subscribed to again.
func (s *subscriber) failed(ctx context.Context, err error) error {
	if errors.Is(err, errDone) || ctx.Err() != nil && !errors.Is(err, errWithheld) {
		return err
	}
	pause := min(firstPause<<min(s.failures, 16), lastPause)
	switch _, taken := errors.AsType[*types.ResourceInUseException](err); {
	case taken:
		s.Counters.TakeOvers.Add(1)
		pause = 2 * refusedFor // at least refusedFor, with jitter
	case errors.Is(err, errSilent), errors.Is(err, errWithheld):
		s.Counters.Silent.Add(1)
	case errors.Is(err, errEarly):
		s.Counters.Broken.Add(1)
	}
	if s.failures == 0 {
		if s.failing = s.begun; s.seen.After(s.begun) {
			s.failing = s.seen
		}
	}
	s.failures++
	if time.Since(s.failing) >= min(cmp.Or(s.Patience, longest), longest) || !passing(err) {
		return fmt.Errorf("subscribe to shard %s: %w", s.shard, err)
	}
	s.doubt = true
	if again := time.Now().Add(pause/2 + jitter(pause/2)); again.After(s.due) {
		s.due = again
	}
	s.log().Warn("subscription ended: subscribes again", "shard", s.shard, "failures", s.failures, "err", err)
	return nil
}

// passing reports whether a subscription that failed may succeed later, unchanged. The SDK loses the type of an error in
// the first frame, so an error without a type may pass. An exception within a subscription has a type, but no HTTP status.
func passing(err error) bool {
	if errors.Is(err, errNoEnd) {
		return false
	}
	api, typed := errors.AsType[smithy.APIError](err)
	if _, taken := errors.AsType[*types.ResourceInUseException](err); taken || !typed {
		return true
	}
	return stream.Passing(err) && (api.ErrorFault() != smithy.FaultClient || stream.Throttled(err))
}

func (r *Reader) log() *slog.Logger {
	if r.Logger != nil {
		return r.Logger
	}
	return slog.New(slog.DiscardHandler)
}

func jitter(most time.Duration) time.Duration { return rand.N(most) }

func either(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
