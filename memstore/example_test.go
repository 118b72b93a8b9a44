package memstore_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

// run lets one worker of the group process three records of the shard, and stop.
func run(store *memstore.Store, name string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	worker, err := shardlease.New(store, shardlease.Static("shard-0"), shardlease.Config{
		Group: "orders", Name: name, Handoff: rebalance.Eager, Order: checkpoint.Decimal,
	})
	if err != nil {
		return err
	}
	return worker.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		defer stop()
		position, _ := strconv.Atoi(t.Checkpoint().Position)
		for n := position + 1; n <= position+3; n++ {
			fmt.Println(name, "processes", n)
			if err := t.Commit(t.Context(), strconv.Itoa(n)); err != nil { // Mark, where a repetition is cheap
				return err
			}
		}
		return nil
	})
}

// Workers of one process that share a store are a fleet. The second continues where the
// table has the first. In a bubble of testing/synctest such a test takes no time; compare
// docs/testing.md.
func ExampleStore() {
	store := new(memstore.Store)
	fmt.Println(run(store, "a"))
	fmt.Println(run(store, "b"))
	// Output:
	// a processes 1
	// a processes 2
	// a processes 3
	// <nil>
	// b processes 4
	// b processes 5
	// b processes 6
	// <nil>
}
