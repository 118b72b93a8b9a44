package main

import (
	"net/http/httptest"
	"testing"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestSettings: flags become the configuration of the consumer; -stream may name several streams.
func TestSettings(t *testing.T) {
	s, err := parse([]string{"-stream", "orders", "-start", "latest", "-handoff", "cooperative"})
	if c := s.config; err != nil || c.Stream != "orders" || c.Streams != nil || !c.Start.Latest || c.Handoff != rebalance.Cooperative || s.leases != "leases" {
		t.Errorf("got %+v, %v", s, err)
	}
	s, err = parse([]string{"-stream", "orders,bills"})
	if c := s.config; err != nil || c.Stream != "" || len(c.Streams) != 2 || c.Streams[1] != "bills" {
		t.Errorf("got %+v, %v", s, err)
	}
}

// TestRoutes: the status codes of all routes before the consumer runs.
func TestRoutes(t *testing.T) {
	c, err := kinesis.New(kinesistest.New().Client(), new(memstore.Store), kinesis.Config{Stream: "orders", Group: "orders", Handoff: rebalance.Eager})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/alertz": 503, "/livez": 200, "/readyz": 503, "/figures": 200, "/": 404} {
		out := httptest.NewRecorder()
		routes(c).ServeHTTP(out, httptest.NewRequest("GET", path, nil))
		if out.Code != want {
			t.Errorf("%s: %d %s", path, out.Code, out.Body)
		}
	}
}
