// Package histories records what concurrent clients ask of DynamoDB Local through a bad
// network and what it answers, and checks with porcupine that one order explains it.
package histories

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.Main(m) }
