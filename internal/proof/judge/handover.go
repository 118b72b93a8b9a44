package judge

import (
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Handover is a write of a row that may have changed hands, with everything that can entitle a worker to the change.
type Handover struct {
	Accepted
	Now      time.Duration
	Clocks   Clocks
	Drain    time.Duration
	Seats    Seats
	Requests Requests
	Holder   Holder // of the generation that ended

	Seated   bool // the seat of the former owner is in the table
	Same     bool // the next owner is a later incarnation of the same process, so it knows that the former tenure is over
	WentBack bool // the table went back in time, not long ago
}

// A Holder is what a world knows of the owner of a tenure at this moment. The zero value is a dead owner, or one of whom
// the world knows nothing.
type Holder struct {
	Works  bool          // its handler runs, and has not been told that the tenure is over
	Trusts bool          // it believes that it holds the shard
	Winds  bool          // its handler was told to wind down, and its process is neither paused nor cut off
	Since  time.Duration // when its handler was told to wind down
}

// Check returns an error if a worker was not entitled to the change.
func (h *Handover) Check() error {
	before, after := h.Before, h.After
	var unasked error
	if to := after.OfferedTo; to != "" && to != before.OfferedTo && !h.requested(to) {
		unasked = fmt.Errorf("S4: %v was offered to a worker that did not request it", after)
	}
	if after.Generation == before.Generation || before.Owner.IsZero() {
		return unasked
	}
	return errors.Join(unasked, h.hands())
}

func (h *Handover) hands() error {
	before, after := h.Before, h.After
	switch reason := after.Last.Reason; {
	case reason == lease.ReasonExpired: // also if it was quarantined
		return h.recovered()
	case h.Write.Op == lease.OpSwap:
		return h.given()
	case reason == lease.ReasonHandoff:
		if before.OfferedTo != after.Owner.Incarnation {
			return fmt.Errorf("S4: %v was taken by %v, and not offered to it", before, after.Owner)
		}
	case after.Owner.IsZero(): // by command
	// A session has acquired the lease for a caller that is gone, and acquires it again for another one.
	case after.Owner.Incarnation == before.Owner.Incarnation && !h.Holder.Trusts:
	case reason != lease.ReasonDrainTimeout:
		return fmt.Errorf("S4: %v was taken by %v: %s", before, after.Owner, reason)
	case !h.requested(after.Owner.Incarnation) || h.Now-h.Requests[h.request(after.Owner.Incarnation)] < h.Clocks.Least(2*h.Drain):
		return fmt.Errorf("S4: %v was seized by %v before two drain times had passed since its request", before, after.Owner)
	}
	return nil
}

func (h *Handover) request(by lease.Incarnation) Request { return Request{by, TenureOf(h.Before)} }

func (h *Handover) requested(by lease.Incarnation) bool {
	_, ok := h.Requests[h.request(by)]
	return ok
}

// given checks that an owner gives a shard up only after its handler has returned, or was cut off when its time was over,
// and only to a worker that has requested the shard.
func (h *Handover) given() error {
	before, after := h.Before, h.After
	switch wound := h.Now - h.Holder.Since; {
	case h.Holder.Works:
		return fmt.Errorf("S4: overlap: %v was given up (%s) while its handler runs", before, after.Last.Reason)
	case after.Last.Reason == lease.ReasonDrainTimeout && h.Holder.Winds && wound < h.Clocks.Least(h.Drain):
		return fmt.Errorf("S4: the handler of %v was cut off after %v", before, wound)
	case !after.Owner.IsZero() && !h.requested(after.Owner.Incarnation):
		return fmt.Errorf("S4: %v was given to a worker that did not request it: %v", before, after)
	}
	return nil
}

// recovered checks that a shard is recovered, or quarantined in its place, only when the seat of its owner is gone, and
// the lock delay has passed since then. By that time an owner that still runs has ended its tenure by its own clock.
func (h *Handover) recovered() error {
	if h.Same {
		return nil
	}
	owner := h.Before.Owner
	var early, running error
	switch seat := h.Seats[owner.Incarnation]; {
	case h.WentBack:
	case !seat.Gone && h.Seated:
		early = fmt.Errorf("S4: %v was recovered by %q, and its owner's seat is there", h.Before, h.After.Last.By)
	case owner.LockDelay > 0 && h.Now-seat.Deleted < h.Clocks.Least(owner.LockDelay):
		early = fmt.Errorf("S4: %v was recovered %v after its owner's seat was deleted, and so before the lock delay has passed", h.Before, h.Now-seat.Deleted)
	}
	if h.Holder.Trusts {
		running = fmt.Errorf("S4: %v was recovered by %q while its holder still trusts itself", h.Before, h.After.Last.By)
	}
	return errors.Join(early, running)
}
