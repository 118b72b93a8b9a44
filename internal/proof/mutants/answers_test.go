package mutants

// answerMutants break the rules for rare answers.
func answerMutants() []mutant {
	return []mutant{
		// A refusal shows that somebody has written by hand, or that the table went back.
		{"another owner under the same generation is reported as a conflict", "internal/engine.tenure.lostBy",
			never("protocol.Conflict"), inEngine, "TestConflict"},
		{"the owner in a row is believed after a conflict", "internal/engine.shard.unsettle",
			cut("s.forget"), inEngine, "TestConflict"},
		{"what should be impossible is not tried again at once", "internal/engine.shard.unsettle",
			swap(`t.now.Mono.Add(t.cfg.TTL)`, `t.now.Mono`), inEngine, "TestRowIsGone"},
		{"a shard whose row is gone is made again", "internal/engine.shard.unsettle",
			swap(`s.aim.mine = mine`, `_ = mine`), inEngine, "TestRowIsGone"},
		{"a row that is gone is no loss for a shard that is given up", "internal/engine.tenure.refused",
			never("protocol.Gone"), inEngine, "TestRowIsGoneWhenItIsGivenUp"},
		{"an older row does not replace the known one", "internal/protocol.Copy.Answer",
			always("compare"), inEngine, "TestRowWentBack"},
		{"a row that went back is reported", "internal/engine.shard.settled",
			never("wentback"), inEngine, "TestRowWentBack"},
		{"a write by hand under the generation of a tenure does not end it", "internal/engine.tenure.held",
			swap(`m.sent = m.accepted`, `return of.refused(t, r, aim, what, a, h)`), inEngine, "TestARowThatSomebodyTouched"},
		{"a worker notices by a read that the row of its shard is gone", "internal/engine.Engine.got",
			swap(`s.end(t, event.CauseVanished, nil)`, `_ = event.CauseVanished`), inEngine, "TestARowThatIsGoneIsMissed"},
		{"a session notices by a read that the row of its lease is gone", "internal/engine.Session.got",
			swap(`s.end(t, event.CauseVanished, nil)`, `_ = event.CauseVanished`), inEngine, "TestARowThatIsGoneIsMissed"},
		{"a row that has forgotten a change of hands gives no reason for it", "internal/engine.firstAfter",
			never("first.generation"), inEngine, "TestFencedOrForced"},
		{"a mark that the rules refuse holds up nothing", "internal/engine.tenure.sendMark",
			never("errbackwards"), inEngine, "TestABackwardMarkHoldsUpNothing"},

		// Answers are late.
		{"an open write is under way at most once", "internal/engine.row.sendAgain",
			without("!try.sent"), inEngine, "TestOneWriteAtATime"},
		{"so is the write of a seat, a target, the plan or the wishes", "internal/engine.retry.due",
			without("!r.sent"), inEngine, "TestOneWriteAtATime"},
		{"so is a tick, also for longer than until the next one", "internal/engine.duty.keep",
			without("swap.try.sent"), inEngine, "TestOneWriteAtATime"},
		{"a lone worker keeps its seat, whatever fails", "internal/engine.Engine.replaceable",
			without("others"), inEngine, "TestALoneWorkerKeepsItsSeat"},
		{"a worker that gave up its seat rests", "internal/engine.common.surrender",
			cut("mine.rest"), inEngine, "TestAWorkerThatCannotWriteRows"},
		{"a store that is quick again ends the report", "internal/engine.faults.storeSlow",
			cut("lower"), inEngine, "TestASlowStoreIsReported"},
		{"another fault of the source is reported at once", "internal/engine.faults.sourced",
			never("plainwords"), inEngine, "TestAnotherFaultOfTheSource"},

		// Moves end in a rare way.
		{"a successor waits for no stalled handler", "internal/engine.tenure.stall",
			swap(`wind.cause, wind.since = event.CauseStalled, t.now.Mono`, `_ = wind`), inEngine, "TestASuccessorWaitsForNoStalledHandler"},
		{"a stop limits a move", "internal/engine.tenure.drainTerms",
			always("release"), inEngine, "TestAStopLimitsAMove"},
		{"a claim that is answered after a stop starts nothing", "internal/engine.shard.acquire",
			swap(`s.giveBack(t, w.self, lease.ReasonReleased)`, `s.start(t)`), inEngine, "TestAClaimThatIsAnsweredAfterAStop"},
		{"a row that went back is not released again and again", "internal/engine.shard.giveBack",
			never("s.row.behind"), inEngine, "TestLeaverOfARowThatWentBack"},
		{"a successor calls its hook", "internal/engine.shard.pursue",
			never("a.hook"), inEngine, "TestASuccessorPreparesFirst"},
		{"a move that ends without a result calls the preparation off", "internal/engine.shard.callOff",
			never("hook"), inEngine, "TestAPreparationIsCalledOff"},
		{"a cooperative owner is never seized", "internal/handoff.Successor",
			never("cooperative"), inEngine, "TestACooperativeOwnerIsNeverSeized"},
	}
}
