package mutants

// sessionMutants break the rules of leases by name.
func sessionMutants() []mutant {
	return []mutant{
		{"a waiter waits for the lock delay", "internal/engine.shard.outlast",
			swap(`w.losses.since(t, s.name, at).Add(at.Owner.LockDelay)`, `w.losses.since(t, s.name, at)`), inEngine, "TestLockDelay"},
		{"a waiter evicts a seat that stands still for its lease time", "internal/engine.rivals.outlast",
			swap(`at.Add(r.patience(t, of))`, `at.Add(r.patience(t, of) / 4)`), inEngine, "TestWaiterEvictsTheDead"},
		{"a waiter counts the standstill from the present heartbeat", "internal/engine.rivals.saw",
			never("written()"), inEngine, "TestWaiterEvictsTheDead"},
		{"a lease without a checkpoint is discarded", "internal/engine.release",
			never("discard"), inEngine, "TestSessionAcquiresInTwoRequests"},
		{"what nobody wants any more is given back", "internal/engine.shard.wait",
			swap(`w.leaving || w.want == nil`, `w.leaving`), inEngine, "TestForgoneLeaseIsReleased"},
		{"a session acquires nothing in a group of workers", "internal/engine.kind.saw",
			swap(`k.proven, k.foreign = plan.Sessions, !plan.Sessions`, `k.proven, k.foreign = plan.Group != "", false`), inEngine, "TestGroupOfTheOtherKind"},
		{"a worker claims nothing in a group of sessions", "internal/engine.fleet.sawPlan",
			never("plan.sessions"), inEngine, "TestGroupOfTheOtherKind"},
		{"a known row that another holds is read again", "internal/engine.Session.take",
			cut("doubt"), inEngine, "TestTryAcquireIsAnswered"},
		{"a holder is fenced by the tombstone of a later holder", "internal/engine.shard.refused",
			never("t.cfg.discard"), inEngine, "TestHolderLearnsThatAnOperatorEndedIt"},
		{"a session that stops releases its leases", "internal/engine.Session.stop",
			swap(`e.leave.all, e.leave.since = true, t.now.Mono`, `e.leave.since = t.now.Mono`), inEngine, "TestSessionStops"},
		{"a group does not become one of the other kind", "shardlease/lease.Plan.checkPlan",
			never("sessions"), inStore, "TestStore/GroupIsOfOneKind"},
		{"a tombstone is revived by its new holder only as a new row", "shardlease/lease.Row.revives",
			without("reasoninitial"), inProtocol, "TestStoresRefuseOtherLeasesByName"},
		{"a checkpoint is not discarded", "shardlease/lease.Row.discards",
			without("=r.Checkpoint == none"), inProtocol, "TestStoresRefuseOtherLeasesByName"},
	}
}
