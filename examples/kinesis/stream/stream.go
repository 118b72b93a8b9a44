// Package stream reads a Kinesis stream shard by shard: which shards there are, where a
// shard is begun, and its records, as fast as Kinesis allows and no faster.
package stream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease"
)

// A Stream is a stream as one consumer group reads it. It is a shardlease.Source. The
// fields are set before it is used; Client and Name are required.
type Stream struct {
	Client *kinesis.Client
	Name   string
	// Start is where the group begins: with the first record that arrived then or
	// later. Zero: with the oldest one that is left. It must be the same for all workers
	// of a group, and stay the same; [Start] has what "latest" means then.
	Start time.Time
	// Idle is the time between two reads of a shard that has nothing new. Kinesis allows
	// five reads a second of a shard, to all groups together; a shard that is behind is
	// read that often. Default 1 s.
	Idle time.Duration
	// Limit is how many records one read asks for. Default, and at most, 10,000; it should
	// be no more than what may be in flight.
	Limit int
	// Logger hears of reads that are tried again. Default: nothing.
	Logger *slog.Logger

	mu    sync.Mutex
	known map[string]shard // as listed last
}

// A shard is what a reader has to know of one, beside its name.
type shard struct {
	child bool // of a shard that is listed too: the group has read that one
	keys  keyRange
}

// Shards lists the shards that have records since Start, closed ones included: those
// are listed until their last record is too old to be kept. What was closed before Start
// is left out. There is nothing in it for this group, and its children are no children
// then, but shards to begin with.
func (s *Stream) Shards(ctx context.Context) ([]shardlease.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var listed []types.Shard
	input := &kinesis.ListShardsInput{StreamName: &s.Name, ShardFilter: s.filter()}
	for input != nil {
		page, err := s.Client.ListShards(ctx, input)
		if err != nil {
			return nil, fmt.Errorf("list the shards of %s: %w", s.Name, err)
		}
		listed, input = append(listed, page.Shards...), nil
		if page.NextToken != nil { // it stands for all the rest, and is alone
			input = &kinesis.ListShardsInput{NextToken: page.NextToken}
		}
	}
	known := make(map[string]shard, len(listed))
	for _, l := range listed {
		known[*l.ShardId] = shard{}
	}
	shards := make([]shardlease.Shard, 0, len(listed))
	for _, l := range listed {
		next := shardlease.Shard{Name: *l.ShardId, Parents: parents(l)}
		keys, err := newKeyRange(l.HashKeyRange)
		if err != nil {
			return nil, fmt.Errorf("list the shards of %s: %s: %w", s.Name, next.Name, err)
		}
		child := false
		for _, parent := range next.Parents {
			_, there := known[parent]
			child = child || there
		}
		known[next.Name] = shard{child: child, keys: keys}
		shards = append(shards, next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
	return shards, nil
}

func (s *Stream) filter() *types.ShardFilter {
	if s.Start.IsZero() {
		return &types.ShardFilter{Type: types.ShardFilterTypeFromTrimHorizon}
	}
	return &types.ShardFilter{Type: types.ShardFilterTypeFromTimestamp, Timestamp: &s.Start}
}

// parents are one after a split, two after a merge. Kinesis names them for ever, listed
// or not.
func parents(s types.Shard) []string {
	var names []string
	for _, name := range []*string{s.ParentShardId, s.AdjacentParentShardId} {
		if name != nil {
			names = append(names, *name)
		}
	}
	return names
}

// find gives what is known of a shard, and asks if that is nothing: a worker may be given
// a shard that another has found first.
func (s *Stream) find(ctx context.Context, name string) (shard, bool, error) {
	known, ok := s.lookUp(name)
	if ok {
		return known, true, nil
	}
	if _, err := s.Shards(ctx); err != nil {
		return shard{}, false, err
	}
	known, ok = s.lookUp(name)
	return known, ok, nil
}

func (s *Stream) lookUp(name string) (shard, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.known[name]
	return known, ok
}

// A keyRange is which hashes of partition keys belong to a shard, ends included.
type keyRange struct{ from, to [16]byte }

func newKeyRange(r *types.HashKeyRange) (keyRange, error) {
	from, okFrom := hashKey(aws.ToString(r.StartingHashKey))
	to, okTo := hashKey(aws.ToString(r.EndingHashKey))
	if !okFrom || !okTo {
		return keyRange{}, fmt.Errorf("a hash key is no number of 128 bits")
	}
	return keyRange{from, to}, nil
}

func (r keyRange) contains(key [16]byte) bool {
	return bytes.Compare(r.from[:], key[:]) <= 0 && bytes.Compare(key[:], r.to[:]) <= 0
}

// hashKey reads a hash key, which is a decimal number of up to 128 bits.
func hashKey(text string) (key [16]byte, ok bool) {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok || n.Sign() < 0 || n.BitLen() > 8*len(key) {
		return key, false
	}
	n.FillBytes(key[:])
	return key, true
}
