package shardlease

import (
	"fmt"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// answersInTTL is how many answers of the store should fit into a lease time. The shards of
// a dead worker are claimed at the latest a lease time, a heartbeat interval and seven
// answers after its death: the poll that finds its seat expired, the eviction, the listings
// of the rows and of the seats, the claim, and two listings that began too early.
const answersInTTL = 30

// A SlowStoreError reports that the store answers so slowly that the lease time is too
// short. The worker still claims, holds and moves shards, but later than docs/lease-time.md
// promises. The error is the Err of an [event.StoreFault] that lasts.
type SlowStoreError struct {
	Answer time.Duration // the answer time of the fastest of the last three heartbeats
	TTL    time.Duration // the lease time of this worker
	Least  time.Duration // the shortest lease time for this answer time
}

func (e *SlowStoreError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("TTL: %v is too short for a store that takes %v to answer a heartbeat; it should be at least %v", e.TTL, e.Answer, e.Least)
}

// slowness measures how long the store takes to answer heartbeats.
type slowness struct {
	mu   sync.Mutex
	last [3]time.Duration
	slow bool
}

// heartbeatTook records how long the store took to answer a heartbeat. The store is too slow if the
// last three answers all took too long, because a pause of this worker can make one answer
// late.
func (r *run) heartbeatTook(took time.Duration) {
	if slow, changed := r.slow.add(took, r.config.TTL); changed {
		r.inbox.put(arrival{input: engine.StoreSlow{Err: slow}, urgent: true})
	}
}

// add records an answer time. It returns an error if the store is too slow for ttl, and whether that has changed
// with this answer.
func (s *slowness) add(took, ttl time.Duration) (slow error, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[0], s.last[1], s.last[2] = s.last[1], s.last[2], took
	answer := min(s.last[0], s.last[1], s.last[2])
	changed = s.slow != (answer*answersInTTL > ttl)
	if s.slow = s.slow != changed; s.slow {
		slow = &SlowStoreError{Answer: answer.Round(time.Millisecond), TTL: ttl, Least: (answer * answersInTTL).Round(time.Millisecond)}
	}
	return slow, changed
}
