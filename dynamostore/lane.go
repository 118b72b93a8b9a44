package dynamostore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A lane bounds how many calls about lease rows are under way. How many the table can take
// nobody knows, so it finds out as TCP does: it begins with few, allows one more for every
// round of answers, and half as many when a request is throttled or goes unanswered. With a
// fixed number, a fleet that comes back all at once would keep a slow server busy with
// requests that nobody waits for any more.
//
// Calls are admitted first in, first out, in two classes: changes of hands and reads before
// commits, because somebody waits for the shard; but at least every fourth admission is a
// commit where one waits. After an outage the oldest callers are about to give up. A caller
// whose context leaves less than half of what it left at first, or less time than a request
// takes at present, is sent away instead of admitted: the answer might come too late for it.
//
// Invariant: a call that is sent away, or gives up, has sent nothing.
type lane struct {
	most  float64
	tempo tempo // of all calls, those that bypass the lane too

	mu      sync.Mutex
	limit   float64
	busy    int
	pardon  int // so many answers say nothing new: they were under way when limit was halved
	waiting [classes][]*waiter
	left    int // how many of these have given up
	passed  int // admissions since the last commit's
}

// A class says which calls are admitted first.
type class uint8

const (
	hands   class = iota // changes of hands, and reads
	commits              // writes within a generation that make no offer
	classes
	bypass // seats: a heartbeat never queues behind commits
)

// everyFourth is how many others are admitted between two commits.
const everyFourth = 3

type waiter struct {
	turn chan struct{}
	late func() bool // whether there is too little time left for a request
	in   bool
	gone bool
}

const firstInFlight = 4

func newLane(most int) *lane {
	return &lane{most: float64(most), limit: float64(min(most, firstInFlight))}
}

// enter waits for its turn. An error is a [lease.QueuedError].
func (l *lane) enter(ctx context.Context, c class) error {
	began := time.Now()
	until, ends := ctx.Deadline()
	w := &waiter{turn: make(chan struct{}), late: func() bool {
		return ends && time.Until(until) < max(l.tempo.estimate(), until.Sub(began)/2)
	}}
	l.mu.Lock()
	l.waiting[c] = append(l.waiting[c], w)
	l.admit()
	l.mu.Unlock()
	select {
	case <-w.turn:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.in && ctx.Err() == nil:
		return nil
	case w.in: // at the same moment
		l.busy--
		l.admit()
	case !w.gone:
		w.gone = true
		l.left++
		l.tidy(c)
	}
	return &lease.QueuedError{Waited: time.Since(began), Cause: ended(ctx)}
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

// admit lets in as many as there is room for.
func (l *lane) admit() {
	for l.busy < int(l.limit) {
		w := l.next()
		if w == nil {
			return
		}
		w.in = true
		l.busy++
		close(w.turn)
	}
}

// next takes the waiter that is to be admitted next; nil: nobody waits. Those with too
// little time left are sent away on the way there.
func (l *lane) next() *waiter {
	for {
		c := hands
		if len(l.waiting[hands]) == 0 || l.passed >= everyFourth && len(l.waiting[commits]) > 0 {
			c = commits
		}
		if len(l.waiting[c]) == 0 {
			return nil
		}
		w := l.waiting[c][0]
		l.waiting[c][0], l.waiting[c] = nil, l.waiting[c][1:]
		switch {
		case w.gone:
			l.left--
			continue
		case l.busy > 0 && w.late(): // somebody has to find out whether the table is quicker by now
			w.gone = true
			close(w.turn)
			continue
		}
		if l.passed++; c == commits {
			l.passed = 0
		}
		return w
	}
}

// tidy forgets those that have given up, when they are most of those that wait.
func (l *lane) tidy(c class) {
	if before := len(l.waiting[c]); l.left > 16 && 2*l.left > before {
		l.waiting[c] = slices.DeleteFunc(l.waiting[c], func(w *waiter) bool { return w.gone })
		l.left -= before - len(l.waiting[c])
	}
}
