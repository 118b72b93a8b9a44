package shardlease

import (
	"sync"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// An inbox is how everything reaches the goroutine that owns the engine: answers
// in the order they came, and the tenures that have something new to say. These
// are a set and not a queue: a handler that marks a million times while the loop
// looks away is there once, with its latest mark.
type inbox struct {
	wake chan struct{} // has room for one: the loop needs to be woken only once

	mu      sync.Mutex
	arrived []arrival
	marked  []*Tenure
}

// An arrival is an input, and what only the shell knows of it.
type arrival struct {
	input engine.Input
	from  *preparation // of Prepared: the one that has ended
	err   error        // of Returned: what the handler returned, or its panic
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) put(a arrival) {
	b.mu.Lock()
	b.arrived = append(b.arrived, a)
	b.mu.Unlock()
	b.signal()
}

// add puts t into the set. It does not wake the loop: that is for the tenure to
// decide, which knows whether the news can wait for the next step.
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

// A batch is what was in the inbox at one moment.
type batch struct {
	arrived []arrival
	marked  []*Tenure
}

// take swaps what is there for the emptied last batch.
//
// Both at one moment: a handler marks before it returns, so no batch has a return
// without the marks before it.
func (b *inbox) take(last batch) batch {
	clear(last.arrived)
	clear(last.marked)
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := batch{arrived: b.arrived, marked: b.marked}
	b.arrived, b.marked = last.arrived[:0], last.marked[:0]
	return taken
}
