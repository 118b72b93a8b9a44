// Package generation computes the fencing tokens that do not follow from the row
// before: the first of a row, and the one after a loss. The transitions issue
// them, and the check of every write computes them again.
package generation

import (
	"math"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// Lost is how many changes of hands a table may have lost, whatever its workers'
// clocks said when they made its rows.
const Lost = 1 << 22

// epoch is where first generations are counted from. It is also where the fake
// time of testing/synctest begins, so that users' tests need not set a clock.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// First is the generation of a row created at that time: the seconds since 2000
// in the upper bits, with room below for four million changes of hands in every
// second. A row, a table or a group that is lost and created again therefore
// starts above everything that was issued before, and no sink has to forget.
func First(at time.Time) int64 {
	seconds := at.Unix() - epoch.Unix()
	return min(max(seconds, 1), math.MaxInt64>>23) << 22
}

// ValidClock refuses the time of a clock that was never set: a first generation
// made from it would lie below everything issued before.
func ValidClock(at time.Time) error {
	if at.Before(epoch) {
		return &checkpoint.InvalidError{Field: "clock", Rule: "must be set: it stands before " + epoch.Format(time.DateOnly)}
	}
	return nil
}
