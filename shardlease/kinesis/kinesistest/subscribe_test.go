package kinesistest_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// register registers a consumer and waits until it can be used.
func (f *fake) register(name string) (arn string) {
	f.Helper()
	out, err := f.client.RegisterStreamConsumer(f.Context(), &kinesis.RegisterStreamConsumerInput{StreamARN: new(f.orders.ARN()), ConsumerName: &name})
	if err != nil {
		f.Fatal(err)
	}
	time.Sleep(time.Minute)
	return *out.Consumer.ConsumerARN
}

func (f *fake) subscribe(ctx context.Context, arn, after string) (*kinesis.SubscribeToShardEventStream, error) {
	start := &types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon}
	if after != "" {
		start = &types.StartingPosition{Type: types.ShardIteratorTypeAfterSequenceNumber, SequenceNumber: &after}
	}
	client := f.server.Client() // of its own: see Client
	out, err := client.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{ConsumerARN: &arn, ShardId: new(shard0), StartingPosition: start})
	if err != nil {
		return nil, err
	}
	return out.GetStream(), nil
}

// must subscribes from the beginning.
func (f *fake) must(arn string) *kinesis.SubscribeToShardEventStream {
	f.Helper()
	stream, err := f.subscribe(f.Context(), arn, "")
	if err != nil {
		f.Fatal(err)
	}
	return stream
}

// event returns the next event; nil at the end of the stream, or if there is none in an hour.
func event(s *kinesis.SubscribeToShardEventStream) *types.SubscribeToShardEvent {
	select {
	case e := <-s.Events():
		if e, ok := e.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent); ok {
			return &e.Value
		}
	case <-time.After(time.Hour):
	}
	return nil
}

// TestSubscription: a subscription sends the records that there are and those that come, then empty
// events every 5 s, and ends after 5 minutes. The next one continues where it ended.
func TestSubscription(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		arn := f.register("group")
		f.orders.Put("k", []byte("1"))
		s := f.must(arn)
		defer func() { _ = s.Close() }()
		begun := time.Now()
		if e := event(s); len(e.Records) != 1 || *e.ContinuationSequenceNumber != "1" || e.ChildShards != nil {
			f.Errorf("the first event is %+v", e)
		}
		time.AfterFunc(time.Second, func() { f.orders.Put("k", []byte("2")) })
		if e := event(s); len(e.Records) != 1 || time.Since(begun) != time.Second {
			f.Errorf("after %v: %+v", time.Since(begun), e)
		}
		n := 0
		for e := event(s); e != nil; e = event(s) {
			if n++; len(e.Records) != 0 || *e.ContinuationSequenceNumber != "2" {
				f.Fatalf("an idle shard has %+v", e)
			}
		}
		if life := time.Since(begun); life != 5*time.Minute || n < 55 || s.Err() != nil || f.orders.Subscriptions(shard0) != 0 {
			f.Errorf("ends after %v and %d empty events with %v", life, n, s.Err())
		}
		f.orders.Put("k", []byte("3"))
		next, err := f.subscribe(f.Context(), arn, "2")
		if err != nil {
			f.Fatal(err)
		}
		defer func() { _ = next.Close() }()
		if e := event(next); len(e.Records) != 1 || string(e.Records[0].Data) != "3" {
			f.Errorf("the next subscription begins with %+v", e)
		}
	})
}

// TestSubscriptionToTheEnd: the last event of a closed shard names its children, and no place to
// continue at.
func TestSubscriptionToTheEnd(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		s := f.must(f.register("group"))
		defer func() { _ = s.Close() }()
		event(s)
		f.orders.Put("k", make([]byte, 10<<20-1))
		f.orders.Split(shard0)
		if e := event(s); len(e.Records) != 1 || e.ContinuationSequenceNumber != nil || len(e.ChildShards) != 2 || e.ChildShards[0].ParentShards[0] != shard0 {
			f.Errorf("%d records, continues at %v, children %+v", len(e.Records), e.ContinuationSequenceNumber, e.ChildShards)
		}
		if e := event(s); e != nil || s.Err() != nil {
			f.Errorf("then %+v and %v", e, s.Err())
		}
	})
}

// TestTakeOver: within 5 s another subscription is refused, and later it takes over.
func TestTakeOver(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		arn := f.register("group")
		s := f.must(arn)
		event(s)
		time.Sleep(4999 * time.Millisecond)
		if _, err := f.subscribe(f.Context(), arn, ""); !is[*types.ResourceInUseException](err) {
			f.Errorf("within 5 s: %v", err)
		}
		time.Sleep(time.Millisecond)
		next := f.must(arn)
		for event(s) != nil {
		}
		if err := s.Close(); !is[*types.ResourceInUseException](err) {
			f.Errorf("the older subscription ends with %v", err)
		}
		if f.orders.Subscriptions(shard0) != 1 {
			f.Error("there is not one subscription")
		}
		_ = next.Close()
		if f.orders.Subscriptions(shard0) != 0 {
			f.Error("the closed subscription stays")
		}
	})
}

// TestBrokenSubscriptions: what the SDK reports of each way to break a subscription.
func TestBrokenSubscriptions(t *testing.T) {
	for name, c := range map[string]struct {
		fault error
		want  func(error) bool // of what the SDK reports
		ends  bool             // whether the stream ends
	}{
		"the end":      {io.EOF, func(err error) bool { return err == nil }, true},
		"torn":         {kinesistest.ErrTorn, func(err error) bool { return err == nil }, true},
		"silence":      {kinesistest.ErrSilence, func(err error) bool { return err == nil }, false},
		"an exception": {&types.KMSThrottlingException{Message: new("slower")}, is[*types.KMSThrottlingException], true},
		"connection":   {errors.New("reset"), func(err error) bool { return err != nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(f *fake) {
				s := f.must(f.register("group"))
				event(s)
				if n := f.orders.Break(shard0, c.fault); n != 1 {
					f.Errorf("%d subscriptions break", n)
				}
				f.orders.Put("k", []byte("never sent"))
				begun := time.Now()
				e := event(s)
				if err := s.Err(); e != nil || (time.Since(begun) == 0) != c.ends || !c.want(err) {
					f.Errorf("after %v: %+v and %v", time.Since(begun), e, err)
				}
				_ = s.Close()
			})
		})
	}
}

// TestRefusedSubscriptions: what the SDK returns for each way in which SubscribeToShard fails.
func TestRefusedSubscriptions(t *testing.T) {
	untyped := func(err error) bool { return err != nil && !is[*types.InternalFailureException](err) }
	for name, c := range map[string]struct {
		fault error
		want  func(error) bool
		after time.Duration
	}{
		"refused":     {&types.ResourceInUseException{Message: new("busy")}, is[*types.ResourceInUseException], 0},
		"first frame": {kinesistest.FirstFrame(&types.InternalFailureException{Message: new("oops")}), untyped, 0},
		"torn":        {kinesistest.ErrTorn, untyped, 0},
		"withheld":    {kinesistest.ErrSilence, untyped, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(f *fake) {
				arn := f.register("group")
				f.server.Fail("SubscribeToShard", c.fault, 1)
				ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
				defer cancel()
				begun := time.Now()
				_, err := f.subscribe(ctx, arn, "")
				if took := time.Since(begun); !c.want(err) || took != c.after {
					f.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// TestSubscriptionsEnd: subscriptions end with their stream, consumer, or shard.
func TestSubscriptionsEnd(t *testing.T) {
	for name, end := range map[string]func(f *fake, arn string){
		"stream": func(f *fake, _ string) { f.orders.Delete() },
		"shard":  func(f *fake, _ string) { f.orders.Forget(shard0) },
		"consumer": func(f *fake, arn string) {
			if _, err := f.client.DeregisterStreamConsumer(f.Context(), &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &arn}); err != nil {
				f.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(f *fake) {
				arn := f.register("group")
				s := f.must(arn)
				event(s)
				end(f, arn)
				if e := event(s); e != nil || !is[*types.ResourceNotFoundException](s.Close()) {
					f.Errorf("%+v and %v", e, s.Err())
				}
			})
		})
	}
}
