package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// imports creates a row with a position, as an import from the KCL does.
func (b *bench) imports(shard, position string, parents ...string) {
	b.Helper()
	row := fixture.Must[lease.Row](b, b.store)(protocol.Begin("orders", shard, parents, "kcl-import", fixture.Stamp()))
	s := shardlease.Supervisor{Store: b.store, Group: "orders", By: "kcl-import"}
	if _, err := s.Rewind(b.Context(), shard, row.Generation, checkpoint.Mark{Position: position}, "import"); err != nil {
		b.Fatal(err)
	}
}

// TestWindDown: when a worker stops, all records that it has read are processed, and the next worker begins right after
// them: without a crash no record is processed twice.
func TestWindDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(900), Closed: true})
		rounds := 0
		for ; rounds < 50 && b.sink.total(t) < 1500; rounds++ {
			b.runFor(time.Second+rand.N(200*time.Millisecond), b.slowly)
		}
		if n := b.sink.total(t); n != 1500 || b.sink.repeats != 0 || rounds < 3 {
			t.Errorf("%d effects after %d rounds, want 1500; %d repeats", n, rounds, b.sink.repeats)
		}
	})
}

// TestWindDownWithinAnEntry: a worker that stops need not process all records of a packed entry, and the next worker
// continues within the entry.
func TestWindDownWithinAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var packed []kpl.Record
		for i := range 200 {
			packed = append(packed, kpl.Record{Key: "k", Data: fmt.Sprint(i)})
		}
		b := newBench(t, kinesistest.Shard{Name: "a", Records: []kinesistest.Record{{Key: "k", Data: kpl.Pack(packed...)}}, Closed: true})
		b.config.InFlight = 20
		b.runFor(time.Second, b.slowly)
		n := b.sink.total(t)
		if at := b.row("a").Checkpoint.Position; n == 0 || n == 200 || at != fmt.Sprintf("1/%d", n-1) {
			t.Errorf("%d of 200 effects, position %s", n, at)
		}
		b.runFor(time.Minute, b.slowly)
		if n := b.sink.total(t); n != 200 || b.sink.repeats != 0 || !b.row("a").Finished {
			t.Errorf("%d effects, want 200; %d repeats", n, b.sink.repeats)
		}
	})
}

// TestLongWayToTheNextRecord: after a refused read, empty reads that come nearer to the next record are no stall, however
// long they last, and the shard is not moved.
func TestLongWayToTheNextRecord(t *testing.T) {
	notUnderRace(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(30), Closed: true})
		begun := time.Now()
		b.stream.Empty = func() bool { return time.Since(begun) < time.Hour }
		b.behind = func() time.Duration { return max(0, time.Hour-time.Since(begun)) }
		failed := false
		b.refuse("GetRecords", "AccessDeniedException", func() bool { was := failed; failed = true; return !was })
		c := b.runFor(2*time.Hour, b.slowly)
		if row := b.row("a"); !row.Finished || c.Stats().Total.Stalls != 0 || len(b.told(event.Started)) != 1 || len(b.told(event.Silent)) != 0 {
			t.Errorf("finished %t, %d tenures, told %v; figures: %+v", row.Finished, len(b.told(event.Started)), b.told(event.Silent), c.Stats().Total)
		}
	})
}

// TestImportedShardsWithStartLatest: a group begins now, and an import has created the row of a shard that was closed an
// hour ago and has 70 unread records. A listing from the beginning of the group would leave that shard out. All 70 records
// are processed, and all records of its child, also those from before the beginning of the group.
func TestImportedShardsWithStartLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early := time.Now()
		time.Sleep(time.Hour)
		plain := func(key string, n int, at time.Time) []kinesistest.Record {
			all := make([]kinesistest.Record, n)
			for i := range all {
				all[i] = kinesistest.Record{Key: key, Data: []byte(fmt.Sprint(i)), Arrived: at}
			}
			return all
		}
		b := newBench(t,
			kinesistest.Shard{Name: "parent", Records: plain("p", 80, early.Add(-time.Hour)), Closed: true, ClosedAt: early},
			kinesistest.Shard{Name: "child", Parents: []string{"parent"}, Records: plain("c", 30, early)})
		b.config.Start.Latest, b.config.Worker.MaxAttempts = true, -1
		b.imports("parent", "10")
		var parent, child atomic.Int64
		b.runFor(2*time.Minute, func(_ context.Context, r kinesis.Record) error {
			if r.Shard == "parent" {
				parent.Add(1)
			} else {
				child.Add(1)
			}
			return nil
		})
		if parent.Load() != 70 || child.Load() != 30 {
			t.Errorf("%d of 70 records of the parent are processed, %d of 30 of the child", parent.Load(), child.Load())
		}
		if row := b.row("parent"); !row.Finished || row.Removed {
			t.Errorf("the parent, which Kinesis still has: finished %t, removed %t", row.Finished, row.Removed)
		}
	})
}

// TestPartialListingFinishesNothing: a listing that leaves out an existing shard loses no record, does not change the order
// of parent and child, and finishes and removes no row.
func TestPartialListingFinishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := numbered(300)
		b := newBench(t, kinesistest.Shard{Name: "a", Records: all[:200], Closed: true},
			kinesistest.Shard{Name: "b", Parents: []string{"a"}, Records: all[200:]})
		var partial atomic.Bool
		partial.Store(true)
		b.stream.Omit = func(name string) bool { return name == "a" && partial.Load() }
		b.imports("a", "0")
		c := b.consumer()
		end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.slowly) })
		time.Sleep(20 * time.Second)
		if b.row("a").Finished {
			t.Error("a partial listing has finished the shard")
		}
		partial.Store(false)
		time.Sleep(time.Minute)
		partial.Store(true)
		time.Sleep(time.Minute)
		if row := b.row("a"); !row.Finished || row.Removed {
			t.Errorf("after partial listings: finished %t, removed %t", row.Finished, row.Removed)
		}
		end()
		if n := b.sink.total(t); n != 500 {
			t.Errorf("%d effects, want 500", n)
		}
	})
}

// TestRecreatedStreamIsReported: each row names its stream, also that of a shard without records. A worker that does not
// call Begin processes no record under the positions of another stream: each tenure ends with the reason, and counts no
// attempt.
func TestRecreatedStreamIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards := []kinesistest.Shard{{Name: "a", Records: numbered(30)}, {Name: "empty", Closed: true}}
		b := newBench(t, shards...)
		b.runFor(time.Minute, b.slowly)
		for _, shard := range []string{"a", "empty"} {
			if state := b.row(shard).Checkpoint.State; !strings.Contains(state, "stream/orders@") {
				t.Errorf("the row of %s has the state %q", shard, state)
			}
		}
		time.Sleep(time.Hour)
		b.stream.Delete()
		b.recreate(kinesistest.Shard{Name: "a", Records: numbered(90)})
		c := b.consumer()
		w, err := shardlease.New(b.store, c.Source(), c.WorkerConfig())
		if err != nil {
			t.Fatal(err)
		}
		calls := b.sink.total(t)
		end := b.run(func(ctx context.Context) error { return w.Run(ctx, c.Handler(b.slowly)) })
		time.Sleep(time.Minute)
		end()
		if n, row := b.sink.total(t), b.row("a"); n != calls || row.Attempts() != 0 {
			t.Errorf("%d effects more, %d failed attempts", n-calls, row.Attempts())
		}
		reported := func(e event.Event) bool { return errors.Is(e.Err, kinesis.ErrRecreated) }
		if !slices.ContainsFunc(b.told(event.Ended), reported) {
			t.Error("no end of a tenure has the reason")
		}
		for _, e := range b.told(event.Ended) {
			if e.Err != nil && !errors.Is(e.Err, kinesis.ErrRecreated) {
				t.Errorf("told: %v", e)
			}
		}
	})
}
