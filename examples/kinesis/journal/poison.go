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

// MaxEffect is the maximum size of an effect in bytes. A Kinesis record has up to 10 MB.
const MaxEffect = 16 << 20

const longestReason = 1024

// refuse returns an error for the first effect that the journal can never store.
func refuse(effects []consumer.Effect) error {
	for i, e := range effects {
		if len(e.Value) > MaxEffect {
			return &consumer.RefusedError{Index: i, Rule: fmt.Sprintf("has %d bytes, and %d are allowed", len(e.Value), MaxEffect)}
		}
	}
	return nil
}

// leftOut reports whether the record of an effect failed and was left out. Such an effect has a
// transaction of its own, which stores an item for a failed record instead of a page.
func leftOut(e consumer.Effect) bool { return e.Verdict != consumer.Stop }

// Failed stores a failure of a record, under the fence, and returns the number of its failures.
// After a crash the failure is stored and the verdict is not; the record is tried again.
func (j *Journal) Failed(ctx context.Context, h lease.Hold, r stream.Record, reason string) (int, error) {
	if err := j.scoped(h); err != nil {
		return 0, err
	}
	e := consumer.Effect{Record: r, Reason: reason}
	write := func([]page) []types.TransactWriteItem { return []types.TransactWriteItem{j.failure(e)} }
	if _, err := j.commit(ctx, h, []page{{e}}, write); err != nil {
		return 0, j.failed(err)
	}
	out, err := j.Client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &j.Table, Key: item(j.scope("failed"), placeOf(r)), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return 0, j.failed(err)
	}
	return numberOf(out.Item[attrFailures]), nil
}

// failure is the write for a failed record: it counts a failure, or stores the verdict.
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
	case !leftOut(e): // keeps an earlier verdict: a crash may have prevented the checkpoint after it
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

// short returns a reason as valid UTF-8, cut to longestReason bytes.
func short(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), longestReason)], "\uFFFD")
}

// A Failure describes a record that failed.
type Failure struct {
	Shard, Sequence string
	Index           int    // the index of the record in a packed entry
	Key             string // its partition key
	Reason          string // why it failed last
	Failures        int    // how often it has failed
	// Verdict is Stop if the record was tried again, or its shard was quarantined. If a later
	// attempt succeeded, the record has an effect.
	Verdict consumer.Verdict
	At      time.Time // the time of the last change
	Data    []byte    // the data of a dead letter
}

// Failures returns the records that failed, sorted by shard and order.
func (j *Journal) Failures(ctx context.Context) ([]Failure, error) {
	items, err := j.query(ctx, j.scope("failed"))
	if err != nil {
		return nil, j.failed(err)
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
			return nil, j.failed(fmt.Errorf("record %s of %s: %w", f.Sequence, shard, err))
		}
		all = append(all, f)
	}
	return all, nil
}
