// Package store holds dynamostore on DynamoDB Local to the contract of a store.
package store

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.Main(m) }
