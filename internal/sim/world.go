package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// epoch is when every simulation begins.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// A world is one fleet, its table and its streams.
//
// Invariant: whatever decides anything is ordered (by time, then by when it was
// put there), never by a map.
type world struct {
	seed    uint64
	now     time.Duration
	seq     uint64
	queue   queue
	chance  *rand.Rand
	store   *table
	judge   *judge
	net     network
	streams []*stream
	named   map[string]*stream
	nodes   []*node
	set     settings
	stats   Stats
	hash    uint64
	log     func(string) // nil: nobody reads along
	faults  []error

	snapshot *snapshot          // of the table, to be restored
	keeping  bool               // one is to be taken soon
	went     bool               // the table is an older one, and nobody has adopted it yet
	spoilt   map[lease.Key]bool // records that cannot be read
	wall     time.Duration      // how far the operator's clock is off
	calm     time.Duration
	peace    bool // trouble has ended
	strict   bool // calm for long enough: bounds hold
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, chance: rand.New(rand.NewPCG(seed, 0x5eed)), store: newTable(), spoilt: map[lease.Key]bool{}, named: map[string]*stream{}, hash: 14695981039346656037}
	w.judge = newJudge(w)
	w.net.w = w
	return w
}

// after makes do happen d from now.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	w.queue.push(timer{at: w.now + max(d, 0), seq: w.seq, do: do})
}

// run lets so much time pass, or less if a promise was broken.
func (w *world) run(d time.Duration) {
	until := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= until && len(w.faults) == 0 {
		e := w.queue.pop()
		w.now = e.at
		e.do()
	}
	w.now = until
}

// until lets time pass until cond holds, and reports whether it did in time.
func (w *world) until(limit time.Duration, cond func() bool) bool {
	for from := w.now; !cond(); w.run(max(50*time.Millisecond, w.set.ttl/200)) {
		if w.now-from > limit || len(w.faults) > 0 {
			return false
		}
	}
	return true
}

// fault notes a broken promise. The simulation ends at the first.
func (w *world) fault(format string, args ...any) {
	err := fmt.Errorf("seed %d at %v: "+format, append([]any{w.seed, w.now}, args...)...)
	w.faults = append(w.faults, err)
	if w.log != nil {
		w.log(err.Error())
	}
}

// trace makes what happened part of the hash, and tells who reads along.
func (w *world) trace(what, who string, text func() string) {
	w.mix(uint64(w.now))
	for i := range len(what) {
		w.mix(uint64(what[i]))
	}
	for i := range len(who) {
		w.mix(uint64(who[i]))
	}
	if w.log != nil {
		line := fmt.Sprintf("%10.3fs %-5s %s", w.now.Seconds(), who, what)
		if text != nil {
			line += " " + text()
		}
		w.log(line)
	}
}

// note tells who reads along, and is no part of the hash.
func (w *world) note(who, format string, args ...any) {
	if w.log != nil {
		w.log(fmt.Sprintf("%10.3fs %-5s ", w.now.Seconds(), who) + fmt.Sprintf(format, args...))
	}
}

func (w *world) mix(v uint64) { w.hash = (w.hash ^ v) * 1099511628211 }

// between draws a duration.
func (w *world) between(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(w.chance.Int64N(int64(to-from)))
}

// likely draws whether something of that chance happens.
func (w *world) likely(p float64) bool { return p > 0 && w.chance.Float64() < p }

// pick draws one of them.
func pick[T any](w *world, from ...T) T { return from[w.chance.IntN(len(from))] }

type timer struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (e timer) before(f timer) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// A queue is a heap of timers. (container/heap would box each of them.)
type queue []timer

func (q *queue) push(e timer) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (q *queue) pop() timer {
	h := *q
	top, last := h[0], len(h)-1
	h[0], h[last] = h[last], timer{}
	h = h[:last]
	*q = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return top
		}
		if down+1 < last && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(h[i]) {
			return top
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}
