package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhoChooses(t *testing.T) {
	unset := filepath.Join(t.TempDir(), "unset.json")
	if err := os.WriteFile(unset, []byte(`{"group": "orders"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "whole.json")
	if err := os.WriteFile(whole, []byte(`{"group": "orders", "handoff": "eager 30s wait 0s"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, environment, want string }{
		{"-config " + whole, "", "handoff: eager 30s wait 0s, chosen in the file " + whole},
		{"-config " + whole, "cooperative 5s", "handoff: cooperative 5s force default, chosen in the environment"},
		{"-config " + whole, "eager 5s implore", "SHARDLEASE_HANDOFF: " + rebalance.ErrTerms.Error()},
		{"-config config.json", "", "handoff: eager, chosen in the file config.json\n"},
		{"-config config.json", "cooperative", "handoff: cooperative, chosen in the environment, by SHARDLEASE_HANDOFF\n"},
		{"-config config.json -handoff eager", "cooperative", "handoff: eager, chosen by the flag -handoff\n"},
		{"-handoff cooperative", "", "handoff: cooperative, chosen by the flag -handoff\n"},
		{"-config config.json", "magic", "SHARDLEASE_HANDOFF: " + rebalance.ErrNoMode.Error()},
		{"-handoff magic", "", rebalance.ErrNoMode.Error()},
		{"-config missing.json", "", "no such file"},
		// No mode is chosen.
		{"", "", "Handoff: " + rebalance.ErrNoMode.Error()},
		{"-config " + unset, "", "Handoff: " + rebalance.ErrNoMode.Error()},
	} {
		var out bytes.Buffer
		err := run(strings.Fields(c.args), func(string) (string, bool) { return c.environment, c.environment != "" }, &out)
		got := out.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s with %q in the environment: %s", c.args, c.environment, got)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(file, []byte(`{"group": "", "ttl": "1ms"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := run([]string{"-config", file}, os.LookupEnv, new(bytes.Buffer))
	if !errors.Is(err, shardlease.ErrConfig) || !errors.Is(err, rebalance.ErrNoMode) {
		t.Fatal(err)
	}
	for _, field := range []string{"Group", "Handoff", "TTL"} {
		if !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%v does not name the field %s", err, field)
		}
	}
}
