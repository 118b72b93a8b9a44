package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A table that is restored from a backup has the rows as they were at the backup. Its workers
// would issue generations again that were already issued after the backup. Each group therefore
// records the identity of its table, in an item of its own. A restored table contains the
// record of the old table, and has another identity. The record also has the number of buckets of
// the group (buckets.go), which the restored table keeps.

// ErrRestored means that the table is not the one that the group has recorded.
var ErrRestored = errors.New("the table is not the one this group has recorded: it was restored or replaced")

// A RestoredError reports that a group has recorded another table than the present one.
type RestoredError struct {
	// Group is the group that uses the table.
	Group string
	// Recorded is the identity of the recorded table; empty if the group has rows and
	// no record.
	Recorded string
	// Now is the identity of the present table.
	Now string
}

func (e *RestoredError) Error() string {
	if e == nil {
		return "<nil>"
	}
	if e.Recorded == "" {
		return fmt.Sprintf("group %q has rows, and no record of its table: verify before the first row is created; adopt the existing rows", e.Group)
	}
	return fmt.Sprintf("group %q: %v (recorded %q, now %q); claim nothing before its rows are adopted", e.Group, ErrRestored, e.Recorded, e.Now)
}

// Is reports whether target is [ErrRestored] or [lease.ErrWentBack], the error that a worker
// compares with.
func (e *RestoredError) Is(target error) bool {
	return e != nil && (target == ErrRestored || target == lease.ErrWentBack)
}

const (
	identityPartition = "/table"
	identityKey       = "identity"
	attrTableID       = "tableId"
	attrBuckets       = "buckets"
)

// A groupRecord is what a group has recorded.
type groupRecord struct {
	table   string // the identity of its table; empty: there is no record
	buckets int    // without a record, the number that a Store with these options would record
}

// Verify compares the identity of the table with the one that the group has recorded, and
// returns a [*RestoredError] if they differ. If the group has no rows yet, Verify records
// the identity and the number of buckets. A group that has rows and no record is refused too, so
// Verify must precede the first row.
//
// Each call costs one DescribeTable and one read, and for a new group also a query for each
// bucket, one more, and a write.
func (s *Store) Verify(ctx context.Context, group string) error {
	recorded, now, err := s.compare(ctx, group)
	if err != nil || recorded.table != "" {
		return err
	}
	return s.record(ctx, group, recorded, now)
}

// compare returns what the group has recorded, and the identity of the table. It returns a
// [*RestoredError] if these differ. Only a group that has neither a record nor rows has no
// recorded table and no error.
func (s *reading) compare(ctx context.Context, group string) (recorded groupRecord, now string, err error) {
	now, err = s.inspect(ctx) // as the table is now, and not as Open found it
	if err == nil {
		recorded, err = s.recorded(ctx, group)
	}
	if err == nil && recorded.table == "" {
		var rows bool
		rows, err = s.hasRows(ctx, group, append(partitions(group, lease.KindLease, recorded.buckets), otherPartitions(group, recorded.buckets)[0]))
		if err == nil && !rows {
			return recorded, now, nil
		}
		if err == nil { // the group may have begun after the first read; its record precedes its first row
			recorded, err = s.recorded(ctx, group)
		}
	}
	switch {
	case err != nil:
		err = fmt.Errorf("verify the table of group %q: %w", group, err)
	case recorded.table != now:
		err = &RestoredError{Group: group, Recorded: recorded.table, Now: now}
	}
	return recorded, now, err
}

// hasRows reports whether any of these partitions has lease rows. If the group has rows, and no
// record of its table, that record was lost.
func (s *reading) hasRows(ctx context.Context, group string, in []string) (bool, error) {
	for _, p := range in {
		for _, err := range s.query(ctx, lease.Query{Group: group, Kind: lease.KindLease}, p, 1) {
			if errors.Is(err, lease.ErrMalformed) {
				err = nil // a row that cannot be read is a row too
			}
			return err == nil, err
		}
	}
	return false, nil
}

// Adopt accepts a restored table for a group. It raises the generation of every lease row
// above all that the old table can have issued, leaves the rows without an owner, and records
// the identity of this table. It returns the number of adopted rows. If a row cannot be
// adopted, Adopt returns an error and does not record the table; it can be called again, by
// any process and at any time. The rows record by as the name of the caller.
func (s *Store) Adopt(ctx context.Context, group, by string) (int, error) {
	now, err := s.inspect(ctx)
	if err != nil {
		return 0, fmt.Errorf("adopt group %q: %w", group, err)
	}
	recorded, err := s.recorded(ctx, group)
	if err == nil && recorded.table == "" {
		err = s.refuseOtherBuckets(ctx, group, recorded.buckets)
	}
	if err != nil {
		return 0, fmt.Errorf("adopt group %q: %w", group, err)
	}
	if recorded.table == now {
		return 0, nil // the table is recorded already; to adopt its rows again would end the tenures of a healthy group
	}
	adopted := 0
	var errs []error
	for r, err := range s.List(ctx, lease.Query{Group: group, Kind: lease.KindLease}) {
		if err == nil {
			err = s.adopt(ctx, r.(lease.Row), now, by)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		adopted++
	}
	if len(errs) == 0 {
		errs = append(errs, s.record(ctx, group, recorded, now))
	}
	if err := errors.Join(errs...); err != nil {
		return adopted, fmt.Errorf("adopt group %q: %w", group, err)
	}
	return adopted, nil
}

// refuseOtherBuckets returns an error if a group without a record has rows where a listing does not
// find them, because it had more buckets, or one instead of several. If it had fewer, the listing
// has an error for each row that is not in its bucket.
func (s *Store) refuseOtherBuckets(ctx context.Context, group string, buckets int) error {
	rows, err := s.hasRows(ctx, group, otherPartitions(group, buckets))
	if rows {
		err = fmt.Errorf("not all of its rows are in %d buckets: set Options.Buckets to the number that the group had", buckets)
	}
	return err
}

// adopt transfers one row. If the store refuses, the row has changed hands meanwhile. adopt
// then leaves it alone if another process has adopted it, or has recorded the table, so that
// the group continues already. Otherwise it tries again with the row as it is now.
func (s *Store) adopt(ctx context.Context, r lease.Row, now, by string) error {
	for {
		w, err := protocol.Adopt(r, by, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
		if err != nil {
			return err
		}
		reply, err := s.Write(ctx, w)
		switch verdict, at := protocol.Settle("", w, reply, err); verdict {
		case protocol.Stored, protocol.Gone:
			return nil
		case protocol.Overtaken, protocol.Again:
			r = at.(lease.Row)
			recorded, err := s.recorded(ctx, r.Group)
			if err != nil || recorded.table == now || r.Last.Reason == lease.ReasonAdopted {
				return err
			}
		default:
			return err
		}
	}
}

// recorded reads what the group has recorded. It returns a [*BucketsError] if the group has
// another number of buckets than Options.Buckets.
func (s *reading) recorded(ctx context.Context, group string) (groupRecord, error) {
	none := groupRecord{buckets: max(s.options.Buckets, 1)}
	if err := (lease.Query{Group: group, Kind: lease.KindLease}).Validate(); err != nil {
		return none, err
	}
	out, err := call(ctx, s, lease.Key{Kind: lease.KindSeat}, func(ctx context.Context) (*dynamodb.GetItemOutput, error) {
		return s.client.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: &s.table, Key: keyOf(group+identityPartition, identityKey), ConsistentRead: aws.Bool(true),
		}, once)
	})
	if err != nil || len(out.Item) == 0 {
		return none, err
	}
	r, ok := readGroupRecord(out.Item)
	if !ok {
		return none, fmt.Errorf("%w: the record of group %q needs %s, and %s from 1 to %d or none", lease.ErrMalformed, group, attrTableID, attrBuckets, mostBuckets)
	}
	if option := s.options.Buckets; option > 0 && option != r.buckets {
		return none, &BucketsError{Group: group, Stored: r.buckets, Option: option}
	}
	s.buckets.Store(group, r.buckets)
	return r, nil
}

// readGroupRecord reads the record of a group. Without a number, the group has one bucket.
func readGroupRecord(item map[string]types.AttributeValue) (r groupRecord, ok bool) {
	table, ok := plain(item[attrTableID]).(string)
	buckets := int64(1)
	if stored, there := item[attrBuckets]; there && ok {
		buckets, ok = plain(stored).(int64)
	}
	return groupRecord{table, int(buckets)}, ok && table != "" && buckets >= 1 && buckets <= mostBuckets
}

// record stores the identity now and the number of buckets, on condition that the record is still
// the given one. It succeeds too if now is recorded already, by another process or by an
// unanswered attempt; but not if that was with another number of buckets than Options.Buckets.
func (s *Store) record(ctx context.Context, group string, recorded groupRecord, now string) error {
	item := keyOf(group+identityPartition, identityKey)
	item[attrTableID] = attribute(now)
	if recorded.buckets > 1 {
		item[attrBuckets] = attribute(int64(recorded.buckets))
	}
	e := newExpression()
	condition := e.isOrAbsent(attrTableID, recorded.table)
	input := &dynamodb.PutItemInput{
		TableName: &s.table, Item: item, ConditionExpression: &condition, ExpressionAttributeNames: e.names,
	}
	if len(e.values) > 0 {
		input.ExpressionAttributeValues = e.values
	}
	_, err := call(ctx, s.reading, lease.Key{Kind: lease.KindSeat}, func(ctx context.Context) (*dynamodb.PutItemOutput, error) {
		return s.client.PutItem(ctx, input, once)
	})
	if err == nil {
		s.buckets.Store(group, recorded.buckets)
	}
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); !refused {
		return err
	}
	at, err := s.recorded(ctx, group)
	if err == nil && at.table != now {
		err = &RestoredError{Group: group, Recorded: at.table, Now: now}
	}
	return err
}
