package main

import (
	"bytes"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		story := `(?s)one leads, with token (\d+).*` +
			`one steps down.*one stops leading .* stopped: .*two leads, with token (\d+).*` +
			`two is cut off.*two stops leading .* unreachable: .*one leads, with token (\d+).*` +
			`a late write of two is refused: token (\d+) is too old`
		tokens := regexp.MustCompile(story).FindSubmatch(out.Bytes())
		if tokens == nil {
			t.Fatalf("unexpected output:\n%s", out.Bytes())
		}
		if !slices.IsSortedFunc(tokens[1:4], bytes.Compare) || bytes.Equal(tokens[1], tokens[2]) || bytes.Equal(tokens[2], tokens[3]) {
			t.Errorf("the tokens do not grow: %q", tokens[1:])
		}
	})
}
