package shardlease_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

const (
	ttl  = 10 * time.Second
	beat = ttl / 3
)

// A stage is a store, the workers on it, and a record of when each handler ran.
type stage struct {
	*testing.T
	store  *memstore.Store
	source shardlease.Source
	shards int
	actors []*actor
	rescue func() // unblocks handlers at the end of the test

	mu    sync.Mutex
	spans []*span
}

// A span is one call of a handler.
type span struct {
	worker     string
	shard      string
	generation int64
	from, to   time.Time // when the call began and ended; to is zero while it runs
	start      string    // the position of the checkpoint it started at
	end        atomic.Value
	cause      error
}

// last returns the last mark of the call.
func (sp *span) last() string {
	end, _ := sp.end.Load().(string)
	return end
}

// An actor is a worker whose network and process a test can disturb.
type actor struct {
	*member
	*storetest.Link
	name string

	mu     sync.Mutex
	frozen chan struct{} // not nil: its loop stands still until this is closed
	skew   time.Duration // of its wall clock
	slow   time.Duration // how much longer each step of its loop takes
}

func newStage(t *testing.T, shards int) *stage {
	names := make([]string, shards)
	for i := range names {
		names[i] = fmt.Sprintf("shard-%02d", i)
	}
	s := &stage{T: t, store: new(memstore.Store), source: shardlease.Static(names...), shards: shards}
	t.Cleanup(s.end)
	return s
}

// staged returns a stage on which workers with these names hold all shards, evenly.
func staged(t *testing.T, shards int, config shardlease.Config, handler shardlease.Handler, names ...string) *stage {
	t.Helper()
	s := newStage(t, shards)
	for _, name := range names {
		s.enter(name, config, handler)
	}
	if len(names) == 1 {
		s.shared(time.Second, names...)
	} else {
		s.shared(beat+1500*time.Millisecond, names...)
	}
	return s
}

// actor returns the worker with that name; nil: there is none.
func (s *stage) actor(name string) *actor {
	if i := slices.IndexFunc(s.actors, func(a *actor) bool { return a.name == name }); i >= 0 {
		return s.actors[i]
	}
	return nil
}

// enter runs a worker. Without a handler, the worker gets the handler of the stage.
func (s *stage) enter(name string, config shardlease.Config, handler shardlease.Handler) *actor {
	s.Helper()
	return s.enterOn(storetest.NewLink(s.store), name, config, handler)
}

// enterOn is enter with a link to the stage's store that has hooks from the start.
func (s *stage) enterOn(link *storetest.Link, name string, config shardlease.Config, handler shardlease.Handler) *actor {
	s.Helper()
	if s.actor(name) != nil {
		s.Fatalf("the stage has a worker %s already: its spans could not be told from those of another", name)
	}
	a := &actor{name: name, Link: link}
	if handler == nil {
		handler = working
	}
	config.Name = name
	if config.Order == nil {
		config.Order = checkpoint.Decimal
	}
	a.member = newMember(s.T, a.Link, s.source, config, s.recorded(name, handler), func(w *shardlease.Worker) { shardlease.SetWall(w, a.wall) })
	s.actors = append(s.actors, a)
	return a
}

// end stops all workers that still run, and checks that they shut down gracefully. Every test
// ends with it.
func (s *stage) end() {
	s.Helper()
	if s.rescue != nil {
		s.rescue()
	}
	for _, a := range s.actors {
		a.thaw()
		a.Heal()
	}
	var wait sync.WaitGroup
	for _, a := range s.actors {
		wait.Go(func() {
			if err := a.stop(); err != nil {
				s.Errorf("%s: %v", a.name, err)
			}
		})
	}
	wait.Wait()
}

// wall is called in every step of the actor's loop, so it can block the loop. To the other
// workers, that looks like a paused process.
func (a *actor) wall() time.Time {
	a.mu.Lock()
	frozen, skew, slow := a.frozen, a.skew, a.slow
	a.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	defer time.Sleep(slow)
	return time.Now().Add(skew)
}

// lag makes its loop slow.
func (a *actor) lag(by time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slow = by
}

// stepWall moves its wall clock, and not the monotonic one.
func (a *actor) stepWall(by time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skew += by
}

func (a *actor) freeze() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.frozen == nil {
		a.frozen = make(chan struct{})
	}
}

func (a *actor) thaw() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.frozen != nil {
		close(a.frozen)
		a.frozen = nil
	}
}

// die looks like kill -9 to the others: no further request of the actor reaches the store.
func (a *actor) die() {
	a.freeze()
	a.Cut()
}

// watch calls before ahead of each write, and after when the write is stored.
func (a *actor) watch(before, after func(lease.Write)) {
	a.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if before != nil {
			before(w)
		}
		r, err := send()
		if after != nil && err == nil {
			after(w)
		}
		return r, err
	})
}

// refuse makes the writes fail for which deny returns true; nil: no write fails.
func (a *actor) refuse(deny func(lease.Write) bool) {
	a.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if deny != nil && deny(w) {
			return nil, storetest.ErrCut
		}
		return send()
	})
}

// recorded wraps a handler so that the span of each call is recorded.
func (s *stage) recorded(worker string, handler shardlease.Handler) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		sp := &span{worker: worker, shard: t.Shard().Name, generation: t.Generation(), from: time.Now(), start: t.Checkpoint().Position}
		s.mu.Lock()
		for _, other := range s.spans {
			if other.worker == worker && other.shard == sp.shard && other.to.IsZero() {
				s.Errorf("%s runs two handlers of %s: since %v under generation %d, and since %v under %d",
					worker, sp.shard, other.from, other.generation, sp.from, sp.generation)
			}
		}
		s.spans = append(s.spans, sp)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			sp.to, sp.cause = time.Now(), context.Cause(ctx)
			s.mu.Unlock()
		}()
		return handler(context.WithValue(ctx, spanKey{}, sp), t)
	}
}

type spanKey struct{}

// working marks ten records per second from its checkpoint on, until its ctx ends.
func working(ctx context.Context, t *shardlease.Tenure) error {
	return marking(100*time.Millisecond, 0)(ctx, t)
}

// plodding marks one record per second. Tests that last for hours of fake time use it, because each mark costs processor time.
func plodding(ctx context.Context, t *shardlease.Tenure) error {
	return marking(time.Second, 0)(ctx, t)
}

// workingFor is working with a handler that takes this time to wind down.
func workingFor(winds time.Duration) shardlease.Handler {
	return marking(100*time.Millisecond, winds)
}

// marking returns a handler that marks one record in each interval, and takes this time to wind down.
func marking(every, winds time.Duration) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		n, _ := strconv.Atoi(t.Checkpoint().Position)
		sp := ctx.Value(spanKey{}).(*span)
		for {
			select {
			case <-ctx.Done():
				if !sleep(t.Context(), winds) {
					return context.Cause(t.Context())
				}
				return nil
			case <-time.After(every):
			}
			n++
			if t.Mark(strconv.Itoa(n)) == nil {
				sp.end.Store(strconv.Itoa(n))
			}
		}
	}
}

// sleep reports whether it slept for the whole time.
func sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// all returns copies of the spans.
func (s *stage) all() []*span {
	s.mu.Lock()
	defer s.mu.Unlock()
	spans := make([]*span, len(s.spans))
	for i, sp := range s.spans {
		spans[i] = &span{worker: sp.worker, shard: sp.shard, generation: sp.generation, from: sp.from, to: sp.to, start: sp.start, cause: sp.cause}
		spans[i].end.Store(sp.last())
	}
	return spans
}

// running counts the spans that are not over, by worker.
func (s *stage) running() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for _, sp := range s.spans {
		if sp.to.IsZero() {
			counts[sp.worker]++
		}
	}
	return counts
}

// within waits until cond is true, and returns how long that took.
func (s *stage) within(limit time.Duration, what string, cond func() bool) time.Duration {
	s.Helper()
	from, every := time.Now(), max(10*time.Millisecond, limit/10_000)
	for !cond() {
		if time.Since(from) > limit {
			s.Fatalf("not within %v: %s; running: %v", limit, what, s.running())
		}
		time.Sleep(every)
	}
	return time.Since(from)
}

// shared waits until these workers hold all shards, evenly.
func (s *stage) shared(limit time.Duration, names ...string) time.Duration {
	s.Helper()
	return s.within(limit, fmt.Sprintf("%v share %d shards", names, s.shards), func() bool {
		return fixture.Even(s.running(), s.shards, names...)
	})
}

// of returns the spans of a shard in the order in which they began.
func (s *stage) of(shard string) []*span {
	spans := slices.DeleteFunc(s.all(), func(sp *span) bool { return sp.shard != shard })
	slices.SortStableFunc(spans, func(a, b *span) int { return a.from.Compare(b.from) })
	return spans
}

// gaps returns the longest gap between two consecutive spans of a shard, during which no
// handler processed it, and the longest overlap, during which two did. It considers spans
// that began after since.
func (s *stage) gaps(shard string, since time.Time) (gap, overlap time.Duration) {
	spans := s.of(shard)
	for i, sp := range spans[1:] {
		last := spans[i]
		if sp.from.Before(since) {
			continue
		}
		to := last.to
		if to.IsZero() {
			to = time.Now()
		}
		gap, overlap = max(gap, sp.from.Sub(to)), max(overlap, to.Sub(sp.from))
	}
	return gap, overlap
}

const unbounded = time.Duration(math.MaxInt64)

// moved checks that since then no shard had a longer gap or overlap than these.
func (s *stage) moved(since time.Time, mostGap, mostOverlap time.Duration) {
	s.Helper()
	for _, name := range s.names() {
		if gap, overlap := s.gaps(name, since); gap > mostGap || overlap > mostOverlap {
			s.Errorf("%s: gap %v, overlap %v", name, gap, overlap)
		}
	}
}

// handedOver checks that four shards have moved once, and that the last mark of each first
// tenure is the start of the second.
func (s *stage) handedOver() {
	s.Helper()
	moves := 0
	for _, name := range s.names() {
		if spans := s.of(name); len(spans) == 2 {
			moves++
			if spans[0].last() != spans[1].start {
				s.Errorf("%s: the old tenure ended at %q and the new one started at %q", name, spans[0].last(), spans[1].start)
			}
		}
	}
	if moves != 4 {
		s.Errorf("%d shards moved", moves)
	}
}

func (s *stage) names() []string {
	names := make([]string, s.shards)
	for i := range names {
		names[i] = fmt.Sprintf("shard-%02d", i)
	}
	return names
}

// write makes a write that does not come from a worker.
func (s *stage) write(w lease.Write, err error) { fixture.Must[lease.Record](s, s.store)(w, err) }

func (s *stage) row(shard string) lease.Row {
	s.Helper()
	return rowOf(s.T, s.store, shard)
}
