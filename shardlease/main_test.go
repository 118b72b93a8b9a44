package shardlease_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// No goroutine survives Run, on any path that is tested here.
func TestMain(m *testing.M) {
	fixture.PileGarbage()
	fixture.SideBySide(500) // most of them wait for their turn in bubble
	goleak.VerifyTestMain(m)
}
