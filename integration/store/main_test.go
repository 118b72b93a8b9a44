// Package store checks that dynamostore keeps the contract of a store on DynamoDB Local.
package store

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/fixture"
)

// beside lets a dear test run beside others, unless tests hold bounds in real time. Most of its time it waits for an
// answer.
func beside(t *testing.T) {
	local.Endpoint(t)
	if !fixture.Long() {
		t.Parallel()
	}
}

func TestMain(m *testing.M) { local.MainInRealTime(m) }
