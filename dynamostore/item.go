package dynamostore

import (
	"context"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A primaryKey has the key attributes of an item.
type primaryKey = map[string]types.AttributeValue

func keyOf(partition, name string) primaryKey {
	return primaryKey{attr.Group: attribute(partition), attr.Key: attribute(name)}
}

// itemKey returns the key of a record. Every call about a record uses it, so that all agree on
// the buckets.
func (s *reading) itemKey(ctx context.Context, k lease.Key) (primaryKey, error) {
	buckets, err := s.bucketsOf(ctx, k.Group, k.Kind)
	if err != nil {
		return nil, err
	}
	return keyOf(partition(k, buckets), k.Name), nil
}

func encode(r lease.Record) map[string]types.AttributeValue {
	attrs := map[string]types.AttributeValue{}
	for name, value := range lease.Encode(r) {
		attrs[name] = attribute(value)
	}
	return attrs
}

// decode reads an item. An attribute whose type a lease.Item cannot have is passed on as it
// is: lease.Decode ignores it if its name is unknown, and otherwise reports its name and the
// type that it should have.
func decode(attrs map[string]types.AttributeValue) (lease.Record, error) {
	item := lease.Item{}
	for name, value := range attrs {
		item[name] = plain(value)
	}
	if partition, ok := item[attr.Group].(string); ok {
		item[attr.Group] = withoutBucket(partition)
	}
	return lease.Decode(item)
}

// attribute returns a value of a lease.Item as a DynamoDB attribute.
func attribute(value any) types.AttributeValue {
	switch v := value.(type) {
	case string:
		return &types.AttributeValueMemberS{Value: v}
	case int64:
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(v, 10)}
	case bool:
		return &types.AttributeValueMemberBOOL{Value: v}
	case []byte:
		return &types.AttributeValueMemberB{Value: v}
	case []string:
		return &types.AttributeValueMemberSS{Value: v}
	}
	return &types.AttributeValueMemberNULL{Value: true}
}

// plain returns a DynamoDB attribute as a value of a lease.Item, or unchanged if its type has
// no equivalent.
func plain(attr types.AttributeValue) any {
	switch a := attr.(type) {
	case *types.AttributeValueMemberS:
		return a.Value
	case *types.AttributeValueMemberN:
		if n, err := strconv.ParseInt(a.Value, 10, 64); err == nil {
			return n
		}
	case *types.AttributeValueMemberBOOL:
		return a.Value
	case *types.AttributeValueMemberB:
		return a.Value
	case *types.AttributeValueMemberSS:
		return slices.Clone(a.Value)
	}
	return attr
}
