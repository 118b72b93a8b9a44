//go:build unix

package kinesis_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// A loop is the least that reads a stream: it has no leases, no checkpoints, no lanes, and no bounds. It reads at the pace of
// the consumer.
type loop struct {
	client *awskinesis.Client
	stream string
	limit  int32 // of records in an answer
}

// run calls a function for each record of the shards, until each is read to its end or to its present end.
func (l loop) run(ctx context.Context, shards []string, process func(data []byte)) error {
	errs := make(chan error, len(shards))
	for _, shard := range shards {
		go func() { errs <- l.read(ctx, shard, process) }()
	}
	for range shards {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func (l loop) read(ctx context.Context, shard string, process func(data []byte)) error {
	first, err := l.client.GetShardIterator(ctx, &awskinesis.GetShardIteratorInput{
		StreamName: &l.stream, ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		return err
	}
	for at := first.ShardIterator; at != nil; {
		due := time.Now().Add(time.Second / 4)
		out, err := l.client.GetRecords(ctx, &awskinesis.GetRecordsInput{ShardIterator: at, Limit: &l.limit})
		if err != nil {
			return err
		}
		size := 0
		for _, r := range out.Records {
			size += len(r.Data) + len(*r.PartitionKey)
			process(r.Data)
		}
		if at = out.NextShardIterator; *out.MillisBehindLatest == 0 && size == 0 { // kinesis-local is at its end too early
			return nil
		}
		time.Sleep(max(time.Until(due), time.Duration(size)*time.Second/(2<<20)))
	}
	return nil
}

// processorTime returns how much of it this process has used.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestProcessorTime: the consumer needs at most 1.3 times the processor time of a loop that only reads, for small records and
// a function that does nothing. Both have the same server in the same process, and alternate. Without SHARDLEASE_LONG=1 it
// only prints the figures.
func TestProcessorTime(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // Go's default, as in a program
	const shards, size = 4, 200
	total := fixture.Size(40_000, 1_000_000)
	var all []kinesistest.Shard
	var names []string
	for i := range shards {
		names = append(names, fmt.Sprint("s", i))
		all = append(all, kinesistest.Shard{Name: names[i], Closed: true})
		data := make([]byte, size)
		for j := range total / shards {
			all[i].Records = append(all[i].Records, kinesistest.Record{Key: fmt.Sprint("customer-", j%1000), Data: data})
		}
	}
	measure := func(run func(b *bench, count func())) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, all...)
			b.config.InFlight = 0
			var n atomic.Int64
			runtime.GC()
			begun := processorTime()
			run(b, func() { n.Add(1) })
			took = processorTime() - begun
			if n.Load() != int64(total) {
				t.Errorf("%d records, want %d", n.Load(), total)
			}
		})
		return took
	}
	var ratios []float64
	for range fixture.Size(1, 5) {
		consumer := measure(func(b *bench, count func()) {
			c := b.consumer()
			end := b.run(func(ctx context.Context) error {
				return c.Run(ctx, func(context.Context, kinesis.Record) error { count(); return nil })
			})
			for c.Stats().Total.Processed < int64(total) {
				time.Sleep(time.Second)
			}
			end()
		})
		bare := measure(func(b *bench, count func()) {
			if err := (loop{b.server.Client(), "orders", 10_000}).run(b.Context(), names, func([]byte) { count() }); err != nil {
				b.Error(err)
			}
		})
		ratios = append(ratios, float64(consumer)/float64(bare))
		t.Logf("a record needs %v in the consumer, %v in a loop: %.2f times", consumer/time.Duration(total), bare/time.Duration(total), ratios[len(ratios)-1])
	}
	slices.Sort(ratios)
	if middle := ratios[len(ratios)/2]; fixture.Long() && middle > 1.3 {
		t.Errorf("the consumer needs %.2f times the processor time of a loop, want at most 1.3", middle)
	}
}
