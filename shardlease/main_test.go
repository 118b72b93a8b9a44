package shardlease_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine survives Run, on any path that is tested here.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
