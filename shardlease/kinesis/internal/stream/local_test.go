package stream_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
)

// TestGroupsBeginOnKinesisLocal: a group that begins at a time reads the records since then, and
// reads the children of a shard that was split later from their beginning. A group that begins at
// the trim horizon reads all records.
func TestGroupsBeginOnKinesisLocal(t *testing.T) {
	if os.Getenv("AWS_ENDPOINT_URL_KINESIS") == "" {
		t.Skip("no kinesis-local: start this with ../run-local")
	}
	c, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &local{T: t, client: kinesis.NewFromConfig(c), name: "orders-" + rand.Text()[:8]}
	l.must(l.client.CreateStream(t.Context(), &kinesis.CreateStreamInput{StreamName: &l.name, ShardCount: aws.Int32(1)}))
	l.active()
	l.put(0, 10)
	<-time.After(1100 * time.Millisecond) // kinesis-local compares times in whole seconds
	middle := time.Now()
	l.put(10, 20)
	l.must(l.client.SplitShard(t.Context(), &kinesis.SplitShardInput{
		StreamName: &l.name, ShardToSplit: aws.String("shardId-000000000000"), NewStartingHashKey: aws.String("170141183460469231731687303715884105728"),
	}))
	l.active()
	l.put(20, 30)
	for start, want := range map[time.Time]int{{}: 0, middle: 10} {
		s := &stream.Stream{Client: l.client, Name: l.name, Start: start}
		if got := l.read(s); len(got) != 30-want || got[0] != fmt.Sprintf("%02d", want) {
			t.Errorf("from %v: got %v", start, got)
		}
	}
}

type local struct {
	*testing.T
	client *kinesis.Client
	name   string
}

func (l *local) must(_ any, err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *local) active() {
	l.Helper()
	limit := time.After(30 * time.Second)
	for {
		out, err := l.client.DescribeStreamSummary(l.Context(), &kinesis.DescribeStreamSummaryInput{StreamName: &l.name})
		if err == nil && out.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limit:
			l.Fatal("the stream is not active: ", err)
		}
	}
}

func (l *local) put(from, to int) {
	l.Helper()
	for i := from; i < to; i++ {
		text := fmt.Sprintf("%02d", i)
		l.must(l.client.PutRecord(l.Context(), &kinesis.PutRecordInput{StreamName: &l.name, PartitionKey: &text, Data: []byte(text)}))
	}
}

// read reads all shards, each until it has nothing more, and returns the sorted records.
func (l *local) read(s *stream.Stream) []string {
	l.Helper()
	shards, err := s.Shards(l.Context())
	l.must(nil, err)
	if len(shards) != 3 || len(shards[2].Parents) != 1 {
		l.Fatalf("listed: %v", shards)
	}
	var all []string
	ctx, cancel := context.WithTimeout(l.Context(), 30*time.Second)
	defer cancel()
	for _, shard := range shards {
		for batch, err := range s.Read(ctx, shard.Name, "", nil) {
			if errors.Is(err, io.EOF) {
				break
			}
			l.must(nil, err)
			for _, e := range batch.Entries {
				all = append(all, string(e.Records[0].Data))
			}
			if len(shard.Parents) > 0 && batch.Behind == 0 {
				break // an open shard without more records
			}
		}
	}
	slices.Sort(all)
	return all
}
