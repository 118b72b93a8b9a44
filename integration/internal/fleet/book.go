package fleet

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// A Book records every call of a handler of one fleet. Gaps, overlaps and recoveries are computed from it, and never
// from the library's own events.
type Book struct {
	shards int

	mu    sync.Mutex
	calls []*Call
	last  map[string]*Call // the call that serves a shard now, by shard
	held  map[string]int   // the number of these calls, by worker
	waits []*Waiting
}

// A Call is one call of a handler.
type Call struct {
	Worker, Shard string
	From, To      time.Time // To is zero while the handler runs
	Start, Done   int       // the number of the last record before the call, and in it
	Dead          bool      // its worker was killed
	Cause         error     // why its context has ended
}

// A Waiting is notified when its condition first holds.
type Waiting struct {
	cond func(*Book) bool
	met  chan time.Time // has room for one value
}

// Within waits until the condition holds, and returns when it first did.
func (w *Waiting) Within(limit time.Duration) (at time.Time, ok bool) {
	select {
	case at := <-w.met:
		return at, true
	case <-time.After(limit):
		return time.Time{}, false
	}
}

func newBook(shards int) *Book {
	return &Book{shards: shards, last: map[string]*Call{}, held: map[string]int{}}
}

// Begin records that a handler is called after so many records.
func (b *Book) Begin(worker, shard string, start int) *Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Call{Worker: worker, Shard: shard, From: time.Now(), Start: start, Done: start}
	b.calls = append(b.calls, s)
	b.drop(b.last[shard])
	b.last[shard] = s
	b.held[worker]++
	b.changed(s.From)
	return s
}

// drop removes a call from the counts if it is the one that serves its shard.
func (b *Book) drop(s *Call) {
	if s == nil || b.last[s.Shard] != s {
		return
	}
	delete(b.last, s.Shard)
	if b.held[s.Worker]--; b.held[s.Worker] == 0 {
		delete(b.held, s.Worker)
	}
}

// Process counts a record, unless the worker was killed before.
func (b *Book) Process(s *Call) (record int, alive bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.To.IsZero() {
		return s.Done, false
	}
	s.Done++
	return s.Done, true
}

// End records that a handler returns.
func (b *Book) End(s *Call, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.To.IsZero() {
		return // its process counts as killed, although the handler still runs here
	}
	s.To, s.Cause = time.Now(), cause
	b.drop(s)
	b.changed(s.To)
}

// Kill ends all calls of a worker now, as a kill -9 does.
func (b *Book) Kill(worker string, cut func()) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	cut()
	for _, s := range b.calls {
		if s.Worker == worker && s.To.IsZero() {
			s.To, s.Dead = now, true
			b.drop(s)
		}
	}
	b.changed(now)
	return now
}

// changed notifies the waitings whose condition holds now.
func (b *Book) changed(now time.Time) {
	b.waits = slices.DeleteFunc(b.waits, func(w *Waiting) bool {
		if !w.cond(b) {
			return false
		}
		w.met <- now
		return true
	})
}

// Watch waits for a condition from now on. Call it before the action that makes the condition hold.
func (b *Book) Watch(cond func(*Book) bool) *Waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &Waiting{cond: cond, met: make(chan time.Time, 1)}
	b.waits = append(b.waits, w)
	b.changed(time.Now())
	return w
}

// Whole holds when every shard is served.
func Whole(b *Book) bool { return len(b.last) == b.shards }

// Without holds when every shard is served, and none by this worker.
func Without(worker string) func(*Book) bool {
	return func(b *Book) bool { return Whole(b) && b.held[worker] == 0 }
}

// Shared holds when every shard is served, and these workers share them evenly.
func Shared(workers ...string) func(*Book) bool {
	return func(b *Book) bool { return fixture.Even(b.held, b.shards, workers...) }
}

// Held describes how many shards each worker holds.
func (b *Book) Held() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("%d of %d served: %v", len(b.last), b.shards, b.held)
}

// A Move is two calls of a shard, one after the other.
type Move struct {
	Shard        string
	Gap, Overlap time.Duration
	Again        int // number of records that both calls processed
	Crash        bool
}

// Moves returns the moves whose second call began since then. A first call that has not ended overlaps
// until now.
func (b *Book) Moves(since time.Time) []Move {
	b.mu.Lock()
	defer b.mu.Unlock()
	var moves []Move
	before := map[string]*Call{}
	for _, s := range b.calls {
		if p := before[s.Shard]; p != nil && !s.From.Before(since) {
			m := Move{Shard: s.Shard, Again: max(0, p.Done-s.Start), Crash: p.Dead}
			to := p.To
			if to.IsZero() {
				to = time.Now()
			}
			m.Gap, m.Overlap = max(0, s.From.Sub(to)), max(0, to.Sub(s.From))
			moves = append(moves, m)
		}
		before[s.Shard] = s
	}
	return moves
}

// Calls returns the calls as they are now.
func (b *Book) Calls() []Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Call, len(b.calls))
	for i, s := range b.calls {
		out[i] = *s
	}
	return out
}
