package journal

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// MaxEffect is how large an effect may be. A record of Kinesis has up to 10 MB.
const MaxEffect = 16 << 20

const longestReason = 1024

// refuse finds the first effect that the journal can never keep.
func refuse(effects []consumer.Effect) error {
	for i, e := range effects {
		if len(e.Value) > MaxEffect {
			return &consumer.RefusedError{Index: i, Rule: fmt.Sprintf("has %d bytes, and %d are allowed", len(e.Value), MaxEffect)}
		}
	}
	return nil
}

// leftOut reports whether the record of an effect failed and was left out. It then has a
// transaction of its own, and instead of a page an item among those that failed.
func leftOut(e consumer.Effect) bool { return e.Verdict != consumer.Stop }

// Failed notes that a record failed, under the fence, and gives how often it has. A crash
// after that has noted a failure of which nothing came; the record is tried again.
func (j *Journal) Failed(ctx context.Context, h lease.Hold, r stream.Record, reason string) (int, error) {
	if err := j.scoped(h); err != nil {
		return 0, err
	}
	e := consumer.Effect{Record: r, Reason: reason}
	note := func([]page) []types.TransactWriteItem { return []types.TransactWriteItem{j.failure(e)} }
	if _, err := j.commit(ctx, h, []page{{e}}, note); err != nil {
		return 0, j.told(err)
	}
	out, err := j.Client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &j.Table, Key: item(j.scope("failed"), placeOf(r)), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return 0, j.told(err)
	}
	return numberOf(out.Item[attrFailures]), nil
}

// failure is the item of a record that failed: one failure more, or what became of it.
func (j *Journal) failure(e consumer.Effect) types.TransactWriteItem {
	r := e.Record
	set := "SET #sequence = :sequence, #index = :index, #key = :key, #reason = :reason, #at = :at"
	u := &types.Update{
		TableName: &j.Table, Key: item(j.scope("failed"), placeOf(r)),
		ExpressionAttributeNames: map[string]string{
			"#sequence": attrSequence, "#index": attrIndex, "#key": attrKey, "#reason": attrReason, "#verdict": attrVerdict, "#at": attrAt,
		},
		ExpressionAttributeValues: stored{
			":sequence": text(r.Sequence), ":index": number(r.Index), ":key": binary([]byte(r.Key)),
			":reason": text(short(e.Reason)), ":verdict": text(e.Verdict.String()), ":at": text(time.Now().UTC().Format(time.RFC3339Nano)),
		},
	}
	with := func(name, attr string, value types.AttributeValue) {
		u.ExpressionAttributeNames["#"+name], u.ExpressionAttributeValues[":"+name] = attr, value
	}
	switch {
	case !leftOut(e): // or it was before, and a crash has come between that and the checkpoint
		set += ", #verdict = if_not_exists(#verdict, :verdict) ADD #one :one"
		with("one", attrFailures, number(1))
	case large(e):
		set += ", #verdict = :verdict, #parts = :parts"
		with("parts", attrParts, number(count(e)))
	case e.Verdict == consumer.Skip:
		set += ", #verdict = :verdict"
	default:
		set += ", #verdict = :verdict, #data = :data"
		with("data", attrData, binary(e.Value))
	}
	u.UpdateExpression = &set
	return types.TransactWriteItem{Update: u}
}

// short makes a reason that can be stored of any.
func short(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), longestReason)], "\uFFFD")
}

// A Failure is a record that failed. Verdict says what became of it: with Stop it was tried
// again, or its shard was set aside; there is an effect if that went well.
type Failure struct {
	Shard, Sequence string
	Index           int
	Key             string
	Reason          string
	Failures        int
	Verdict         consumer.Verdict
	At              time.Time // of the last change
	Data            []byte    // of a dead letter
}

// Failures gives the records that failed, by shard and in their order.
func (j *Journal) Failures(ctx context.Context) ([]Failure, error) {
	items, err := j.query(ctx, j.scope("failed"))
	if err != nil {
		return nil, j.told(err)
	}
	var all []Failure
	for i, in := range items {
		shard, order, _ := strings.Cut(textOf(in[attrPart]), "/")
		if strings.Contains(order, "/") {
			continue // a part of a dead letter
		}
		f := Failure{
			Shard: shard, Sequence: textOf(in[attrSequence]), Index: numberOf(in[attrIndex]), Key: string(bytesOf(in[attrKey])),
			Reason: textOf(in[attrReason]), Failures: numberOf(in[attrFailures]), Data: bytesOf(in[attrData]),
		}
		err := f.Verdict.UnmarshalText([]byte(textOf(in[attrVerdict])))
		if err == nil {
			f.At, err = time.Parse(time.RFC3339Nano, textOf(in[attrAt]))
		}
		if err == nil && numberOf(in[attrParts]) > 0 {
			f.Data, err = whole(in, items[i+1:])
		}
		if err != nil {
			return nil, j.told(fmt.Errorf("record %s of %s: %w", f.Sequence, shard, err))
		}
		all = append(all, f)
	}
	return all, nil
}
