package mutants

// inCore is the package of the engine that follows the target assignment.
const inCore = "./internal/core"

// holdMutants break the rules of the owner's and of the successor's side.
func holdMutants() []mutant {
	return []mutant{
		{"a pause of the process is no silence of its handlers", "internal/core.Engine.Step",
			cut("overslept"), inCore, "TestPauseIsNoSilence"},
		{"a stall is confirmed before it counts", "internal/core.shard.stall",
			swap(`m.doubted.Add(stallGrace)`, `m.doubted`), inCore, "TestStallIsConfirmed"},
		{"a read that failed waits", "internal/core.shard.get",
			never("try.at"), inCore, "TestFailingReadsArePaced"},
		{"a standing request is looked after once per heartbeat", "internal/core.shard.watchRow",
			swap(`pace = t.beat`, `pace = paceWaiting`), inCore, "TestStandingRequestIsCheap"},
		{"a listing that began before the row was read shows no death", "internal/core.fleet.owner",
			always("peers.begun"), inCore, "TestNewcomerIsNotRobbed"},
		{"a request that a plan ends is reported", "internal/core.shard.acquire",
			swap(`s.retire(t, w.me())`, `s.callOff(t, w.me())`), inCore, "TestSecondJoinRedirectsMoves"},
		{"a decline outlasts the notice and the rest of the others", "internal/core.shard.rest",
			swap(`s.aim.rest.Add(2 * t.beat)`, `s.aim.rest`), inCore, "TestFailedShardIsLeftToOthers"},
		{"what an operator has freed is tried again", "internal/core.shard.news",
			never("reasonforced"), inCore, "TestFreedShardIsTriedAgain"},
		{"an evicted seat does not come back", "internal/core.peers.settled",
			cut("append(slices.Clip(p.evicted)"), inCore, "TestEvictedSeatStaysGone"},
	}
}
