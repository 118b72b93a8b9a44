package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// caps are the largest numbers of exported names that packages may have, a few more than they have. The commit
// message of a higher cap says which names are added, and why users need them.
var caps = map[string]int{
	"shardlease":           45,
	"shardlease/lease":     92,
	"rebalance":            24,
	"checkpoint":           21,
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

// TestTheSpineIsSmall: a rule of the engine belongs into one of its parts, and not on the spine, which sees
// all of them.
func TestTheSpineIsSmall(t *testing.T) {
	const most = 37
	s, err := sizeOf("../engine")
	if err != nil {
		t.Fatal(err)
	}
	spine := 0
	for _, f := range s.functions {
		if strings.HasPrefix(f.name, "Engine.") {
			spine++
		}
	}
	if spine == 0 || spine > most {
		t.Errorf("%d methods on the spine; at least one and at most %d are allowed", spine, most)
	}
}
