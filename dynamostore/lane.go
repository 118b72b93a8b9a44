package dynamostore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A lane bounds how many calls about lease rows are under way at once. A call enters the lane,
// waits until it is admitted, sends its requests, and leaves the lane.
//
// The bound. The capacity of the table is unknown, so the lane estimates it as TCP does. The
// bound begins at a few calls. It grows by one when as many requests were answered as it
// allows, and it is halved when a request is throttled or not answered, or the answer comes late.
// With a fixed bound, a fleet whose workers all start at once would keep a slow table busy with
// requests whose callers have given up; and on a machine with too little processor time heartbeats
// would wait behind thousands of requests about rows, until seats are lost.
//
// The order. Calls wait in two queues: one for commits, and one for changes of hands and for
// reads. Each queue is first in, first out. Changes of hands and reads come before commits,
// because a worker waits for the shard. But while a commit waits, at least every fourth call
// that is admitted is a commit.
//
// Calls that are sent away. After an outage the calls that have waited longest are about to end
// by their deadline, and the answers might arrive too late for them. So a call whose turn comes
// is not admitted if less than half of its time is left, or less time than a request takes at
// present: it is sent away. If no other call is under way, it is admitted nevertheless, because
// some call has to find out whether the table has become quicker.
//
// Places. When a call has left the lane without being admitted, the next call of its class for
// the same row gets its place: it queues as if it had arrived at the same time as the first
// one. If it queued at the back, a call about that row might be sent away each time, because
// the wait is always longer than half of a call's time.
//
// Invariant: a call that was not admitted has sent nothing. The calls of a class wait in the
// order in which they, or the calls whose places they have, arrived.
type lane struct {
	most  float64
	tempo tempo // of all calls, including those that bypass the lane

	mu      sync.Mutex
	limit   float64 // the bound; between 1 and most
	busy    int     // how many calls are under way
	ignore  int     // how many results to ignore: these requests were under way when limit was halved
	waiting [classes][]*waiter
	left    int // how many waiters in waiting have given up
	passed  int // how many other calls were admitted since the last commit
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

// betweenCommits is how many other calls may be admitted between two commits while commits wait.
const betweenCommits = 3

type waiter struct {
	arrived time.Time     // when this call arrived, or the call whose place it has
	turn    chan struct{} // closed when the waiter is admitted or sent away
	late    func() bool   // whether too little time is left to admit it
	in      bool          // it was admitted
	gone    bool          // it was sent away, or its context has ended
}

const firstInFlight = 4

func newLane(most int) *lane {
	return &lane{most: float64(most), limit: float64(min(most, firstInFlight))}
}

// enter waits until the call is admitted. If the call is not admitted, enter returns a
// [lease.QueuedError], and the next call of this class for the same row gets this call's place.
func (l *lane) enter(ctx context.Context, c class, row lease.Key) error {
	began := time.Now()
	until, ends := ctx.Deadline()
	if l.enterAtOnce(ctx, c, row, began, until, ends) {
		return nil
	}
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

// enterAtOnce admits a call if there is room, so it needs no waiter. Where there is room, no call waits, because admit
// would have admitted it. If too little time is left, the call queues, and is sent away.
func (l *lane) enterAtOnce(ctx context.Context, c class, row lease.Key, now, until time.Time, ends bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := ends && l.busy > 0 && until.Sub(now) < l.tempo.estimate()
	if late || ctx.Err() != nil || l.busy >= int(l.limit) {
		return false
	}
	l.places.take(placeKey{c, row}, now)
	l.admitted(c)
	l.busy++
	return true
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

// note adjusts the limit to the result of a request: well means that the service answered
// in time.
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

// narrow reports whether at most one call is under way because answers came late or failed, and those that were under way
// before are answered.
func (l *lane) narrow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit < 2 && l.ignore == 0
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

// next removes and returns the waiter to admit next, or nil if no call waits. It sends away
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
		case l.busy > 0 && w.late(): // if no call is under way, a late one finds out whether the table has become quicker
			w.gone = true
			close(w.turn)
			continue
		}
		l.admitted(c)
		return w
	}
}

// admitted counts the calls since the last commit.
func (l *lane) admitted(c class) {
	if l.passed++; c == commits {
		l.passed = 0
	}
}

// tidy drops the waiters of a class that have given up, if they may be more than half of it.
func (l *lane) tidy(c class) {
	if before := len(l.waiting[c]); l.left > 16 && 2*l.left > before {
		l.waiting[c] = slices.DeleteFunc(l.waiting[c], func(w *waiter) bool { return w.gone })
		l.left -= before - len(l.waiting[c])
	}
}
