// Package dynamostore keeps the records of shardlease in one DynamoDB table. It
// implements [lease.Store]: it translates the four conditional writes of package lease to
// DynamoDB, and decides nothing.
//
// docs/table.md describes the table, attribute by attribute, and what each operation costs.
// A worker needs a [Store], which [Open] returns. A program that only looks, such as a dashboard,
// an exporter or a check, should use a [Reader], which [OpenReader] returns: it needs no
// permission to write, and cannot write by mistake.
//
// docs/iam.md lists the permissions of each.
package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Options configures a [Store] or a [Reader]. The zero value suits most programs.
type Options struct {
	// Timeout bounds one call with all its attempts, in addition to the caller's
	// context. It must be well below the lease time, because a call that outlives the
	// lease is useless. Default 2 s.
	//
	// Timeout begins when the call is admitted (see InFlight). A call waits for its
	// admission until the deadline of the caller's context; without a deadline it
	// waits for Timeout at most. An attempt may take a quarter of Timeout, or twice the
	// present duration of attempts if that is longer.
	Timeout time.Duration
	// Attempts bounds how often one call sends its request. Default: as often
	// as fits into Timeout.
	Attempts int
	// InFlight is the largest number of calls about lease rows and targets that are under
	// way at once. The present bound begins at 4, rises up to InFlight, and falls when the
	// table throttles, does not answer, or answers an eighth of Timeout later than its quickest
	// answers. The other calls wait in the order of their arrival.
	// Changes of hands and reads come before commits, but while a commit waits, at least
	// every fourth call that is admitted is a commit. If less than half of a call's time is
	// left when its turn comes, it returns a [lease.QueuedError]; the next call for the same
	// row, within half a minute, gets its place in the queue. Calls about seats, the
	// plan and wishes do not count and do not wait, so a heartbeat never queues behind
	// commits. Default 16.
	InFlight int
	// Group is the group whose permissions Open and OpenReader check. It matters if the IAM policy
	// allows single groups only. Default: a name that is only used for this check.
	Group string
	// Buckets is over how many partitions the lease rows of a new group are spread, from 1 to
	// 64; docs/table.md has the formula. The first worker of a group stores the number, which
	// never changes; all later ones use what is stored. If Buckets is not 0 and the group has
	// another number, Open and OpenReader return a [*BucketsError]. It applies to every group
	// that the store is used for. Default: the stored number, and 1 for a new group.
	Buckets int
	// AllowReplicated accepts a table that is replicated so that the last writer wins. Two
	// regions may then accept conflicting claims, and no promise of this library holds
	// across regions.
	AllowReplicated bool
	// Logger receives warnings about unusual conditions that are not errors. Default: no
	// logging.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.InFlight = cmp.Or(o.InFlight, 16)
	o.Group = cmp.Or(o.Group, "shardlease-permission-check")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	var errs []error
	for _, option := range []struct {
		name  string
		value int64
	}{{"Timeout", int64(o.Timeout)}, {"Attempts", int64(o.Attempts)}, {"InFlight", int64(o.InFlight)}} {
		if option.value < 0 {
			errs = append(errs, &checkpoint.InvalidError{Field: option.name, Rule: "must not be negative"})
		}
	}
	return errors.Join(append(errs, o.validateBuckets())...)
}

// A Store is a [lease.Store] on one DynamoDB table. It is safe for concurrent use and
// has no goroutine between two calls. It uses the caller's client and does not close it.
type Store struct{ *reading }

var _ lease.Store = (*Store)(nil)

// Get reads one record consistently.
func (s *reading) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	return s.get(ctx, k, classOfRead(k))
}

func (s *reading) get(ctx context.Context, k lease.Key, c class) (lease.Record, error) {
	at, err := s.itemKey(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("get %v: %w", k, err)
	}
	out, err := callAs(ctx, s, c, k, func(ctx context.Context) (*dynamodb.GetItemOutput, error) {
		return s.client.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: &s.table, Key: at, ConsistentRead: aws.Bool(true),
		}, once)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("get %v: %w", k, err)
	case len(out.Item) == 0:
		return nil, fmt.Errorf("get %v: %w", k, lease.ErrNotFound)
	}
	return decode(out.Item)
}

// Write makes one conditional write. It sends the same bytes again if the service is busy
// or does not answer, as long as there is time.
func (s *Store) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	at, err := s.itemKey(ctx, w.Key())
	if err != nil {
		return nil, fmt.Errorf("%v: %w", w, err)
	}
	unanswered := false // an earlier attempt may have been stored
	r, err := callAs(ctx, s.reading, classOf(w), w.Key(), func(ctx context.Context) (lease.Record, error) {
		r, err := s.send(ctx, w, at)
		if err != nil && !untouched(err) {
			unanswered = true
		}
		return r, err
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok && failed != nil {
		return nil, s.refusal(ctx, w, failed.Item, unanswered)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", w, err)
	}
	return r, nil
}

// classOf returns the class in which a write queues.
func classOf(w lease.Write) class {
	next, isRow := w.Next.(lease.Row)
	old, _ := w.Old.(lease.Row)
	switch {
	case classOfRead(w.Key()) == bypass:
		return bypass
	case isRow && w.Op == lease.OpSwap && next.Generation == old.Generation && next.OfferedTo == old.OfferedTo:
		return commits
	}
	return hands
}

// send sends the request of a write once, about the item with the key at. write.go has the
// condition of each operation.
func (s *Store) send(ctx context.Context, w lease.Write, at primaryKey) (lease.Record, error) {
	switch w.Op {
	case lease.OpCreate:
		_, err := s.client.PutItem(ctx, s.create(w, at), once)
		return w.Next, err
	case lease.OpSwap:
		_, err := s.client.UpdateItem(ctx, s.swap(w, at), once)
		return w.Next, err
	case lease.OpTransfer:
		out, err := s.client.UpdateItem(ctx, s.transfer(w, at), once)
		if err != nil {
			return nil, err
		}
		return decode(out.Attributes)
	}
	_, err := s.client.DeleteItem(ctx, s.delete(w, at), once)
	return nil, err
}

// refusal returns the error of a refused write, with the record as it is now. If the server
// did not return the item with its refusal, refusal reads it. The record may have changed
// again in between, which protocol.Decide allows for. That read does not queue: a
// QueuedError from it would mean that the write was never sent.
func (s *Store) refusal(ctx context.Context, w lease.Write, item map[string]types.AttributeValue, unanswered bool) error {
	refused := &lease.RefusedError{Op: w.Op, Key: w.Key(), Retried: unanswered}
	var now lease.Record
	var err error
	if len(item) > 0 {
		now, err = decode(item)
	} else {
		now, err = s.get(ctx, w.Key(), bypass)
	}
	if errors.Is(err, lease.ErrNotFound) {
		return refused
	}
	if err != nil {
		return fmt.Errorf("%v was refused, and the row cannot be read: %w", w, err)
	}
	refused.Now = now
	return refused
}
