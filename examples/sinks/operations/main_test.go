package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRepeatedOperationHappensOnce: the successor repeats the payment of record 3, and so does
// the worker that wakes up; the bank pays once.
func TestRepeatedOperationHappensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		const end = "a wakes up, and cannot know that\n  a writes record 3: done\n" +
			"the bank paid 100 for 4 operations; it paid nothing for 2 repeated requests\n"
		if !strings.Contains(out.String(), "b writes record 3: done") || !strings.HasSuffix(out.String(), end) {
			t.Errorf("unexpected output:\n%s", out.String())
		}
	})
}
