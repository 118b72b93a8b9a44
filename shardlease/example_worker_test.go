package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// orders stands for a stream. One shard of it has five records and an end.
type orders struct{}

// read yields the records after a position, io.EOF at the end of the shard, and the cause
// of the context if the context ends first.
func (orders) read(ctx context.Context, shard string, after int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for n := after + 1; n <= 5; n++ {
			if err := context.Cause(ctx); !yield(n, err) || err != nil {
				return
			}
		}
		yield(0, io.EOF)
	}
}

// handle processes one shard for as long as this worker holds it.
func (o orders) handle(ctx context.Context, t *shardlease.Tenure) error {
	position, _ := strconv.Atoi(t.Checkpoint().Position) // "" before the first checkpoint: 0
	for n, err := range o.read(ctx, t.Shard().Name, position) {
		if errors.Is(err, io.EOF) {
			return t.Finish(t.Context()) // the shard itself has ended: nobody claims it again
		}
		if err != nil {
			return err // ctx has ended: the handler should wind down, and this counts as no failure
		}
		fmt.Println("order", n) // a real sink compares t.Generation()
		if err := t.Mark(strconv.Itoa(n)); err != nil {
			return err // the tenure is over
		}
	}
	return nil
}

// A worker processes a shard to its end. Several workers of a group share the shards of
// their source; each of them runs the same program.
func ExampleWorker() {
	ctx, stop := context.WithCancel(context.Background()) // in a program: signal.NotifyContext
	defer stop()
	worker, err := shardlease.New(new(memstore.Store), shardlease.Static("shard-0"), shardlease.Config{
		Group:   "orders",
		Handoff: rebalance.Cooperative, // or rebalance.Eager: there is no default
		Order:   checkpoint.Decimal,    // positions are numbers: one that moves back is refused
		Observe: func(e event.Event) {
			if e.Kind == event.Ended {
				fmt.Println(e.Shard, "ended:", e.Cause.String())
				stop() // Run continues until then, because the source might list more shards
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Run(ctx, orders{}.handle))
	// Output:
	// order 1
	// order 2
	// order 3
	// order 4
	// order 5
	// shard-0 ended: finished
	// <nil>
}
