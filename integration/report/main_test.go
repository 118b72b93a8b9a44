// Package report counts what the library costs, and measures docs/measurements.md.
package report

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.MainInRealTime(m) }
