// Package guides runs what the guides offer to be copied, and the examples that need a
// DynamoDB Local.
package guides

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.Main(m) }
