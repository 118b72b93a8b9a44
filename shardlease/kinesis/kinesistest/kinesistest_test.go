package kinesistest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// A fake is a server with a stream of one shard and its client, in a bubble.
type fake struct {
	*testing.T
	server *kinesistest.Server
	orders *kinesistest.Stream
	client *kinesis.Client
}

const shard0 = "shardId-000000000000"

// bubble runs a test with a stream.
func bubble(t *testing.T, shards int, test func(f *fake)) {
	synctest.Test(t, func(t *testing.T) {
		server := kinesistest.New()
		test(&fake{t, server, server.Create("orders", shards), server.Client()})
	})
}

func (f *fake) iterator(shard string, kind types.ShardIteratorType) *string {
	f.Helper()
	out, err := f.client.GetShardIterator(f.Context(), &kinesis.GetShardIteratorInput{
		StreamName: new("orders"), ShardId: &shard, ShardIteratorType: kind,
	})
	if err != nil {
		f.Fatal(err)
	}
	return out.ShardIterator
}

func (f *fake) read(iterator *string) *kinesis.GetRecordsOutput {
	f.Helper()
	out, err := f.client.GetRecords(f.Context(), &kinesis.GetRecordsInput{ShardIterator: iterator})
	if err != nil {
		f.Fatal(err)
	}
	return out
}

// is reports whether an error is one of Kinesis of type E.
func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// TestSplitsAndMerges: children share the hash keys of their parents, name them, and have later
// sequence numbers; the end of a shard names its children.
func TestSplitsAndMerges(t *testing.T) {
	bubble(t, 2, func(f *fake) {
		for i := range 20 {
			f.orders.Put(fmt.Sprint(i), []byte("before"))
		}
		a, b := f.orders.Split(shard0)
		c := f.orders.Merge(b, "shardId-000000000001")
		for i := range 20 {
			f.orders.Put(fmt.Sprint(i), []byte("after"))
		}
		list, err := f.client.ListShards(f.Context(), &kinesis.ListShardsInput{StreamName: new("orders")})
		if err != nil {
			f.Fatal(err)
		}
		var got []string
		for _, s := range list.Shards {
			out := f.read(f.iterator(*s.ShardId, types.ShardIteratorTypeTrimHorizon))
			var children []string
			for _, c := range out.ChildShards {
				children = append(children, *c.ShardId)
			}
			got = append(got, fmt.Sprint(*s.ShardId, " ", out.NextShardIterator == nil, " ", children))
			for _, r := range out.Records {
				if early := string(r.Data) == "before"; early != (*s.ShardId < a) {
					f.Errorf("shard %s has a record that was put %s", *s.ShardId, r.Data)
				}
			}
		}
		want := []string{
			shard0 + " true [" + a + " " + b + "]", "shardId-000000000001 true [" + c + "]",
			a + " false []", b + " true [" + c + "]", c + " false []",
		}
		if !slices.Equal(got, want) {
			f.Errorf("got %q, want %q", got, want)
		}
		last := list.Shards[4]
		if *last.HashKeyRange.EndingHashKey != "340282366920938463463374607431768211455" || *last.ParentShardId != b ||
			*last.AdjacentParentShardId != "shardId-000000000001" || *last.SequenceNumberRange.StartingSequenceNumber != "21" {
			f.Errorf("the merged shard is %+v of %+v", last, last.HashKeyRange)
		}
	})
}

// TestFilters: a listing has the shards of its filter, page by page.
func TestFilters(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		begun := time.Now()
		time.Sleep(time.Hour)
		f.orders.Split(shard0)
		time.Sleep(time.Hour)
		f.server.PageSize = 1
		for kind, want := range map[types.ShardFilterType]string{
			"": "012", types.ShardFilterTypeFromTrimHorizon: "012", types.ShardFilterTypeAtTrimHorizon: "0", types.ShardFilterTypeAtLatest: "12",
			types.ShardFilterTypeAtTimestamp: "0", types.ShardFilterTypeFromTimestamp: "012", types.ShardFilterTypeAfterShardId: "12",
		} {
			in := &kinesis.ListShardsInput{StreamARN: new(f.orders.ARN())}
			if kind != "" {
				in.ShardFilter = &types.ShardFilter{Type: kind, Timestamp: new(begun.Add(time.Minute)), ShardId: new(shard0)}
			}
			var got strings.Builder
			for in != nil {
				out, err := f.client.ListShards(f.Context(), in)
				if err != nil {
					f.Fatal(err)
				}
				for _, s := range out.Shards {
					got.WriteString((*s.ShardId)[len(shard0)-1:])
				}
				if in = nil; out.NextToken != nil {
					in = &kinesis.ListShardsInput{NextToken: out.NextToken}
				}
			}
			if got.String() != want {
				f.Errorf("%s: %q, want %q", kind, got.String(), want)
			}
		}
	})
}

// TestLargeAnswers: an answer has at most 10,000 records and 10 MiB, and a record may have 10 MiB.
// With limits, an answer of 10 MiB is followed by 5 s without another.
func TestLargeAnswers(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		f.server.Limits = true
		big := make([]byte, 10<<20-1)
		if _, err := f.client.PutRecord(f.Context(), &kinesis.PutRecordInput{StreamName: new("orders"), PartitionKey: new("k"), Data: big}); err != nil {
			f.Fatal(err)
		}
		for range 10_001 {
			f.orders.Put("k", nil)
		}
		out := f.read(f.iterator(shard0, types.ShardIteratorTypeTrimHorizon))
		if len(out.Records) != 1 || len(out.Records[0].Data) != len(big) || *out.MillisBehindLatest == 0 {
			f.Errorf("%d records, %d ms behind", len(out.Records), *out.MillisBehindLatest)
		}
		time.Sleep(4999 * time.Millisecond)
		if _, err := f.client.GetRecords(f.Context(), &kinesis.GetRecordsInput{ShardIterator: out.NextShardIterator}); !is[*types.ProvisionedThroughputExceededException](err) {
			f.Errorf("after 10 MiB: %v", err)
		}
		time.Sleep(time.Millisecond)
		if out = f.read(out.NextShardIterator); len(out.Records) != 10_000 {
			f.Errorf("%d records, want 10,000", len(out.Records))
		}
		time.Sleep(time.Second / 10)
		for i := range 5 {
			_, err := f.client.GetRecords(f.Context(), &kinesis.GetRecordsInput{ShardIterator: out.NextShardIterator})
			if refused := is[*types.ProvisionedThroughputExceededException](err); refused != (i == 4) {
				f.Errorf("read %d of a second: %v", i+2, err)
			}
		}
	})
}

// TestRetention: old records expire, and then closed shards do. Iterators expire after 5 minutes.
func TestRetention(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		f.orders.Put("k", []byte("old"))
		old := f.iterator(shard0, types.ShardIteratorTypeTrimHorizon)
		time.Sleep(12 * time.Hour)
		f.orders.Put("k", []byte("young"))
		f.orders.Split(shard0)
		if _, err := f.client.GetRecords(f.Context(), &kinesis.GetRecordsInput{ShardIterator: old}); !is[*types.ExpiredIteratorException](err) {
			f.Errorf("an iterator of 12 hours: %v", err)
		}
		time.Sleep(13 * time.Hour)
		if out := f.read(f.iterator(shard0, types.ShardIteratorTypeTrimHorizon)); len(out.Records) != 1 || string(out.Records[0].Data) != "young" {
			f.Errorf("after 25 hours there are %d records", len(out.Records))
		}
		time.Sleep(12 * time.Hour)
		if got := len(f.orders.Shards()); got != 2 {
			f.Errorf("after 37 hours there are %d shards", got)
		}
	})
}

// TestAuto: with the strategy AUTO a record needs no key, and comes back without one.
func TestAuto(t *testing.T) {
	bubble(t, 2, func(f *fake) {
		put := &kinesis.PutRecordsInput{StreamName: new("orders"), Records: []types.PutRecordsRequestEntry{
			{Data: []byte("1")}, {Data: []byte("2"), PartitionKey: new("k")}, {Data: []byte("3"), PartitionKey: new("k")},
		}}
		if _, err := f.client.PutRecords(f.Context(), put); !is[*types.InvalidArgumentException](err) {
			f.Errorf("without a key: %v", err)
		}
		f.orders.SetStrategy(types.RecordDistributionStrategyAuto)
		if _, err := f.client.PutRecords(f.Context(), put); err != nil {
			f.Fatal(err)
		}
		about, err := f.client.DescribeStreamSummary(f.Context(), &kinesis.DescribeStreamSummaryInput{StreamName: new("orders")})
		if err != nil || about.StreamDescriptionSummary.RecordDistributionStrategy != types.RecordDistributionStrategyAuto {
			f.Errorf("%+v, %v", about, err)
		}
		first := f.read(f.iterator(shard0, types.ShardIteratorTypeTrimHorizon)).Records
		if len(first) != 2 || first[0].PartitionKey != nil || *first[1].PartitionKey != "k" {
			f.Errorf("the first shard has %+v", first)
		}
	})
}

// TestFaults: each kind of fault arrives as from Kinesis, as often as it should.
func TestFaults(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		describe := func(ctx context.Context) error {
			_, err := f.client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: new("orders")})
			return err
		}
		f.server.Fail("DescribeStreamSummary", &types.LimitExceededException{Message: new("slower")}, 2)
		for i := range 3 {
			if err := describe(f.Context()); is[*types.LimitExceededException](err) != (i < 2) {
				f.Errorf("request %d: %v", i, err)
			}
		}
		f.server.Fail("DescribeStreamSummary", &smithy.GenericAPIError{Code: "ServiceUnavailable", Fault: smithy.FaultServer}, -1)
		if err := describe(f.Context()); err == nil || !strings.Contains(err.Error(), "StatusCode: 500") {
			f.Errorf("a fault of the service: %v", err)
		}
		f.server.Fail("DescribeStreamSummary", io.ErrUnexpectedEOF, 1)
		if err := describe(f.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			f.Errorf("a lost connection: %v", err)
		}
		f.server.Fail("DescribeStreamSummary", kinesistest.ErrSilence, 1)
		ctx, cancel := context.WithTimeout(f.Context(), time.Hour)
		defer cancel()
		if err := describe(ctx); !errors.Is(err, context.DeadlineExceeded) {
			f.Errorf("no answer: %v", err)
		}
		f.server.Intercept = func(c kinesistest.Call) error {
			if c.Stream == "orders" && c.Shard == shard0 && c.Fields["ShardIteratorType"] == "LATEST" {
				return &types.AccessDeniedException{Message: new("no")}
			}
			return nil
		}
		_, err := f.client.GetShardIterator(f.Context(), &kinesis.GetShardIteratorInput{
			StreamName: new("orders"), ShardId: new(shard0), ShardIteratorType: types.ShardIteratorTypeLatest,
		})
		if !is[*types.AccessDeniedException](err) || describe(f.Context()) != nil {
			f.Errorf("intercepted: %v", err)
		}
		if n := len(f.server.Calls("DescribeStreamSummary")); n != 7 {
			f.Errorf("%d calls, want 7", n)
		}
	})
}

// TestDryRun: a dry run fails with its own error where the request would succeed, and changes
// nothing.
func TestDryRun(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		arn := f.register("group")
		ctx, dry := f.Context(), new(true)
		at := f.iterator(shard0, types.ShardIteratorTypeLatest)
		start := &types.StartingPosition{Type: types.ShardIteratorTypeLatest}
		for op, call := range map[string]func(shard string) error{
			"GetRecords": func(string) error {
				_, err := f.client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: at, DryRun: dry})
				return err
			},
			"GetShardIterator": func(shard string) error {
				_, err := f.client.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{StreamName: new("orders"), ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeLatest, DryRun: dry})
				return err
			},
			"SubscribeToShard": func(shard string) error {
				_, err := f.client.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{ConsumerARN: &arn, ShardId: &shard, StartingPosition: start, DryRun: dry})
				return err
			},
			"PutRecord": func(string) error {
				_, err := f.client.PutRecord(ctx, &kinesis.PutRecordInput{StreamName: new("orders"), PartitionKey: new("k"), Data: []byte("x"), DryRun: dry})
				return err
			},
		} {
			if err := call(shard0); !is[*types.DryRunOperationException](err) {
				f.Errorf("%s: %v", op, err)
			}
			if err := call("none"); strings.Contains(op, "Shard") && !is[*types.ResourceNotFoundException](err) {
				f.Errorf("%s of no shard: %v", op, err)
			}
			f.server.Fail(op, &types.AccessDeniedException{Message: new("no")}, 1)
			if err := call(shard0); !is[*types.AccessDeniedException](err) {
				f.Errorf("%s is forbidden: %v", op, err)
			}
		}
		if f.orders.Subscriptions(shard0) != 0 || len(f.orders.Shards()[0].Records) != 0 {
			f.Error("a dry run has changed the stream")
		}
	})
}

// TestStreamIsRecreated: a stream that was deleted is missing, and its iterators are not valid for
// another one of its name. Streams of other accounts are found by their ARNs only.
func TestStreamIsRecreated(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		at := f.iterator(shard0, types.ShardIteratorTypeLatest)
		about := func(in *kinesis.DescribeStreamSummaryInput) (time.Time, error) {
			out, err := f.client.DescribeStreamSummary(f.Context(), in)
			if err != nil {
				return time.Time{}, err
			}
			return *out.StreamDescriptionSummary.StreamCreationTimestamp, nil
		}
		byName := &kinesis.DescribeStreamSummaryInput{StreamName: new("orders")}
		old, _ := about(byName)
		f.orders.Delete()
		if _, err := about(byName); !is[*types.ResourceNotFoundException](err) {
			f.Errorf("a deleted stream: %v", err)
		}
		time.Sleep(time.Minute)
		f.server.Create("orders", 1)
		if made, err := about(byName); err != nil || made.Sub(old) != time.Minute {
			f.Errorf("the new stream was created %v after the old one, %v", made.Sub(old), err)
		}
		if _, err := f.client.GetRecords(f.Context(), &kinesis.GetRecordsInput{ShardIterator: at}); !is[*types.ResourceNotFoundException](err) {
			f.Errorf("an iterator of the old stream: %v", err)
		}
		const other = "arn:aws:kinesis:eu-central-1:111122223333:stream/clicks"
		f.server.Create(other, 1)
		_, named := about(&kinesis.DescribeStreamSummaryInput{StreamName: new("clicks")})
		_, full := about(&kinesis.DescribeStreamSummaryInput{StreamARN: new(other)})
		if !is[*types.ResourceNotFoundException](named) || full != nil {
			f.Errorf("another account's stream: by name %v, by ARN %v", named, full)
		}
	})
}

// TestConsumers: a consumer is usable after a while, and only so many can be registered.
func TestConsumers(t *testing.T) {
	bubble(t, 1, func(f *fake) {
		ctx, arn := f.Context(), new(f.orders.ARN())
		register := func(i int) error {
			_, err := f.client.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: arn, ConsumerName: new(fmt.Sprint("group-", i))})
			return err
		}
		status := func() types.ConsumerStatus {
			out, err := f.client.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{StreamARN: arn, ConsumerName: new("group-0")})
			if err != nil {
				return types.ConsumerStatus(fmt.Sprint(is[*types.ResourceNotFoundException](err)))
			}
			return out.ConsumerDescription.ConsumerStatus
		}
		var refused []int
		for i := range 21 {
			err := register(i)
			for ; i > 0 && i%5 == 0 && is[*types.LimitExceededException](err) && len(f.orders.Consumers()) < 20; err = register(i) {
				refused = append(refused, i)
				time.Sleep(time.Minute)
			}
			if i == 0 && (!is[*types.ResourceInUseException](register(0)) || status() != types.ConsumerStatusCreating) {
				f.Error("a consumer can be registered twice, or is used at once")
			}
			if (err != nil) != (i == 20) {
				f.Errorf("consumer %d: %v", i, err)
			}
		}
		if !slices.Equal(refused, []int{5, 10, 15}) || status() != types.ConsumerStatusActive {
			f.Errorf("refused in CREATING: %v; the first is %s", refused, status())
		}
		f.server.PageSize = 7
		names := map[string]bool{}
		for page := kinesis.NewListStreamConsumersPaginator(f.client, &kinesis.ListStreamConsumersInput{StreamARN: arn}); page.HasMorePages(); {
			out, err := page.NextPage(ctx)
			if err != nil {
				f.Fatal(err)
			}
			for _, c := range out.Consumers {
				names[*c.ConsumerName] = true
			}
		}
		if len(names) != 20 || !names["group-19"] {
			f.Errorf("listed: %v", slices.Sorted(maps.Keys(names)))
		}
		if _, err := f.client.DeregisterStreamConsumer(ctx, &kinesis.DeregisterStreamConsumerInput{StreamARN: arn, ConsumerName: new("group-0")}); err != nil {
			f.Fatal(err)
		}
		if status() != types.ConsumerStatusDeleting {
			f.Errorf("at once: %s", status())
		}
		time.Sleep(10 * time.Second)
		if status() != "true" {
			f.Errorf("after a while: %s", status())
		}
	})
}
