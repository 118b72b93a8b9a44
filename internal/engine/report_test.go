package engine_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// told returns the events of a kind that the worker has reported.
func (n *member) told(kind event.Kind) []event.Event {
	return slices.DeleteFunc(slices.Clone(n.events), func(e event.Event) bool { return e.Kind != kind })
}

// TestOneWorkerReportsForAll: the worker that reports for the fleet pauses for less than its lease time. No other
// worker reports the same meanwhile, because it would have to take that back.
func TestOneWorkerReportsForAll(t *testing.T) {
	for _, workers := range []int{3, 12} {
		f := newFleet(t, 2*workers+2, 0, rebalance.Eager)
		f.config.MaxShards, f.config.KeepUnlisted, f.config.Poll = 2, true, 2*time.Second
		for range workers {
			f.join()
		}
		f.Run(time.Minute)
		n := f.watchers()[0]
		f.source = f.without(n.Handlers[0].Shard)
		f.Run(time.Minute)
		n.Pause()
		f.Run(leaseTime * 65 / 100)
		n.Resume(nil)
		f.Run(time.Minute)
		for _, of := range f.up() {
			for _, kind := range []event.Kind{event.Full, event.Unlisted} {
				if all := of.told(kind); (len(all) > 0) != (of == n) || len(all) > 0 && all[len(all)-1].Over {
					t.Errorf("%d workers: %s has told %v", workers, of.Name, all)
				}
			}
		}
	}
}

// TestGoneShardsAreForgotten: the source replaces all shards again and again. The workers forget the old ones.
func TestGoneShardsAreForgotten(t *testing.T) {
	const shards = 8
	f := newFleet(t, 0, 2, rebalance.Eager)
	f.config.Poll = 10 * time.Second
	for round := range 20 {
		old := f.source.Shards
		f.source.Shards = nil
		for i := range shards {
			f.source.Shards = append(f.source.Shards, engine.Shard{Name: fmt.Sprintf("shard-%02d-%d", round, i)})
		}
		for _, s := range old {
			f.end(s.Name)
		}
		f.Run(time.Minute)
	}
	for _, n := range f.up() {
		known := reflect.ValueOf(n.Engine)
		listed, rows := known.FieldByName("feed").FieldByName("shards").Len(), known.FieldByName("facts").FieldByName("all").Len()
		if len(n.Handlers) != shards/2 || listed > 4*shards || rows > 4*shards {
			t.Errorf("%s processes %d shards, and knows %d of the source and %d rows", n.Name, len(n.Handlers), listed, rows)
		}
	}
}
