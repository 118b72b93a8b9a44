package inspect_test

import (
	"context"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// orders stands for the store of a program, for example one of package dynamostore.
func orders(ctx context.Context) *memstore.Store {
	store := new(memstore.Store)
	write := func(w lease.Write, err error) lease.Record {
		if err == nil {
			var stored lease.Record
			if stored, err = store.Write(ctx, w); err == nil {
				return stored
			}
		}
		panic(err)
	}
	stamp := func(id lease.WriteID) protocol.Stamp { return protocol.Stamp{ID: id, At: time.Now()} }
	seat := write(protocol.Sit(lease.Seat{Group: group, Incarnation: "a-1", Name: "a", TTL: 10 * time.Second}, stamp("1"))).(lease.Seat)
	seat = write(protocol.NextBeat(seat, lease.Says{}, stamp("2"))).(lease.Seat)
	for _, shard := range []string{"shard-0", "shard-1"} {
		row := write(protocol.Begin(group, shard, nil, "a", stamp(lease.WriteID(shard+"-1")))).(lease.Row)
		row = write(protocol.Claim(row, seat.Owner(), stamp(lease.WriteID(shard+"-2")))).(lease.Row)
		if shard == "shard-1" {
			write(protocol.Quarantine(row, protocol.Command{Seen: row.Generation, By: "jane", Note: "poison record"}, lease.ReasonForced, stamp("3")))
		}
	}
	return store
}

// A look needs one call. Warnings say what is wrong, and what to do about it.
func ExampleLook() {
	ctx := context.Background()
	snapshot, err := inspect.Look(ctx, orders(ctx), "orders", inspect.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, shard := range snapshot.Shards {
		fmt.Println(shard.Name, shard.State, shard.Owner)
	}
	for _, warning := range snapshot.Warnings() {
		fmt.Println(warning.Level, warning.Code, warning.Subject+":", warning.Text)
		fmt.Println("\t" + warning.Do)
	}
	// Output:
	// shard-0 held "a" (a-1)
	// shard-1 quarantined nobody
	// WARN quarantined shard-1: operator "jane" has set the shard aside (poison record): no worker processes it.
	// 	Repair what made it fail, then `shardlease unquarantine shard-1 --why "…"`.
	// INFO alone : worker "a" is the only one: if it dies, its shards wait until another is started.
	// 	Start a second worker; `shardlease workers` lists those that run.
}

// An operator reads the row of one shard before a command.
func ExampleLookAt() {
	ctx := context.Background()
	snapshot, err := inspect.LookAt(ctx, orders(ctx), "orders", "shard-0", inspect.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	shard := snapshot.Shard("shard-0")
	fmt.Println(shard.State, "by", shard.Owner.Name, "for", shard.Since.D.Round(time.Minute))
	// Output: held by a for 0s
}

// A watch looks again and again, and Diff tells what has happened in between.
func ExampleWatch() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	before := &inspect.Snapshot{Group: "orders"}
	for snapshot, err := range inspect.Watch(ctx, orders(ctx), "orders", inspect.WatchOptions{}) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, change := range inspect.Diff(before, snapshot) {
			fmt.Println(change.Kind, change.Subject)
		}
		before = snapshot
		break
	}
	// Unordered output:
	// joined a
	// new shard-0
	// transfer shard-0
	// transfer shard-0
	// new shard-1
	// transfer shard-1
	// transfer shard-1
	// transfer shard-1
}
