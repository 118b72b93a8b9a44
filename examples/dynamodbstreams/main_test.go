package main

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
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

// TestConnect: the client validates checksums, except those of a DynamoDB Local.
func TestConnect(t *testing.T) {
	for endpoint, quiet := range map[string]bool{"": false, "http://localhost:8000": true, "https://dynamodb.example.com": false} {
		t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
		sdk, err := config.LoadDefaultConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if o := connect(sdk).Options(); o.DisableValidateResponseChecksum != quiet {
			t.Errorf("%q: checksums are validated: %v", endpoint, !o.DisableValidateResponseChecksum)
		}
	}
}
