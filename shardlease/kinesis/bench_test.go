package kinesis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A sink stores what functions have done, in order of arrival. It refuses a lower generation, and
// stores each record once.
type sink struct {
	mu      sync.Mutex
	fences  map[string]int64
	ids     map[string]bool
	effects map[string][]string // the data of the records, by key
	repeats int                 // how many records came again
	stale   int                 // how many were refused
	calls   map[string]int      // how often the function was called for a record, by sequence number and index
}

func newSink() *sink {
	return &sink{fences: map[string]int64{}, ids: map[string]bool{}, effects: map[string][]string{}, calls: map[string]int{}}
}

var errStale = errors.New("stale")

// write stores the records under the token of ctx in one step.
func (s *sink) write(ctx context.Context, records ...kinesis.Record) error {
	token, ok := fence.FromContext(ctx)
	if !ok {
		return fence.ErrMissing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if token.Generation < s.fences[token.Shard] {
		s.stale += len(records)
		return errStale
	}
	s.fences[token.Shard] = token.Generation
	for _, r := range records {
		if s.ids[r.ID()] {
			s.repeats++
			continue
		}
		s.ids[r.ID()] = true
		s.effects[r.Key] = append(s.effects[r.Key], string(r.Data))
	}
	return nil
}

func (s *sink) called(r kinesis.Record) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[fmt.Sprint(r.Sequence, "/", r.Index)]++
	return s.calls[fmt.Sprint(r.Sequence, "/", r.Index)]
}

// times returns how often the function was called for a record, by sequence number and index.
func (s *sink) times(record string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[record]
}

// total returns how many effects there are, and ends the test if those of a key are not 0, 1, 2 and so on.
func (s *sink) total(t *testing.T, without ...string) (n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, effects := range s.effects {
		n += len(effects)
		if key == "" {
			continue
		}
		next := 0
		for _, text := range effects {
			for slices.Contains(without, fmt.Sprint(key, " ", next)) {
				next++
			}
			if text != fmt.Sprint(next) {
				t.Fatalf("the effects of %s: %v", key, effects)
			}
			next++
		}
	}
	return n
}

// A bench runs consumers on a stream in memory.
type bench struct {
	*testing.T
	server *kinesistest.Server
	stream *kinesistest.Stream
	store  *memstore.Store
	sink   *sink
	config kinesis.Config
	behind func() time.Duration // replaces how far behind the answers to GetRecords are
	log    locked

	mu     sync.Mutex
	events []event.Event
}

const keys = 7

// numbered returns n entries of a few keys; every third entry has three records. The records of
// a key have the data 0, 1, 2 and so on.
func numbered(n int) []kinesistest.Record {
	var all []kinesistest.Record
	next := map[string]int{}
	number := func(key string) string { next[key]++; return fmt.Sprint(next[key] - 1) }
	for i := range n {
		key := fmt.Sprintf("k%d", i%keys)
		data := []byte(number(key))
		if i%3 == 0 {
			data = kpl.Pack(kpl.Record{Key: key, Data: string(data)}, kpl.Record{Key: key, Data: number(key)}, kpl.Record{Key: key, Data: number(key)})
		}
		all = append(all, kinesistest.Record{Key: key, Data: data})
	}
	return all
}

func newBench(t *testing.T, shards ...kinesistest.Shard) *bench {
	b := &bench{T: t, server: kinesistest.New(), store: new(memstore.Store), sink: newSink()}
	b.recreate(shards...)
	b.config = kinesis.Config{
		Stream: "orders", Group: "orders", Handoff: rebalance.Eager, InFlight: 100,
		Observe: b.observe, Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
		Worker: shardlease.Config{PollEvery: 10 * time.Second},
	}
	return b
}

// recreate replaces the stream by another one of its name, with these shards.
func (b *bench) recreate(shards ...kinesistest.Shard) {
	b.stream = b.server.Create("orders", 0)
	b.stream.Add(shards...)
}

// refuse lets an operation fail while due reports so.
func (b *bench) refuse(op, code string, due func() bool) {
	b.server.Intercept = func(c kinesistest.Call) error {
		if c.Op == op && due() {
			return &smithy.GenericAPIError{Code: code}
		}
		return nil
	}
}

// A locked buffer may be used by several goroutines.
type locked struct {
	sync.Mutex
	to bytes.Buffer
}

func (l *locked) String() string {
	l.Lock()
	defer l.Unlock()
	return l.to.String()
}

func (l *locked) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.to.Write(p)
}

func (b *bench) observe(e event.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// told returns the events of a kind.
func (b *bench) told(kind event.Kind) (all []event.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind {
			all = append(all, e)
		}
	}
	return all
}

func (b *bench) consumer() *kinesis.Consumer { return b.on(b.store) }

func (b *bench) on(store lease.Store) *kinesis.Consumer {
	b.Helper()
	options := b.server.Client().Options()
	if b.behind != nil {
		options.HTTPClient = answering{b.server, b.behind}
	}
	c, err := kinesis.New(awskinesis.New(options), store, b.config)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// go runs a consumer, and returns a function that ends it.
func (b *bench) run(run func(ctx context.Context) error) (end func()) {
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() {
		b.Helper()
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// store stores records one by one, each after up to 20 ms.
func (b *bench) slowly(ctx context.Context, r kinesis.Record) error {
	b.sink.called(r)
	time.Sleep(rand.N(20 * time.Millisecond))
	return b.sink.write(ctx, r)
}

// runFor runs a consumer for a time.
func (b *bench) runFor(d time.Duration, process func(context.Context, kinesis.Record) error) *kinesis.Consumer {
	b.Helper()
	c := b.consumer()
	end := b.run(func(ctx context.Context) error { return c.Run(ctx, process) })
	time.Sleep(d)
	end()
	return c
}

// perhaps is row while the shard may not have a row yet.
func (b *bench) perhaps(shard string) lease.Row {
	row, _ := shardlease.Supervisor{Store: b.store, Group: "orders"}.Get(b.Context(), shard)
	return row
}

func (b *bench) row(shard string) lease.Row {
	b.Helper()
	row, err := shardlease.Supervisor{Store: b.store, Group: "orders"}.Get(b.Context(), shard)
	if err != nil {
		b.Fatal(err)
	}
	return row
}

// notUnderRace skips a test of long times, whose code shorter tests show to the race detector too.
func notUnderRace(t *testing.T) {
	t.Helper()
	if fixture.UnderRace {
		t.Skip("with the race detector it takes half a minute")
	}
}
