package mutants

const inTranscript = "./internal/proof/transcript"

// adviceMutants break the rules of plans and targets that the explorer and the transcripts hold.
func adviceMutants() []mutant {
	return []mutant{
		{"a worker follows a target when its revision is complete", "internal/engine.follow.keep",
			swap(`_ || plan.Open || _`, `plan.Revision <= f.revision || !r.try.due(t)`), inExplorer, "TestPlans/eager:_the_plan_is_deleted_while_a_planner_is_paused"},
		{"a shard that only one source lists is placed", "internal/engine.fleet.reason",
			swap(`added || _`, `false`), inExplorer, "TestPlans/eager:_two_sources"},
		{"shards of workers that are gone are placed at once", "internal/engine.fleet.due",
			swap(`slices.ContainsFunc(w.plan.Watchers, gone)`, `false && gone("")`), inTranscript, "TestTranscripts"},
		{"the seat of an owner is read once after its row", "internal/engine.owners.owner",
			swap(`of.begun >= since`, `of.begun > since`), inTranscript, "TestTranscripts"},
		{"a worker that has left in good order is no reason to hurry", "internal/engine.Engine.sawSeats",
			swap(`!p.seat.Leaving && _`, `e.peers.find(p.seat.Incarnation) == nil`), inScale, "TestChangesOfALargeFleet/every_worker_is_replaced"},
		{"a leaving worker knows from hints that others expect its shards", "internal/engine.assignment.assign",
			swap(`owner != to`, `owner != to && len(next) > fewest`), inTranscript, "TestTranscripts"},
	}
}
