package mutants

// holdMutants break the rules of the owner's and of the successor's side.
func holdMutants() []mutant {
	return []mutant{
		{"a worker tries again what no plan gives to another", "internal/engine.shard.acquire",
			without("leave"), inEngine, "TestFailedShardReturns"},
		{"a worker whose handler does not return leaves the shard to others", "internal/engine.shard.acquire",
			cut("h.declined"), inEngine, "TestStuckHandlerLeavesItsShard"},
		{"a handler that returns in a moment leaves no shard to others", "internal/engine.shard.lingers",
			swap(`s.ended.Add(returnGrace)`, `s.ended`), inEngine, "TestStuckHandlerLeavesItsShard"},
		{"without Backoff a shard still rests for a moment", "internal/engine.tenure.leave",
			cut("pacemoving"), inEngine, "TestFailuresWithoutBackoff"},
		{"a pause of the process is no silence of its handlers", "internal/engine.common.step",
			cut("overslept"), inEngine, "TestPauseIsNoSilence"},
		{"a stall is confirmed before it counts", "internal/engine.tenure.stall",
			swap(`m.doubted.Add(stallGrace)`, `m.doubted`), inEngine, "TestStallIsConfirmed"},
		{"a read that failed waits", "internal/engine.row.get",
			never("try.at"), inEngine, "TestFailingReadsArePaced"},
		{"a standing request is looked after once per heartbeat", "internal/engine.shard.watchRow",
			swap(`pace = t.beat`, `pace = paceWaiting`), inEngine, "TestStandingRequestIsCheap"},
		{"a listing that began before the row was read shows no death", "internal/engine.fleet.owner",
			always("peers.begun"), inEngine, "TestNewcomerIsNotRobbed"},
		{"a request that a plan ends is reported", "internal/engine.shard.acquire",
			swap(`s.retire(t, w.me())`, `s.callOff(t, w.me())`), inEngine, "TestSecondJoinRedirectsMoves"},
		{"a decline outlasts the notice and the rest of the others", "internal/engine.tenure.leave",
			swap(`aim.rest.Add(2 * t.beat)`, `aim.rest`), inEngine, "TestFailedShardIsLeftToOthers"},
		{"what an operator has freed is tried again", "internal/engine.shard.news",
			never("reasonforced"), inEngine, "TestFreedShardIsTriedAgain"},
		{"an evicted seat does not come back", "internal/engine.peers.settled",
			cut("append(slices.Clip(p.evicted)"), inEngine, "TestEvictedSeatStaysGone"},
	}
}
