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

// A Stream is a Kinesis stream as one consumer group reads it. It is a shardlease.Source. Set
// the fields before its first use; Client and Name are required.
type Stream struct {
	// Client is the client for Kinesis.
	Client *kinesis.Client
	// Name is the name of the stream.
	Name string
	// Start is where the group begins: at the first record that arrived at this time or
	// later. Zero: at the oldest record that is left. It must be the same for all workers of a
	// group, and must not change; the type [Start] explains how "latest" becomes a time.
	Start time.Time
	// Idle is the time between two reads of a shard that has no new records. Kinesis allows
	// five reads per second and shard, for all groups together; a shard that is behind is read
	// up to four times per second. Default 1 s.
	Idle time.Duration
	// Limit is the maximum number of records of one read. Default and maximum 10,000; it should
	// be no more than the number of records in flight.
	Limit int
	// Leased reports whether the group has a lease row of a shard. It is called for the parents
	// of a shard without a position if a listing from Start leaves them out. An import creates
	// rows of parents that were closed before Start; the group has then read these parents, and
	// the shard is read from its beginning. Default: no parent has a row.
	Leased func(ctx context.Context, shard string) (bool, error)
	// Logger receives a line for each read that is tried again. Default: no logging.
	Logger *slog.Logger

	mu       sync.Mutex
	known    map[string]shard // the shards in the last listing
	closed   map[string]shard // shards that exist, but are left out by a listing from Start
	expired  map[string]bool  // shards that Kinesis no longer has
	identity string
	asked    time.Time // when the identity was confirmed
}

// A shard is what a reader needs to know of a shard in addition to its name.
type shard struct {
	child   bool // a parent is listed too, and the group has read it
	parents []string
	first   string // its first sequence number
	keys    keyRange
}

// Shards lists the shards that have records since Start, including closed ones, which Kinesis
// lists until their last record expires. Shards that were closed before Start are left out: they
// have no records for this group, and their children begin at Start and not at their beginning.
//
// Shards returns [ErrPartial] if the listing leaves out a shard that Kinesis still has, and
// [ErrRecreated] if another stream has the name now.
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

// list lists shards. Without a filter Kinesis lists all its shards.
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
		if page.NextToken != nil { // a request with a token must have no other fields
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

// parents returns the parents of a shard: one after a split, two after a merge. Kinesis names
// them also when it no longer lists them.
func parents(s types.Shard) []string {
	var names []string
	for _, name := range []*string{s.ParentShardId, s.AdjacentParentShardId} {
		if name != nil {
			names = append(names, *name)
		}
	}
	return names
}

// lookUp returns a shard from the last listing, or one that find has found since.
func (s *Stream) lookUp(name string) (shard, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[name]; ok {
		return known, true
	}
	known, ok := s.closed[name]
	return known, ok
}

// forget makes find request a shard again.
func (s *Stream) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = maps.Clone(s.known)
	delete(s.known, name)
	delete(s.closed, name)
}

// First returns the first sequence number of a shard, or "" if it is unknown.
func (s *Stream) First(name string) string {
	known, _ := s.lookUp(name)
	return known.first
}

// A keyRange is the range of hash keys that belong to a shard, both ends included.
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
