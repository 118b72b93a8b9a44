package explore_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain runs the garbage collector less often: these tests allocate much and keep little, and took a third longer with
// its default.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
