package engine

import "github.com/shardlease/shardlease-go/shardlease/lease"

// A Status is what a health check wants to know.
type Status struct {
	Incarnation lease.Incarnation // of the seat; empty: there is none
	Seated      bool
	Resting     bool // it has given up its seat because it could write no row, and waits before it takes another
	Leaving     bool // it shuts down
	Draining    bool // it shuts down, and no longer waits for others to request its shards
	Restored    bool // the table went back in time: nothing is claimed
	Listed      bool // it has listed the rows since it took its seat
	Proven      bool // the store has answered, since the worker took its seat, that the table is the one it was
	Sourced     bool // the source has answered, or rows are known without it
	Planned     bool // all of this, and it has planned

	Held      int     // tenures
	Moving    int     // of these, the shards that another worker has requested
	Requested int     // shards that this worker requests, or prepares for
	Trust     Instant // how long it may hold them without another beat

	CommitsFail Fault // the table accepts no marks of these shards
	Unplaced    Fault // the plan has no worker with room for these shards
	Unwell      Fault // handlers of these shards have failed in a row

	StoreFault  error // the latest error of the store, while that fault lasts
	SourceFault error // the latest error of the source, while that fault lasts
}

// A Fault is a fault that lasts.
type Fault struct {
	Since  Instant
	Count  int      // how many shards the fault concerns; 0: there is no such fault
	Shards []string // the first ten of them
}

// Status is the worker's state of health.
func (e *Engine) Status() Status {
	s := Status{
		Seated: e.seat.phase == seated, Resting: e.seat.phase == standing && e.now.Mono < e.seat.rest,
		Leaving: e.leave.on, Draining: e.leave.all, Restored: e.seat.restored, Proven: e.seat.proven,
		Listed:  e.looks.rowsStep > 0 || e.looks.seeking,
		Sourced: e.feed.complete || e.feed.answered || len(e.shards) > 0,
		Held:    e.fleet.held, Moving: e.fleet.givings, Requested: e.fleet.asks, Trust: e.seat.trust,
		StoreFault: e.faults.store.err, SourceFault: e.faults.source.err,
	}
	s.Planned = s.Listed && s.Sourced && !e.looks.planWanted
	if e.seat.phase != standing {
		s.Incarnation = e.seat.me
	}
	if f := &e.faults.commits; f.on {
		s.CommitsFail = Fault{Since: f.since, Count: f.count, Shards: f.shards}
	}
	return s
}
