// Package stream reads a Kinesis stream shard by shard: which shards there are, where a
// shard is begun, and its records, as fast as Kinesis allows and no faster.
package stream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"slices"
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
	// Leased reports whether the group has a lease of a shard. It is asked for the parents of
	// a shard without a position, where a listing from Start leaves them out: a parent that
	// was closed before Start has a lease if it was imported, and then the group continues
	// what it has read there. Default: it has none.
	Leased func(ctx context.Context, shard string) (bool, error)
	// Logger hears of reads that are tried again. Default: nothing.
	Logger *slog.Logger

	mu       sync.Mutex
	known    map[string]shard // as listed last
	closed   map[string]shard // known to exist, though a listing from Start leaves them out
	expired  map[string]bool  // Kinesis has said of these that it does not have them any more
	identity string
	asked    time.Time // when the identity was confirmed
}

// A shard is what a reader has to know of one, beside its name.
type shard struct {
	child   bool // of a shard that is listed too: the group has read that one
	parents []string
	first   string // its first sequence number
	keys    keyRange
}

// Shards lists the shards that have records since Start, closed ones included: those
// are listed until their last record is too old to be kept. What was closed before Start
// is left out. There is nothing in it for this group, and its children are no children
// then, but shards to begin with.
//
// A listing that leaves out a shard which Kinesis still has is an error, [ErrPartial], as
// is one of another stream under the same name, [ErrRecreated].
func (s *Stream) Shards(ctx context.Context) ([]shardlease.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.confirm(ctx, identityFor); err != nil {
		return nil, err
	}
	known, err := s.list(ctx, s.filter())
	if err != nil {
		return nil, err
	}
	if err := s.complete(ctx, known); err != nil {
		return nil, err
	}
	shards := make([]shardlease.Shard, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		shards = append(shards, shardlease.Shard{Name: name, Parents: known[name].parents})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
	return shards, nil
}

// list lists shards. Without a filter Kinesis lists all that it has.
func (s *Stream) list(ctx context.Context, filter *types.ShardFilter) (map[string]shard, error) {
	known := map[string]shard{}
	input := &kinesis.ListShardsInput{StreamName: &s.Name, ShardFilter: filter}
	for input != nil {
		page, err := s.Client.ListShards(ctx, input)
		if err != nil {
			return nil, fmt.Errorf("list the shards of %s: %w", s.Name, err)
		}
		for _, l := range page.Shards {
			next := shard{parents: parents(l)}
			if next.keys, err = newKeyRange(l.HashKeyRange); err != nil {
				return nil, fmt.Errorf("list the shards of %s: %s: %w", s.Name, *l.ShardId, err)
			}
			if l.SequenceNumberRange != nil {
				next.first = aws.ToString(l.SequenceNumberRange.StartingSequenceNumber)
			}
			known[*l.ShardId] = next
		}
		input = nil
		if page.NextToken != nil { // it stands for all the rest, and is alone
			input = &kinesis.ListShardsInput{NextToken: page.NextToken}
		}
	}
	for name, one := range known {
		for _, parent := range one.parents {
			_, there := known[parent]
			one.child = one.child || there
		}
		known[name] = one
	}
	return known, nil
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

func (s *Stream) lookUp(name string) (shard, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[name]; ok {
		return known, true
	}
	known, ok := s.closed[name]
	return known, ok
}

// forget makes find ask for a shard again.
func (s *Stream) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = maps.Clone(s.known)
	delete(s.known, name)
	delete(s.closed, name)
}

// First is the first sequence number of a shard, if it is known.
func (s *Stream) First(name string) string {
	known, _ := s.lookUp(name)
	return known.first
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
