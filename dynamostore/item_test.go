package dynamostore

import (
	"errors"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// FuzzItems: whatever type and value an attribute of a stored row has, decode returns a row
// that could have been written, or a MalformedError.
func FuzzItems(f *testing.F) {
	f.Add(attr.Counter, byte(1), "7", "8", []byte("raw"))
	f.Add(attr.Generation, byte(1), "92233720368547758080", "", []byte(nil))
	f.Add(attr.Parents, byte(3), "p1", "p2", []byte(nil))
	f.Add(attr.State, byte(2), "", "", []byte("state"))
	f.Add(attr.Last, byte(5), "x", "", []byte(nil))
	row, err := protocol.Begin("orders", "shard-1", []string{"p"}, "a", protocol.Stamp{ID: "w", At: lease.Seat{}.At.AddDate(2025, 0, 0)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string, kind byte, text, more string, raw []byte) {
		item := encode(row.Next)
		item[name] = anyAttribute(kind, text, more, raw)
		r, err := decode(item)
		if err != nil {
			if r != nil || !errors.Is(err, lease.ErrMalformed) {
				t.Fatalf("got %v, %v", r, err)
			}
			return
		}
		if again, err := decode(encode(r)); err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%v was decoded as %v, %v", r, again, err)
		}
	})
}

func anyAttribute(kind byte, text, more string, raw []byte) types.AttributeValue {
	switch kind % 9 {
	case 0:
		return &types.AttributeValueMemberS{Value: text}
	case 1:
		return &types.AttributeValueMemberN{Value: text}
	case 2:
		return &types.AttributeValueMemberB{Value: raw}
	case 3:
		return &types.AttributeValueMemberSS{Value: []string{text, more}}
	case 4:
		return &types.AttributeValueMemberBOOL{Value: text != ""}
	case 5:
		return &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{text: &types.AttributeValueMemberS{Value: more}}}
	case 6:
		return &types.AttributeValueMemberNS{Value: []string{text}}
	case 7:
		return &types.AttributeValueMemberL{}
	}
	return &types.AttributeValueMemberNULL{Value: true}
}
