package shardlease_test

import (
	"testing"

	"github.com/shardlease/shardlease-go/internal/fixture"
)

func TestMain(m *testing.M) {
	fixture.SideBySide()
	fixture.Main(m)
}
