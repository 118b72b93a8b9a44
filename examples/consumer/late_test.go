package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestTableRefusesLateCommit: the network holds a commit of worker a until b has claimed the shard,
// and delivers it then. The table refuses it.
func TestTableRefusesLateCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, log := new(memstore.Store), new(effects)
		ctx, stop := context.WithCancel(t.Context())
		var fleet sync.WaitGroup
		run := func(store lease.Store) {
			w, err := shardlease.New(store, shardlease.Static("shard-0"), shardlease.Config{
				Group: "orders", Handoff: rebalance.Eager, Order: checkpoint.Decimal,
			})
			if err != nil {
				t.Fatal(err)
			}
			fleet.Go(func() { _ = w.Run(ctx, log.handle) })
		}
		a, held := storetest.NewLink(table), make(chan lease.Write, 100) // room for repetitions
		a.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			if w.Key().Kind == lease.KindLease && w.Op == lease.OpSwap { // a commit
				held <- w
				a.Silence() // from here on nothing of a reaches the table, this write included
			}
			return send()
		})
		run(a)
		late := <-held
		run(table) // worker b
		time.Sleep(30 * time.Second)
		row, err := shardlease.Supervisor{Store: table, Group: "orders"}.Get(ctx, "shard-0")
		if err != nil || row.Generation == late.Next.(lease.Row).Generation {
			t.Errorf("b has not claimed the shard: %v, %v", row, err)
		}
		_, err = table.Write(context.WithoutCancel(ctx), late) // the network delivers it after all
		if !errors.Is(err, lease.ErrRefused) {
			t.Errorf("the table has answered the late commit with %v", err)
		}
		stop()
		fleet.Wait()
	})
}
