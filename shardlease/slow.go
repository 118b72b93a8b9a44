package shardlease

import (
	"fmt"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// answersInTTL is how many answers of the store a lease time should have room for. A dead
// worker's shards are claimed at worst a lease time, a heartbeat and five answers after its
// death: the look that finds its seat expired, the eviction, the listings of the rows and of
// the seats, and the claim.
const answersInTTL = 30

// A SlowStoreError reports that the lease time is too short for a store that answers so
// slowly. The worker claims, holds and moves shards all the same, but later than
// docs/lease-time.md promises. The error comes in an [event.StoreFault] that lasts.
type SlowStoreError struct {
	Answer time.Duration // the quickest of the last three heartbeats
	TTL    time.Duration // of this worker
	Least  time.Duration // the shortest lease time for such answers
}

func (e *SlowStoreError) Error() string {
	return fmt.Sprintf("TTL: %v is too short for a store that takes %v to answer a heartbeat; it should be at least %v", e.TTL, e.Answer, e.Least)
}

// A slowness watches how long heartbeats take.
type slowness struct {
	mu   sync.Mutex
	last [3]time.Duration
	slow bool
}

// heard notes how long the answer to a heartbeat took. The store is too slow when the last
// three answers all took too long: a pause of this worker can make one answer late.
func (r *run) heard(took time.Duration) {
	if slow, changed := r.slow.heard(took, r.config.TTL); changed {
		r.inbox.put(arrival{input: engine.StoreSlow{Err: slow}, urgent: true})
	}
}

// heard returns the error that the store is too slow for ttl, or nil if it is not, and whether
// that has changed with this answer.
func (s *slowness) heard(took, ttl time.Duration) (slow error, changed bool) {
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
