package main

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A cable is a store that can be cut off. For the rest of a fleet a worker behind a cable
// that was cut is as dead as after kill -9.
type cable struct {
	lease.Store
	cut atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cable) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Store.Write(ctx, w)
}

func (c *cable) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Store.Get(ctx, k)
}

func (c *cable) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	if c.cut.Load() {
		return func(yield func(lease.Record, error) bool) { yield(nil, errCut) }
	}
	return c.Store.List(ctx, q)
}

// TestFailover: a worker dies, and the other goes on where the table says. In a bubble of
// testing/synctest that takes no time.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, log := new(memstore.Store), new(effects)
		ctx, stop := context.WithCancel(t.Context())
		a, b := &cable{Store: table}, &cable{Store: table}
		var fleet sync.WaitGroup
		for _, store := range []*cable{a, b} {
			w, err := shardlease.New(store, shardlease.Static("shard-0", "shard-1"), shardlease.Config{
				Group: "orders", Handoff: rebalance.Eager, Order: checkpoint.Decimal,
			})
			if err != nil {
				t.Fatal(err)
			}
			fleet.Go(func() { _ = w.Run(ctx, log.handle) })
		}
		time.Sleep(30 * time.Second) // of the bubble: each has one shard by now
		a.cut.Store(true)
		time.Sleep(15 * time.Second) // the lease time is 10
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

// effects is what handlers have done, record by record.
type effects struct {
	mu  sync.Mutex
	all []effect
}

type effect struct {
	shard      string
	generation int64
	record     int
}

// handle stands for your handler: ten records a second, numbered from 1.
func (l *effects) handle(ctx context.Context, t *shardlease.Tenure) error {
	from, _ := strconv.Atoi(t.Checkpoint().Position) // empty at the very beginning: 0
	for record := from + 1; t.Reading().Err() == nil; record++ {
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

// complete: no record of a shard was left out, whoever processed it, though some may have
// been processed twice.
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
