package report

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/internal/fixture"
)

// A book records every call of a handler of one fleet. The report computes gaps, overlaps and recoveries
// from it, and never from the library's own events.
type book struct {
	shards int

	mu    sync.Mutex
	calls []*call
	last  map[string]*call // the call that serves a shard now, by shard
	held  map[string]int   // the number of these calls, by worker
	waits []*waiting
}

// A call is one call of a handler.
type call struct {
	worker, shard string
	from, to      time.Time
	start, done   int // the number of the last record before the call, and in it
	dead          bool
}

// A waiting is notified when its condition first holds.
type waiting struct {
	cond func(*book) bool
	met  chan time.Time // has room for one value
}

func newBook(shards int) *book {
	return &book{shards: shards, last: map[string]*call{}, held: map[string]int{}}
}

func (b *book) begin(worker, shard string, start int) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &call{worker: worker, shard: shard, from: time.Now(), start: start, done: start}
	b.calls = append(b.calls, s)
	b.drop(b.last[shard])
	b.last[shard] = s
	b.held[worker]++
	b.changed(s.from)
	return s
}

// drop removes a call from the counts if it is the one that serves its shard.
func (b *book) drop(s *call) {
	if s == nil || b.last[s.shard] != s {
		return
	}
	delete(b.last, s.shard)
	if b.held[s.worker]--; b.held[s.worker] == 0 {
		delete(b.held, s.worker)
	}
}

// process counts a record, unless the process has died before.
func (b *book) process(s *call) (record int, alive bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.to.IsZero() {
		return s.done, false
	}
	s.done++
	return s.done, true
}

func (b *book) end(s *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.to.IsZero() {
		return // its process counts as killed, although the handler still runs here
	}
	s.to = time.Now()
	b.drop(s)
	b.changed(s.to)
}

// kill ends all calls of a worker now, as a kill -9 does.
func (b *book) kill(worker string, cut func()) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	cut()
	for _, s := range b.calls {
		if s.worker == worker && s.to.IsZero() {
			s.to, s.dead = now, true
			b.drop(s)
		}
	}
	b.changed(now)
	return now
}

// changed notifies the waitings whose condition holds now.
func (b *book) changed(now time.Time) {
	b.waits = slices.DeleteFunc(b.waits, func(w *waiting) bool {
		if !w.cond(b) {
			return false
		}
		w.met <- now
		return true
	})
}

// watch waits for a condition from now on. Call it before the action that makes the condition hold.
func (b *book) watch(cond func(*book) bool) *waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &waiting{cond: cond, met: make(chan time.Time, 1)}
	b.waits = append(b.waits, w)
	b.changed(time.Now())
	return w
}

// whole holds when every shard is served.
func whole(b *book) bool { return len(b.last) == b.shards }

// without holds when every shard is served, and none by this worker.
func without(worker string) func(*book) bool {
	return func(b *book) bool { return whole(b) && b.held[worker] == 0 }
}

// shared holds when every shard is served, and these workers share them evenly.
func shared(workers ...string) func(*book) bool {
	return func(b *book) bool { return fixture.Even(b.held, b.shards, workers...) }
}

// counts describes how many calls there were, and how many shards each worker holds.
func (b *book) counts() (calls int, held string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls), fmt.Sprintf("%d of %d served: %v", len(b.last), b.shards, b.held)
}

// A move is two calls of a shard, one after the other.
type move struct {
	shard        string
	gap, overlap time.Duration
	again        int // number of records that both calls processed
	crash        bool
}

// moves returns the moves whose second call began since then. A first call that has not ended overlaps
// until now.
func (b *book) moves(since time.Time) []move {
	b.mu.Lock()
	defer b.mu.Unlock()
	var moves []move
	before := map[string]*call{}
	for _, s := range b.calls {
		if p := before[s.shard]; p != nil && !s.from.Before(since) {
			m := move{shard: s.shard, again: max(0, p.done-s.start), crash: p.dead}
			to := p.to
			if to.IsZero() {
				to = time.Now()
			}
			m.gap, m.overlap = max(0, s.from.Sub(to)), max(0, to.Sub(s.from))
			moves = append(moves, m)
		}
		before[s.shard] = s
	}
	return moves
}

// copies returns the calls as they are now; calls that continue end now.
func (b *book) copies() []call {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]call, len(b.calls))
	for i, s := range b.calls {
		if out[i] = *s; s.to.IsZero() {
			out[i].to = time.Now()
		}
	}
	return out
}
