package mutants

// planMutants break the rules by which a plan is made and written.
func planMutants() []mutant {
	return []mutant{
		// The built-in planner.
		{"a cordoned or unwell worker gets nothing while others have room", "rebalance.layout.bounds",
			never("room >= n"), inPlan, "TestEvenIsOptimalWithCordonsAndPins"},
		{"a cordoned or unwell worker gets only what others have no room for", "rebalance.layout.bounds",
			never("room < n"), inPlan, "TestEvenIsOptimalWithCordonsAndPins"},
		{"where only cordoned or unwell workers are left they count as fit", "rebalance.layout.bounds",
			without("anyfit"), inPlan, "TestEvenIsOptimalWithCordonsAndPins"},
		{"a pinned shard stays where it is pinned", "rebalance.layout.keep",
			without("pinnedto"), inPlan, "TestEvenIsOptimalInRandomFleets"},
	}
}
