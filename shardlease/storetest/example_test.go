package storetest_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// The failover of a consumer: worker a falls silent, and b starts at the checkpoint of a. A test
// would run this in a bubble of testing/synctest, where it takes no time and needs no short lease
// time; examples/consumer/failover_test.go does.
func ExampleLink() {
	table, begun := new(memstore.Store), make(chan string, 10)
	ctx, stop := context.WithCancel(context.Background())
	var fleet sync.WaitGroup
	run := func(name string, store lease.Store) {
		w, err := shardlease.New(store, shardlease.Static("shard-0"), shardlease.Config{
			Group: "orders", Name: name, TTL: time.Second, Drain: time.Second, Handoff: rebalance.Eager,
		})
		if err != nil {
			panic(err)
		}
		fleet.Go(func() { _ = w.Run(ctx, handler(name, begun)) })
	}
	link := storetest.NewLink(table)
	run("a", link)
	fmt.Println(<-begun)
	link.Silence() // to b and to the table, a is as dead as after kill -9
	run("b", table)
	fmt.Println(<-begun)
	link.Heal()
	stop()
	fleet.Wait()
	// Output:
	// a begins at ""
	// b begins at "17"
}

// handler returns a handler that stands for the consumer and processes up to record 17.
func handler(worker string, begun chan<- string) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		if err := t.Commit(ctx, "17"); err != nil {
			return err
		}
		begun <- fmt.Sprintf("%s begins at %q", worker, t.Checkpoint().Position)
		<-ctx.Done()
		return nil
	}
}
