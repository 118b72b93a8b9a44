package outcome

import (
	"crypto/sha256"
	"fmt"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/examples/kinesis/internal/kpl"
)

// TestSharesNoCode: package outcome imports no code of the consumer, so they share no error.
func TestSharesNoCode(t *testing.T) {
	for _, file := range []string{"outcome.go", "leases.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range parsed.Imports {
			if strings.Contains(imported.Path.Value, "shardlease") {
				t.Errorf("%s imports %s", file, imported.Path.Value)
			}
		}
	}
}

// TestCompare: each kind of fault is detected and counted.
func TestCompare(t *testing.T) {
	var put []Digest
	for i := range 5 {
		put = append(put, sha256.Sum256(fmt.Append(nil, i)))
	}
	for effects, want := range map[string]Verdict{
		"0 1 2 3 4":   {Records: 5},
		"0 1 3 4":     {Records: 4, Lost: 1},
		"0 1 1 2 3 4": {Records: 6, Twice: 1},
		"0 2 1 3 4":   {Records: 5, Late: 1},
		"0 1 x 3 4":   {Records: 5, Lost: 1, Foreign: 1},
	} {
		var got [][]byte
		for effect := range strings.FieldsSeq(effects) {
			got = append(got, []byte(effect))
		}
		if v := Compare(put, got); v != want {
			t.Errorf("%s: %v", effects, v)
		}
	}
}

func TestPacked(t *testing.T) {
	if n := packed(kpl.Pack(kpl.Record{Key: "a", Data: strings.Repeat("x", 300)}, kpl.Record{Key: "b", Hash: "5"})); n != 2 {
		t.Errorf("%d records are packed, want 2", n)
	}
	if n := packed([]byte("plain, and longer than twenty bytes")); n != 0 {
		t.Errorf("a plain record has %d packed records", n)
	}
}
