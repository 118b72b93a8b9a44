package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Repair makes a lease row or a seat readable again that somebody has spoilt. It keeps every attribute that can be read, and
// drops the others, whose names are lost. Before it writes, it shows the caller what the record would become; an error of
// agree stops it. The write has every attribute as it was read in its condition, so nothing that was written since is
// overwritten: then Repair returns a [*lease.RuleError], and the caller calls it again. If only the worker of a seat has written
// since, and has changed nothing of what cannot be read, Repair itself tries again, and does not ask again.
//
// A lease row loses its owner, and begins a generation above every one that can be read in it, and above all that a
// machine can have issued whose clock is at most a minute ahead. No number that can be read becomes lower. Repair
// quarantines the shard if it cannot read the checkpoint, or whether the shard is finished, removed or quarantined; if
// the row has both an owner and a mark that it is finished or removed; or if the lease has a lock delay, or one that
// cannot be read. Then rewind it if needed, and unquarantine it.
//
// A seat keeps what can be read, and its worker keeps the seat. Repair deletes a seat, and next is nil, if its name, lease time or
// heartbeat cannot be read, or one of the attributes that its worker would not store again: the limit of shards, the requests,
// that the worker leaves, or that it has raised its fences. The worker, if it lives, takes another seat.
//
// A record that can be read, and one of a newer version of the format, is refused with a [*lease.RuleError].
func (s *Store) Repair(ctx context.Context, k lease.Key, by, why string, agree func(next lease.Record, lost []string) error) (lease.Record, error) {
	if k.Kind != lease.KindLease && k.Kind != lease.KindSeat {
		return nil, &checkpoint.InvalidError{Field: "kind", Rule: "must be that of a lease row or a seat"}
	}
	if err := errors.Join(k.Validate(), validBy(by)); err != nil {
		return nil, err
	}
	at, err := s.itemKey(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("repair %v: %w", k, err)
	}
	raw, err := s.raw(ctx, k, at)
	if err != nil {
		return nil, fmt.Errorf("repair %v: %w", k, err)
	}
	of := newSpoilt(k, raw)
	if rule := of.refusal(); rule != "" {
		return nil, &lease.RuleError{Transition: "repair", Key: k, Rule: rule}
	}
	next, err := of.mend(by, why, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
	if err != nil {
		return nil, fmt.Errorf("repair %v: %w", k, err)
	}
	slices.Sort(of.lost)
	if err := agree(next, of.lost); err != nil {
		return nil, err
	}
	const tries = 5 // each heartbeat of the worker refuses one
	for try, torn := 1, false; ; try++ {
		refused, unanswered, err := s.replace(ctx, k, at, of.raw, next)
		if err != nil {
			return nil, err
		}
		torn = torn || unanswered
		if refused == nil || next == nil && len(refused.Item) == 0 || torn && isMended(refused.Item, next) {
			return next, nil
		}
		now := newSpoilt(k, refused.Item)
		then, only := now.afterHeartbeat(of)
		if !only || try == tries {
			return nil, &lease.RuleError{Transition: "repair", Key: k, Rule: protocol.ErrRewritten}
		}
		of, next = now, then
	}
}

func validBy(by string) error {
	if by == "" {
		return &checkpoint.InvalidError{Field: "by", Rule: "must name the operator, because the row records who repaired it"}
	}
	return nil
}

// raw reads an item as it is.
func (s *Store) raw(ctx context.Context, k lease.Key, at primaryKey) (map[string]types.AttributeValue, error) {
	out, err := call(ctx, s.reading, k, func(ctx context.Context) (*dynamodb.GetItemOutput, error) {
		return s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: at, ConsistentRead: aws.Bool(true)}, once)
	})
	if err == nil && len(out.Item) == 0 {
		err = lease.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return out.Item, nil
}

// replace stores the repaired record, or deletes it if next is nil, on condition that the item is still raw. It returns the
// refusal, if there is one, and whether an earlier request of the call may have been carried out without an answer.
func (s *Store) replace(ctx context.Context, k lease.Key, at primaryKey, raw map[string]types.AttributeValue, next lease.Record) (refused *types.ConditionalCheckFailedException, torn bool, err error) {
	e := newExpression()
	condition := e.exactly(raw, k.Kind)
	requests := 0
	_, err = callAs(ctx, s.reading, hands, k, func(ctx context.Context) (any, error) {
		requests++
		if next == nil {
			return s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName: &s.table, Key: at, ConditionExpression: &condition, ExpressionAttributeNames: e.names,
				ExpressionAttributeValues: e.values, ReturnValuesOnConditionCheckFailure: returnItem,
			}, once)
		}
		with := &expression{names: maps.Clone(e.names), values: maps.Clone(e.values)}
		with.repair(raw, next)
		return s.client.UpdateItem(ctx, s.update(at, with.names, with.values, &condition, new(with.update()), types.ReturnValueNone), once)
	})
	refused, is := errors.AsType[*types.ConditionalCheckFailedException](err)
	if err == nil || is && refused != nil {
		return refused, requests > 1, nil
	}
	return nil, false, fmt.Errorf("repair %v: %w", k, err)
}

// isMended reports whether an item shows that a repair was stored of which no answer came.
func isMended(item map[string]types.AttributeValue, next lease.Record) bool {
	now, err := decode(item)
	return err == nil && protocol.Mended(now, next)
}

// formatAttributes are the attributes of the format: of lease rows, and of seats. An attribute that has none of these names is
// that of a newer version or of the user, and stays.
func formatAttributes(kind lease.Kind) []string {
	common := []string{attr.Version, attr.WriteID, attr.Task}
	if kind == lease.KindLease {
		return append(common,
			attr.Counter, attr.Generation, attr.Owner, attr.Incarnation, attr.LockDelay, attr.Offer, attr.ReservedFor, attr.Reserved,
			attr.Position, attr.State, attr.CheckpointGeneration, attr.CheckpointAt, attr.Expires, attr.Parents, attr.Finished,
			attr.Quarantined, attr.Removed, attr.Failures, attr.FailedGeneration, attr.Errors, attr.FailedBy, attr.LastError, attr.Last, attr.Past)
	}
	return append(common,
		attr.Name, attr.TTL, attr.Beat, attr.MaxShards, attr.Leaving, attr.Freed, attr.Wants, attr.At, attr.Unsettled, attr.Missing,
		attr.News, attr.NewsLeft, attr.Unwell, attr.UnwellSince, attr.Trial, attr.Silent, attr.SilentSince, attr.NoSource, attr.Build,
		attr.Since, attr.Handoff, attr.Backoff, attr.Address, attr.Waits, attr.WaitsLeft, attr.Raised, attr.Revision)
}

// exactly is the condition that an item has the given attributes, and none of the format besides.
func (e *expression) exactly(raw map[string]types.AttributeValue, kind lease.Kind) string {
	var terms []string
	for i, name := range slices.Sorted(maps.Keys(raw)) {
		n, v := "#r"+strconv.Itoa(i), ":r"+strconv.Itoa(i)
		e.names[n], e.values[v] = name, raw[name]
		terms = append(terms, n+" = "+v)
	}
	for _, name := range formatAttributes(kind) {
		if _, there := raw[name]; !there {
			terms = append(terms, e.absent(name))
		}
	}
	return strings.Join(terms, " AND ")
}

// repair sets the attributes of next that differ from the raw ones, and removes those of the format that it lacks.
func (e *expression) repair(raw map[string]types.AttributeValue, next lease.Record) {
	before, after := lease.Item{}, lease.Encode(next)
	for _, name := range formatAttributes(next.Key().Kind) {
		if value, there := raw[name]; there {
			before[name] = plain(value)
		}
	}
	delete(after, attr.Group)
	delete(after, attr.Key)
	delete(before, attr.Version) // it is set in any case, because an update that only removes has another form
	e.change(before, after)
}
