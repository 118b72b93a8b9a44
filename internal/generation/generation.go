// Package generation computes the fencing tokens that do not follow from an earlier row: the first
// generation of a row, and the one after a loss. The transitions issue them, and the check of every
// write computes them again.
package generation

import (
	"math"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// Lost is how many changes of hands a table may have lost, for the case that the workers' clocks
// were wrong.
const Lost = 1 << 22

// epoch is the time from which first generations count. The fake time of testing/synctest begins
// there too, so users' tests need not set a clock.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// First returns the first generation of a row that is created at that time: the seconds since 2000
// in the upper bits, with room below for four million changes of hands in every second. If a row, a
// table or a group is lost and created again, its generations are therefore above all that were
// issued before, and sinks need not be reset.
func First(at time.Time) int64 {
	seconds := at.Unix() - epoch.Unix()
	return min(max(seconds, 1), math.MaxInt64>>23) << 22
}

// Time returns the time at which a row with that generation would be created with it: the inverse of First.
func Time(generation int64) time.Time { return time.Unix(epoch.Unix()+generation>>22, 0) }

// ValidClock returns an error for the time of a clock that was never set: a first generation from
// it would be below all that were issued before, and a tombstone from it would expire at once.
func ValidClock(at time.Time) error {
	if at.Before(epoch) {
		return &checkpoint.InvalidError{Field: "clock", Rule: "must be set: it is before " + epoch.Format(time.DateOnly)}
	}
	return nil
}
