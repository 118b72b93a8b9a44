package shardlease_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

// within runs a worker with one shard until f, its handler, returns.
func within(b *testing.B, config shardlease.Config, f func(ctx context.Context, t *shardlease.Tenure) error) {
	b.Helper()
	config.Group, config.Handoff = "orders", valid().Handoff
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("1"), config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	err = w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		defer stop()
		if err := f(ctx, t); err != nil {
			b.Error(err)
		}
		return nil
	})
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkCommit measures a whole commit: the mark, the loop, the engine, the store, and
// the way back.
func BenchmarkCommit(b *testing.B) {
	b.ReportAllocs()
	within(b, shardlease.Config{Order: checkpoint.Decimal}, func(ctx context.Context, t *shardlease.Tenure) error {
		for n := 0; b.Loop(); n++ {
			if err := t.Commit(t.Context(), strconv.Itoa(n)); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkMarkOnAWorker marks while the worker commits at intervals.
func BenchmarkMarkOnAWorker(b *testing.B) {
	b.ReportAllocs()
	config := shardlease.Config{Commit: checkpoint.Policy{Every: 10 * time.Millisecond}}
	within(b, config, func(ctx context.Context, t *shardlease.Tenure) error {
		for b.Loop() {
			if err := t.Mark("1000000001"); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkHeldShard reports the memory that one more held shard needs, with its handler.
func BenchmarkHeldShard(b *testing.B) {
	const shards = 10_000
	names := make([]string, shards)
	for i := range names {
		names[i] = "shardId-" + strconv.Itoa(1_000_000_000+i)
	}
	for b.Loop() {
		config := valid()
		w, err := shardlease.New(new(memstore.Store), shardlease.Static(names...), config)
		if err != nil {
			b.Fatal(err)
		}
		before := inUse()
		began := make(chan struct{}, shards)
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error)
		go func() {
			done <- w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
				began <- struct{}{}
				<-ctx.Done()
				return nil
			})
		}()
		for range shards {
			<-began
		}
		after := inUse()
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/shards, "heap-B/shard")
		b.ReportMetric(float64(after.StackInuse-before.StackInuse)/shards, "stack-B/shard")
		stop()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

func inUse() runtime.MemStats {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
