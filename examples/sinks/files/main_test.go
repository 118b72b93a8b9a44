package main

import (
	"bytes"
	"regexp"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLatePointerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		story := `(?s)a holds shard-0, generation (\d+)\n  a writes record 1: done\n  a writes record 2: done\na is paused.*` +
			`b holds shard-0, generation (\d+)\n  b writes record 3: done\n  b writes record 4: done\n` +
			`a wakes up.*\n  a writes record 3: refused: .* written under generation (\d+), now at (\d+)\n` +
			`there are 5 files, .* readers see: shard-0 after 4 records\n`
		found := regexp.MustCompile(story).FindStringSubmatch(out.String())
		if found == nil || found[1] != found[3] || found[2] != found[4] || found[1] == found[2] {
			t.Errorf("unexpected output: %q\n%s", found, out.String())
		}
	})
}
