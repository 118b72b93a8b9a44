package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

func TestMain(m *testing.M) {
	fixture.PileGarbage()
	goleak.VerifyTestMain(m)
}

// TestKeysKeepTheirOrder: records of a shard are processed concurrently, but those of one key one
// after the other, and the shard is finished when all of them are processed.
func TestKeysKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(300), Closed: true})
		begun := time.Now()
		var last atomic.Int64
		c := b.runFor(time.Minute, func(ctx context.Context, r kinesis.Record) error {
			defer func() { last.Store(int64(time.Since(begun))) }()
			return b.slowly(ctx, r)
		})
		if n := b.sink.total(t); n != 500 || b.sink.repeats != 0 {
			t.Errorf("%d effects, want 500; %d repeats", n, b.sink.repeats)
		}
		if row := b.row("a"); !row.Finished || row.Checkpoint.Position != "300" {
			t.Errorf("finished %t, position %s", row.Finished, row.Checkpoint.Position)
		}
		if took := time.Duration(last.Load()); took > 4*time.Second { // one after the other, each record would take 10 ms
			t.Errorf("processing took %v", took)
		}
		if s := c.Stats(); s.Total.Processed != 500 || s.Total.Records != 500 || s.Total.Reads == 0 || len(s.Shards) != 0 {
			t.Errorf("figures: %+v", s)
		}
	})
}

// TestKeylessRecordsUseAllLanes: records without a key are processed as many at a time as there are lanes.
func TestKeylessRecordsUseAllLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := make([]kinesistest.Record, 80)
		for i := range records {
			records[i] = kinesistest.Record{Data: []byte(fmt.Sprint(i))}
		}
		b := newBench(t, kinesistest.Shard{Name: "a", Records: records, Closed: true})
		var now, most atomic.Int64
		b.runFor(time.Minute, func(ctx context.Context, r kinesis.Record) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			time.Sleep(10 * time.Millisecond)
			return b.sink.write(ctx, r)
		})
		if n := b.sink.total(t); n != 80 || most.Load() != 4 {
			t.Errorf("%d effects, and at most %d records at a time", n, most.Load())
		}
	})
}

// TestChildrenFollow: all records of a shard are processed before its children are read.
func TestChildrenFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := numbered(120)
		var left, right []kinesistest.Record
		for _, r := range all[60:] {
			if r.Key < "k4" {
				left = append(left, r)
			} else {
				right = append(right, r)
			}
		}
		b := newBench(t, kinesistest.Shard{Name: "a", Records: all[:60], Closed: true},
			kinesistest.Shard{Name: "b", Parents: []string{"a"}, Records: left},
			kinesistest.Shard{Name: "c", Parents: []string{"a"}, Records: right})
		b.runFor(time.Minute, b.slowly)
		if n := b.sink.total(t); n != 200 {
			t.Errorf("%d effects, want 200", n)
		}
	})
}

// TestSeveralStreams: the shards of several streams have leases of their own, although their ids are the same.
func TestSeveralStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := []kinesistest.Shard{{Name: "a", Records: numbered(10), Closed: true}, {Name: "b", Parents: []string{"a"}, Closed: true}}
		b := newBench(t, both...)
		b.server.Create("bills", 0).Add(both...)
		b.config.Stream, b.config.Streams = "", []string{"orders", "bills"}
		var streams, shards atomic.Int64
		b.runFor(time.Minute, func(ctx context.Context, r kinesis.Record) error {
			if r.Stream == "bills" {
				streams.Add(1)
			}
			if r.Shard == "a" {
				shards.Add(1)
			}
			return nil
		})
		if streams.Load() != 18 || shards.Load() != 36 {
			t.Errorf("%d records of bills, %d of shards a; want 18 and 36", streams.Load(), shards.Load())
		}
		for _, name := range []string{"orders/a", "bills/a", "orders/b", "bills/b"} {
			if row := b.row(name); !row.Finished {
				t.Errorf("%s is not finished: %v", name, row)
			}
		}
	})
}

// TestAddedStream: a new version of the program reads one more stream, while a worker of the old version runs for a time. The
// old one gives the shards of that stream back, which is no failed attempt. All records are processed. The old worker removes
// rows of finished shards that its source does not list, so some records may be processed again.
func TestAddedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a"}, kinesistest.Shard{Name: "b"})
		var bills []kinesistest.Shard
		for _, name := range []string{"a", "b", "c", "d"} {
			bills = append(bills, kinesistest.Shard{Name: name, Records: numbered(10), Closed: true})
		}
		b.server.Create("bills", 0).Add(bills...)
		b.config.Stream, b.config.Streams = "", []string{"orders"}
		old := b.consumer()
		end := b.run(func(ctx context.Context) error { return old.Run(ctx, b.slowly) })
		time.Sleep(time.Minute)
		b.config.Streams = []string{"orders", "bills"}
		added := b.consumer()
		var records sync.Map
		endAdded := b.run(func(ctx context.Context) error {
			return added.Run(ctx, func(_ context.Context, r kinesis.Record) error { records.Store(r.ID(), true); return nil })
		})
		time.Sleep(2 * time.Minute)
		end()
		time.Sleep(2 * time.Minute)
		endAdded()
		n := 0
		for range records.Range {
			n++
		}
		if n != 4*18 {
			t.Errorf("%d records were processed, want %d", n, 4*18)
		}
		for _, e := range b.told(event.Started) {
			if e.Attempt != 0 {
				t.Errorf("it counts as an attempt: %v", e)
			}
		}
	})
}

// TestSpoiltRow: a lease row that cannot be read keeps no consumer from starting.
func TestSpoiltRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true}, kinesistest.Shard{Name: "b"})
		b.runFor(time.Second, b.slowly)
		spoilt := b.row("b").Key()
		link := storetest.NewLink(b.store)
		link.OnList(func(_ context.Context, _ lease.Query, list func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
			return func(yield func(lease.Record, error) bool) {
				for r, err := range list() {
					if err == nil && r.Key() == spoilt {
						r, err = nil, &lease.MalformedError{Key: spoilt, Cause: errors.New("no number")}
					}
					if !yield(r, err) {
						return
					}
				}
			}
		})
		if err := b.on(link).Begin(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestExactlyOnce: a fenced sink that stores the ids of its records has each record once and in order,
// although workers are cut off from the table, paused in the middle of a write, and stopped.
func TestExactlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(900), Closed: true})
		var paused atomic.Bool // the next write sleeps for a minute, which its worker does not survive
		process := func(ctx context.Context, batch []kinesis.Record) (int, error) {
			time.Sleep(200 * time.Millisecond)
			if paused.CompareAndSwap(true, false) {
				time.Sleep(time.Minute)
			}
			if err := b.sink.write(ctx, batch...); err != nil {
				return 0, err
			}
			return len(batch), nil
		}
		b.config.Batch = 5
		b.config.Worker.TTL = 3 * time.Second
		var ends []func()
		start := func() *storetest.Link {
			link := storetest.NewLink(b.store)
			c := b.on(link)
			ends = append(ends, b.run(func(ctx context.Context) error { return c.RunBatch(ctx, process) }))
			return link
		}
		first := start()
		time.Sleep(1200 * time.Millisecond)
		first.Cut() // the worker is dead for the others, and its function works on
		second := start()
		time.Sleep(5 * time.Second)
		paused.Store(true)
		time.Sleep(500 * time.Millisecond)
		second.Cut()
		start()
		time.Sleep(5 * time.Second)
		first.Heal()
		second.Heal()
		ends[0]()
		time.Sleep(3 * time.Minute)
		for _, end := range ends[1:] {
			end()
		}
		if n := b.sink.total(t); n != 1500 {
			t.Errorf("%d effects, want 1500", n)
		}
		if row := b.row("a"); !row.Finished || b.sink.stale == 0 || b.sink.repeats == 0 {
			t.Errorf("finished %t, %d refused, %d repeated: the test should see each", row.Finished, b.sink.stale, b.sink.repeats)
		}
	})
}

// TestHold: the ctx of a function has the hold of the shard.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(1), Closed: true})
		b.runFor(time.Minute, func(ctx context.Context, r kinesis.Record) error {
			if h, ok := kinesis.Hold(ctx); !ok || h.Key.Name != "a" || h.Generation == 0 {
				t.Errorf("the hold is %v", h)
			}
			return nil
		})
		if _, ok := kinesis.Hold(t.Context()); ok {
			t.Error("there is a hold outside of a function")
		}
	})
}

// TestMemoryIsBounded: a function that does not return stops the reading at the bound.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := make([]kinesistest.Record, 4000)
		for i := range records {
			records[i] = kinesistest.Record{Key: fmt.Sprint("k", i%keys), Data: fmt.Appendf(nil, "%09000d", i)}
		}
		b := newBench(t, kinesistest.Shard{Name: "a", Records: records})
		b.config.ShardMemory, b.config.InFlight = 1<<20, 100
		c := b.consumer()
		stuck := make(chan struct{})
		end := b.run(func(ctx context.Context) error {
			return c.Run(ctx, func(context.Context, kinesis.Record) error { <-stuck; return nil })
		})
		time.Sleep(time.Minute)
		if s := c.Stats(); s.Total.Bytes > 2<<20 || s.Total.Records == 0 {
			t.Errorf("%d bytes of %d records are read", s.Total.Bytes, s.Total.Records)
		}
		close(stuck)
		end()
	})
}

// TestManyTenures: no goroutine stays after many tenures, failed and released ones.
func TestManyTenures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(300)})
		b.config.Worker.Backoff, b.config.Worker.MaxAttempts, b.config.Tries = -1, -1, 1
		begun := 0
		c := b.consumer()
		w, err := shardlease.New(b.store, c.Source(), c.WorkerConfig())
		if err != nil {
			t.Fatal(err)
		}
		handle := c.Handler(func(context.Context, kinesis.Record) error { return errors.New("no") })
		end := b.run(func(ctx context.Context) error {
			return w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
				begun++
				if begun%2 == 0 {
					t.Release("for the test")
				}
				return handle(ctx, t)
			})
		})
		tenures := fixture.Size(100, 1000)
		time.Sleep(time.Duration(tenures) * 300 * time.Millisecond)
		end()
		if begun < tenures {
			t.Errorf("%d tenures, want %d", begun, tenures)
		}
	}) // the bubble fails if a goroutine stays
}

// TestRecreatedStream: a group whose checkpoints are of another stream of that name does not begin.
func TestRecreatedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true})
		b.runFor(time.Minute, b.slowly)
		b.recreate(kinesistest.Shard{Name: "a", Records: numbered(10)})
		if err := b.consumer().Run(t.Context(), b.slowly); !errors.Is(err, kinesis.ErrRecreated) {
			t.Error(err)
		}
	})
}

// TestFaultsAtStart: an error that will not pass is returned at once, and one that may pass is not.
func TestFaultsAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true})
		b.server.Intercept = func(kinesistest.Call) error { return &smithy.GenericAPIError{Code: "AccessDeniedException"} }
		if err := b.consumer().Run(t.Context(), b.slowly); err == nil {
			t.Error("no error without permission")
		}
		begun := time.Now()
		b.server.Intercept = func(kinesistest.Call) error {
			if time.Since(begun) > time.Minute {
				return nil
			}
			return &smithy.GenericAPIError{Code: "InternalFailure", Fault: smithy.FaultServer}
		}
		b.runFor(5*time.Minute, b.slowly)
		if n := b.sink.total(t); n != 18 {
			t.Errorf("%d effects, want 18", n)
		}
	})
}

// TestFigures: the figures of shards that are held, and of those that were, without the types of this package.
func TestFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(3), Closed: true}, kinesistest.Shard{Name: "b", Records: numbered(30)})
		c := b.consumer()
		end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.slowly) })
		time.Sleep(time.Minute)
		f := c.Stats().Figures()
		end()
		if f[""]["processed"] != 5+50 || f["b"]["processed"] != 50 || f["a"] != nil || f["b"]["reads"] < 30 || f[""]["behind_max_ms"] != 0 {
			t.Errorf("figures: %v", f)
		}
	})
}

// TestBeginsAtLatest: a group that begins at the latest record gets what arrives later, and another worker
// of it begins at the same time.
func TestBeginsAtLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		old, fresh := numbered(20), numbered(40)
		for i := range fresh {
			fresh[i].Arrived = time.Now().Add(-time.Minute)
			if i >= 20 {
				fresh[i].Arrived = time.Now().Add(time.Minute)
			}
		}
		copy(old, fresh)
		b := newBench(t, kinesistest.Shard{Name: "a", Records: old})
		b.config.Start.Latest = true
		if err := b.consumer().Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		b.stream.Forget("a")
		b.stream.Add(kinesistest.Shard{Name: "a", Records: fresh})
		var first atomic.Pointer[kinesis.Record]
		c := b.runFor(time.Minute, func(_ context.Context, r kinesis.Record) error {
			first.CompareAndSwap(nil, &r)
			return nil
		})
		if r := first.Load(); r == nil || c.Stats().Total.Processed != 34 || r.Arrived.Before(fresh[20].Arrived) {
			t.Errorf("%d records, the first is %v", c.Stats().Total.Processed, r)
		}
	})
}

// TestCheck: what is not allowed is found without a record being read.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(20)})
		if err := b.consumer().Check(t.Context()); err != nil {
			t.Error(err)
		}
		b.server.Fail("GetRecords", &smithy.GenericAPIError{Code: "AccessDeniedException"}, -1)
		err := b.consumer().Check(t.Context())
		if denied, ok := errors.AsType[*kinesis.DeniedError](err); !ok || denied.Actions[0] != "kinesis:GetRecords" {
			t.Error(err)
		}
	})
}
