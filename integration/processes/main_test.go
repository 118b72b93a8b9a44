// Package processes kills, freezes and cuts off real worker processes, and checks what the table and
// a register have accepted meanwhile.
package processes

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.MainInRealTime(m) }
