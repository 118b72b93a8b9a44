package mutants

const inInspect = "./shardlease/inspect"

// inspectMutants break the rules by which package inspect judges a fleet.
func inspectMutants() []mutant {
	return []mutant{
		{"a told age may be wrong by a minute", "shardlease/inspect.Age.over",
			swap(`limit + skew`, `limit`), inInspect, "TestWarningsByToldTimes"},
		{"an observed age counts at once", "shardlease/inspect.Age.over",
			never("watched"), inInspect, "TestWarningsByOwnClock"},
		{"a worker is dead only when another should have evicted it", "shardlease/inspect.evicted",
			swap(`ttl + late`, `ttl`), inInspect, "TestWarningsByOwnClock|TestWarningsByToldTimes"},
		{"a child does not wait for a finished parent", "shardlease/inspect.builder.blockers",
			never("!over"), inInspect, "TestStates"},
		{"a record of sessions in place of a plan is reported", "shardlease/inspect.judge.usurped",
			always("at < 0"), inInspect, "TestSessionsInPlaceOfAPlan"},
		{"a session knows no plan", "shardlease/inspect.judge.usurped",
			swap(`w.Seat.Revision > 0`, `true`), inInspect, "TestSessionsInPlaceOfAPlan"},
		{"an owner without a seat is dead", "shardlease/inspect.builder.held",
			never("owner == nil"), inInspect, "TestStates"},
		{"a seat that cannot be read is one", "shardlease/inspect.builder.held",
			without("spoilt"), inInspect, "TestStates|TestExcuses"},
		{"a free shard may rest before it is claimed", "shardlease/inspect.judge.unclaimed",
			swap(`j.ttl + j.claiming() + _`, `j.ttl + j.claiming()`), inInspect, "TestRestsAreNoWarning|TestExcuses"},
		{"a shard rests for a second where no seat shows another backoff", "shardlease/inspect.backoffOf",
			swap(`cmp.Or(seat.Backoff, lease.DefaultBackoff)`, `cmp.Or(seat.Backoff, 0)`), inInspect, "TestStates|TestRestsAreNoWarning"},
		{"unwell workers may wait before they claim", "shardlease/inspect.judge.unclaimed",
			never("=unwell"), inInspect, "TestExcuses"},
		{"a move may take as long as its terms allow", "shardlease/inspect.judge.move",
			swap(`m.May == 0 || m.For.Watched < m.May`, `m.May == 0`), inInspect, "TestWarningsByOwnClock|TestExcuses"},
		{"a move that waits is never stuck", "shardlease/inspect.judge.move",
			swap(`m.May == 0 || $rest`, `$rest`), inInspect, "TestExcuses"},
		{"a fleet with wishes is not uneven", "shardlease/inspect.judge.stirs",
			never("stands"), inInspect, "TestUnevenIsExcused|TestExcuses"},
		{"a shard that was quarantined by hand is no error", "shardlease/inspect.judge.quarantined",
			swap(`level(!byHand)`, `level(true)`), inInspect, "TestWarningsByOwnClock|TestExcuses"},
		{"only a table that went back was restored", "shardlease/inspect.reading.verify",
			swap(`errors.Is(_, lease.ErrWentBack)`, `true`), inInspect, "TestLookFails|TestLook|TestExcuses"},
		{"missed transfers are recovered from the history", "shardlease/inspect.differ.transfers",
			swap(`now.Row.History()`, `lease.Row{}.History()`), inInspect, "TestDiffRecoversMissedTransfers"},
		{"an older row is no change", "shardlease/inspect.differ.shard",
			never("compare"), inInspect, "TestDiff"},
		{"a watch reads the rows when the seats show that something has happened", "shardlease/inspect.watch.look",
			never("happened"), inInspect, "TestWatchNotices"},
		{"a watch at rest leaves the rows alone", "shardlease/inspect.watch.rowsDue",
			always("rowsevery"), inInspect, "TestWatchAtRest"},
	}
}
