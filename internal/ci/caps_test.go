package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// caps are the largest numbers of exported names that packages may have. The commit message
// of a higher cap says which names are added, and why users need them.
var caps = map[string]int{
	"shardlease":           45,
	"shardlease/lease":     85,
	"rebalance":            22,
	"checkpoint":           20,
	"shardlease/storetest": 10,
}

func TestExportedNamesAreFew(t *testing.T) {
	for pkg, most := range caps {
		s, err := sizeOf(filepath.Join("../..", pkg))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.exported); n == 0 || n > most {
			t.Errorf("%s exports %d names; at least one and at most %d are allowed: %s", pkg, n, most, strings.Join(s.exported, " "))
		}
	}
}
