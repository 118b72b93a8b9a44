package engine

import (
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The state of health of a worker, for people and probes.
//
// Called by the shell after a step.
//
// It is a reading of the parts as they are, and not what the observer was told: an event that was missed makes no
// difference. Nothing in an engine reads it.
//
// Invariant: Status changes nothing.

// A Status is what a health check wants to know.
type Status struct {
	Incarnation lease.Incarnation // of the seat; empty: there is none
	Seated      bool
	Resting     bool // it has given up its seat because it could write no row, and waits before it takes another
	Leaving     bool // it shuts down
	Draining    bool // it shuts down, and no longer waits for others to request its shards
	Restored    bool // the table went back in time: nothing is claimed
	Listed      bool // it has looked for the plan since it took its seat
	Proven      bool // the store has answered, since the worker took its seat, that the table is the one it was
	Sourced     bool // the source has answered, or rows are known without it
	Planned     bool // Listed and Sourced, and it follows a revision of the plan

	Revision int64 // the newest revision of the plan that it knows; 0: none
	Settled  bool  // it holds exactly the shards of its target of that revision

	Unclear bool // of a session: it does not know the kind of the group, because its record could not be read and was deleted
	Foreign bool // the group is of the other kind: one of sessions for a worker, one of workers for a session

	Held      int       // tenures
	Moving    int       // of these, the shards that another worker has requested
	Unraised  int       // tenures whose fences are not all raised
	Requested int       // shards that this worker requests, or prepares for
	Trust     Instant   // how long it may hold them without another beat
	TrustWall time.Time // the same by the wall clock

	Refused int     // of a session: acquisitions that found a lease taken and did not wait
	Waited  int     // of a session: acquisitions that found a lease taken and waited
	Waits   Instant // of a session: since when the oldest wait lasts; 0: no caller waits for a lease that is taken

	CommitsFail Fault // the table accepts no marks of these shards
	Unplaced    Fault // the plan has no worker with room for these shards
	Unwell      Fault // handlers of these shards have failed in a row

	Wishes []lease.Wish // what operators want, if this worker reports faults of the fleet

	Unread      error // reads of the table fail: it does not follow the plan
	StoreFault  error // the latest error of the store, while that fault lasts
	SourceFault error // the latest error of the source, while that fault lasts
}

// A Fault is a fault that lasts.
type Fault struct {
	Since  Instant
	Count  int      // how many shards the fault concerns; 0: there is no such fault
	Shards []string // the first ten of them
}

// Status returns the worker's state of health.
func (e *Engine) Status() Status {
	s := e.status(&e.seat)
	s.Listed, s.Foreign = e.watch.known, e.sessions
	s.Sourced = e.feed.complete > 0 || e.feed.answered || len(e.facts.all) > 0 || !e.plans(&e.turn)
	s.Planned = s.Listed && s.Sourced && e.follow.revision > 0
	s.Revision, s.Settled = e.revision(), e.follow.settles(e.revision(), e.shards.all)
	s.Unread = e.faults.unread.err
	s.SourceFault, s.Unwell = e.faults.source.err, e.faults.unwell.shown()
	for _, of := range e.shards.all {
		if of.ask != nil {
			s.Requested++
		}
		if of.t != nil && of.t.give != nil {
			s.Moving++
		}
	}
	if len(e.watch.wishes.List) > 0 && e.reporter() {
		s.Wishes = e.watch.wishes.List
	}
	if plan := &e.watch.plan; plan.Unplaced > 0 {
		s.Unplaced = Fault{Count: int(plan.Unplaced), Shards: plan.Examples}
	}
	return s
}

// Status returns the session's state of health. Requested is the number of leases that it waits for. A session has no
// source and no plan: these are fine when the kind of the group is known.
func (e *Session) Status() Status {
	s := e.status(&e.seat)
	s.Listed, s.Sourced, s.Planned, s.Foreign, s.Unclear = e.kind.proven, true, e.kind.proven, e.kind.foreign, e.kind.unclear
	s.Requested = e.shards.wanted()
	s.Refused, s.Waited, s.Waits = e.contention.refused, e.contention.waited, e.contention.since()
	return s
}

// status returns what the state of health of a worker and of a session have in common.
func (c *common) status(mine *seat) Status {
	s := Status{
		Seated: mine.phase == seated, Restored: mine.table.restored != nil, Proven: mine.table.proven, Trust: mine.trust.until,
		Resting: mine.phase == unseated && c.turn.now.Mono < mine.rest, Leaving: c.leave.on, Draining: c.leave.all, Held: c.shards.held(),
		Unraised: c.shards.unraised(), StoreFault: c.faults.store.err, CommitsFail: c.faults.commits.shown(),
	}
	if mine.phase != unseated {
		s.Incarnation = mine.me
	}
	if mine.trust.until > 0 {
		s.TrustWall = time.Unix(0, int64(mine.trust.wall)).Add(c.turn.trusted())
	}
	return s
}
