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
		attr.Group: attribute(attr.Partition(k.Group, k.Kind)),
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

// decode reads an item. What it cannot express as a value of an Item it hands on
// as it is: where the attribute is unknown that does not matter, and where it is
// known its name is reported with the type it should have had.
func decode(attrs map[string]types.AttributeValue) (lease.Record, error) {
	item := lease.Item{}
	for name, attr := range attrs {
		item[name] = plain(attr)
	}
	return lease.Decode(item)
}

// attribute is a value of an Item as DynamoDB types it.
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
