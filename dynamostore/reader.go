package dynamostore

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// reading is the part of a Store that reads, and all that a Reader has.
//
// Invariant: no method of reading writes to the table, so that a Reader has no way to write.
// Methods that write have a Store as their receiver.
type reading struct {
	client  *dynamodb.Client
	table   string
	options Options
	rows    *lane
	commits commitTexts
	buckets sync.Map // the number of buckets by group, of groups that have a record
	opening bool     // Open tries the table, and no other goroutine has the Store yet
}

func newReading(client *dynamodb.Client, table string, o Options) *reading {
	return &reading{client: client, table: table, options: o, rows: newLane(o.InFlight), commits: newCommitTexts()}
}

// A Reader reads the records of a lease table and never changes the table. It is for programs that
// only look: dashboards, exporters, checks. It sends DescribeTable, GetItem and Query only, so the
// observer's policy in docs/iam.md is enough. It is no [lease.Store]: a worker and a
// shardlease.Supervisor need a [Store].
//
// A Reader reads the number of buckets of a group from the table. A group that no worker has used
// yet appears empty: a listing yields nothing, Get returns [lease.ErrNotFound], and Verify returns
// nil. Nothing about it is kept, so the Reader sees the group as soon as its first worker begins.
//
// A Reader is safe for concurrent use and has no goroutine between two calls. It uses the
// caller's client and does not close it.
type Reader struct{ *reading }

// OpenReader returns a Reader on an existing lease table. It checks the state and the keys of the
// table and tries GetItem and Query on the group in Options.Group. It writes nothing: unlike [Open],
// it does not store Options.Buckets, and only compares it with the number that a group has.
func OpenReader(ctx context.Context, client *dynamodb.Client, table string, o Options) (*Reader, error) {
	s, err := prepare(ctx, client, table, o)
	if err != nil {
		return nil, err
	}
	r := &Reader{s}
	if err := s.open(ctx, s.reads, r.Verify); err != nil {
		return nil, err
	}
	return r, nil
}

// Verify compares the identity of the table with the one that the group has recorded, and returns
// a [*RestoredError] if they differ, as [Store.Verify] does. It records nothing: a group that has
// neither rows nor a record stays as it is, and Verify returns nil.
//
// Each call costs one DescribeTable and one read, and for a group without a record also a query
// for each bucket and one more.
func (r *Reader) Verify(ctx context.Context, group string) error {
	_, _, err := r.compare(ctx, group)
	return err
}
