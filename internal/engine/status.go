package engine

// A Status is what a health check wants to know.
type Status struct {
	Seated   bool
	Restored bool    // the table went back in time: nothing is claimed
	Planned  bool    // it has planned since it took its seat, and knows of shards
	Held     int     // tenures
	Trust    Instant // how long it may hold them without another beat

	CommitsFail Fault // the table accepts no marks of these shards
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
		Seated: e.seat.phase == seated, Restored: e.seat.restored, Planned: (e.looks.rowsStep > 0 || e.looks.seeking) && !e.looks.planWanted && (e.feed.complete || len(e.shards) > 0),
		Held: e.fleet.held, Trust: e.seat.trust,
	}
	if f := &e.faults.commits; f.on {
		s.CommitsFail = Fault{Since: f.since, Count: f.count, Shards: f.shards}
	}
	return s
}
