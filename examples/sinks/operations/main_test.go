package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRepeatedOperationHappensOnce: the successor has paid record 3 again, and the one
// that woke up once more.
func TestRepeatedOperationHappensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		const end = "a wakes up, and cannot know that\n  a writes record 3: done\n" +
			"the bank paid 100, for 4 operations; it was asked 2 times more, and paid nothing\n"
		if !strings.Contains(out.String(), "b writes record 3: done") || !strings.HasSuffix(out.String(), end) {
			t.Errorf("another story:\n%s", out.String())
		}
	})
}
