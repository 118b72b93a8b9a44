// Package store checks that dynamostore keeps the contract of a store on DynamoDB Local.
package store

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.MainInRealTime(m) }
