// Package fleet runs workers on DynamoDB Local in the process of the test, and keeps a book of the calls of their handlers.
// Each worker has a network of its own, which can be cut.
package fleet

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A Fleet is a set of workers: a group of its own in a table that many groups may share.
type Fleet struct {
	*testing.T
	*Book
	Config
	Names   []string     // of the shards
	Idle    atomic.Bool  // while set, handlers process no records
	Trouble atomic.Int64 // missed heartbeats, lost seats and unanswered calls of workers that are not cut off
	Late    atomic.Int64 // those of Trouble that were writes of lease rows

	mu  sync.Mutex
	all []*Worker
}

// A Config configures a fleet.
type Config struct {
	Table   string
	Shards  int
	Store   dynamostore.Options // New sets the group
	Members shardlease.Config   // of all workers; the fleet sets Group, Name, Order and Observe
	Pace    time.Duration       // the time between two records of a shard; 0: none are processed
	Handle  shardlease.Handler  // nil: it processes records at that pace
	Observe func(event.Event)   // nil: no function

	// Through adds something to the network of a worker; nil adds nothing.
	Through func(w *Worker, next http.RoundTripper) http.RoundTripper
}

// New returns a fleet without workers.
func New(t *testing.T, c Config) *Fleet {
	c.Store.Group = "fleet-" + rand.Text()[:8]
	f := &Fleet{T: t, Book: newBook(c.Shards), Config: c}
	for i := range c.Shards {
		f.Names = append(f.Names, fmt.Sprintf("shardId-%012d", i))
	}
	return f
}

// A Worker is a worker of a fleet.
type Worker struct {
	Name         string
	cut          atomic.Bool
	cancel       context.CancelFunc
	done         chan struct{}
	began, ended time.Time
}

// Cut cuts the worker off from the table.
func (w *Worker) Cut() { w.cut.Store(true) }

// Heal ends the effect of Cut.
func (w *Worker) Heal() { w.cut.Store(false) }

// Stop shuts the worker down gracefully, and waits until its Run has returned.
func (w *Worker) Stop() { w.cancel(); <-w.done }

// Lived returns for how long the worker has run since then.
func (w *Worker) Lived(since time.Time) time.Duration {
	from, to := w.began, time.Now()
	if from.Before(since) {
		from = since
	}
	select {
	case <-w.done:
		to = w.ended
	default:
	}
	return max(0, to.Sub(from))
}

// Start starts a worker. Its network keeps connections like the SDK's own client. The worker is stopped at the end of the
// test.
func (f *Fleet) Start(name string) *Worker {
	w := &Worker{Name: name, done: make(chan struct{}), began: time.Now()}
	plain := &http.Transport{MaxIdleConnsPerHost: 10}
	next := http.RoundTripper(plain)
	if f.Through != nil {
		next = f.Through(w, plain)
	}
	client := local.NewClient(local.Endpoint(f.T), network.Func(func(request *http.Request) (*http.Response, error) {
		if w.cut.Load() {
			return nil, network.ErrLost
		}
		return next.RoundTrip(request)
	}))
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	f.mu.Lock()
	f.all = append(f.all, w)
	f.mu.Unlock()
	go func() {
		defer close(w.done)
		if err := f.serve(ctx, w, client); err != nil {
			f.Errorf("%s: %v", name, err)
		}
		w.ended = time.Now()
	}()
	f.T.Cleanup(func() {
		w.Heal()
		w.Stop()
		plain.CloseIdleConnections()
	})
	return w
}

// serve runs a worker, as the main function of a program does.
func (f *Fleet) serve(ctx context.Context, w *Worker, client *dynamodb.Client) error {
	store, err := dynamostore.Open(ctx, client, f.Table, f.Store)
	if err != nil {
		return err
	}
	config := f.Members
	config.Group, config.Name, config.Order = f.Store.Group, w.Name, checkpoint.Decimal
	config.Observe = func(e event.Event) { f.observe(w, e) }
	worker, err := shardlease.New(store, shardlease.Static(f.Names...), config)
	if err != nil {
		return err
	}
	return worker.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		start, _ := strconv.Atoi(t.Checkpoint().Position)
		c := f.Begin(w.Name, t.Shard().Name, start)
		defer func() { f.End(c, context.Cause(ctx)) }()
		if f.Handle != nil {
			return f.Handle(ctx, t)
		}
		f.process(ctx, t, c)
		return nil
	})
}

// observe counts events that should not happen in a fleet on a machine that is not busy.
func (f *Fleet) observe(w *Worker, e event.Event) {
	if f.Observe != nil {
		f.Observe(e)
	}
	if w.cut.Load() {
		return
	}
	switch e.Kind {
	case event.Lost, event.StoreFault, event.PeerSuspect, event.PeerEvicted:
		f.Trouble.Add(1)
		if e.Shard != "" {
			f.Late.Add(1)
		}
	}
}

// process processes a record now and then, until the context ends.
func (f *Fleet) process(ctx context.Context, t *shardlease.Tenure, c *Call) {
	if f.Pace == 0 {
		<-ctx.Done()
		return
	}
	next := time.NewTimer(mrand.N(f.Pace)) // a random start, so that the shards do not process at the same times
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		next.Reset(f.Pace)
		if f.Idle.Load() {
			continue
		}
		if record, alive := f.Process(c); alive {
			_ = t.Mark(strconv.Itoa(record)) // refused if the tenure has just ended; the record is then processed again
		}
	}
}

// NextName returns the name of the next worker: a to z, and then longer ones.
func (f *Fleet) NextName() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.all); n >= 26 {
		return "w" + strconv.Itoa(n+1)
	}
	return string(rune('a' + len(f.all)))
}

// StartAll starts n workers at once, and returns their names.
func (f *Fleet) StartAll(n int) (names []string) {
	for range n {
		names = append(names, f.Start(f.NextName()).Name)
	}
	return names
}

// Worker returns the worker of that name.
func (f *Fleet) Worker(name string) *Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.all {
		if w.Name == name {
			return w
		}
	}
	return nil
}

// Crash simulates a kill -9: from one instant on no request leaves the worker, and its handlers no longer count.
func (f *Fleet) Crash(name string) time.Time {
	w := f.Worker(name)
	at := f.Kill(name, w.Cut)
	w.cancel() // so that the worker ends later, unnoticed by the others
	return at
}

// Close stops all workers at once, and waits.
func (f *Fleet) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.all {
		w.cancel()
	}
	for _, w := range f.all {
		<-w.done
	}
}
