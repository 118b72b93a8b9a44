package core

// The state of health of a worker, for people and probes.
//
// Called by the shell after a step.
//
// Invariant: Status changes nothing.

// Status returns the worker's state of health.
func (e *Engine) Status() Status {
	c := &e.seat
	s := Status{
		Seated: c.phase == seated, Resting: c.phase == unseated && e.turn.now.Mono < c.rest,
		Leaving: e.leave.on, Draining: e.leave.all, Restored: c.table.restored, Proven: c.table.proven,
		Listed:  e.watch.known,
		Sourced: e.feed.complete > 0 || e.feed.answered || len(e.facts.all) > 0 || !e.plans(&e.turn),
		Held:    e.shards.held(), Trust: c.trust.until,
		StoreFault: e.faults.store.err, SourceFault: e.faults.source.err,
		CommitsFail: e.faults.commits.shown(), Unwell: e.faults.unwell.shown(),
	}
	for _, of := range e.shards.all {
		if of.ask != nil {
			s.Requested++
		}
		if of.t != nil && of.t.give != nil {
			s.Moving++
		}
	}
	s.Planned = s.Listed && s.Sourced && e.follow.revision > 0
	if c.phase != unseated {
		s.Incarnation = c.me
	}
	if plan := &e.watch.plan; plan.Unplaced > 0 {
		s.Unplaced = Fault{Count: int(plan.Unplaced), Shards: plan.Examples}
	}
	return s
}
