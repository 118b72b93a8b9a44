package shardlease_test

import (
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

func Example_deathwatch() {
	// In a container: the address of the pod, from the downward API, and the port of the container.
	config := shardlease.Config{
		Group: "orders", Handoff: rebalance.Cooperative, TTL: 30 * time.Second,
		Deathwatch: shardlease.Deathwatch{Listen: ":7946", Advertise: "10.0.0.7:7946"},
	}
	_, err := shardlease.New(new(memstore.Store), shardlease.Static("a"), config)
	fmt.Println(err)
	// Output: <nil>
}
