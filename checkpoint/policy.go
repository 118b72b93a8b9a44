package checkpoint

import (
	"cmp"
	"fmt"
	"time"
)

const (
	// defaultEvery is the default of Policy.Every. After a crash, everything after the last
	// committed mark is processed again: at most about the work of this time.
	defaultEvery = 5 * time.Second
	// maxEvery is the longest Policy.Every. A longer one is probably a wrong unit. A negative Every
	// turns timed writes off.
	maxEvery = time.Hour
)

// A Policy decides when marks are written. The zero value means the defaults.
//
// A mark is due as soon as either rule applies. With both rules off, a mark is written only when
// the handler commits, winds down or returns, when the worker offers the shard, or when the shard
// ends. These writes never wait for the policy.
type Policy struct {
	// Every is how long a mark waits at most. A shard with new marks is written once in each
	// period of this length. Each shard has its own moment in the period, so that the shards of a
	// worker do not commit all at once. Default 5 s; at most 1 h; negative: time alone never
	// causes a write.
	Every time.Duration
	// Marks is how many marks wait at most. Default, and if negative: any number. Of the waiting
	// marks only the last one is written.
	Marks int
}

// Validate returns an [*InvalidError] if p is out of bounds.
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

// Due reports whether a write is due now if that many marks wait, the first of them since first.
// Both times count from the same start.
func (p Policy) Due(marks int, first, now time.Duration) bool {
	if marks <= 0 {
		return false
	}
	at, timed := p.At(first)
	return timed && now >= at || p.Marks > 0 && marks >= p.Marks
}

// At returns the time from which a mark that was made at first is due, even if other marks follow
// it; false: time alone never makes it due.
func (p Policy) At(first time.Duration) (time.Duration, bool) {
	// At and not its caller fills in the default, so that nobody can forget it.
	every := cmp.Or(p.Every, defaultEvery)
	return first + every, every > 0
}
