package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		for _, line := range []string{
			"shard-0 apples\n", "shard-0 dates\n", "shard-1 eggs\n", "shard-1 grapes\n",
			"shard-0: finished true, checkpoint 004\n", "shard-1: finished true, checkpoint 003\n",
		} {
			if strings.Count(out.String(), line) != 1 {
				t.Errorf("the line %q is not exactly once in\n%s", line, out.String())
			}
		}
	})
}
