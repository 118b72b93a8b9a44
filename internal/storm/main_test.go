package storm

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage pile up: these tests make much of it, need little memory, and took a third longer.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
