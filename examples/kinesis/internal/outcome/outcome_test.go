package outcome

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

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
		var got []Digest
		for effect := range strings.FieldsSeq(effects) {
			got = append(got, sha256.Sum256([]byte(effect)))
		}
		if v := Compare(put, got); v != want {
			t.Errorf("%s: %v", effects, v)
		}
	}
}

func TestPacked(t *testing.T) {
	if n := packed(Pack("a", make([]byte, 300), nil)); n != 2 {
		t.Errorf("%d records are packed, want 2", n)
	}
	if n := packed([]byte("plain, and longer than twenty bytes")); n != 0 {
		t.Errorf("a plain record has %d packed records", n)
	}
}
