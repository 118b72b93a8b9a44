package processes

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// workerEnv contains the orders of a worker process, as JSON. It is set in the processes that
// TestProcesses and similar tests start.
const workerEnv = "SHARDLEASE_PROCESS_WORKER"

var processTTL = flag.Duration("process.ttl", time.Second, "lease time of the worker processes")

func leaseTime() time.Duration { return *processTTL }

// orders configure a worker process.
type orders struct {
	Process  string // a unique name of the process
	Name     string // the name of the worker; a process after a dead one may reuse it
	Endpoint string // the address of the store, through the test's proxy
	Table    string
	Register string
	Shards   int
	Mode     rebalance.Mode
	Pause    time.Duration // the average time between two records of a shard
	Commit   time.Duration
	Buckets  int

	Deathwatch bool
}

// A station is a running worker process.
type station struct {
	orders
	handlers atomic.Int64

	mu     sync.Mutex
	report *json.Encoder
}

// TestProcessWorker is no test, but the main function of a worker process. It runs until its standard
// input ends, because the test stops it or because its parent is dead. Then it shuts down gracefully,
// and TestMain checks for goroutines that are left.
func TestProcessWorker(t *testing.T) {
	text := os.Getenv(workerEnv)
	if text == "" {
		t.Skip("this is the worker process that TestProcesses starts")
	}
	pipe := os.NewFile(3, "reports")
	defer pipe.Close()
	s := &station{report: json.NewEncoder(pipe)}
	if err := json.Unmarshal([]byte(text), &s.orders); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			die(lines.Text())
		}
		stop()
	}()
	// If the parent is dead, the proxy is gone too, and the graceful shutdown cannot complete.
	context.AfterFunc(ctx, func() { time.AfterFunc(30*time.Second, func() { os.Exit(3) }) })
	var watch sync.WaitGroup
	watch.Go(func() { local.Stalls(ctx, stallTick, s.stalled()) })
	if err := s.run(ctx); err != nil {
		t.Error(err)
	}
	stop()
	watch.Wait()
}

func (s *station) run(ctx context.Context) error {
	plain := &http.Transport{MaxIdleConnsPerHost: 64}
	defer plain.CloseIdleConnections()
	store, err := s.open(ctx, local.NewClient(s.Endpoint, plain))
	if ctx.Err() != nil {
		return nil // stopped before it had begun
	}
	if err != nil {
		return err
	}
	shards := make([]string, s.Shards)
	for i := range shards {
		shards[i] = shardName(i)
	}
	var watch shardlease.Deathwatch
	if s.Deathwatch {
		watch.Listen = "127.0.0.1:0"
	}
	w, err := shardlease.New(store, shardlease.Static(shards...), shardlease.Config{
		Group: "processes", Name: s.Name, Handoff: s.Mode, TTL: leaseTime(), Drain: 2 * leaseTime(),
		Order: checkpoint.Decimal, Commit: checkpoint.Policy{Every: s.Commit},
		Observe: s.observe, EventQueue: 1 << 14, Deathwatch: watch,
	})
	if err != nil {
		return err
	}
	return w.Run(ctx, s.handle)
}

// Orders to die, on the standard input.
const (
	deathByPanic  = "panic"
	deathByMemory = "memory"
)

// inFlight reduces the load on a server that is slower than DynamoDB. A dozen workers that claim
// hundreds of shards at once, 64 at a time each, occupy DynamoDB Local for longer than a lease time of
// a second; then heartbeats are late, and all begin again.
const inFlight = 8

// open repeats dynamostore.Open: a program has to decide itself what an error at its start means, and
// the network is faulty on purpose here.
func (s *station) open(ctx context.Context, client *dynamodb.Client) (*dynamostore.Store, error) {
	var errs []error
	for range 20 {
		store, err := dynamostore.Open(ctx, client, s.Table, dynamostore.Options{Timeout: leaseTime() / 2, InFlight: inFlight, Group: "processes", Buckets: s.Buckets})
		if err == nil || ctx.Err() != nil {
			return store, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func shardName(i int) string { return fmt.Sprintf("shard-%03d", i) }

// handle writes records to the register one after the other, and marks those that were accepted.
//
// The pause is between the check of the context and the effect, and it ignores all contexts. A process
// is usually stopped there, and its first action when it wakes up is to write.
func (s *station) handle(ctx context.Context, t *shardlease.Tenure) error {
	s.handlers.Add(1)
	defer s.handlers.Add(-1)
	p, err := newPen(t.Context(), s.Register)
	if err != nil {
		return err
	}
	defer p.close()
	at, _ := strconv.ParseInt(cmp.Or(t.Checkpoint().Position, "0"), 10, 64)
	s.send(entry{Kind: handlerStarted, Shard: t.Shard().Name, Generation: t.Generation(), Position: at})
	for ctx.Err() == nil {
		<-time.After(s.Pause/2 + rand.N(s.Pause))
		at++
		e := effect{t.Shard().Name, t.Generation(), at, valueOf(t.Shard().Name, at), s.Process, time.Now().UnixNano()}
		switch err := p.write(e); {
		case errors.Is(err, errStaleEffect):
			<-ctx.Done() // the library is about to end the tenure
			return nil
		case err != nil:
			return err
		}
		// A refused mark, and a flush that is too late, mean that the tenure is over.
		if t.Mark(strconv.FormatInt(at, 10)) == nil && rand.IntN(50) == 0 {
			_ = t.Flush(t.Context())
		}
	}
	return nil
}

func (s *station) send(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.By = s.Process
	if e.Wall == 0 {
		e.Wall = time.Now().UnixNano()
	}
	_ = s.report.Encode(e) // an error means that the parent is dead
}

func (s *station) observe(e event.Event) {
	out := entry{
		Kind: libraryEvent, Wall: e.At.UnixNano(), Shard: e.Shard, Generation: e.Generation,
		Event: e.Kind.String(), Gap: e.Gap, Continued: e.Continued, Dropped: e.Dropped, Text: e.String(), Cause: e.Cause,
		Failed: e.Kind == event.Ended && e.Err != nil && e.Cause == event.CauseGivenUp,
	}
	s.send(out)
}

const (
	stallTick  = 20 * time.Millisecond
	statsEvery = time.Second
)

// stalled returns a function that reports how late this process was scheduled, and now and then how much memory it uses.
func (s *station) stalled() func(late time.Duration) {
	var stats time.Time
	return func(late time.Duration) {
		if late > stallFrom {
			s.send(entry{Kind: stalled, For: late})
		}
		if time.Since(stats) > statsEvery {
			stats = time.Now()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			s.send(entry{Kind: measured, Goroutines: runtime.NumGoroutine(), Handlers: int(s.handlers.Load()), Heap: m.HeapAlloc})
		}
	}
}
