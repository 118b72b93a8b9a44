package dynamostore

import (
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func itemKey(k lease.Key) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		attr.Group: attribute(attr.Partition(k.Group, k.Kind.Listed())),
		attr.Key:   attribute(k.Name),
	}
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
	for name, attr := range attrs {
		item[name] = plain(attr)
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
