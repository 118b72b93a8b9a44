package dynamostore

import (
	"context"
	"slices"
	"sync"
)

// A lane bounds how many calls about lease rows are under way. How many the table can take
// nobody knows, so it finds out as TCP does: it begins with few, allows one more for every
// round of answers, and half as many when a request is throttled or goes unanswered. With a
// fixed number, a fleet that comes back all at once would keep a slow server busy with
// requests that nobody waits for any more.
//
// Who came last is let in first. Every call has a deadline, so after an outage those that
// have waited longest are about to give up: to serve them would be to serve nobody.
type lane struct {
	most float64

	mu      sync.Mutex
	limit   float64
	busy    int
	pardon  int // so many answers say nothing new: they were under way when limit was halved
	waiting []*waiter
	left    int // how many of these have given up
}

type waiter struct {
	turn chan struct{}
	in   bool
	gone bool
}

const firstInFlight = 4

func newLane(most int) *lane {
	return &lane{most: float64(most), limit: float64(min(most, firstInFlight))}
}

// enter waits for its turn.
func (l *lane) enter(ctx context.Context) error {
	l.mu.Lock()
	w := &waiter{turn: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.admit()
	l.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.in { // at the same moment
		l.busy--
		l.admit()
	} else {
		w.gone = true
		l.left++
		l.tidy()
	}
	return ended(ctx)
}

func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	l.admit()
}

// note learns from what became of a request.
func (l *lane) note(well bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case well:
		l.limit = min(l.limit+1/l.limit, l.most)
	case l.pardon == 0:
		l.limit = max(l.limit/2, 1)
		l.pardon = l.busy
	}
	l.pardon = max(l.pardon-1, 0)
	l.admit()
}

// admit lets in who came last.
func (l *lane) admit() {
	for len(l.waiting) > 0 && l.busy < int(l.limit) {
		last := len(l.waiting) - 1
		w := l.waiting[last]
		l.waiting[last], l.waiting = nil, l.waiting[:last]
		if w.gone {
			l.left--
			continue
		}
		w.in = true
		l.busy++
		close(w.turn)
	}
}

// tidy forgets those that have given up, when they are most of those that wait.
func (l *lane) tidy() {
	if l.left > 16 && 2*l.left > len(l.waiting) {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool { return w.gone })
		l.left = 0
	}
}
