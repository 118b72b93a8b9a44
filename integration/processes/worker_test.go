package processes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// workerEnv holds the orders of a worker process, as JSON. Where it is set, this
// binary was started by TestProcesses or one of its sisters.
const workerEnv = "SHARDLEASE_PROCESS_WORKER"

var processTTL = flag.Duration("process.ttl", time.Second, "lease time of the worker processes")

func leaseTime() time.Duration { return *processTTL }

// orders are what a worker process is told.
type orders struct {
	Process  string // unique
	Name     string // the worker's; one that comes after a dead one may have the same
	Endpoint string // of the store, by way of the judge
	Table    string
	Register string
	Shards   int
	Mode     rebalance.Mode
	Pause    time.Duration // between two records of a shard, on average
	Commit   time.Duration
}

// A station is a worker process at work.
type station struct {
	orders
	handlers atomic.Int64

	mu     sync.Mutex
	report *json.Encoder
}

// TestProcessWorker is no test but the main function of a worker process. It lives
// as long as its standard input; when that ends, because it is told to or because its
// parent is dead, it stops in good order, and TestMain looks whether it left anything
// behind.
func TestProcessWorker(t *testing.T) {
	text := os.Getenv(workerEnv)
	if text == "" {
		t.Skip("this is the worker that TestProcesses starts")
	}
	pipe := os.NewFile(3, "reports")
	defer pipe.Close()
	s := &station{report: json.NewEncoder(pipe)}
	if err := json.Unmarshal([]byte(text), &s.orders); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	// A worker whose parent is dead may have nobody left to stop for.
	context.AfterFunc(ctx, func() { time.AfterFunc(30*time.Second, func() { os.Exit(3) }) })
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(ctx) })
	if err := s.run(ctx); err != nil {
		t.Error(err)
	}
	stop()
	watch.Wait()
}

func (s *station) run(ctx context.Context) error {
	plain := &http.Transport{MaxIdleConnsPerHost: 64}
	defer plain.CloseIdleConnections()
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(s.Endpoint), HTTPClient: &http.Client{Transport: plain},
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	store, err := s.open(ctx, client)
	if ctx.Err() != nil {
		return nil // told to leave before it had begun
	}
	if err != nil {
		return err
	}
	shards := make([]string, s.Shards)
	for i := range shards {
		shards[i] = shardName(i)
	}
	w, err := shardlease.New(store, shardlease.Static(shards...), shardlease.Config{
		Group: "processes", Name: s.Name, Handoff: s.Mode, TTL: leaseTime(), Drain: 2 * leaseTime(),
		Order: checkpoint.Decimal, Commit: checkpoint.Policy{Every: s.Commit},
		Observe: s.observe, EventQueue: 1 << 14,
	})
	if err != nil {
		return err
	}
	return w.Run(ctx, s.handle)
}

// inFlight spares a server that is slower than the real one. A dozen workers that claim
// hundreds of shards at once, 64 at a time each, keep DynamoDB Local busy for longer than
// a lease time of a second: then beats come too late, and all begin again.
const inFlight = 8

// open asks again: it is for the program to decide what a start-up fault means, and
// here the network is bad on purpose.
func (s *station) open(ctx context.Context, client *dynamodb.Client) (*dynamostore.Store, error) {
	var errs []error
	for range 20 {
		store, err := dynamostore.Open(ctx, client, s.Table, dynamostore.Options{Timeout: leaseTime() / 2, InFlight: inFlight, Group: "processes"})
		if err == nil || ctx.Err() != nil {
			return store, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func shardName(i int) string { return fmt.Sprintf("shard-%03d", i) }

// handle writes record after record to the register, and marks what was taken.
//
// Between the look at the context and the effect lies the pause. It heeds nothing:
// that is where a process is stopped, most times, and what it does when it wakes up
// is to write.
func (s *station) handle(ctx context.Context, t *shardlease.Tenure) error {
	s.handlers.Add(1)
	defer s.handlers.Add(-1)
	p, err := newPen(t.Context(), s.Register)
	if err != nil {
		return err
	}
	defer p.close()
	at, _ := strconv.ParseInt(cmp.Or(t.Checkpoint().Position, "0"), 10, 64)
	s.tell(entry{Kind: handlerStarted, Shard: t.Shard().Name, Generation: t.Generation(), Position: at})
	for ctx.Err() == nil {
		<-time.After(s.Pause/2 + rand.N(s.Pause))
		at++
		e := effect{t.Shard().Name, t.Generation(), at, valueOf(t.Shard().Name, at), s.Process, time.Now().UnixNano()}
		switch err := p.write(e); {
		case errors.Is(err, errStaleEffect):
			<-ctx.Done() // the library is about to know
			return nil
		case err != nil:
			return err
		}
		// A refused mark, and a flush that comes too late, say that the tenure is over.
		if t.Mark(strconv.FormatInt(at, 10)) == nil && rand.IntN(50) == 0 {
			_ = t.Flush(t.Context())
		}
	}
	return nil
}

func (s *station) tell(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.By = s.Process
	if e.Wall == 0 {
		e.Wall = time.Now().UnixNano()
	}
	_ = s.report.Encode(e) // whoever does not listen is dead
}

func (s *station) observe(e event.Event) {
	out := entry{
		Kind: libraryEvent, Wall: e.At.UnixNano(), Shard: e.Shard, Generation: e.Generation,
		Event: e.Kind.String(), Gap: e.Gap, Overlap: e.Overlap, Dropped: e.Dropped, Text: e.String(),
		Failed: e.Kind == event.Ended && e.Err != nil && e.Cause == event.CauseGivenUp,
	}
	if e.Cause != 0 {
		out.Cause = e.Cause.String()
	}
	s.tell(out)
}

const (
	stallTick  = 20 * time.Millisecond
	statsEvery = time.Second
)

// watch reports how late this process is scheduled, and how much memory it holds.
func (s *station) watch(ctx context.Context) {
	var stats time.Time
	for last := time.Now(); ctx.Err() == nil; {
		<-time.After(stallTick)
		now := time.Now()
		if late := now.Sub(last) - stallTick; late > stallFrom {
			s.tell(entry{Kind: stalled, For: late})
		}
		if last = now; now.Sub(stats) > statsEvery {
			stats = now
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			s.tell(entry{Kind: measured, Goroutines: runtime.NumGoroutine(), Handlers: int(s.handlers.Load()), Heap: m.HeapAlloc})
		}
	}
}
