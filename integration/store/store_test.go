package store

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestStore: dynamostore on DynamoDB Local passes the conformance suite, with one bucket and with four.
// It makes no request that docs/iam.md does not allow a worker, and needs all that is allowed there.
func TestStore(t *testing.T) {
	local.Beside(t)
	policy := policies(t, "Worker")[0]
	f := network.NewFaulty(func(action string, body []byte) network.Fault {
		if partition := partitionIn(t, body); !policy.allows(action, partition) {
			t.Errorf("the policy does not allow %s of %s", action, partition)
		}
		return network.Fault{}
	})
	client := local.Client(t, f.Over)
	for _, buckets := range []int{1, 4} {
		emptied := ""
		storetest.Run(t, func(t *testing.T) lease.Store {
			if !strings.Contains(t.Name(), "/EveryWriteUnderEveryFate") {
				return local.Open(t, client, local.Table(t), inOrders(buckets))
			}
			if buckets > 1 && !fixture.Long() {
				t.Skip("it opens 210 stores, and a write concerns one row in one bucket: with SHARDLEASE_LONG=1")
			}
			if emptied == "" {
				emptied = local.Table(t)
			}
			empty(t, emptied) // it is done with one store when it opens the next, and a new table takes ten times as long
			return local.Open(t, client, emptied, inOrders(buckets))
		})
	}
	for _, s := range policy {
		for _, action := range s.Action {
			if f.Calls[strings.TrimPrefix(action, "dynamodb:")] == 0 {
				t.Errorf("the policy allows %s, which the suite does not use", action)
			}
		}
	}
}

// empty deletes what is in a table.
func empty(t *testing.T, table string) {
	t.Helper()
	client := local.Client(t, nil)
	all, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range all.Items {
		key := map[string]types.AttributeValue{attr.Group: item[attr.Group], attr.Key: item[attr.Key]}
		if _, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &table, Key: key}); err != nil {
			t.Fatal(err)
		}
	}
}

// partitionIn returns the partition of a request, with GROUP instead of the group; empty if it has none.
func partitionIn(t *testing.T, body []byte) string {
	type text struct{ S string }
	var request struct {
		Key, Item map[string]text
		Values    map[string]text `json:"ExpressionAttributeValues"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		t.Error(err)
	}
	for _, at := range []text{request.Key[attr.Group], request.Item[attr.Group], request.Values[":0"]} {
		if group, _ := network.Partition(at.S); group != "" {
			return "GROUP" + strings.TrimPrefix(at.S, group)
		}
	}
	return ""
}

// A policy is a list of statements about a table.
type policy []struct {
	Action    list
	Condition map[string]map[string]list
}

// A list is written as one text or as several.
type list []string

func (l *list) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		*l = list{""}
		return json.Unmarshal(text, &(*l)[0])
	}
	return json.Unmarshal(text, (*[]string)(l))
}

// allows reports whether a statement allows an action on a partition.
func (p policy) allows(action, partition string) bool {
	for _, s := range p {
		if !slices.Contains(s.Action, "dynamodb:"+action) {
			continue
		}
		if len(s.Condition) == 0 {
			return true
		}
		for operator, condition := range s.Condition {
			for _, key := range condition["dynamodb:LeadingKeys"] {
				start, pattern := strings.CutSuffix(key, "*")
				if key == partition || pattern && operator == "ForAllValues:StringLike" && strings.HasPrefix(partition, start) {
					return true
				}
			}
		}
	}
	return false
}

// policies returns the policies in the section of docs/iam.md about a role.
func policies(t *testing.T, role string) (all []policy) {
	t.Helper()
	text, err := os.ReadFile("../../docs/iam.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+role+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range strings.Split(section, "```json")[1:] {
		document, _, _ := strings.Cut(block, "```")
		var read struct{ Statement policy }
		if err := json.Unmarshal([]byte(document), &read); err != nil {
			t.Fatal(err)
		}
		all = append(all, read.Statement)
	}
	if len(all) == 0 {
		t.Fatalf("docs/iam.md has no policy for the role %s", role)
	}
	return all
}
