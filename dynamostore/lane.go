package dynamostore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A lane bounds how many calls about lease rows are under way. The capacity of the table is
// unknown, so the lane estimates it as TCP does: it begins with a few calls, allows one more
// for every round of answers, and half as many when a request is throttled or goes
// unanswered. With a fixed number, a fleet whose workers all start at once would keep a slow
// table busy with requests whose callers have given up.
//
// Calls wait in two classes, each first in, first out. Changes of hands and reads are admitted
// before commits, because a worker waits for the shard; but while a commit waits, at least
// every fourth admission is a commit. After an outage the oldest callers are about to give
// up, and the answer might arrive too late for them. So a caller is sent away instead of
// admitted if it has less than half of its time left, or less time than a request takes at
// present. The next call of that class for the same row keeps the place: it queues as if it
// had arrived when the first call did. If it queued at the back, a row whose turn takes longer
// than half of a caller's time would lose its place again and again.
//
// Invariant: a call that is sent away, or gives up, has sent nothing. Each class waits in the
// order of arrival.
type lane struct {
	most  float64
	tempo tempo // of all calls, including those that bypass the lane

	mu      sync.Mutex
	limit   float64
	busy    int
	ignore  int // how many results to ignore: these requests were under way when limit was halved
	waiting [classes][]*waiter
	left    int // how many waiters have given up
	passed  int // how many others were admitted since the last commit
	places  places
}

// A class is the class in which a call waits for its turn.
type class uint8

const (
	hands   class = iota // changes of hands, and reads
	commits              // writes within a generation that make no offer
	classes              // how many classes wait
	bypass               // calls about seats do not wait: a heartbeat never queues behind commits
)

// betweenCommits is how many others are admitted between two commits, while commits wait.
const betweenCommits = 3

type waiter struct {
	arrived time.Time     // when this call arrived, or the call whose place it has
	turn    chan struct{} // closed when the waiter is admitted or sent away
	late    func() bool   // whether there is too little time left for a request
	in      bool          // it was admitted
	gone    bool          // it has given up, or was sent away
}

const firstInFlight = 4

func newLane(most int) *lane {
	return &lane{most: float64(most), limit: float64(min(most, firstInFlight))}
}

// enter waits until the call is admitted. Its error is a [lease.QueuedError]; the next call of
// this class for the same row then has this call's place.
func (l *lane) enter(ctx context.Context, c class, row lease.Key) error {
	began := time.Now()
	until, ends := ctx.Deadline()
	w := &waiter{turn: make(chan struct{}), late: func() bool {
		return ends && time.Until(until) < max(l.tempo.estimate(), until.Sub(began)/2)
	}}
	l.mu.Lock()
	w.arrived = l.places.take(placeKey{c, row}, began)
	l.enqueue(c, w)
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
	case w.in: // admitted, but its context has ended
		l.busy--
		l.admit()
	case !w.gone:
		w.gone = true
		l.left++
		l.tidy(c)
	}
	l.places.keep(placeKey{c, row}, w.arrived, time.Now())
	return &lease.QueuedError{Waited: time.Since(began), Cause: ended(ctx)}
}

// enqueue puts a waiter behind those that arrived before it, or at the same moment.
func (l *lane) enqueue(c class, w *waiter) {
	at, _ := slices.BinarySearchFunc(l.waiting[c], w, func(other, w *waiter) int {
		return cmp.Or(other.arrived.Compare(w.arrived), -1)
	})
	l.waiting[c] = slices.Insert(l.waiting[c], at, w)
}

// leave ends a call that was admitted.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	l.admit()
}

// note adjusts the limit to the result of a request: well means that the service answered.
func (l *lane) note(well bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case well:
		l.limit = min(l.limit+1/l.limit, l.most)
	case l.ignore == 0:
		l.limit = max(l.limit/2, 1)
		l.ignore = l.busy
	}
	l.ignore = max(l.ignore-1, 0)
	l.admit()
}

// admit admits as many waiters as there is room for.
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

// next removes and returns the waiter to admit next, or nil if nobody waits. It sends away
// waiters that have too little time left.
func (l *lane) next() *waiter {
	for {
		c := hands
		if len(l.waiting[hands]) == 0 || l.passed >= betweenCommits && len(l.waiting[commits]) > 0 {
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
		case l.busy > 0 && w.late(): // if none is under way, a late call must find out whether the table is quicker now
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

// tidy drops the waiters of a class that have given up, when they may be most of the class.
func (l *lane) tidy(c class) {
	if before := len(l.waiting[c]); l.left > 16 && 2*l.left > before {
		l.waiting[c] = slices.DeleteFunc(l.waiting[c], func(w *waiter) bool { return w.gone })
		l.left -= before - len(l.waiting[c])
	}
}
