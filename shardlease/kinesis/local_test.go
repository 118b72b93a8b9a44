//go:build unix

package kinesis_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
)

// TestThroughputOnKinesisLocal: on another server than ours, the consumer reads at least 0.9 times as fast as a loop that only
// reads, at the same pace. The two alternate.
func TestThroughputOnKinesisLocal(t *testing.T) {
	if os.Getenv("AWS_ENDPOINT_URL_KINESIS") == "" {
		t.Skip("no kinesis-local: start this with examples/kinesis/run-local")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // Go's default, as in a program
	// A connection that is kept would have goroutines that stay.
	once := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.DisableKeepAlives = true })
	options, err := config.LoadDefaultConfig(t.Context(), config.WithHTTPClient(once))
	if err != nil {
		t.Fatal(err)
	}
	client, name := awskinesis.NewFromConfig(options), "orders-"+rand.Text()[:8]
	const entries, limit = 4000, 250 // 16 reads of one shard
	if _, err := client.CreateStream(t.Context(), &awskinesis.CreateStreamInput{StreamName: &name, ShardCount: aws.Int32(1)}); err != nil {
		t.Fatal(err)
	}
	if err := awskinesis.NewStreamExistsWaiter(client).Wait(t.Context(), &awskinesis.DescribeStreamInput{StreamName: &name}, time.Minute); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < entries; i += 500 {
		put := &awskinesis.PutRecordsInput{StreamName: &name}
		for j := range 500 {
			put.Records = append(put.Records, types.PutRecordsRequestEntry{Data: make([]byte, 500), PartitionKey: aws.String(fmt.Sprint(i + j))})
		}
		if out, err := client.PutRecords(t.Context(), put); err != nil || *out.FailedRecordCount != 0 {
			t.Fatal(out, err)
		}
	}
	var ratios []float64
	for range 3 {
		var l laps
		bare := loop{client, name, limit}
		if err := bare.run(t.Context(), []string{"shardId-000000000000"}, func([]byte) { l.lap() }); err != nil {
			t.Fatal(err)
		}
		loops := l.took(t, entries)
		l = laps{}
		// The pace of the loop: kinesis-local says one answer too early that the consumer has caught up.
		pace := kinesis.Config{Stream: name, Group: "orders", Handoff: rebalance.Eager, InFlight: limit, Idle: time.Second / 4}
		c, err := kinesis.New(client, new(memstore.Store), pace)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		err = c.Run(ctx, func(context.Context, kinesis.Record) error {
			if l.lap() == entries {
				stop()
			}
			return nil
		})
		stop()
		if err != nil {
			t.Fatal(err)
		}
		took := l.took(t, entries)
		ratios = append(ratios, float64(loops)/float64(took))
		t.Logf("%d records took %v in a loop, and %v in the consumer", entries, loops, took)
	}
	slices.Sort(ratios)
	if ratios[1] < 0.9 {
		t.Errorf("the consumer has %.2f times the throughput of the loop, want at least 0.9", ratios[1])
	}
}

// laps note when the first and the last record were processed.
type laps struct {
	mu          sync.Mutex
	n           int
	first, last time.Time
}

func (l *laps) lap() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	l.last = time.Now()
	if l.n == 1 {
		l.first = l.last
	}
	return l.n
}

func (l *laps) took(t *testing.T, want int) time.Duration {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n != want {
		t.Fatalf("%d records, want %d", l.n, want)
	}
	return l.last.Sub(l.first)
}
