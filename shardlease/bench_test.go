package shardlease_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// within runs a worker with one shard until f, its handler, returns.
func within(b *testing.B, config shardlease.Config, f func(ctx context.Context, t *shardlease.Tenure) error) {
	b.Helper()
	config.Group, config.Handoff = "orders", valid().Handoff
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("1"), config)
	must(b, err)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	err = w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		defer stop()
		check(b, f(ctx, t))
		return nil
	})
	check(b, err)
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
		must(b, err)
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
		must(b, <-done)
	}
}

func inUse() runtime.MemStats {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// A meter measures how long the answer to a heartbeat waits in the worker's inbox: from the
// answer of the store until the worker trusts its lease for longer.
type meter struct {
	worker   *shardlease.Worker
	answered atomic.Int64 // when the store answered a heartbeat whose answer still waits; 0: none waits
	before   atomic.Int64 // the worker's trust when that heartbeat was sent
	longest  atomic.Int64 // the longest wait
}

// over measures the heartbeats over the link.
func (m *meter) over(link *storetest.Link) {
	link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		seat := w.Key().Kind == lease.KindSeat
		if seat {
			m.before.Store(int64(shardlease.Trust(m.worker)))
		}
		r, err := send()
		if seat && w.Op == lease.OpSwap && err == nil {
			m.answered.Store(time.Now().UnixNano())
		}
		return r, err
	})
}

// update recalculates the longest wait.
func (m *meter) update() {
	at := m.answered.Load()
	if at == 0 {
		return
	}
	m.longest.Store(max(m.longest.Load(), time.Now().UnixNano()-at))
	if int64(shardlease.Trust(m.worker)) > m.before.Load() {
		m.answered.CompareAndSwap(at, 0)
	}
}

// BenchmarkColdStart starts a worker on 100,000 shards that have no rows, and prints how long
// the answer to a heartbeat waited in the inbox at most: 0.05 to 0.15 s. Before such answers
// were handled first, it was 3.2 s on an idle machine of 2 cores, and 7.2 s with two seats
// lost on a busy one. [TestHeartbeatsComeBeforeABacklog] asserts this in virtual time.
func BenchmarkColdStart(b *testing.B) {
	const shards = 100_000
	names := make([]string, shards)
	for i := range names {
		names[i] = "shardId-" + strconv.Itoa(1_000_000_000+i)
	}
	for b.Loop() {
		coldStart(b, names)
	}
}

func coldStart(b *testing.B, names []string) {
	m, link := new(meter), storetest.NewLink(new(memstore.Store))
	m.over(link)
	config := valid()
	lost := atomic.Int64{}
	config.Observe = func(e event.Event) {
		if e.Kind == event.Lost {
			lost.Add(1)
		}
	}
	w, err := shardlease.New(link, shardlease.Static(names...), config)
	must(b, err)
	m.worker = w
	start := time.Now()
	stop := runUntilHeld(b, w, len(names), m.update)
	b.ReportMetric(time.Since(start).Seconds(), "s/start")
	b.ReportMetric(time.Duration(m.longest.Load()).Seconds(), "s/longest-wait")
	b.ReportMetric(float64(lost.Load()), "seats-lost")
	from := time.Now()
	stop()
	b.ReportMetric(time.Since(from).Seconds(), "s/stop")
}
