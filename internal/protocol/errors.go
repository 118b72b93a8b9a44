package protocol

import "github.com/shardlease/shardlease-go/shardlease/lease"

// The rules by which a row does not allow a transition. Two more are exported for callers that
// branch on them: lease.ErrHeld and lease.ErrOutdated.
const (
	ErrNotHolder      lease.Rule = "another incarnation holds the shard under the same generation"
	ErrOtherRow       lease.Rule = "the hold is of another row"
	ErrNotHeld        lease.Rule = "nobody holds the shard"
	ErrFinished       lease.Rule = "the shard is finished"
	ErrQuarantined    lease.Rule = "the shard is quarantined"
	ErrNotQuarantined lease.Rule = "the shard is not quarantined"
	ErrRemoved        lease.Rule = "the shard is removed"
	ErrNotRemoved     lease.Rule = "the shard is not removed"
	ErrNotOffered     lease.Rule = "the shard is not offered to this successor"
	ErrSelf           lease.Rule = "a holder cannot hand over to itself"
	ErrOldImage       lease.Rule = "the row was read before the tenure began"
	ErrCheckpoint     lease.Rule = "the lease has a checkpoint"
	ErrDelays         lease.Rule = "its holder has a lock delay, which a rewind would drop: release the lease first"
	ErrNotPaused      lease.Rule = "moves are not paused"
	ErrReason         lease.Rule = "the transition does not allow this reason"
)

// The rules of the plan and of targets.
const (
	ErrNoPlan           lease.Rule = "there is no plan"
	ErrOtherRevision    lease.Rule = "another revision has been opened"
	ErrFinishedRevision lease.Rule = "the revision is finished"
	ErrOvertaken        lease.Rule = "the target has this revision or a higher one"
)

// The meanings of an answer to a write, beside the rules above and lease.ErrWentBack.
const (
	ErrMoved    lease.Rule = "the row has changed within its generation"
	ErrExists   lease.Rule = "the row exists already"
	ErrOpen     lease.Rule = "a write of this row is still open"
	ErrNotOpen  lease.Rule = "no write of this row is open"
	ErrGone     lease.Rule = "the row is gone"
	ErrConflict lease.Rule = "another incarnation holds the same generation"
)
