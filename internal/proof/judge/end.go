package judge

import (
	"fmt"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An End is the end of a tenure, or the end of the soft context of its handler, with everything that can be the reason.
type End struct {
	Cause event.Cause
	Err   error
	Tenure
	Ended Ended // how the table ended the generation
	Soft  bool  // the handler has been told to wind down

	// Acts of the handler.
	Returned  bool
	Released  bool
	Finishing bool

	// Reasons outside the handler.
	Requested  bool // a seat has requested the shard
	Stopping   bool // the worker was told to stop
	Untrusted  bool // the worker could no longer trust its lease
	Unanswered bool // for the commit timeout, no write of the worker for the shard was answered, or no mark was accepted
	Stalls     bool // the configuration limits how long a handler may make no progress
	Unlisted   bool // the source of the worker lists the shard no more
	Complete   bool // the row is finished
	Removed    bool // the shard was removed after its end
	WentBack   bool // the table went back in time, not long ago
	Calm       bool // nothing has gone wrong for so long that it cannot be a reason any more
}

// WindDown returns an error unless there is a reason for the handler to wind down.
func (e End) WindDown() error {
	ok := false
	switch e.Cause {
	case event.CauseHandedOff:
		ok = e.Requested
	case event.CauseUnlisted:
		ok = e.Unlisted
	case event.CauseStalled:
		ok = e.Stalls || e.Unanswered
	case event.CauseStopped:
		ok = e.Stopping || e.Unanswered
	case event.CauseGivenUp:
		ok = e.Released
	}
	if ok && !e.Soft {
		return nil
	}
	return fmt.Errorf("S4: %v is told to wind down for no reason that can be seen: %+v", e.Tenure, e)
}

// Check returns an error unless there is a reason for the end of the tenure: in the table, on the clock, or in the
// handler. A lost reply is no reason.
func (e End) Check() error {
	ok := false
	switch e.Cause {
	case event.CauseExpired, event.CauseUnreachable:
		ok = e.Untrusted && !e.Calm
	case event.CauseHandedOff:
		ok = e.Requested && (e.Soft || e.Ended.Reason == lease.ReasonHandoff || e.Ended.Reason == lease.ReasonDrainTimeout)
	case event.CauseFenced:
		ok = e.Ended.Next > 0 || e.WentBack
	case event.CauseForced:
		ok = e.Ended.Reason == lease.ReasonForced
	case event.CauseFinished:
		ok = e.Finishing && e.Complete
	case event.CauseGivenUp:
		ok = e.Soft || e.Returned || e.Released
	case event.CauseStalled: // if the soft context ended first, WindDown has checked the reason
		ok = e.Soft || (e.Returned || e.Finishing) && e.Unanswered
	case event.CauseStopped:
		ok = e.Soft || e.Stopping
	case event.CauseUnlisted:
		ok = e.Soft
	case event.CauseVanished: // its end was stored, and the shard was removed before the answer arrived
		ok = (e.WentBack || e.Finishing && e.Removed) && !e.Calm
	case event.CauseConflict:
		ok = e.WentBack && !e.Calm
	}
	if ok {
		return nil
	}
	return fmt.Errorf("S4: %v ends for no reason that can be seen: %+v", e.Tenure, e)
}
