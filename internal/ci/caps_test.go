package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// caps are how many exported names a package may have. A commit that raises a cap names what it
// adds, and why users need that.
var caps = map[string]int{
	"shardlease":           45,
	"shardlease/lease":     60,
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
			t.Errorf("%s exports %d names, more than %d, or none: %s", pkg, n, most, strings.Join(s.exported, " "))
		}
	}
}
