package dynamostore

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
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
	f.Add(attr.News, byte(3), "finished s", "telepathy s", []byte(nil))
	f.Add(attr.Hold, byte(2), "", "", []byte{0, 2, 'a'})
	f.Add(attr.Watchers, byte(0), "a\tb", "", []byte(nil))
	f.Add(attr.Wishes, byte(3), "pause\t\t\t0\tme\twhy", "x", []byte(nil))
	f.Add(attr.Key, byte(0), "!newer", "", []byte(nil))
	f.Fuzz(func(t *testing.T, name string, kind byte, text, more string, raw []byte) {
		for _, good := range append(adviceRecords(), row.Next) {
			item := encode(good)
			item[name] = anyAttribute(kind, text, more, raw)
			r, err := decode(item)
			if err != nil {
				if r != nil || !errors.Is(err, lease.ErrMalformed) {
					t.Fatalf("got %v, %v", r, err)
				}
				continue
			}
			if again, err := decode(encode(r)); err != nil || !reflect.DeepEqual(again, r) {
				t.Fatalf("%v was decoded as %v, %v", r, again, err)
			}
		}
	})
}

// TestFullItemsComeBack: DynamoDB's attributes have every field of every record.
func TestFullItemsComeBack(t *testing.T) {
	for _, r := range fixture.Full(t) {
		if back, err := decode(encode(r)); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%v was decoded as %v, %v", r, back, err)
		}
	}
}

// adviceRecords returns a seat, a plan, wishes and a target.
func adviceRecords() []lease.Record {
	return []lease.Record{
		lease.Plan{Group: "orders", WriteID: "w", Revision: 7, By: lease.Owner{Name: "a", Incarnation: "i"}},
		lease.Wishes{Group: "orders", WriteID: "w", List: []lease.Wish{{Kind: lease.WishPause, By: "op"}}},
		lease.Seat{Group: "orders", Incarnation: "i", WriteID: "w", Name: "a", TTL: time.Second},
		lease.Target{Group: "orders", Incarnation: "i", WriteID: "w", Revision: 7, Pages: 1, Hold: []lease.Assigned{{Shard: "s"}}},
	}
}

// TestMalformedPlanHidesNoSeat: a plan or wishes that cannot be read, and a reserved record of a
// newer version, are named in the listing of the seats, which has the seats.
func TestMalformedPlanHidesNoSeat(t *testing.T) {
	s, service := opened(t, 0)
	records := adviceRecords()
	for _, r := range records {
		item := encode(r)
		switch r.(type) {
		case lease.Plan:
			item[attr.Revision] = attribute("seven")
		case lease.Wishes:
			item[attr.Wishes] = attribute("pause")
		}
		service.put(t, item)
	}
	newer := encode(records[2])
	newer[attr.Key] = attribute("!newer")
	service.put(t, newer)

	var kinds []lease.Kind
	var seats []lease.Record
	for r, err := range s.List(t.Context(), lease.Query{Group: "orders", Kind: lease.KindSeat}) {
		if malformed, ok := errors.AsType[*lease.MalformedError](err); ok {
			kinds = append(kinds, malformed.Key.Kind)
		} else {
			seats = append(seats, r)
		}
	}
	if !slices.Equal(kinds, []lease.Kind{0, lease.KindPlan, lease.KindWishes}) || !reflect.DeepEqual(seats, records[2:3]) {
		t.Errorf("malformed kinds %v, seats %v", kinds, seats)
	}
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
