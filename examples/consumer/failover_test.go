package main

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestFailover: a worker dies, and the other worker starts at its last checkpoint. In a
// testing/synctest bubble the test takes no real time.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, log := new(memstore.Store), new(effects)
		ctx, stop := context.WithCancel(t.Context())
		a, b := storetest.NewLink(table), storetest.NewLink(table)
		var fleet sync.WaitGroup
		for _, link := range []*storetest.Link{a, b} {
			w, err := shardlease.New(link, shardlease.Static("shard-0", "shard-1"), shardlease.Config{
				Group: "orders", Handoff: rebalance.Eager, Order: checkpoint.Decimal,
			})
			if err != nil {
				t.Fatal(err)
			}
			fleet.Go(func() { _ = w.Run(ctx, log.handle) })
		}
		time.Sleep(30 * time.Second) // in the bubble: each worker holds one shard now
		a.Silence()                  // to the table and to b, this worker is as dead as after kill -9
		time.Sleep(15 * time.Second) // the lease time is 10 s
		before := log.len()
		time.Sleep(time.Second)
		if log.len()-before < 15 {
			t.Error("the shards of the dead worker are not processed")
		}
		stop()
		fleet.Wait()
		log.complete(t)
	})
}

// effects records what the handlers have processed.
type effects struct {
	mu  sync.Mutex
	all []effect
}

type effect struct {
	shard      string
	generation int64
	record     int
}

// handle stands for your handler: it processes ten records a second, numbered from 1.
func (l *effects) handle(ctx context.Context, t *shardlease.Tenure) error {
	from, _ := strconv.Atoi(t.Checkpoint().Position) // empty at the very beginning: 0
	for record := from + 1; ctx.Err() == nil; record++ {
		time.Sleep(100 * time.Millisecond)
		l.mu.Lock()
		l.all = append(l.all, effect{t.Shard().Name, t.Generation(), record})
		l.mu.Unlock()
		if err := t.Mark(strconv.Itoa(record)); err != nil {
			return err
		}
	}
	return nil
}

func (l *effects) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// complete checks that no record of a shard was left out; some may have been processed twice.
func (l *effects) complete(t *testing.T) {
	t.Helper()
	last := map[string]int{}
	for _, e := range l.all {
		if e.record > last[e.shard]+1 {
			t.Errorf("%s: record %d under generation %d comes after %d", e.shard, e.record, e.generation, last[e.shard])
		}
		last[e.shard] = max(last[e.shard], e.record)
	}
	if len(last) != 2 {
		t.Errorf("only %v were processed", last)
	}
}
