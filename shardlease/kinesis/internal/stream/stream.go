// Package stream reads a Kinesis stream shard by shard: it lists the shards, finds where a group
// begins in each of them, and reads their records as fast as Kinesis allows and no faster.
package stream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease"
)

// A Stream is a Kinesis stream as one group reads it. It is a shardlease.Source. Set
// the fields before its first use; Client and Name are required.
type Stream struct {
	// Client is the client for Kinesis.
	Client *kinesis.Client
	// Name is the name or the ARN of the stream. A stream of another account needs its ARN.
	Name string
	// Start is where the group begins: at the first record that arrived at this time or
	// later. Zero: at the oldest record that is left. Begin sets it, to one time for all workers of a
	// group.
	Start time.Time
	// Idle is the time between two reads of a shard that has no new records. Kinesis allows
	// five reads per second and shard, for all groups together; a shard that is behind is read
	// up to four times per second. Default 1 s.
	Idle time.Duration
	// Limit is the maximum number of records of one read. Default and maximum 10,000; it should
	// be no more than the number of records in flight.
	Limit int
	// Leased reports whether the group has a lease row of a shard. It is called for the parents
	// of a shard without a position if a listing from Start leaves them out. If one has a row, which an
	// import creates, the group has read this parent, so the shard is read from its
	// beginning. Begin sets it. Default: no parent has a row.
	Leased func(ctx context.Context, shard string) (bool, error)
	// Foreign decides about packed records whose keys belong to other shards. Default: Drop.
	Foreign Foreign
	// Logger receives a line for each read that is tried again. Default: no logging.
	Logger *slog.Logger

	mu        sync.Mutex
	known     map[string]shard // the shards in the last listing
	closed    map[string]shard // shards that exist, but are left out by a listing from Start
	expired   map[string]bool  // shards that Kinesis no longer has
	summary   summary
	other     bool      // the last description was that of another stream of this name
	refreshed time.Time // when a reader last described the stream

	prefix    string            // of the names of its shards in a Set
	sequences map[string]string // where shards begin: the Sequence of the group's Start
	imported  bool              // the group had leases before its first worker began, so listings leave out no shard
}

// address returns what requests call the stream by: its name or its ARN. The other one is nil.
func (s *Stream) address() (name, address *string) {
	if arn.IsARN(s.Name) {
		return nil, &s.Name
	}
	return &s.Name, nil
}

// short returns the name of the stream, also if it is given as an ARN.
func (s *Stream) short() string { return s.Name[strings.LastIndexByte(s.Name, '/')+1:] }

// Foreign decides about records that the Kinesis Producer Library (KPL) has packed into an entry
// of a shard to which their keys do not belong. It has no effect on streams with AUTO
// distribution, where keys belong to no shard and all records are kept.
type Foreign int

const (
	// Drop leaves the records out, and Entry.Foreign counts them: the KPL puts them again.
	Drop Foreign = iota
	// Keep keeps the records. It is for producers that do not put them again, and for a stream that was
	// switched back from AUTO distribution, until its entries of that time have expired.
	Keep
)

// A shard is what a reader needs to know of a shard in addition to its name.
type shard struct {
	child   bool // a parent is listed too, and the group has read it
	parents []string
	first   string // its first sequence number
	closed  bool   // it gets no more records
	keys    keyRange
}

// Shards lists the shards that have records since Start, including closed ones, which Kinesis
// lists until their last record expires. Shards that were closed before Start are left out: they
// have no records for this group, and their children begin at Start and not at their beginning. But an
// imported group may have to read them to their end, so its listings have all shards.
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
	maps.DeleteFunc(s.expired, func(name string, _ bool) bool { _, there := known[name]; return there })
	return shards, nil
}

// list lists shards. Without a filter Kinesis lists all its shards.
func (s *Stream) list(ctx context.Context, filter *types.ShardFilter) (map[string]shard, error) {
	known := map[string]shard{}
	input := &kinesis.ListShardsInput{ShardFilter: filter}
	input.StreamName, input.StreamARN = s.address()
	for input != nil {
		page, err := s.Client.ListShards(ctx, input)
		if err != nil {
			return nil, fmt.Errorf("list the shards of %s: %w", s.Name, s.explain(list, err))
		}
		for _, l := range page.Shards {
			next := shard{parents: parents(l)}
			if next.keys, err = newKeyRange(l.HashKeyRange); err != nil {
				return nil, fmt.Errorf("list the shards of %s: %s: %w", s.Name, *l.ShardId, err)
			}
			if l.SequenceNumberRange != nil {
				next.first = aws.ToString(l.SequenceNumberRange.StartingSequenceNumber)
				next.closed = l.SequenceNumberRange.EndingSequenceNumber != nil
			}
			known[*l.ShardId] = next
		}
		input = nil
		if page.NextToken != nil { // a request with a token must have no other fields, and no ARN either
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

// listsAll reports whether listings have all shards that Kinesis has.
func (s *Stream) listsAll() bool { return s.Start.IsZero() || s.imported }

func (s *Stream) filter() *types.ShardFilter {
	if s.listsAll() {
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
		return keyRange{}, fmt.Errorf("a hash key is not a number of 128 bits")
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
