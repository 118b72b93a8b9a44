package explore_test

import (
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }
