package checkpoint

import (
	"cmp"
	"fmt"
	"time"
)

const (
	// defaultEvery is what a Policy without Every means. What was marked and
	// not written is processed again after a crash: it is that much work.
	defaultEvery = 5 * time.Second
	// maxEvery is the longest a Policy may ask for, because a longer wait is a slip of units.
	// A negative Every turns timed writes off.
	maxEvery = time.Hour
)

// A Policy says when marks are written. The zero value means the defaults.
//
// A mark is due as soon as either rule says so. With both off, only what asks
// for a write by itself causes one: a commit, an offer, a drain, the handler's
// return and the end of the shard. These never wait for the policy.
type Policy struct {
	// Every is how long a mark waits at most. Time alone causes one write of a shard
	// per such period, at a moment of its own, so that the shards of a worker do not
	// commit in step. Default 5 s; at most 1 h; negative: time alone never causes
	// a write.
	Every time.Duration
	// Marks is how many marks wait at most. Default, and when negative: any
	// number. Of those that wait only the last one is written.
	Marks int
}

// Validate reports what about p is out of bounds, as an [*InvalidError].
func (p Policy) Validate() error {
	if p.Every > maxEvery {
		return &InvalidError{
			Field: "Policy.Every",
			Rule:  fmt.Sprintf("must be at most %v, is %v; negative turns timed writes off", maxEvery, p.Every),
			Limit: int64(maxEvery),
		}
	}
	return nil
}

// Due reports whether a write is due now for so many marks that wait, the first
// of them since first. Both instants are counted from any one start.
func (p Policy) Due(marks int, first, now time.Duration) bool {
	if marks <= 0 {
		return false
	}
	at, timed := p.At(first)
	return timed && now >= at || p.Marks > 0 && marks >= p.Marks
}

// At is the instant from which on a mark made at first is due, whatever comes
// after it; false: time alone never makes it due.
func (p Policy) At(first time.Duration) (time.Duration, bool) {
	// The default is filled in here and not by the caller: there is then no
	// policy that somebody forgot to fill in.
	every := cmp.Or(p.Every, defaultEvery)
	return first + every, every > 0
}
