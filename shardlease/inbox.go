package shardlease

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// An inbox passes everything to the goroutine that owns the engine: results of calls in the
// order of arrival, and the tenures that have something new to report. These are a set and
// not a queue: a handler that marks a million times between two turns of the loop is in it
// once, with its latest mark.
//
// Urgent arrivals have a queue of their own, which is emptied before each step. The lease
// depends on answers about seats, which would otherwise wait behind the answers about rows:
// a cold start brings one for each shard.
type inbox struct {
	start   time.Time     // when it was made
	marks   uint64        // Config.Commit.Marks: so many unwritten marks of a tenure are due; 0: no such number
	wake    chan struct{} // has room for one: the loop needs to be woken only once
	worker  *Worker       // whose state a tenure may ask for
	calls   atomic.Uint64 // the calls of Confirm
	pressed atomic.Bool   // the queue of urgent arrivals is not empty

	mu      sync.Mutex
	urgent  []arrival
	arrived []arrival
	done    int // how many of arrived have been taken already
	marked  []*Tenure
}

// now returns the time since the inbox was made, which is never 0.
func (b *inbox) now() int64 { return int64(time.Since(b.start)) + 1 }

// An arrival is an input of the engine, with facts that only the shell needs.
type arrival struct {
	input  engine.Input
	from   *preparation // of Prepared: the preparation that has ended
	err    error        // of Returned: the error or the panic of the handler
	at     int64        // of Returned: when the handler returned, in Unix milliseconds, as rows store times
	flight *flight      // of an answer of the store: the call
	urgent bool         // whether the input is an answer about seats or about the table as a whole, or the stop
}

func newInbox(marks int) *inbox {
	return &inbox{start: time.Now(), marks: uint64(max(marks, 0)), wake: make(chan struct{}, 1)}
}

func (b *inbox) put(a arrival) {
	b.mu.Lock()
	if a.urgent {
		b.urgent = append(b.urgent, a)
		b.pressed.Store(true)
	} else {
		b.arrived = append(b.arrived, a)
	}
	b.mu.Unlock()
	b.signal()
}

// add puts t into the set. It does not wake the loop: the tenure does that if the engine
// must know before its next step.
func (b *inbox) add(t *Tenure) {
	b.mu.Lock()
	b.marked = append(b.marked, t)
	b.mu.Unlock()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// A batch is what the loop takes from the inbox at one time.
type batch struct {
	arrived []arrival
	marked  []*Tenure
}

// few is the largest number of arrivals in a batch, unless it has more marks. A mark should
// not have to wait for all arrivals before it.
const few = 256

// take returns the next batch: all marks, and the oldest arrivals. It uses the memory of
// the last batch. If it leaves arrivals, it wakes the loop again.
//
// Invariant: if a batch has the return of a handler, this batch or an earlier one has all marks
// of that handler. A handler marks before it returns, and take never leaves marks.
func (b *inbox) take(last batch) batch {
	clear(last.arrived)
	clear(last.marked)
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := batch{marked: b.marked}
	b.marked = last.marked[:0]
	n := min(len(b.arrived)-b.done, max(few, len(taken.marked)))
	next := b.arrived[b.done : b.done+n]
	taken.arrived = append(last.arrived[:0], next...)
	clear(next)
	if b.done += n; b.done < len(b.arrived) {
		b.signal()
	}
	switch {
	case b.done == len(b.arrived) && cap(b.arrived) > 4*few: // a cold start brings one arrival for each shard
		b.arrived, b.done = nil, 0
	case 2*b.done >= len(b.arrived): // what remains moves to the front
		b.arrived, b.done = slices.Delete(b.arrived, 0, b.done), 0
	}
	return taken
}

// takeUrgent empties the queue of urgent arrivals.
func (b *inbox) takeUrgent() []arrival {
	if !b.pressed.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.urgent
	b.urgent = nil
	b.pressed.Store(false)
	return taken
}
