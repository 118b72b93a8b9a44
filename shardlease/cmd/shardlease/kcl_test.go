package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// TestMarks: the positions of examples/kinesis survive an import and an export: sub-sequence numbers,
// and the words TRIM_HORIZON, LATEST and AT_TIMESTAMP.
func TestMarks(t *testing.T) {
	m := migration{packed: "position"}
	mark, err := m.mark()("17", 0)
	if err != nil || mark != (checkpoint.Mark{Position: "17/0"}) {
		t.Errorf("the first record of an entry is at %q, %v", mark.Position, err)
	}
	for _, m.unstarted = range []bool{false, true} {
		for _, word := range []string{"TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"} {
			mark, err := m.word()(word)
			if ok := m.unstarted || word == "TRIM_HORIZON"; ok != (err == nil) || ok && mark.Position != word {
				t.Errorf("accepted %t: %s is %q, %v", m.unstarted, word, mark.Position, err)
			}
		}
	}
	for of, want := range map[checkpoint.Mark]string{
		{Position: "17/6", State: "orders"}:   "17 6",
		{Position: "17", State: "orders"}:     "17 0",
		{Position: "LATEST", State: "orders"}: "LATEST 0",
		{Position: "17/x"}:                    "! 0",
		{Position: "17/-1"}:                   "! 0",
	} {
		sequence, sub, err := m.checkpointOf(of)
		if err != nil {
			sequence = "!"
		}
		if got := fmt.Sprint(sequence, " ", sub); got != want {
			t.Errorf("%q is exported as %q, %v; want %q", of.Position, got, err, want)
		}
	}
	m.packed = "refuse"
	if _, _, err := m.checkpointOf(checkpoint.Mark{Position: "17", State: "orders"}); err == nil {
		t.Error("the export ignored a state that is no number")
	}
}

// TestListed: a listing of the shards must be whole.
func TestListed(t *testing.T) {
	for text, want := range map[string]string{
		`{"Shards": [{"ShardId": "a"}], "NextToken": "more"}`: "must list all shards", `{}`: "must list all shards", `{`: "unexpected end",
		`{"Shards": [{"ShardId": "a", "ParentShardId": "b", "AdjacentParentShardId": null}]}`: "",
	} {
		file := filepath.Join(t.TempDir(), "shards.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := listed(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
