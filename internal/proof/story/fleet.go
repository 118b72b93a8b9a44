package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const group, ttl = "quickstart", time.Second // the lease time is short, for a short story; its default is 10 s

// A fleet is a group of workers that share the shards of one stream.
type fleet struct {
	*screen
	mode            rebalance.Mode
	shards          []string
	store           memstore.Store
	stream          stream
	sink            sink
	workers         []*worker
	running         sync.WaitGroup
	modes           []string // what moves of each mode cost
	mu              sync.Mutex
	changes, counts map[string]int       // of owner, by reason; of other events
	handlers        map[string]int       // by shard: how many run
	since           map[string]time.Time // by shard: since when so many
	gaps, overlaps  []time.Duration
}

// A worker is one member of a fleet. It reaches the lease table over a link.
type worker struct {
	name         string
	mode         rebalance.Mode
	fleet        *fleet
	stop, resume context.CancelFunc
	pause        context.Context // ends when the worker resumes
	state        atomic.Value
	pauses       atomic.Bool      // the worker is paused when it sends its next checkpoint
	late         chan lease.Write // that checkpoint
}

const serving, paused, killed, left = "serving", "paused", "killed", "has left" // states of a worker

func newFleet(mode rebalance.Mode, shards int, out io.Writer) *fleet {
	f := &fleet{
		screen: newScreen(out), mode: mode, sink: sink{fences: map[string]int64{}, last: map[string]int{}},
		changes: map[string]int{}, counts: map[string]int{}, handlers: map[string]int{}, since: map[string]time.Time{},
	}
	f.stream.start = f.start
	for i := range shards {
		f.shards = append(f.shards, fmt.Sprintf("shard-%02d", i))
	}
	return f
}

// A link is the connection of one worker to the table. While the worker is killed or paused, no
// write arrives, so that the rest of the fleet sees a dead worker. Its reads change nothing. It is no
// storetest.Link, because programs of users do not link a test library.
type link struct {
	lease.Store
	worker *worker
}

// Write makes one write. A worker that is to be paused is paused while it sends a checkpoint.
func (l link) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if w.Op == lease.OpSwap && w.Key().Kind == lease.KindLease && l.worker.pauses.CompareAndSwap(true, false) {
		l.worker.state.Store(paused)
		l.worker.late <- w
	}
	switch l.worker.state.Load() {
	case killed:
		return nil, errors.New("killed")
	case paused:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return l.Store.Write(ctx, w)
}

// join starts one more worker.
func (f *fleet) join(ctx context.Context, mode rebalance.Mode) {
	w := &worker{name: fmt.Sprintf("worker-%d", len(f.workers)+1), mode: mode, fleet: f, late: make(chan lease.Write, 1)}
	w.state.Store(serving)
	f.workers = append(f.workers, w)
	w.pause, w.resume = context.WithCancel(ctx)
	ctx, w.stop = context.WithCancel(ctx)
	f.running.Go(func() {
		if err := w.consume(ctx); err != nil {
			f.fail(err)
		}
		w.state.CompareAndSwap(serving, left)
	})
}

// close stops all workers, and waits for them.
func (f *fleet) close() {
	for _, w := range f.workers {
		w.stop()
	}
	f.running.Wait()
}

// measure measures gaps and overlaps: a handler of a shard begins (n: 1) or returns (-1).
func (f *fleet) measure(shard string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	since, lasted := f.since[shard], time.Since(f.since[shard])
	switch {
	case f.handlers[shard] == 0 && !since.IsZero():
		f.gaps = append(f.gaps, lasted)
	case f.handlers[shard] == 2:
		f.overlaps = append(f.overlaps, lasted)
	}
	f.handlers[shard] += n
	f.since[shard] = time.Now()
}

// costs returns the gaps and the overlaps since it was last called.
func (f *fleet) costs() (gaps, overlaps []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gaps, overlaps, f.gaps, f.overlaps = f.gaps, f.overlaps, nil, nil
	return gaps, overlaps
}

// count adds n to the count of something, and returns the sum.
func (f *fleet) count(counts map[string]int, what string, n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts[what] += n
	return counts[what]
}

// owners returns the shards that each worker owns, as the lease table has it.
func (f *fleet) owners() map[string][]string {
	rows, err := shardlease.Supervisor{Store: &f.store, Group: group}.List(context.Background())
	if err != nil {
		f.fail(err)
	}
	owners := map[string][]string{}
	for _, row := range rows {
		owners[row.Owner.Name] = append(owners[row.Owner.Name], row.Shard)
	}
	return owners
}

// shared reports whether serving workers own all shards, with at most that difference.
func (f *fleet) shared(difference int) bool {
	owners, sum, least, most := f.owners(), 0, len(f.shards), 0
	for _, w := range f.workers {
		if n := len(owners[w.name]); w.state.Load() == serving {
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
	}
	return sum == len(f.shards) && most-least <= difference
}

func (f *fleet) served() bool { return f.shared(len(f.shards)) }

// even reports whether the shards are shared evenly, and each has one handler.
func (f *fleet) even() bool {
	even := f.shared(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	return even && !slices.ContainsFunc(f.shards, func(shard string) bool { return f.handlers[shard] != 1 })
}

// wait waits until ok holds, and returns how long that took.
func (f *fleet) wait(ctx context.Context, ok func() bool) (took time.Duration) {
	for began := time.Now(); !ok() && ctx.Err() == nil; took = time.Since(began) {
		if f.sleep(ctx, 5*time.Millisecond); took > 20*time.Second {
			f.fail(errors.New("this takes too long"))
		}
	}
	f.sleep(ctx, 30*time.Millisecond)
	return took.Round(time.Millisecond)
}

// sleep waits. On a terminal it draws the board before.
func (f *fleet) sleep(ctx context.Context, d time.Duration) {
	if f.live {
		f.put(nil, f.table())
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
