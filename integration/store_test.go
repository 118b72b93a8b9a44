package integration

import (
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestStore: DynamoDB is a store like any other.
func TestStore(t *testing.T) {
	client := newClient(t, nil)
	storetest.Run(t, func(t *testing.T) lease.Store { return open(t, client, newTable(t)) })
}
