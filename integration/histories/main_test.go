// Package histories records requests of concurrent clients to DynamoDB Local through a faulty
// network, and checks with porcupine that one order explains the answers.
package histories

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.Main(m) }
