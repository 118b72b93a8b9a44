package stream_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

const (
	consumerARN = "arn:aws:kinesis:eu-central-1:000000000000:stream/orders/consumer/g:946684800" // registered at the time at which a bubble begins
	consumers   = `"arn:aws:kinesis:eu-central-1:000000000000:stream/orders/consumer/g","arn:aws:kinesis:eu-central-1:000000000000:stream/orders/consumer/g:*"`
)

// TestProbe: what is denied is found at once, one statement for each resource, and no record is read.
func TestProbe(t *testing.T) {
	for _, c := range []struct {
		denied []string
		want   []string
	}{
		{nil, nil},
		{[]string{"GetRecords"}, []string{`"Action":["kinesis:GetRecords"],"Resource":"arn:aws:kinesis:eu-central-1:000000000000:stream/orders"`}},
		{[]string{"SubscribeToShard"}, []string{`"Action":["kinesis:SubscribeToShard"],"Resource":[` + consumers + `]`}},
		{[]string{"DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords", "SubscribeToShard"}, []string{
			`"Action":["kinesis:DescribeStreamSummary","kinesis:ListShards","kinesis:GetShardIterator","kinesis:GetRecords"],"Resource":"arn:aws:kinesis:eu-central-1:*:stream/orders"`,
			`"Action":["kinesis:SubscribeToShard"],"Resource":[` + consumers + `]`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1)})
			consumer := &kinesis.RegisterStreamConsumerInput{StreamARN: new(server.ARN()), ConsumerName: new("g")}
			if _, err := server.Client().RegisterStreamConsumer(t.Context(), consumer); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			for _, op := range c.denied {
				server.Fail(op, code("AccessDeniedException"), -1)
			}
			err := (&stream.Stream{Client: server.Client(), Name: "orders"}).Probe(t.Context(), consumerARN)
			if (err != nil) != (len(c.want) > 0) {
				t.Errorf("%v denied: %v", c.denied, err)
			}
			for _, want := range c.want {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%v denied: %v; want %s", c.denied, err, want)
				}
			}
			for _, op := range []string{"GetRecords", "SubscribeToShard"} {
				for _, call := range server.Calls(op) {
					if call.Fields["DryRun"] != true {
						t.Errorf("%s: %v", op, call.Fields)
					}
				}
			}
		})
	}
}

// TestProbeOfTheClock: a wrong clock is told, and a stream that does not exist.
func TestProbeOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a"})
		for ahead, wrong := range map[time.Duration]bool{0: false, 30 * time.Second: false, 2 * time.Minute: true, -2 * time.Minute: true} {
			server.Ahead = ahead
			err := (&stream.Stream{Client: server.Client(), Name: "orders"}).Probe(t.Context(), "")
			clock, ok := errors.AsType[*stream.ClockError](err)
			if ok != wrong || ok && (clock.Behind > 0) != (ahead > 0) {
				t.Errorf("%v: %v", ahead, err)
			}
		}
		server.Delete()
		if err := (&stream.Stream{Client: server.Client(), Name: "orders"}).Probe(t.Context(), ""); !errors.Is(err, stream.ErrNoStream) {
			t.Error(err)
		}
	})
}
