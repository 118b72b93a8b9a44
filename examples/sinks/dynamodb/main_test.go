package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// local returns the address of a DynamoDB Local, or skips the test. TestExamplesOnDynamoDB in
// integration starts one.
func local(t *testing.T) string {
	endpoint := os.Getenv("DYNAMODB_ENDPOINT")
	if endpoint == "" {
		t.Skip("DYNAMODB_ENDPOINT is not set: set it to the URL of a DynamoDB Local")
	}
	return endpoint
}

func TestLateTransactionIsRefused(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), local(t), &out); err != nil {
		t.Error(err)
	}
	story := `(?s)a holds shard-0, generation (\d+)\n.*a is paused.*b holds shard-0, generation (\d+)\n  b writes record 3: done.*` +
		`a wakes up.*\n  a writes record 3: refused: .* written under generation (\d+), now at (\d+) and "b" holds it.*` +
		`order shard-0/2 was written by generation (\d+)\norder shard-0/3 was written by generation (\d+)\n`
	found := regexp.MustCompile(story).FindStringSubmatch(out.String())
	if found == nil || found[1] != found[3] || found[2] != found[4] || found[1] != found[5] || found[2] != found[6] || found[1] == found[2] {
		t.Errorf("unexpected output: %q\n%s", found, out.String())
	}
}

func TestEndpointIsNeeded(t *testing.T) {
	if err := run(t.Context(), "", new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "docker run") {
		t.Error(err)
	}
}
