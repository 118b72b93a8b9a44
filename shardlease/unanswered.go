package shardlease

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the calls that the store does not answer. A call must return when its context
// ends, and the engine repeats no call before its answer. So a call that ignores its context
// would stop whatever needs its answer: the claim of a shard, say, or the search for workers that
// have died.
//
// The loop therefore abandons such a call a moment after its time limit. The engine gets an
// answer that says that the outcome is unknown, as after a lost connection: it reports the fault
// and repeats the call. The late answer of an abandoned call is dropped, so the engine never gets
// two answers to one call.

// mostAbandoned is how many calls about one subject may be abandoned at a time. Each occupies a
// goroutine until it returns. Further calls about the subject fail without being made.
const mostAbandoned = 3

// A subject is what calls are about: one row, all listings of one kind, or all heartbeats.
type subject struct {
	hook string
	kind lease.Kind
	name string
}

// errNoAnswer is the fault of a source or of a store whose call does not return.
var errNoAnswer = errors.New("no answer before the deadline, and the call ignores its context")

func (s subject) unanswered() error { return fmt.Errorf("%s: %w", s.hook, errNoAnswer) }

// A lostWrite is the error of a write whose call does not return. Error builds the text on demand,
// because nearly every write is answered.
type lostWrite struct{ lease.Write }

func (l lostWrite) Error() string { return fmt.Sprintf("%v: %v", l.Write, errNoAnswer) }

func (lostWrite) Unwrap() error { return errNoAnswer }

// A flight is the state of a call of the store that is under way. Only the loop uses its fields,
// except for returned.
type flight struct {
	about     subject
	lost      engine.Input   // the answer if the call does not return
	due       engine.Instant // when the loop looks next whether it has returned
	late      bool           // the loop has seen that its time limit has passed
	abandoned bool
	returned  atomic.Bool // the answer is in the inbox, or about to be
}

// flights are all calls of the store that are under way.
type flights struct {
	calls     map[*flight]struct{}
	most      int // how many there were at most since calls was made
	abandoned map[subject]int
	next      engine.Instant // when the first of the calls is due, or sooner
}

func newFlights() flights {
	return flights{calls: map[*flight]struct{}{}, abandoned: map[subject]int{}, next: engine.Never}
}

// begin reports whether the call may be made, and expects its answer by due.
func (f *flights) begin(c *flight, due engine.Instant) bool {
	if f.abandoned[c.about] >= mostAbandoned {
		return false
	}
	c.due = due
	f.calls[c] = struct{}{}
	f.most = max(f.most, len(f.calls))
	f.next = min(f.next, due)
	return true
}

// end takes in that the call has returned. It reports whether its answer counts.
func (f *flights) end(c *flight) bool {
	if !c.abandoned {
		delete(f.calls, c)
		if len(f.calls) == 0 && f.most > few { // a map does not shrink, and a cold start makes a call for each shard
			f.calls, f.most = map[*flight]struct{}{}, 0
		}
		return true
	}
	if f.abandoned[c.about]--; f.abandoned[c.about] == 0 {
		delete(f.abandoned, c.about)
	}
	return false
}

// abandon returns the calls to give up at now. A call has its grace after the loop has seen that
// its time is over: if the process was paused, the call could not return before.
func (f *flights) abandon(now engine.Instant, grace func(lease.Kind) time.Duration) (lost []*flight) {
	if now < f.next {
		return nil
	}
	f.next = engine.Never
	for c := range f.calls {
		switch {
		case c.returned.Load():
			continue
		case now >= c.due && !c.late:
			c.late, c.due = true, now.Add(grace(c.about.kind))
		case now >= c.due:
			c.abandoned = true
			f.abandoned[c.about]++
			delete(f.calls, c)
			lost = append(lost, c)
			continue
		}
		f.next = min(f.next, c.due)
	}
	return lost
}

// abandonCalls gives the engine an answer for each call that has not returned in time.
func (r *run) abandonCalls() {
	for _, c := range r.flights.abandon(r.mono(), r.grace) {
		r.step(c.lost)
	}
}

// grace returns how long a call about a record of this kind may take to return after the end of
// its context. Two heartbeats that do not return must leave time for a third one: see callLimit.
// Calls about rows are many, and thousands of them may end at the same moment: they all need the
// processor then, and their grace is ten times as long.
func (r *run) grace(kind lease.Kind) time.Duration {
	least := min(max(r.config.TTL/100, 10*time.Millisecond), time.Second)
	if kind == lease.KindSeat {
		return least
	}
	return 10 * least
}
