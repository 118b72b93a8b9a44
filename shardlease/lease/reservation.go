package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A Reservation keeps a released lease for the workers or sessions with one name, for a limited time.
// It begins with the change of hands that released the lease, and the next change of hands ends it. It
// is a rule among workers and no part of the fence: no write is refused because of it. A worker with
// another name does not claim the lease until Lasts has passed since it first saw the reservation, or
// since Last.At by its own wall clock, whichever is earlier. So a wrong clock can only shorten the
// reservation.
type Reservation struct {
	For   string        // the name of the worker or session; empty: there is no reservation
	Lasts time.Duration // in whole milliseconds, up to a day
}

// didReassign is what a command did that reserved a lease: see [Transfer].
const didReassign = "reassigned"

// IsZero reports whether r reserves nothing.
func (r Reservation) IsZero() bool { return r == Reservation{} }

// Validate reports why r cannot be stored.
func (r Reservation) Validate() error {
	var lasts error
	if r.Lasts <= 0 || r.Lasts > rebalance.MaxDuration || r.Lasts%time.Millisecond != 0 {
		lasts = invalid("reservation", fmt.Sprintf("must last whole milliseconds, from 1 ms to %v", rebalance.MaxDuration))
	}
	return errors.Join(validName("reserved for", r.For), lasts)
}

// validateReservation reports a reservation in a row that no command has just released.
func (r Row) validateReservation() error {
	if r.Reserved.IsZero() {
		return nil
	}
	if !r.Owner.IsZero() || r.Finished || r.Quarantined || r.Removed || r.Last.Did != didReassign {
		return invalid("reservation", "must be empty unless a command has just taken the lease from its owner")
	}
	return r.Reserved.Validate()
}
