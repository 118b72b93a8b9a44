package journal

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
)

// items returns the writes of the heads of all pages, which have the conditions, and then those
// of the pages.
func (j *Journal) items(pages []page) []types.TransactWriteItem {
	var heads, bodies []types.TransactWriteItem
	for _, p := range pages {
		heads, bodies = append(heads, j.head(p)), append(bodies, j.body(p))
	}
	return append(heads, bodies...)
}

// unknown is the condition that a key has no effect of the shard that is as late as the page.
const unknown = "attribute_not_exists(#mark) OR #mark < :first"

// head moves the mark of a key. If the key has no mark of the shard yet, head also sets the rank
// of the shard for this key: the number of earlier pages.
func (j *Journal) head(p page) types.TransactWriteItem {
	first, last := p[0].Record, p[len(p)-1].Record
	return types.TransactWriteItem{Update: &types.Update{
		TableName:           &j.Table,
		Key:                 item(j.keyID(first.Key), partHead),
		ConditionExpression: aws.String(unknown),
		UpdateExpression: aws.String("SET #mark = :last, #rank = if_not_exists(#rank, if_not_exists(#pages, :none)), " +
			"#pages = if_not_exists(#pages, :none) + :one"),
		ExpressionAttributeNames: map[string]string{
			"#mark": markOf(first.Shard), "#rank": rankOf(first.Shard), "#pages": attrPages,
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":first": text(first.Order()), ":last": text(last.Order()), ":none": number(0), ":one": number(1),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// check has the condition of head, and changes nothing.
func (j *Journal) check(p page) types.TransactWriteItem {
	first := p[0].Record
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                           &j.Table,
		Key:                                 item(j.keyID(first.Key), partHead),
		ConditionExpression:                 aws.String(unknown),
		ExpressionAttributeNames:            map[string]string{"#mark": markOf(first.Shard)},
		ExpressionAttributeValues:           map[string]types.AttributeValue{":first": text(first.Order())},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// body writes the page itself, or the item of a record that was left out.
func (j *Journal) body(p page) types.TransactWriteItem {
	if leftOut(p[0]) {
		return j.failure(p[0])
	}
	in := item(j.place(p[0]))
	if large(p[0]) {
		in[attrParts] = number(count(p[0]))
	} else {
		list := make([]types.AttributeValue, len(p))
		for i, e := range p {
			list[i] = binary(e.Value)
		}
		in[attrEffects] = &types.AttributeValueMemberL{Value: list}
	}
	return j.put(in)
}

// parts returns the writes of the parts of a large effect.
func (j *Journal) parts(e consumer.Effect) []types.TransactWriteItem {
	var all []types.TransactWriteItem
	id, page := j.place(e)
	for data := range slices.Chunk(e.Value, mostInItem) {
		in := item(id, fmt.Sprintf("%s/%04d", page, len(all)))
		in[attrData] = binary(data)
		all = append(all, j.put(in))
	}
	return all
}

// count returns the number of parts of a large effect.
func count(e consumer.Effect) int { return (len(e.Value) + mostInItem - 1) / mostInItem }

func (j *Journal) put(in map[string]types.AttributeValue) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{TableName: &j.Table, Item: in}}
}

// place returns the id and the part of the page that begins with an effect, or of the item of a
// record that was left out.
func (j *Journal) place(e consumer.Effect) (id, part string) {
	if leftOut(e) {
		return j.scope("failed"), placeOf(e.Record)
	}
	return j.keyID(e.Record.Key), partPage + placeOf(e.Record)
}

func placeOf(r stream.Record) string { return r.Shard + "/" + r.Order() }

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// binary returns a binary value. The SDK would send nil as no value.
func binary(b []byte) types.AttributeValue {
	if b == nil {
		b = []byte{}
	}
	return &types.AttributeValueMemberB{Value: b}
}

func number(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}
