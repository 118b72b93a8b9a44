package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A Reservation keeps a released lease for the workers or sessions with one name, for a limited time. It
// begins with the change of hands that released the lease, and the next change of hands ends it. It is a
// rule among workers and no part of the fence: no store refuses a write because of it.
//
// A worker with another name claims the lease when Delay and Lasts have passed since Last.At by the worker's
// wall clock, or since the worker first saw the reservation, whichever is earlier. So a wrong clock can only
// shorten the reservation for a name.
//
// Delay comes first, and keeps the lease from everybody. It counts from when a session first saw the
// reservation, by that session's monotonic clock alone, so no wrong clock shortens it.
type Reservation struct {
	For   string        // the name of the worker or session; empty: the lease is reserved for no name
	Lasts time.Duration // in whole milliseconds, up to a day
	Delay time.Duration // the lock delay of the owner from which a command took the lease ([Owner]); 0: none
}

// These are the Did of the [Transfer] of a command that leaves a reservation: for a name, and for none. A holder that
// gives its lease up for a move leaves them too.
const (
	didReassign = "reassigned"
	didRelease  = "released"
)

// didRewind is the Did of the [Transfer] of a command that moves the checkpoint.
const didRewind = "rewound"

// IsZero reports whether r reserves nothing.
func (r Reservation) IsZero() bool { return r == Reservation{} }

// Validate reports why r cannot be stored.
func (r Reservation) Validate() error {
	var lasts error
	if r.For == "" && r.Lasts == 0 && r.Delay > 0 {
		return validDelay(r.Delay)
	}
	if r.Lasts <= 0 || r.Lasts > rebalance.MaxDuration || r.Lasts%time.Millisecond != 0 {
		lasts = invalid("reservation", fmt.Sprintf("must last whole milliseconds, from 1 ms to %v", rebalance.MaxDuration))
	}
	return errors.Join(validName("reserved for", r.For), lasts, validDelay(r.Delay))
}

// validateReservation returns an error if the row has a reservation and the last change of hands is none
// that makes such a reservation.
func (r Row) validateReservation() error {
	if r.Reserved.IsZero() {
		return nil
	}
	did := didReassign
	if r.Reserved.For == "" {
		did = didRelease
	}
	if !r.Owner.IsZero() || r.Finished || r.Quarantined || r.Removed || r.Last.Did != did {
		return invalid("reservation", "must be empty unless a command or a move has just taken the lease from its owner")
	}
	return r.Reserved.Validate()
}
