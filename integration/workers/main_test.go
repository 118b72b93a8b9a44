// Package workers runs workers on DynamoDB Local in real time.
package workers

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.MainInRealTime(m) }
