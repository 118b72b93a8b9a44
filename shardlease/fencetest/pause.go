package fencetest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// A gate stops one writer at one point. A point is a use of the writer's context, or a call of
// T.Pause.
//
// Invariant: a gate stops at most one call, and open lets that call continue.
type gate struct {
	at      int           // the number of the point at which to stop, from 1; 0: only count the points
	reached chan struct{} // closed when the writer is stopped
	open    func()        // lets the stopped writer continue, and lets every later call pass
	opened  chan struct{}

	mu     sync.Mutex
	seen   int
	pauses []int // the points that are calls of T.Pause
	paused bool  // the writer was stopped at a call of T.Pause
}

func newGate(at int) *gate {
	g := &gate{at: at, reached: make(chan struct{}), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	return g
}

// point is a use of a context, or a call of T.Pause.
func (g *gate) point(pause bool) {
	g.mu.Lock()
	g.seen++
	if pause {
		g.pauses = append(g.pauses, g.seen)
	}
	stop := g.seen == g.at
	g.paused = g.paused || stop && pause
	g.mu.Unlock()
	if !stop {
		return
	}
	close(g.reached)
	<-g.opened
}

func (g *gate) stoppedByPause() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paused
}

// points returns how many points the writer has reached, and which of them are calls of T.Pause.
func (g *gate) points() (all int, pauses []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen, slices.Clone(g.pauses)
}

// over returns a context each use of which is a point of the gate. The context forwards Value, so
// that package context finds ctx below a derived context and needs no goroutine.
func (g *gate) over(ctx context.Context) context.Context { return watched{ctx, g} }

type watched struct {
	context.Context
	gate *gate
}

func (w watched) Done() <-chan struct{} {
	w.gate.point(false)
	return w.Context.Done()
}

func (w watched) Err() error {
	w.gate.point(false)
	return w.Context.Err()
}

func (w watched) Value(key any) any {
	w.gate.point(false)
	return w.Context.Value(key)
}

// gates pass the calls of T.Pause to the gate of the running writer. T.Pause does not know which
// writer calls it, so a gate is set only while one writer runs alone.
type gates struct{ now atomic.Pointer[gate] }

func (g *gates) point() {
	if now := g.now.Load(); now != nil {
		now.point(true)
	}
}
