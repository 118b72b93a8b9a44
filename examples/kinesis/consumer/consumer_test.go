package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/internal/fakekinesis"
	"github.com/shardlease/shardlease-go/examples/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A memory is a sink in memory that stores effects by key, in order of arrival, after a delay.
type memory struct {
	mu      sync.Mutex
	writing bool
	twice   bool // two writes have overlapped
	effects map[string][]string
	writes  int
	fail    func(write int) error

	refuse func(e consumer.Effect) bool // reports whether the sink can never store an effect
	once   bool                         // leave out known effects by marks, like the journal
	marks  map[string]string
	left   []string       // records that were left out
	failed map[string]int // number of failures by record
}

// Failed implements consumer.Sink.
func (m *memory) Failed(_ context.Context, _ lease.Hold, r stream.Record, _ string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed[r.Order()]++
	return m.failed[r.Order()], nil
}

func (m *memory) Write(_ context.Context, _ lease.Hold, effects []consumer.Effect) error {
	m.mu.Lock()
	m.twice = m.twice || m.writing
	m.writing = true
	m.mu.Unlock()
	<-time.After(5 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writing = false
	m.writes++
	if m.fail != nil {
		if err := m.fail(m.writes); err != nil {
			return err
		}
	}
	for i, e := range effects {
		if m.refuse != nil && e.Verdict == consumer.Stop && m.refuse(e) {
			return &consumer.RefusedError{Index: i, Rule: "is too large"}
		}
	}
	for _, e := range effects {
		key, order := e.Record.Key, e.Record.Order()
		if m.once && order <= m.marks[key] {
			continue
		}
		m.marks[key] = order
		if e.Verdict != consumer.Stop {
			m.left = append(m.left, fmt.Sprintf("%s %s/%d %q: %s", e.Verdict, e.Record.Sequence, e.Record.Index, e.Value, e.Reason))
			continue
		}
		m.effects[key] = append(m.effects[key], string(e.Value))
	}
	return nil
}

// A bench is a worker on a stream in memory.
type bench struct {
	*testing.T
	server *fakekinesis.Server
	store  *memstore.Store
	sink   *memory
	c      *consumer.Consumer
	stop   context.CancelFunc
	done   chan error

	attempts int           // Config.MaxAttempts
	stall    time.Duration // Config.StallAfter
	first    error         // the first tenure returns it at once
	handled  func()        // called at the beginning of each other tenure
}

const keys = 7

// numbered returns n entries of a few keys; every third entry has three records. The records of
// a key have the data 0, 1, 2 and so on.
func numbered(n int) []fakekinesis.Record {
	var all []fakekinesis.Record
	next := map[string]int{}
	number := func(key string) string { next[key]++; return fmt.Sprint(next[key] - 1) }
	for i := range n {
		key := fmt.Sprintf("k%d", i%keys)
		data := number(key)
		if i%3 == 0 {
			data = string(kpl.Pack(kpl.Record{Key: key, Data: data}, kpl.Record{Key: key, Data: number(key)}, kpl.Record{Key: key, Data: number(key)}))
		}
		all = append(all, fakekinesis.Record{Key: key, Data: data})
	}
	return all
}

func newBench(t *testing.T, shards ...fakekinesis.Shard) *bench {
	b := &bench{T: t, server: fakekinesis.New(shards...), store: new(memstore.Store), sink: &memory{effects: map[string][]string{}, marks: map[string]string{}, failed: map[string]int{}}, done: make(chan error, 1)}
	b.c = &consumer.Consumer{
		Stream: &stream.Stream{Client: b.server.Client(), Name: "orders", Limit: 50},
		Sink:   b.sink, Lags: new(consumer.Lags), InFlight: 100,
		Process: func(_ context.Context, r stream.Record) (consumer.Effect, error) {
			<-time.After(rand.N(20 * time.Millisecond))
			return consumer.Effect{Record: r, Value: r.Data}, nil
		},
	}
	return b
}

func (b *bench) run() {
	b.Helper()
	group := shardlease.Supervisor{Store: b.store, Group: "orders"}
	b.c.Stream.Leased = func(ctx context.Context, shard string) (bool, error) {
		_, err := group.Get(ctx, shard)
		if errors.Is(err, lease.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	w, err := shardlease.New(b.store, b.c.Stream, shardlease.Config{
		Group: "orders", Handoff: rebalance.Eager, Order: stream.Order, Backoff: -1, PollEvery: time.Second, MaxAttempts: b.attempts, StallAfter: b.stall,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	b.stop = stop
	handle := func(ctx context.Context, t *shardlease.Tenure) error {
		if err := b.first; err != nil {
			b.first = nil
			return err
		}
		if b.handled != nil {
			b.handled()
		}
		return b.c.Handle(ctx, t)
	}
	go func() { b.done <- w.Run(ctx, handle) }()
}

func (b *bench) end() {
	b.Helper()
	b.stop()
	if err := <-b.done; err != nil {
		b.Error(err)
	}
}

// runFor runs the worker for a time.
func (b *bench) runFor(d time.Duration) {
	b.Helper()
	b.run()
	time.Sleep(d)
	b.end()
}

func (b *bench) row(shard string) lease.Row {
	b.Helper()
	row, err := shardlease.Supervisor{Store: b.store, Group: "orders"}.Get(b.Context(), shard)
	if err != nil {
		b.Fatal(err)
	}
	return row
}

// inOrder checks that each key has the effects 0, 1, 2 and so on, and returns the total number.
func (b *bench) inOrder() (total int) {
	b.Helper()
	for key, effects := range b.sink.effects {
		for i, text := range effects {
			if text != fmt.Sprint(i) {
				b.Fatalf("the effects of %s: %v", key, effects)
			}
		}
		total += len(effects)
	}
	return total
}

// TestKeysKeepTheirOrder: records of a shard are processed concurrently, but those of one key one
// after the other, and the shard is finished when all effects are in the sink.
func TestKeysKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(300), Closed: true})
		begun := time.Now()
		var took time.Duration
		b.sink.fail = func(int) error { took = time.Since(begun); return nil }
		b.runFor(time.Minute)
		if n := b.inOrder(); n != 500 || b.sink.twice {
			t.Errorf("%d effects, want 500; overlapping writes: %t", n, b.sink.twice)
		}
		if row := b.row("a"); !row.Finished || row.Checkpoint.Position != "300" {
			t.Errorf("finished %t, position %s", row.Finished, row.Checkpoint.Position)
		}
		if took > 4*time.Second { // one after the other, each record would take 10 ms
			t.Errorf("processing took %v", took)
		}
	})
}

// TestChildrenFollow: all effects of a shard are in the sink before its children are read.
func TestChildrenFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := numbered(120)
		var left, right []fakekinesis.Record
		for _, r := range all[60:] {
			if r.Key < "k4" {
				left = append(left, r)
			} else {
				right = append(right, r)
			}
		}
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: all[:60], Closed: true},
			fakekinesis.Shard{Name: "b", Parents: []string{"a"}, Records: left},
			fakekinesis.Shard{Name: "c", Parents: []string{"a"}, Records: right})
		b.runFor(time.Minute)
		if n := b.inOrder(); n != 200 {
			t.Errorf("%d effects, want 200", n)
		}
	})
}

// TestFaultsAreTriedAgain: after a record that cannot be processed, or a sink that does not
// answer, the tenure ends with a position before it, and nothing is skipped.
func TestFaultsAreTriedAgain(t *testing.T) {
	for _, where := range []string{"process", "sink"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(300), Closed: true})
				process, faults := b.c.Process, 0
				fault := errors.New("out of order")
				b.c.Process = func(ctx context.Context, r stream.Record) (consumer.Effect, error) {
					if where == "process" && r.Sequence == "100" && r.Index == 2 && faults < 3 { // the last record of its entry
						faults++
						return consumer.Effect{}, fault
					}
					return process(ctx, r)
				}
				b.sink.fail = func(write int) error {
					if where == "sink" && write > 2 && faults < 3 {
						faults++
						return fault
					}
					return nil
				}
				b.runFor(2 * time.Minute)
				distinct := 0 // this sink keeps repeated effects, which are allowed; none may be missing
				for _, effects := range b.sink.effects {
					distinct += len(slices.Compact(slices.Sorted(slices.Values(effects))))
				}
				if distinct != 500 {
					t.Errorf("%d effects, want 500", distinct)
				}
				if row := b.row("a"); !row.Finished || faults != 3 {
					t.Errorf("finished %t after %d faults", row.Finished, faults)
				}
			})
		})
	}
}

// TestWindDown: when a worker stops, all records that it has begun are in the sink, and the next
// worker begins right after them: without a crash no record is processed twice.
func TestWindDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(900), Closed: true})
		for range 50 {
			b.runFor(300*time.Millisecond + rand.N(200*time.Millisecond))
			if n := b.inOrder(); n == 1500 {
				return
			}
		}
		t.Errorf("%d effects after 50 rounds, want 1500", b.inOrder())
	})
}

// TestLags: the lags of the shards are reported while the shards are held.
func TestLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(90)})
		b.run()
		for b.c.Lags.Shards()["a"].Read == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		var early strings.Builder
		b.c.Lags.WriteMetrics(&early)
		time.Sleep(time.Minute)
		lag := b.c.Lags.Shards()["a"]
		if lag.Behind != 0 || lag.Read != 150 || lag.Backlog.Begun != 0 {
			t.Errorf("lag after catching up: %+v", lag)
		}
		if !strings.Contains(early.String(), "consumer_behind_seconds{shard=\"a\"} 40\n") {
			t.Errorf("after the first read: %s", early.String())
		}
		b.end()
		if n := len(b.c.Lags.Shards()); n != 0 {
			t.Errorf("the lags of %d shards are still reported", n)
		}
	})
}
