package shardlease_test

import (
	"database/sql"
	"net/http"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
	"github.com/shardlease/shardlease-go/shardlease/fencesql"
)

// declare lists every system that the handlers change.
func declare(db *sql.DB, reports *memstore.Register) shardlease.Config {
	client := &http.Client{Transport: &fencehttp.Transport{}}
	config := shardlease.Config{Group: "orders", Handoff: rebalance.Cooperative}
	config.Targets = []shardlease.Target{
		{Name: "orders", Raise: fence.Raise(fencesql.Guard{DB: db})},
		{Name: "reports", Raise: reports.Raise, Names: func(s shardlease.Shard) []string {
			return []string{s.Name + "/daily", s.Name + "/weekly"}
		}},
		{Name: "billing", Raise: fencehttp.Raise(client, "https://billing.example/fence")},
		{Name: "invoices"}, // in DynamoDB, with Store.Fence: it compares with the lease row
	}
	return config
}

// Each sink is closed to the earlier owner of a shard when the shard is taken over, and not only with the first effect of
// the successor.
func ExampleTarget() {
	_ = declare // a program calls it
}
