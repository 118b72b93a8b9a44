package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
)

// TestMarks: the positions of shardlease/kinesis survive an import and an export: sub-sequence numbers,
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

// TestLeasesWithoutPositions: what show and export print has sequence numbers only with --positions, and the
// prepared state never.
func TestLeasesWithoutPositions(t *testing.T) {
	leases := []kcl.Lease{{Shard: "shard-1", Sequence: "495917", Sub: 4959, Counter: 5, Pending: "495919", PendingSub: 4958, PendingState: []byte("canary")}}
	for positions, want := range map[bool]string{
		false: "shard-1: at a record; no owner, counter 5\n  prepared: at a record, 6 bytes of state\n1 lease\n",
		true:  "shard-1: 495917, record 4959; no owner, counter 5\n  prepared: 495919, record 4958, 6 bytes of state\n1 lease\n",
	} {
		var out strings.Builder
		if err := (&migration{positions: positions}).print(&out, leases); err != nil || out.String() != want {
			t.Errorf("positions %t: %q, %v", positions, out.String(), err)
		}
	}
	for _, mark := range []checkpoint.Mark{{Position: "canary-17", State: "canary"}, {Position: "4959/canary"}} {
		if _, _, err := (&migration{packed: "refuse"}).checkpointOf(mark); err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "4959") {
			t.Errorf("the error of an export of %v: %v", mark, err)
		}
	}
}
