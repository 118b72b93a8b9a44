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

// A Register is a small key-value sink that is fenced by generations: it refuses to write a
// value under a lower generation than before. It is kept in the group's lease table, in the
// partition GROUP/register. A program that uses it must be allowed GetItem and PutItem there.
//
// An effect in another DynamoDB table needs no register: [Store.Fence] puts it in one
// transaction with a check of the lease row itself.
type Register struct {
	store *Store
	group string
}

// Register returns the register of a group.
func (s *Store) Register(group string) *Register { return &Register{store: s, group: group} }

// Put writes a value under a generation. It returns a [*checkpoint.StaleError] if the value
// was written under a higher one; [lease.Guarded.Put] defines the rule. It costs a consistent
// read and a conditional write.
//
// The condition is that the value is unchanged since that read. It would not be enough that
// the stored generation is not higher: an unanswered attempt that arrives late must not
// overwrite a later value of the same holder.
func (r *Register) Put(ctx context.Context, name string, generation int64, value string) error {
	return r.put(ctx, name, generation, &value)
}

// Raise raises the generation of a value, which stays as it is: from then on, no lower generation overwrites it. It returns
// the errors of Put, and costs as much.
func (r *Register) Raise(ctx context.Context, name string, generation int64) error {
	return r.put(ctx, name, generation, nil)
}

// put writes a value; nil: that which it has.
func (r *Register) put(ctx context.Context, name string, generation int64, value *string) error {
	ctx, cancel := context.WithTimeout(ctx, r.store.options.Timeout)
	defer cancel()
	if _, err := (lease.Guarded{Name: name}).Replace(generation, value); err != nil {
		return err
	}
	id := rand.Text()
	for unanswered := false; ; {
		at, read, err := r.read(ctx, name)
		if err != nil && unanswered { // not %w: a QueuedError would mean that nothing was sent
			return fmt.Errorf("put %s: outcome unknown: %v", r.key(name), err)
		}
		if err != nil || read == id {
			return err // nil: an unanswered attempt was stored
		}
		next, err := at.Replace(generation, value)
		if stale, ok := errors.AsType[*checkpoint.StaleError](err); ok && stale != nil {
			stale.OutcomeUnknown = unanswered
		}
		if err == nil && unanswered {
			// The value may have been stored for a while and then replaced. Writing it
			// again could overwrite a later value.
			err = fmt.Errorf("put %s: outcome unknown: no answer arrived, and another value was stored under generation %d", r.key(name), at.Generation)
		}
		if err != nil {
			return err
		}
		var refused bool
		if refused, unanswered, err = r.replace(ctx, read, id, next); !refused {
			return err
		}
	}
}

// Get reads a value consistently. A value that was never written has generation 0.
func (r *Register) Get(ctx context.Context, name string) (lease.Guarded, error) {
	g, _, err := r.read(ctx, name)
	return g, err
}

func (r *Register) key(name string) string { return fmt.Sprintf("register %.64s/%.64s", r.group, name) }

// place is the key under which the calls about a value queue in the lane.
func (r *Register) place(name string) lease.Key {
	return lease.Key{Group: r.group + registerPartition, Name: name}
}

func (r *Register) itemKey(name string) primaryKey { return keyOf(r.group+registerPartition, name) }

// read returns the value, and the id of the write that stored it; empty if there is none.
func (r *Register) read(ctx context.Context, name string) (lease.Guarded, string, error) {
	g := lease.Guarded{Name: name}
	if err := (lease.Key{Group: r.group, Kind: lease.KindLease, Name: name}).Validate(); err != nil {
		return g, "", err
	}
	out, err := callAs(ctx, r.store.reading, commits, r.place(name), func(ctx context.Context) (*dynamodb.GetItemOutput, error) {
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

// replace stores next, on condition that the last write is still the one with the id read.
// unanswered reports that no answer arrived to an attempt before the refusal or the error.
func (r *Register) replace(ctx context.Context, read, id string, next lease.Guarded) (refused, unanswered bool, err error) {
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
	_, err = callAs(ctx, r.store.reading, commits, r.place(next.Name), func(ctx context.Context) (*dynamodb.PutItemOutput, error) {
		out, err := r.store.client.PutItem(ctx, input, once)
		unanswered = unanswered || err != nil && !untouched(err)
		return out, err
	})
	if _, refused = errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		return true, unanswered, nil
	}
	if err != nil {
		return false, unanswered, fmt.Errorf("put %s: %w", r.key(next.Name), err)
	}
	return false, false, nil
}
