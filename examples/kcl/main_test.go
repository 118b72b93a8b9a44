package main

import (
	"bytes"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const listing = `{"Shards": [
	{"ShardId": "shard-0", "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"}},
	{"ShardId": "shard-1", "ParentShardId": "shard-0", "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "4"}},
	{"ShardId": "shard-2", "ParentShardId": "shard-0", "AdjacentParentShardId": null, "HashKeyRange": {"StartingHashKey": "5", "EndingHashKey": "9"}}]}`

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "shards.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestThereAndBack needs a DynamoDB Local. TestExamplesOnDynamoDB in integration starts one.
func TestThereAndBack(t *testing.T) {
	endpoint := os.Getenv("DYNAMODB_ENDPOINT")
	if endpoint == "" {
		t.Skip("DYNAMODB_ENDPOINT is not set: set it to the URL of a DynamoDB Local")
	}
	id := rand.Text()[:6]
	table, leases := "kcl-"+id, "leases-"+id
	prepare(t, endpoint, table)
	flags := []string{"-endpoint", endpoint, "-table", table, "-failover", "5ms", "-leases", leases, "-group", "orders", "-shards", write(t, listing)}
	for _, step := range []struct{ args, want string }{
		{"show", "shard-1: 17, record 3; owner host-1, counter 5\n  prepared: 19, record 0, 0 bytes of state\nshard-2: TRIM_HORIZON, record 0; no owner, counter 0\n2 leases\n"},
		{"import", "0 rows, 0 of them new\n" + "! lease \"shard-1\" has a prepared checkpoint"},
		{"-pending drop import", "0 rows, 0 of them new\n" + "! shard \"shard-1\" has a checkpoint at a record that the KPL has packed"},
		{"-pending drop -packed state import", "shard-0: finished\nshard-1: after 17\nshard-2: at TRIM_HORIZON\n3 rows, 3 of them new\n"},
		{"-pending drop -packed state import", "shard-0: finished\nshard-1: after 17\nshard-2: at TRIM_HORIZON\n3 rows, 0 of them new\n"},
		{"-pending drop -packed whole import", "2 rows, 0 of them new\n! rows exist already, and differ from the leases: shard-1"},
		{"export", "shard-0: SHARD_END, record 0; no owner, counter 0\nshard-1: 17, record 3; no owner, counter 6\n  prepared: 19, record 0, 0 bytes of state\nshard-2: TRIM_HORIZON, record 0; no owner, counter 1\n3 leases\n"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), slices.Concat(flags, strings.Fields(step.args)), &out)
		want, fault, fails := strings.Cut(step.want, "! ")
		if !strings.HasSuffix(out.String(), want) || fails != (err != nil) || fails && !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v\n%s", step.args, err, out.String())
		}
	}
}

// TestPositionsOfTheExample: the positions of examples/kinesis survive an import and an
// export: sub-sequence numbers, and the words TRIM_HORIZON, LATEST and AT_TIMESTAMP.
func TestPositionsOfTheExample(t *testing.T) {
	o := options{packed: "position"}
	m, err := o.mark()("17", 0)
	if err != nil || m != (checkpoint.Mark{Position: "17/0"}) {
		t.Errorf("the first record of an entry is at %q, %v", m.Position, err)
	}
	for _, begin := range []bool{false, true} {
		o.begin = begin
		for _, word := range []string{"TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"} {
			m, err := o.word()(word)
			if ok := begin || word == "TRIM_HORIZON"; ok != (err == nil) || ok && m.Position != word {
				t.Errorf("accepted %t: %s is %q, %v", begin, word, m.Position, err)
			}
		}
	}
	for m, want := range map[checkpoint.Mark]string{
		{Position: "17/6", State: "orders"}:   "17 6",
		{Position: "17", State: "orders"}:     "17 0",
		{Position: "LATEST", State: "orders"}: "LATEST 0",
		{Position: "17/x"}:                    "! 0",
		{Position: "17/-1"}:                   "! 0",
	} {
		sequence, sub, err := o.checkpointOf(m)
		if err != nil {
			sequence = "!"
		}
		if got := fmt.Sprint(sequence, " ", sub); got != want {
			t.Errorf("%q is exported as %q, %v; want %q", m.Position, got, err, want)
		}
	}
	if _, _, err := (options{packed: "refuse"}).checkpointOf(checkpoint.Mark{Position: "17", State: "orders"}); err == nil {
		t.Error("the export ignored a state that is no number")
	}
}

// prepare creates a lease table of the KCL.
func prepare(t *testing.T, endpoint, table string) {
	t.Helper()
	client, shut, err := options{endpoint: endpoint}.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer shut()
	_, err = client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("leaseKey"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("leaseKey"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	number := func(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
	for _, item := range []map[string]types.AttributeValue{
		{"leaseKey": text("shard-1"), "leaseOwner": text("host-1"), "leaseCounter": number("5"), "checkpoint": text("17"), "checkpointSubSequenceNumber": number("3"), "pendingCheckpoint": text("19")},
		{"leaseKey": text("shard-2"), "leaseCounter": number("0"), "checkpoint": text("TRIM_HORIZON"), "checkpointSubSequenceNumber": number("0")},
	} {
		if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFlags(t *testing.T) {
	const all = "-table a -leases b -group c "
	part := write(t, `{"Shards": [{"ShardId": "a"}], "NextToken": "more"}`)
	for _, c := range []struct{ args, want string }{
		{"", "needs one command"},
		{"-table a move", "needs one command"},
		{"show", "needs -table"},
		{"-table a export", "needs -leases and -group"},
		{all + "import", "needs -shards: the KCL deletes"},
		{all + "export", "needs -shards: leases need"},
		{all + "-shards x -packed half import", "-packed must be"},
		{all + "-shards x -pending half import", "-pending must be"},
		{all + "-endpoint http://127.0.0.1:1 -shards missing.json import", "no such file"},
		{all + "-endpoint http://127.0.0.1:1 -shards " + part + " import", "must list all shards"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), strings.Fields(c.args), &out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-h"}, &out); err != flag.ErrHelp || !strings.Contains(out.String(), "failoverTimeMillis") {
		t.Errorf("help: %v, %s", err, out.String())
	}
}
