package mutants

// shardMutants break the rules about which shards a worker claims, requests and hands over.
func shardMutants() []mutant {
	return []mutant{
		{"a row that cannot be read is not overwritten", "internal/core.Engine.sawRows",
			cut("s.row.malformed"), inEngine, "TestUnreadableRowIsNotClaimed"},
		{"a row that cannot be read is not read all the time", "internal/core.shard.got",
			swap(`2 * t.beat`, `t.beat / 8`), inEngine, "TestUnreadableRowOfADeadWorker"},
		{"the row of a shard is read before the shard is quarantined", "internal/core.shard.claim",
			never("sure"), inEngine, "TestShardIsReadBeforeItIsSetAside"},
		{"the rows of parents are read again after a while", "internal/core.Engine.ready",
			without("p.row.answered.add"), inCore, "TestParentIsRewound"},
		{"children wait for their parents, whatever the plan says", "internal/core.Engine.ready",
			swap(`ready && at.Finished`, `ready`), inCore, "TestChildTooEarlyInATarget"},
		{"a parent that is listed again is not finished", "internal/core.Engine.ready",
			without("=src != nil && src.listed"), inCore, "TestChildTooEarlyInATarget"},
		{"a parent that is not known may have a row", "internal/core.Engine.ready",
			swap(`e.feed.shown <= p.row.asked`, `false`), inCore, "TestChildTooEarlyInATarget"},
		{"a shard that was started waits for no parent", "internal/core.shard.seek",
			without("begun"), inEngine, "TestChildOutlivesItsParentsRow"},
		{"an adopted shard was not started by the adoption", "internal/core.begun",
			swap(`last.From != ""`, `last.From != "" || last.Reason == "adopted"`), inEngine, "TestAdoptedChild"},
		{"an adopted shard that was started before goes on", "internal/core.begun",
			swap(`past.From != ""`, `false`), inEngine, "TestAdoptedChild"},
		{"a shard is removed only if two listings lack it", "internal/core.Engine.retire",
			swap(`$lacked >= 2`, `$lacked >= 1`), inEngine, "TestTwoListingsHaveToLackAShard"},
		{"a shard that was finished is reported on the seat", "internal/core.Engine.happened",
			swap(`e.news.add(t, lease.NewsFinished, s.name, e.follow.revision)`, `_ = s`), inCore, "TestChildrenInALargeFleet"},
		{"failing shards rest", "internal/core.shard.claimable",
			never("failed"), inEngine, "TestFailingShardsRest"},
		{"held shards move only when the set of seats is stable", "internal/core.watch.still",
			swap(`changed.Add(stillFor)`, `changed`), inEngine, "TestMovesWaitForStillSeats"},
		{"held shards move only within MaxMoves", "internal/core.shard.pursue",
			never("room"), inEngine, "TestBudgetDelaysMoves"},

		// Moving a shard.
		{"a request is for a generation", "internal/core.Engine.readWants",
			swap(`s != nil && s.t != nil && w.Generation == s.t.generation`, `s != nil && s.t != nil`), inEngine, "TestWantForAnotherGeneration"},
		{"commits wait for an offer", "internal/core.offer.holds",
			never("heldoffer"), inEngine, "TestCommitsWaitForAnOffer"},
		{"a refused commit of an offered shard reports its unknown outcome", "internal/core.shard.refused",
			swap(`of.offer.torn = a.Torn`, `of.offer.torn = false`), inEngine, "TestTornCommitOfAnOfferedShard"},
		{"a successor waits as long as the owner may take to poll", "internal/core.shard.pursue",
			swap(`max(t.beat, _)`, `t.beat`), inEngine, "TestSlowOwnerIsNotSeized"},
		{"a drain ends although a write is open", "internal/core.shard.tend",
			swap(`s.windDown(t, w)`, `func() { if _, busy := s.row.copy.Open(); !busy { s.windDown(t, w) } }()`), inEngine, "TestDrainEndsThoughAWriteIsOpen"},
	}
}
