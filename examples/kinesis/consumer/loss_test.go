package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/internal/fakekinesis"
	"github.com/shardlease/shardlease-go/examples/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease"
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

// effects returns the number of effects in the sink.
func (b *bench) effects() (total int) {
	for _, effects := range b.sink.effects {
		total += len(effects)
	}
	return total
}

// plain returns n records of one key that arrived at a given time.
func plain(key string, n int, arrived time.Time) []fakekinesis.Record {
	all := make([]fakekinesis.Record, n)
	for i := range all {
		all[i] = fakekinesis.Record{Key: key, Data: fmt.Sprint(i), Arrived: arrived}
	}
	return all
}

// TestImportedShardsWithStartLatest: a group begins now, and an import has created the row of a
// shard that was closed an hour ago and has 70 unread records. A listing from the beginning of
// the group leaves that shard out. Before, all 70 records were lost, because the shard counted as
// expired. So were 30 records of its child from before the beginning of the group, because no
// parent of the child was listed.
func TestImportedShardsWithStartLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early := time.Now().Add(-time.Hour)
		b := newBench(t,
			fakekinesis.Shard{Name: "parent", Records: plain("p", 80, early.Add(-time.Hour)), Closed: true, ClosedAt: early},
			fakekinesis.Shard{Name: "child", Parents: []string{"parent"}, Records: plain("c", 30, early)})
		b.c.Stream.Start = time.Now()
		b.imports("parent", "10")
		process, late := b.c.Process, time.Now().Add(30*time.Second)
		b.c.Process = func(ctx context.Context, r stream.Record) (consumer.Effect, error) {
			if r.Shard == "child" && time.Now().Before(late) {
				return consumer.Effect{}, errors.New("not yet") // until the row of the parent is removed
			}
			return process(ctx, r)
		}
		b.runFor(2 * time.Minute)
		if p, c := len(b.sink.effects["p"]), len(b.sink.effects["c"]); p != 70 || c != 30 {
			t.Errorf("%d of 70 records of the parent are in the sink, %d of 30 of the child", p, c)
		}
		if row := b.row("parent"); !row.Removed {
			t.Error("the row of the finished parent was not removed")
		}
	})
}

// TestPartialListingFinishesNothing: a listing that leaves out an existing shard loses no record,
// does not change the order of parent and child, and finishes no row. Before, the shard was
// finished unread, its child was read first, and its row was removed.
func TestPartialListingFinishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := numbered(300)
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: all[:200], Closed: true},
			fakekinesis.Shard{Name: "b", Parents: []string{"a"}, Records: all[200:]})
		var partial atomic.Bool
		partial.Store(true)
		b.server.Omit = func(name string) bool { return name == "a" && partial.Load() }
		b.imports("a", "0")
		b.run()
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
		b.end()
		if n := b.inOrder(); n != 500 {
			t.Errorf("%d effects, want 500", n)
		}
	})
}

// TestRedelivery: records that the server sends again are not processed again. Before, the shard
// was never completed: the mark moved back, the tenure failed, and so did the next one. After a
// minute 4,027 effects were there twice.
func TestRedelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(300), Closed: true})
		b.server.Repeat = 5
		b.runFor(time.Minute)
		if n := b.effects(); n != 500 {
			t.Errorf("%d effects are there twice", n-500)
		}
		b.inOrder()
	})
}

// TestRecreatedStreamIsReported: a stream that was deleted and created again under its name has
// other records under the names of the old shards. Before, the old rows prevented the new shards
// from being read, without any report: a finished row forever, any other row until its sequence
// numbers were passed.
func TestRecreatedStreamIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(30), Closed: true}, fakekinesis.Shard{Name: "b", Records: numbered(30)},
			fakekinesis.Shard{Name: "empty", Closed: true})
		b.runFor(time.Minute)
		for _, shard := range []string{"a", "b", "empty"} {
			if state := b.row(shard).Checkpoint.State; !strings.Contains(state, "stream/orders@") {
				t.Errorf("the row of %s has the state %q", shard, state)
			}
		}
		rows, err := shardlease.Supervisor{Store: b.store, Group: "orders"}.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.c.Verify(t.Context(), rows); err != nil {
			t.Errorf("Verify with the same stream: %v", err)
		}
		again := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(30)}, fakekinesis.Shard{Name: "b", Records: numbered(90)})
		again.server.Created, again.store = time.Now(), b.store
		if err := again.c.Verify(t.Context(), rows); !errors.Is(err, stream.ErrRecreated) {
			t.Errorf("Verify with another stream: %v", err)
		}
		again.runFor(time.Minute) // without Verify each tenure returns the error
		if n, row := again.effects(), b.row("b"); n != 0 || row.Attempts() == 0 {
			t.Errorf("%d effects, %d failed attempts", n, row.Attempts())
		}
	})
}

// A slow sink answers only when the test allows it.
type slow struct {
	consumer.Sink
	answer chan struct{}
}

func (s slow) Write(ctx context.Context, h lease.Hold, effects []consumer.Effect) error {
	<-s.answer
	return s.Sink.Write(ctx, h, effects)
}

// TestStuckSinkHoldsLittle: while a sink does not answer, a consumer reads only what its memory
// bounds allow. Before, it read 1,000 entries of each shard, which may be 1 GB: in this test all
// 80 entries of 1 MB.
func TestStuckSinkHoldsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mb = 1 << 20
		var shards []fakekinesis.Shard
		for i := range 4 {
			s := fakekinesis.Shard{Name: fmt.Sprint("s", i), Closed: true}
			for n := range 20 {
				s.Records = append(s.Records, fakekinesis.Record{Key: fmt.Sprintf("%d-%d", i, n), Data: strings.Repeat("x", mb-1000)})
			}
			shards = append(shards, s)
		}
		b := newBench(t, shards...)
		b.c.Memory, b.c.Stream.Limit = &stream.Memory{PerShard: 16 * mb, Total: 40 * mb}, 5
		var processed atomic.Int64
		b.c.Process = func(_ context.Context, r stream.Record) (consumer.Effect, error) {
			processed.Add(1)
			return consumer.Effect{Record: r}, nil
		}
		answer := make(chan struct{})
		b.c.Sink = slow{b.sink, answer}
		b.run()
		time.Sleep(time.Minute)
		if n := processed.Load(); n < 20 || n > 40 {
			t.Errorf("%d entries of 1 MB are held, of 80", n)
		}
		close(answer)
		time.Sleep(time.Minute)
		b.end()
		if n := b.effects(); n != 80 || b.c.Memory.Used() != 0 {
			t.Errorf("%d effects, want 80, and %d bytes are in use", n, b.c.Memory.Used())
		}
	})
}

// TestWindDownWithinAnEntry: a worker that stops need not wait for all records of a packed entry,
// and the next worker continues within the entry. Before, such an entry was one step: a
// checkpoint could only be before or after all its records.
func TestWindDownWithinAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var packed []kpl.Record
		for i := range 200 {
			packed = append(packed, kpl.Record{Key: "k", Data: fmt.Sprint(i)})
		}
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: []fakekinesis.Record{{Data: string(kpl.Pack(packed...))}}, Closed: true})
		b.c.InFlight = 20
		b.runFor(500 * time.Millisecond)
		n := b.inOrder()
		if at := b.row("a").Checkpoint.Position; n == 0 || n == 200 || at != fmt.Sprintf("1/%d", n-1) {
			t.Errorf("%d of 200 effects, position %s", n, at)
		}
		b.runFor(time.Minute)
		if n := b.inOrder(); n != 200 || !b.row("a").Finished {
			t.Errorf("%d effects, want 200; finished %t", n, b.row("a").Finished)
		}
	})
}
