package kcl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/shardlease"
)

// A kclItem is an item of a KCL table: texts, numbers as int, sets as []string, and bytes.
type kclItem map[string]any

func (in kclItem) item() map[string]types.AttributeValue {
	out := map[string]types.AttributeValue{}
	for name, value := range in {
		switch v := value.(type) {
		case string:
			out[name] = &types.AttributeValueMemberS{Value: v}
		case int:
			out[name] = &types.AttributeValueMemberN{Value: fmt.Sprint(v)}
		case float64:
			out[name] = &types.AttributeValueMemberN{Value: fmt.Sprint(v)}
		case []string:
			out[name] = &types.AttributeValueMemberSS{Value: v}
		case []byte:
			out[name] = &types.AttributeValueMemberB{Value: v}
		}
	}
	return out
}

// with returns the item with more or other attributes; nil removes an attribute.
func (in kclItem) with(more kclItem) kclItem {
	out := maps.Clone(in)
	for name, value := range more {
		if out[name] = value; value == nil {
			delete(out, name)
		}
	}
	return out
}

// kcl2 and kcl3 return a lease that a worker holds, as KCL 2.7 and 3.5 store it.
func kcl2(shard, sequence string, sub int) kclItem {
	return kclItem{
		"leaseKey": shard, "leaseCounter": 1207, "leaseOwner": "host-1:7f", "ownerSwitchesSinceCheckpoint": 2,
		"checkpoint": sequence, "checkpointSubSequenceNumber": sub,
		"startingHashKey": "0", "endingHashKey": "170141183460469231731687303715884105727",
	}
}

func kcl3(shard, sequence string, sub int) kclItem {
	return kcl2(shard, sequence, sub).with(kclItem{"entityType": "LEASE", "throughputKBps": 17.25})
}

// newKCL creates a table of the KCL with these items.
func newKCL(t *testing.T, client *dynamodb.Client, items ...kclItem) kcl.Table {
	t.Helper()
	table := kcl.Table{Client: client, Name: local.OtherTable(t, "leaseKey"), Failover: time.Millisecond}
	for _, item := range items {
		putKCL(t, table.Name, item)
	}
	return table
}

func putKCL(t *testing.T, table string, item kclItem) {
	t.Helper()
	_, err := local.Client(t, nil).PutItem(context.WithoutCancel(t.Context()), &dynamodb.PutItemInput{TableName: &table, Item: item.item()})
	if err != nil {
		t.Error(err)
	}
}

// contents returns all items of a table, by key.
func contents(t *testing.T, table string) map[string]map[string]types.AttributeValue {
	t.Helper()
	out, err := local.Client(t, nil).Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]types.AttributeValue{}
	for _, item := range out.Items {
		for _, value := range item {
			if set, ok := value.(*types.AttributeValueMemberSS); ok {
				slices.Sort(set.Value)
			}
		}
		all[item["leaseKey"].(*types.AttributeValueMemberS).Value] = item
	}
	return all
}

// resharded describes a stream that was resharded. 0 and 1 were merged into 2, which was split
// into 3 and 4; the KCL has deleted the leases of 0 and 1. Nothing of 4 has been processed. 7 has
// just been listed and has no lease.
func resharded() (leases []kclItem, shards []shardlease.Shard) {
	leases = []kclItem{
		kcl3("shard-2", "SHARD_END", 0).with(kclItem{"leaseOwner": nil, "parentShardId": []string{"shard-0", "shard-1"}, "childShardIds": []string{"shard-3", "shard-4"}}),
		kcl3("shard-3", "49590338271490256608559692538361571095921575989136588898", 0).with(kclItem{
			"parentShardId": []string{"shard-2"}, "checkpointOwner": "host-2:80",
			"pendingCheckpoint": "49590338271490256608559692538361571095921575989136588899", "pendingCheckpointSubSequenceNumber": 0,
		}),
		kcl2("shard-4", "TRIM_HORIZON", 0).with(kclItem{"parentShardId": []string{"shard-2"}}),
		{"leaseKey": "leader-lock", "entityType": "LEADER", "leaseCounter": 3},
		{"leaseKey": "host-1:7f", "entityType": "WORKER_METRIC_STATS", "wid": "host-1:7f", "lut": 1763000000},
	}
	for name, parents := range map[string][]string{
		"shard-0": nil, "shard-1": {"shard-gone"}, "shard-2": {"shard-0", "shard-1"}, "shard-3": {"shard-2"}, "shard-4": {"shard-2"}, "shard-7": nil,
	} {
		shards = append(shards, shardlease.Shard{Name: name, Parents: parents})
	}
	return leases, shards
}

// asListed returns the shards as Kinesis lists them: each with a range of hash keys.
func asListed(shards []shardlease.Shard) []kcl.Shard {
	var all []kcl.Shard
	for _, s := range shards {
		from, to := rangeOf(s.Name)
		all = append(all, kcl.Shard{Name: s.Name, Parents: s.Parents, StartingHashKey: from, EndingHashKey: to})
	}
	return all
}

func rangeOf(shard string) (from, to string) {
	from = fmt.Sprint(shard[len(shard)-1])
	return from, from + "0"
}

// forget is an ImportOptions.Pending that drops the prepared checkpoint.
func forget(l kcl.Lease) (kcl.Lease, error) {
	l.Pending, l.PendingSub, l.PendingState = "", 0, nil
	return l, nil
}
