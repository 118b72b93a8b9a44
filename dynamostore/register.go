package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	registerPartition = "/register"
	attrValue         = "value"
)

// A Register keeps values, each of which refuses to be written under a lower
// generation than before: a sink with a fence, in the group's own table, in the
// partition GROUP/register. Whoever uses one has to be allowed GetItem and PutItem
// there.
//
// An effect that is elsewhere in DynamoDB needs none: [Store.Fence] puts it in one
// transaction with the lease row itself.
type Register struct {
	store *Store
	group string
}

// Register is the one of a group.
func (s *Store) Register(group string) *Register { return &Register{store: s, group: group} }

// Put writes a value under a generation, or refuses to, with a
// [*checkpoint.StaleError]; [lease.Guarded.Put] is the rule. It costs a consistent
// read and a conditional write.
//
// The condition is that what was read still stands, and so stronger than that the
// generation is not lower: a sending that went unanswered and arrives late must not
// undo what the same holder has written since.
func (r *Register) Put(ctx context.Context, name string, generation int64, value string) error {
	ctx, cancel := context.WithTimeout(ctx, r.store.options.Timeout)
	defer cancel()
	if _, err := (lease.Guarded{Name: name}).Put(generation, value); err != nil {
		return err
	}
	id := rand.Text()
	for torn := false; ; {
		at, read, err := r.read(ctx, name)
		if err != nil && torn { // not %w: a QueuedError would say that nothing was sent
			return fmt.Errorf("put %s: outcome unknown: %v", r.key(name), err)
		}
		if err != nil || read == id {
			return err // nil: it was stored by a sending that went unanswered
		}
		next, err := at.Put(generation, value)
		if stale, ok := errors.AsType[*checkpoint.StaleError](err); ok {
			stale.OutcomeUnknown = torn
		}
		if err == nil && torn {
			// It may have been there for a while. To write it once more could undo
			// what has come after.
			err = fmt.Errorf("put %s: outcome unknown: it went unanswered, and was overtaken under generation %d", r.key(name), at.Generation)
		}
		if err != nil {
			return err
		}
		var refused bool
		if refused, torn, err = r.replace(ctx, read, id, next); !refused {
			return err
		}
	}
}

// Get reads a value, consistently; one that was never written has generation 0.
func (r *Register) Get(ctx context.Context, name string) (lease.Guarded, error) {
	g, _, err := r.read(ctx, name)
	return g, err
}

func (r *Register) key(name string) string { return fmt.Sprintf("register %.64s/%.64s", r.group, name) }

// place is where calls about a value queue.
func (r *Register) place(name string) lease.Key {
	return lease.Key{Group: r.group + registerPartition, Name: name}
}

func (r *Register) itemKey(name string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		attr.Group: attribute(r.group + registerPartition),
		attr.Key:   attribute(name),
	}
}

// read gives the value, and the id of the write that left it; empty: there is none.
func (r *Register) read(ctx context.Context, name string) (lease.Guarded, string, error) {
	g := lease.Guarded{Name: name}
	if err := (lease.Key{Group: r.group, Kind: lease.KindLease, Name: name}).Validate(); err != nil {
		return g, "", err
	}
	out, err := callAs(ctx, r.store, commits, r.place(name), func(ctx context.Context) (*dynamodb.GetItemOutput, error) {
		return r.store.client.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: &r.store.table, Key: r.itemKey(name), ConsistentRead: aws.Bool(true),
		}, once)
	})
	if err != nil {
		return g, "", fmt.Errorf("get %s: %w", r.key(name), err)
	}
	if len(out.Item) == 0 {
		return g, "", nil
	}
	generation, okGeneration := plain(out.Item[attr.Generation]).(int64)
	value, okValue := plain(out.Item[attrValue]).([]byte)
	written, okWritten := plain(out.Item[attr.WriteID]).(string)
	if !okGeneration || !okValue || !okWritten {
		return g, "", fmt.Errorf("get %s: %w", r.key(name), lease.ErrMalformed)
	}
	g.Generation, g.Value = generation, string(value)
	return g, written, nil
}

// replace puts next, on the condition that the write with the id that was read is
// still the last one. Torn: it was refused when an earlier sending had gone
// unanswered.
func (r *Register) replace(ctx context.Context, read, id string, next lease.Guarded) (refused, torn bool, err error) {
	item := r.itemKey(next.Name)
	item[attr.Generation] = attribute(next.Generation)
	item[attrValue] = attribute([]byte(next.Value))
	item[attr.WriteID] = attribute(id)
	e := newExpression()
	condition := e.isOrAbsent(attr.WriteID, read)
	input := &dynamodb.PutItemInput{
		TableName: &r.store.table, Item: item, ConditionExpression: &condition, ExpressionAttributeNames: e.names,
	}
	if len(e.values) > 0 {
		input.ExpressionAttributeValues = e.values
	}
	_, err = callAs(ctx, r.store, commits, r.place(next.Name), func(ctx context.Context) (*dynamodb.PutItemOutput, error) {
		out, err := r.store.client.PutItem(ctx, input, once)
		torn = torn || err != nil && !untouched(err)
		return out, err
	})
	if _, refused = errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		return true, torn, nil
	}
	if err != nil {
		return false, torn, fmt.Errorf("put %s: %w", r.key(next.Name), err)
	}
	return false, false, nil
}
