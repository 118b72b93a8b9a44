package protocol

import "github.com/shardlease/shardlease-go/shardlease/lease"

// Why a transition is not possible on the row it was asked of, beside the rules that
// callers outside branch on: lease.ErrHeld and lease.ErrOutdated.
const (
	ErrNotHolder      lease.Rule = "held by another incarnation under the same generation"
	ErrOtherRow       lease.Rule = "a hold of another row"
	ErrNotHeld        lease.Rule = "nobody holds it"
	ErrFinished       lease.Rule = "finished"
	ErrQuarantined    lease.Rule = "quarantined"
	ErrNotQuarantined lease.Rule = "not quarantined"
	ErrRemoved        lease.Rule = "removed"
	ErrNotRemoved     lease.Rule = "not removed"
	ErrNotOffered     lease.Rule = "not offered to this successor"
	ErrSelf           lease.Rule = "a holder cannot hand over to itself"
	ErrOldImage       lease.Rule = "the row was read before the tenure began"
	ErrReason         lease.Rule = "not a reason for this transition"
)

// What a settled write can mean beyond these and lease.ErrWentBack.
const (
	ErrMoved    lease.Rule = "the row has moved on within its generation"
	ErrExists   lease.Rule = "there is a row already"
	ErrOpen     lease.Rule = "a write of this row is still open"
	ErrNotOpen  lease.Rule = "no write of this row is open"
	ErrGone     lease.Rule = "the row is gone"
	ErrConflict lease.Rule = "another incarnation holds the same generation"
)
