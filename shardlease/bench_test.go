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
		stop := runUntilHeld(b, w, shards, func() {})
		after := inUse()
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/shards, "heap-B/shard")
		b.ReportMetric(float64(after.StackInuse-before.StackInuse)/shards, "stack-B/shard")
		stop()
	}
}

// runUntilHeld runs a worker until it holds that many shards, and calls tick each millisecond
// meanwhile. The result stops the worker.
func runUntilHeld(b *testing.B, w *shardlease.Worker, shards int, tick func()) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	done, began := make(chan error, 1), make(chan struct{}, shards)
	go func() {
		done <- w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
			began <- struct{}{}
			return serve(ctx, t)
		})
	}()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for running := 0; running < shards; {
		select {
		case <-began:
			running++
		case <-ticker.C:
			tick()
		}
	}
	return func() {
		cancel()
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
