package protocol

import "github.com/shardlease/shardlease-go/shardlease/lease"

// An Ending is how the tenure before a change of hands ended. Code that treats several reasons alike asks for their ending,
// so a new reason gets its ending here and nowhere else.
type Ending uint8

// The endings. A reason that only a newer version knows has the ending 0.
const (
	NotHeld   Ending = iota + 1 // there was no tenure: nobody held the shard
	GivenUp                     // the owner gave the shard up, and nothing had failed
	Moved                       // the owner handed the shard over, or its time to do so was over
	Failed                      // the handler failed or stalled
	Evicted                     // the owner was evicted
	Commanded                   // a command of a person or of a supervisor ended it
)

// EndingOf returns how a tenure ended, given the reason for the change of hands that followed. The claim of a free
// shard has the reason for which the shard became free.
func EndingOf(r lease.Reason) Ending {
	switch r {
	case lease.ReasonInitial, lease.ReasonRemoved:
		return NotHeld
	case lease.ReasonReleased, lease.ReasonFinished, lease.ReasonUnlisted:
		return GivenUp
	case lease.ReasonHandoff, lease.ReasonDrainTimeout:
		return Moved
	case lease.ReasonFailed, lease.ReasonStalled:
		return Failed
	case lease.ReasonExpired:
		return Evicted
	case lease.ReasonForced, lease.ReasonAdopted:
		return Commanded
	}
	return 0
}
