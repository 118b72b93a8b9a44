package dynamostore

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// One partition of a DynamoDB table accepts 1,000 write units a second. The lease rows of a
// larger group are therefore spread over several partitions, its buckets: the row of a shard is
// in bucket b of B, where b is the FNV-1a hash of the shard's name, of 32 bits, modulo B. The
// partition key is GROUP/lease/b, or GROUP/lease if B is 1. All other records of a group have one
// partition for each kind.
//
// Invariant: B is part of the record that the group has of its table (identity.go), which is
// stored before the first lease row, and it never changes. So a Store or a Reader
// reads it once, before its first call about a row of the group. If it were to change, a row would be looked for where it
// is not, and be created a second time.

// mostBuckets bounds how many queries a listing of lease rows may take.
const mostBuckets = 64

// A BucketsError reports that Options.Buckets is not the number of buckets of the group. That
// number never changes.
type BucketsError struct {
	Group string
	// Stored is the number that the group began with.
	Stored int
	// Option is the value of Options.Buckets.
	Option int
}

func (e *BucketsError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("group %q has %d buckets, and Options.Buckets is %d: the number of a group never changes; leave the option 0, or begin a new group",
		e.Group, e.Stored, e.Option)
}

func (o Options) validateBuckets() error {
	if o.Buckets < 0 || o.Buckets > mostBuckets {
		return &checkpoint.InvalidError{Field: "Buckets", Rule: fmt.Sprintf("must be from 1 to %d, or 0 for the number that the group has", mostBuckets)}
	}
	if o.Buckets > 0 && o.Group == "" {
		return &checkpoint.InvalidError{Field: "Group", Rule: "must be given with Buckets: Open compares Buckets with the number of that group"}
	}
	return nil
}

// partition returns the partition key of a record in a group with that many buckets.
func partition(k lease.Key, buckets int) string {
	if buckets == 1 {
		return bucket(k.Group, k.Kind, 0, 1)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.Name))
	return bucket(k.Group, k.Kind, int(h.Sum32()%uint32(buckets)), buckets)
}

// bucket returns the partition key of one bucket.
func bucket(group string, kind lease.Kind, b, buckets int) string {
	key := attr.Partition(group, kind.Listed())
	if kind == lease.KindLease && buckets > 1 {
		key += "/" + strconv.Itoa(b)
	}
	return key
}

// partitions returns the partition keys of all buckets.
func partitions(group string, kind lease.Kind, buckets int) []string {
	keys := make([]string, buckets)
	for b := range keys {
		keys[b] = bucket(group, kind, b, buckets)
	}
	return keys
}

// otherPartitions returns the partitions that have rows only in a group with another number of
// buckets. The first one is not empty if that group has many rows.
func otherPartitions(group string, buckets int) []string {
	own := partitions(group, lease.KindLease, buckets)
	all := append(partitions(group, lease.KindLease, 1), partitions(group, lease.KindLease, mostBuckets)...)
	return slices.DeleteFunc(all, func(key string) bool { return slices.Contains(own, key) })
}

// withoutBucket returns a partition key without the number of a bucket: the leaseGroup of
// lease.Encode.
func withoutBucket(partition string) string {
	cut := strings.LastIndexByte(partition, '/')
	b, _ := strconv.Atoi(partition[cut+1:])
	row := partition[:max(cut, 0)]
	group, isRow := strings.CutSuffix(row, "/"+lease.KindLease.String())
	if isRow && b >= 0 && b < mostBuckets && partition == bucket(group, lease.KindLease, b, mostBuckets) {
		return row
	}
	return partition
}

// bucketsOf returns over how many partitions the records of one kind are spread. A group without
// a record has no rows yet: its number may still be decided by another process, so it is not kept.
func (s *reading) bucketsOf(ctx context.Context, group string, kind lease.Kind) (int, error) {
	if kind != lease.KindLease {
		return 1, nil
	}
	if n, known := s.buckets.Load(group); known {
		return n.(int), nil
	}
	r, err := s.recorded(ctx, group)
	return r.buckets, err
}
