package shardlease_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A pool processes the records of all shards of a process on a few goroutines.
type pool struct {
	jobs    chan job
	workers sync.WaitGroup
}

type job struct {
	record checkpoint.Record
	number int
}

func newPool(size int) *pool {
	p := &pool{jobs: make(chan job)}
	for range size {
		p.workers.Go(func() {
			for j := range p.jobs {
				time.Sleep(time.Duration(10-j.number) * time.Millisecond) // a later record is done sooner
				j.record.Done()
			}
		})
	}
	return p
}

func (p *pool) close() {
	close(p.jobs)
	p.workers.Wait()
}

// handle reads the records of one shard and passes them to the pool. They are processed in
// any order; the tracker marks the last record before which none is missing.
func (p *pool) handle(ctx context.Context, t *shardlease.Tenure) error {
	tracker := checkpoint.NewTracker(100, t.Mark)
	for n := 1; n <= 9; n++ {
		record, err := tracker.Begin(ctx, strconv.Itoa(n)) // waits while 100 records are not marked yet
		if err != nil {
			break // ctx has ended: the handler should wind down, and finish the records that it began
		}
		select {
		case p.jobs <- job{record, n}:
		case <-t.Context().Done():
			return context.Cause(t.Context())
		}
	}
	// Every record that was begun is processed and marked before the handler returns.
	if err := tracker.Wait(t.Context()); err != nil || ctx.Err() != nil {
		return err
	}
	return t.Finish(t.Context())
}

// The handlers of a process share a pool of goroutines, which finish records out of order.
func Example_workerPool() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p := newPool(4)
	defer p.close()
	store, open := new(memstore.Store), 2
	worker, err := shardlease.New(store, shardlease.Static("shard-0", "shard-1"), shardlease.Config{
		Group: "orders", Handoff: rebalance.Cooperative, Order: checkpoint.Decimal,
		Observe: func(e event.Event) {
			if e.Kind == event.Ended {
				if open--; open == 0 {
					stop()
				}
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Run(ctx, p.handle))
	rows, err := shardlease.Supervisor{Store: store, Group: "orders"}.List(context.Background())
	for _, row := range rows {
		fmt.Println(row.Shard, "finished:", row.Finished, "checkpoint:", row.Checkpoint.Position)
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// shard-0 finished: true checkpoint: 9
	// shard-1 finished: true checkpoint: 9
	// <nil>
}
