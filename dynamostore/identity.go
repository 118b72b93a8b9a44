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
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A table that is restored from a backup holds rows as they were, and generations
// that were issued again and again since are unknown to it. Each group therefore
// records which table it lives in, in a row of its own. A restored table has the
// old table's record and another identity.

// ErrRestored: the table is not the one the group knows.
var ErrRestored = errors.New("the table is not the one this group has lived in: it was restored or replaced")

// A RestoredError says so, with what was recorded and what there is.
type RestoredError struct {
	Group         string
	Recorded, Now string
}

func (e *RestoredError) Error() string {
	if e.Recorded == "" {
		return fmt.Sprintf("group %q has rows, and no record of its table: verify before the first row is made; adopt the rows there are", e.Group)
	}
	return fmt.Sprintf("group %q: %v (recorded %q, now %q); claim nothing before its rows are adopted", e.Group, ErrRestored, e.Recorded, e.Now)
}

// Is makes errors.Is(err, ErrRestored) true; to a worker it is a [lease.ErrWentBack].
func (e *RestoredError) Is(target error) bool {
	return target == ErrRestored || target == lease.ErrWentBack
}

const (
	identityPartition = "/table"
	identityKey       = "identity"
	attrTableID       = "tableId"
)

// Verify compares the table with the one the group has recorded, and records it
// where the group is new here. A group that has rows and no record is not trusted
// either: Verify comes before the first Begin.
//
// It looks at the table anew each time: one request to the control plane and one
// read; for a new group also a query and a write.
func (s *Store) Verify(ctx context.Context, group string) error {
	now, err := s.identify(ctx)
	if err != nil {
		return fmt.Errorf("verify the table of group %q: %w", group, err)
	}
	recorded, err := s.recorded(ctx, group)
	if err == nil && recorded == "" {
		var rows bool
		rows, err = s.hasRows(ctx, group)
		switch {
		case err != nil:
		case !rows:
			return s.record(ctx, group, "", now)
		default: // the group may have begun in between: its record is older than its first row
			recorded, err = s.recorded(ctx, group)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("verify the table of group %q: %w", group, err)
	case recorded != now:
		return &RestoredError{Group: group, Recorded: recorded, Now: now}
	}
	return nil
}

// hasRows tells a new group from one whose record was lost.
func (s *Store) hasRows(ctx context.Context, group string) (bool, error) {
	for _, err := range s.List(ctx, lease.Query{Group: group, Kind: lease.KindLease}) {
		if errors.Is(err, lease.ErrMalformed) {
			err = nil // it is a row, whatever is in it
		}
		return err == nil, err
	}
	return false, nil
}

// Adopt takes every row of the group over from the table it was restored from, to
// a generation above all that can have been issued there, and records the table.
// It returns how many rows are at home now. What it cannot adopt it reports, and then
// the table is not recorded: Adopt can be called again, by anybody, at any time.
func (s *Store) Adopt(ctx context.Context, group, by string) (int, error) {
	now, err := s.identify(ctx)
	if err != nil {
		return 0, fmt.Errorf("adopt group %q: %w", group, err)
	}
	recorded, err := s.recorded(ctx, group)
	if err != nil {
		return 0, fmt.Errorf("adopt group %q: %w", group, err)
	}
	if recorded == now {
		return 0, nil // it lives here: nothing to adopt, and nobody to throw out
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

// adopt transfers one row. A refusal means that it has changed hands meanwhile. If
// that was somebody else's adoption, or if all are done and the group goes on
// already, it is left alone; otherwise the row as it stands is tried again.
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
			if err != nil || recorded == now || r.Last.Reason == lease.ReasonAdopted {
				return err
			}
		default:
			return err
		}
	}
}

// identify describes the table.
func (s *Store) identify(ctx context.Context) (string, error) {
	fresh := *s
	if err := fresh.inspect(ctx); err != nil {
		return "", err
	}
	return fresh.identity, nil
}

func identityItem(group string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		attr.Group: attribute(group + identityPartition),
		attr.Key:   attribute(identityKey),
	}
}

// recorded reads which table the group knows; empty: none yet.
func (s *Store) recorded(ctx context.Context, group string) (string, error) {
	if err := (lease.Query{Group: group, Kind: lease.KindLease}).Validate(); err != nil {
		return "", err
	}
	out, err := call(ctx, s, lease.Key{Kind: lease.KindSeat}, func(ctx context.Context) (*dynamodb.GetItemOutput, error) {
		return s.client.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: &s.table, Key: identityItem(group), ConsistentRead: aws.Bool(true),
		}, once)
	})
	if err != nil || len(out.Item) == 0 {
		return "", err
	}
	id, ok := out.Item[attrTableID].(*types.AttributeValueMemberS)
	if !ok || id.Value == "" {
		return "", fmt.Errorf("%w: the identity of group %q has no %s", lease.ErrMalformed, group, attrTableID)
	}
	return id.Value, nil
}

// record stores the table, on condition that what was recorded still is. That it is
// recorded already is success: by another, or by a sending that went unanswered.
func (s *Store) record(ctx context.Context, group, recorded, now string) error {
	item := identityItem(group)
	item[attrTableID] = attribute(now)
	e := newExpression()
	condition := e.isOrAbsent(attrTableID, recorded)
	input := &dynamodb.PutItemInput{
		TableName: &s.table, Item: item, ConditionExpression: &condition, ExpressionAttributeNames: e.names,
	}
	if len(e.values) > 0 {
		input.ExpressionAttributeValues = e.values
	}
	_, err := call(ctx, s, lease.Key{Kind: lease.KindSeat}, func(ctx context.Context) (*dynamodb.PutItemOutput, error) {
		return s.client.PutItem(ctx, input, once)
	})
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); !refused {
		return err
	}
	at, err := s.recorded(ctx, group)
	if err == nil && at != now {
		err = &RestoredError{Group: group, Recorded: at, Now: now}
	}
	return err
}
