package mutants

// costMutants make the changes of small fleets dearer, or take what a moment ago was true for true.
func costMutants() []mutant {
	const test = "TestCostOfAChange"
	return []mutant{
		{"rows that are requested from one owner are read in turn", "internal/engine.shards.publish",
			swap(`min(of[w.Owner]*a.brisk(t), paceSuspect)`, `a.brisk(t)`), inScale, test},
		{"each of them has its own moment", "internal/engine.shards.publish",
			swap(`min(nth[w.Owner]*a.brisk(t), a.pace)`, `a.pace`), inScale, test},
		{"the other rows are read when an owner begins to serve", "internal/engine.Engine.happened",
			never("served"), inScale, test},
		{"that a request was served is no news", "internal/engine.shards.unsaid",
			always("s.row.generation"), inScale, test},
		{"a request that was served is not looked into", "internal/engine.Engine.readWants",
			without("<="), inScale, test},
		{"what follows from rows waits for all of them", "internal/engine.shard.seek",
			never("reading"), inScale, test},
		{"and no longer", "internal/engine.Engine.got",
			never("reading"), inScale, test},
		{"the row of an owner that has left is read once more", "internal/engine.shard.seek",
			never("ask.gone"), inScale, test},
		{"a target that is out of date is no reason for a request", "internal/engine.Engine.tend",
			without("revision"), inEngine, "TestPlannersOfTwoMinds"},
		{"only a later listing shows that the source lacks a parent", "internal/engine.shards.ready",
			never("unsure"), inEngine, "TestChildWaitsForAWholeListing"},
		{"and only a whole one", "internal/engine.feed.sourced",
			swap(`if in.Complete { $f.earlier, f.shown = $f.shown, $begun; $f.complete = _ }`, `f.shown = $begun`), inEngine, "TestChildWaitsForAWholeListing"},
		{"a worker that does not watch lists the seats with pauses", "internal/engine.fleet.pace",
			without("=f.watching()"), inEngine, "TestOwnerWithoutAHint"},
	}
}
