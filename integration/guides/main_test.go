// Package guides runs the code that the guides offer to copy, and the examples that need a
// DynamoDB Local.
package guides

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.Main(m) }
