package main

import (
	"bytes"
	"regexp"
	"testing"
)

func TestLateTransactionIsRefusedBySQL(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Error(err)
	}
	story := `(?s)a holds shard-0, generation (\d+)\n.*a is paused.*b holds shard-0, generation (\d+)\n  b writes record 3: done.*` +
		`a wakes up.*\n  a writes record 3: refused: .* written under generation (\d+), now at (\d+)\n.*` +
		`order 2 was written by generation (\d+)\norder 3 was written by generation (\d+)\n`
	found := regexp.MustCompile(story).FindStringSubmatch(out.String())
	if found == nil || found[1] != found[3] || found[2] != found[4] || found[1] != found[5] || found[2] != found[6] || found[1] == found[2] {
		t.Errorf("unexpected output: %q\n%s", found, out.String())
	}
}
