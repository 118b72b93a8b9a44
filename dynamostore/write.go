package dynamostore

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// returnItem makes the service return the stored item when it refuses a write.
const returnItem = types.ReturnValuesOnConditionCheckFailureAllOld

// create is the request that stores a new record, on condition that the key has none.
func (s *Store) create(w lease.Write, at primaryKey) *dynamodb.PutItemInput {
	e := newExpression()
	item := encode(w.Next)
	maps.Copy(item, at)
	return &dynamodb.PutItemInput{
		TableName:                           &s.table,
		Item:                                item,
		ConditionExpression:                 aws.String(e.absent(attr.Key)),
		ExpressionAttributeNames:            e.names,
		ReturnValuesOnConditionCheckFailure: returnItem,
	}
}

// swap is the request that replaces a record, on condition that its write id and counter, if
// it has one, are those of w.Old, so that every attribute is. It sends only the attributes that change;
// attributes that this version does not know stay as they are.
func (s *Store) swap(w lease.Write, at primaryKey) *dynamodb.UpdateItemInput {
	old, isRow := w.Old.(lease.Row)
	if next, _ := w.Next.(lease.Row); isRow && isCommit(old, next) {
		return s.commit(old, next, at)
	}
	return s.anySwap(w, at)
}

func (s *Store) anySwap(w lease.Write, at primaryKey) *dynamodb.UpdateItemInput {
	e := newExpression()
	condition := e.untouched(w.Old)
	e.change(lease.Encode(w.Old), lease.Encode(w.Next))
	return s.update(at, e.names, e.values, &condition, new(e.update()), types.ReturnValueNone)
}

// transfer is the request that changes the owner of a row, on condition that generation and
// owner are those of w.Old and, if the write accepts an offer, that the offer still stands.
// The condition does not compare counter and checkpoint with what was read, because the owner may
// be committing. The checkpoint stays as stored, and the stored counter grows by 1. An offer
// that was made meanwhile ends with the generation.
//
// The condition excludes a counter at its maximum: a larger number would make the row
// unreadable. If the request is delivered twice, the second delivery finds another generation
// and is refused, so the counter grows only once.
func (s *Store) transfer(w lease.Write, at primaryKey) *dynamodb.UpdateItemInput {
	old, next := w.Old.(lease.Row), w.Next.(lease.Row)
	e := newExpression()
	condition := e.is(attr.Generation, old.Generation) + " AND " + e.isOrAbsent(attr.Incarnation, string(old.Owner.Incarnation))
	if next.Accepts(old) {
		condition += " AND " + e.is(attr.Offer, string(old.OfferedTo))
	}
	condition += " AND " + e.name(attr.Counter) + " < " + e.value(int64(math.MaxInt64))
	before, after := lease.Encode(old), lease.Encode(next)
	for _, kept := range []string{
		attr.Counter, attr.Position, attr.State, attr.CheckpointGeneration, attr.CheckpointAt,
	} {
		delete(before, kept)
		delete(after, kept)
	}
	// Offer and past are written even if they are the same in old and next, because the owner
	// may have changed them since: the offer is removed, and the past becomes that of next.
	before[attr.Offer], before[attr.Past] = string(old.OfferedTo), nil
	e.change(before, after)
	counter := e.name(attr.Counter)
	e.set = append(e.set, counter+" = "+counter+" + "+e.value(int64(1)))
	return s.update(at, e.names, e.values, &condition, new(e.update()), types.ReturnValueAllNew)
}

// delete is the request that deletes a seat or a target, on the condition of a swap.
func (s *Store) delete(w lease.Write, at primaryKey) *dynamodb.DeleteItemInput {
	e := newExpression()
	condition := ""
	if w.Spoilt {
		condition = e.unwritten(w.Old.Written())
	} else {
		condition = e.untouched(w.Old)
	}
	return &dynamodb.DeleteItemInput{
		TableName:                           &s.table,
		Key:                                 at,
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: returnItem,
	}
}

func (s *Store) update(
	at primaryKey, names map[string]string, values map[string]types.AttributeValue, condition, update *string, returns types.ReturnValue,
) *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 at,
		ConditionExpression:                 condition,
		UpdateExpression:                    update,
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           values,
		ReturnValues:                        returns,
		ReturnValuesOnConditionCheckFailure: returnItem,
	}
}

// An expression collects the placeholders of attribute names and values. Names need
// placeholders because nearly every attribute name could be a reserved word of DynamoDB.
type expression struct {
	names       map[string]string
	values      map[string]types.AttributeValue
	set, remove []string
}

func newExpression() *expression {
	return &expression{names: map[string]string{}, values: map[string]types.AttributeValue{}}
}

func (e *expression) name(attr string) string {
	name := "#" + attr
	e.names[name] = attr
	return name
}

func (e *expression) value(v any) string {
	value := ":"
	if n := len(e.values); n < 10 {
		value = ":0:1:2:3:4:5:6:7:8:9"[2*n:][:2]
	} else {
		value += strconv.Itoa(n)
	}
	e.values[value] = attribute(v)
	return value
}

func (e *expression) is(attr string, v any) string { return e.name(attr) + " = " + e.value(v) }

func (e *expression) absent(attr string) string { return "attribute_not_exists(" + e.name(attr) + ")" }

func (e *expression) isOrAbsent(attr, v string) string {
	if v == "" {
		return e.absent(attr)
	}
	return e.is(attr, v)
}

// untouched is the condition of a swap and of a delete: the record is unchanged. Wishes have no
// counter beside the write id.
func (e *expression) untouched(old lease.Record) string {
	condition, counter, n := e.is(attr.WriteID, string(old.Written())), "", int64(0)
	switch old := old.(type) {
	case lease.Row:
		counter, n = attr.Counter, old.Counter
	case lease.Seat:
		counter, n = attr.Beat, old.Beat
	case lease.Plan:
		counter, n = attr.Revision, old.Revision
	case lease.Target:
		counter, n = attr.Revision, old.Revision
	default:
		return condition
	}
	if n == 0 {
		return condition + " AND " + e.absent(counter) // a seat before its first heartbeat
	}
	return condition + " AND " + e.is(counter, n)
}

// unwritten is the condition that a spoilt item still has this write id. An empty id stands for an attribute
// that is missing, empty or not a text.
func (e *expression) unwritten(id lease.WriteID) string {
	if id != "" {
		return e.is(attr.WriteID, string(id))
	}
	return fmt.Sprintf("attribute_exists(%s) AND (NOT attribute_type(%s, %s) OR %s)", e.name(attr.Key), e.name(attr.WriteID), e.value("S"), e.is(attr.WriteID, ""))
}

// change sets the attributes that are new or different in after, and removes those that it
// lacks.
func (e *expression) change(before, after lease.Item) {
	names := make([]string, 0, max(len(before), len(after)))
	for attr := range after {
		if was, ok := before[attr]; !ok || !same(was, after[attr]) {
			names = append(names, attr)
		}
	}
	slices.Sort(names)
	for _, attr := range names {
		e.set = append(e.set, e.is(attr, after[attr]))
	}
	names = names[:0]
	for attr := range before {
		if _, ok := after[attr]; !ok {
			names = append(names, attr)
		}
	}
	slices.Sort(names)
	for _, attr := range names {
		e.remove = append(e.remove, e.name(attr))
	}
}

// same reports whether two values of a lease.Item are equal.
func same(a, b any) bool {
	switch a := a.(type) {
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case []string:
		b, ok := b.([]string)
		return ok && slices.Equal(a, b)
	case string, int64, bool:
		return a == b
	}
	return false
}

func (e *expression) update() string {
	text := "SET " + strings.Join(e.set, ", ")
	if len(e.remove) > 0 {
		text += " REMOVE " + strings.Join(e.remove, ", ")
	}
	return text
}
