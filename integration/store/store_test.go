package store

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestStore: dynamostore on DynamoDB Local passes the conformance suite, which uses exactly the actions
// that docs/iam.md allows a worker.
func TestStore(t *testing.T) {
	f := network.NewFaulty(func(string, []byte) network.Fault { return network.Fault{} })
	client := local.Client(t, f.Over)
	storetest.Run(t, func(t *testing.T) lease.Store { return local.Open(t, client, local.Table(t)) })
	t.Run("in four buckets", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) lease.Store { return local.Open(t, client, local.Table(t), inOrders(4)) })
	})
	if used, may := slices.Sorted(maps.Keys(f.Calls)), workerPolicy(t); !slices.Equal(used, may) {
		t.Errorf("the suite used %v, the policy has %v", used, may)
	}
}

// workerPolicy returns the actions that docs/iam.md allows a worker.
func workerPolicy(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/iam.md")
	if err != nil {
		t.Fatal(err)
	}
	_, worker, _ := strings.Cut(string(text), "## Worker")
	_, policy, _ := strings.Cut(worker, "```json")
	policy, _, _ = strings.Cut(policy, "```")
	actions := map[string]bool{}
	for _, action := range regexp.MustCompile(`"dynamodb:([A-Z]\w+)"`).FindAllStringSubmatch(policy, -1) {
		if action[1] != "LeadingKeys" { // LeadingKeys is a condition and no action
			actions[action[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(actions))
}
