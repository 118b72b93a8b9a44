package endtoend

import (
	"context"
	"fmt"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// A topic is a stream, as its producer sees it.
type topic struct {
	testing.TB
	name   string
	auto   bool // it distributes its records by itself
	client *kinesis.Client
	memory *kinesistest.Stream // nil: it is on a server
	honest *atomic.Bool        // listings are complete; nil: they always are

	open []*open // in the order of their hash keys
}

// An open shard has a range of hash keys, both ends included.
type open struct {
	name     string
	from, to *big.Int
}

func (o *open) has(place *big.Int) bool { return o.from.Cmp(place) <= 0 && place.Cmp(o.to) <= 0 }

// of returns the open shard of a hash key.
func (t *topic) of(place *big.Int) *open {
	for _, o := range t.open {
		if o.has(place) {
			return o
		}
	}
	t.Fatalf("%s has no open shard for %v", t.name, place)
	return nil
}

// put puts an entry where a hash key belongs, or where an AUTO stream wants it. An empty key is none.
func (t *topic) put(place *big.Int, key string, data []byte) (shard, sequence string) {
	if t.memory == nil {
		out, err := t.client.PutRecord(t.Context(), &kinesis.PutRecordInput{
			StreamName: &t.name, PartitionKey: &key, ExplicitHashKey: aws.String(place.String()), Data: data,
		})
		if err != nil {
			t.Error(err)
			return "", ""
		}
		return *out.ShardId, *out.SequenceNumber
	}
	if t.auto {
		return t.memory.Put(key, data)
	}
	shard = t.of(place).name
	return shard, t.memory.PutTo(shard, key, data)
}

// split splits an open shard in halves.
func (t *topic) split(o *open) {
	if t.memory != nil {
		t.memory.Split(o.name)
	} else {
		middle := new(big.Int).Add(o.from, o.to)
		middle.Add(middle.Rsh(middle, 1), big.NewInt(1))
		_, err := t.client.SplitShard(t.Context(), &kinesis.SplitShardInput{StreamName: &t.name, ShardToSplit: &o.name, NewStartingHashKey: aws.String(middle.String())})
		t.must(err)
	}
	t.refresh()
}

// merge merges an open shard and the next one.
func (t *topic) merge(i int) {
	a, b := t.open[i].name, t.open[i+1].name
	if t.memory != nil {
		t.memory.Merge(a, b)
	} else {
		_, err := t.client.MergeShards(t.Context(), &kinesis.MergeShardsInput{StreamName: &t.name, ShardToMerge: &a, AdjacentShardToMerge: &b})
		t.must(err)
	}
	t.refresh()
}

func (t *topic) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refresh waits until the stream is active, and lists its open shards.
func (t *topic) refresh() {
	for range 300 {
		out, err := t.client.DescribeStreamSummary(t.Context(), &kinesis.DescribeStreamSummaryInput{StreamName: &t.name})
		t.must(err)
		if out.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive {
			break
		}
		pause(t.Context(), 100*time.Millisecond)
	}
	t.open = nil
	for _, s := range t.list() {
		if s.SequenceNumberRange.EndingSequenceNumber != nil {
			continue
		}
		o := &open{*s.ShardId, number(t, *s.HashKeyRange.StartingHashKey), number(t, *s.HashKeyRange.EndingHashKey)}
		at := 0
		for at < len(t.open) && t.open[at].from.Cmp(o.from) < 0 {
			at++
		}
		t.open = append(t.open[:at], append([]*open{o}, t.open[at:]...)...)
	}
}

// list lists all shards.
func (t *topic) list() []types.Shard {
	if t.honest != nil {
		defer t.honest.Store(t.honest.Swap(true))
	}
	var all []types.Shard
	in := &kinesis.ListShardsInput{StreamName: &t.name}
	for in != nil {
		out, err := t.client.ListShards(t.Context(), in)
		t.must(err)
		all, in = append(all, out.Shards...), nil
		if out.NextToken != nil {
			in = &kinesis.ListShardsInput{NextToken: out.NextToken}
		}
	}
	return all
}

// listed returns all shards by their leases.
func (t *topic) listed() map[string]shard {
	all := map[string]shard{}
	for _, s := range t.list() {
		one := shard{closed: s.SequenceNumberRange.EndingSequenceNumber != nil, first: *s.SequenceNumberRange.StartingSequenceNumber}
		for _, parent := range []*string{s.ParentShardId, s.AdjacentParentShardId} {
			if parent != nil {
				one.parents = append(one.parents, t.name+"/"+*parent)
			}
		}
		all[t.name+"/"+*s.ShardId] = one
	}
	return all
}

func number(t testing.TB, text string) *big.Int {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		t.Fatal(fmt.Errorf("%q is no hash key", text))
	}
	return n
}

// pause waits, and returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
