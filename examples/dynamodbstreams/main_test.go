package main

import (
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/rebalance"
)

// TestSettings: flags without a default must be set.
func TestSettings(t *testing.T) {
	s, err := parse([]string{"-tables", "orders,customers", "-start", "latest", "-handoff", "eager"})
	if err != nil || len(s.tables) != 2 || s.tables[1] != "customers" || s.handoff != rebalance.Eager || s.sink != "effects" {
		t.Errorf("got %+v, %v", s, err)
	}
	for want, args := range map[string][]string{
		"-tables must be": {"-start", "latest"},
		"-start must be":  {"-tables", "orders"},
	} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
