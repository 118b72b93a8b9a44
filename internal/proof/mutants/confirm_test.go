package mutants

// confirmMutants break the rules for what a tenure tells about its own authority.
func confirmMutants() []mutant {
	return []mutant{
		{"a call is answered by a read that was sent after it", "internal/engine.confirms.got",
			swap(`c.all[at].sent`, `c.all[at].asked`), inWorker, "TestConfirmReadsAfterTheCall"},
		{"calls that come during a read get a read of their own", "internal/engine.confirms.next",
			never("asked"), inWorker, "TestConfirmReadsAfterTheCall"},
		{"calls that wait share a read", "internal/engine.confirms.ask",
			never("at >= 0"), inWorker, "TestConfirmReadsAfterTheCall"},
		{"another incarnation under the same generation is no confirmation", "internal/protocol.Copy.Holds",
			swap(`lease.Owner{Incarnation: c.me}`, `func() lease.Owner { r, _ := read.(lease.Row); return r.Owner }()`), inWorker, "TestConfirmTellsTheHolds/another_incarnation"},
		{"another generation is no confirmation", "internal/protocol.Copy.Holds",
			swap(`lease.Row{Group: $g, Shard: $s, Generation: generation, Owner: $o}`, `lease.Row{Group: $g, Shard: $s, Generation: func() int64 { r, _ := read.(lease.Row); return r.Generation }(), Owner: $o}`), inWorker, "TestConfirmReadsAfterTheCall"},
		{"a stale answer ends the tenure", "internal/engine.common.confirmed",
			cut("denied"), inWorker, "TestConfirmReadsAfterTheCall|TestConfirmTellsTheHolds"},
		{"a failed read changes nothing", "internal/engine.common.confirmed",
			always("got.Err == nil"), inWorker, "TestConfirmThatFails"},
		{"a read does not decide what became of a write", "internal/engine.shard.denied",
			never("=open"), inWorker, "TestConfirmDuringAWrite"},
		{"a loss during a write has an unknown outcome", "internal/engine.common.confirmed",
			swap(`s.t.unknown(&s.row)`, `false`), inWorker, "TestConfirmDuringAWrite"},
		{"the end of a tenure answers its calls", "shardlease.Tenure.conclude",
			cut("t.answer", "true"), inWorker, "TestConfirmEndsWithTheTenure"},
		{"trust ends with the tenure", "shardlease.Tenure.Trust",
			never("over"), inWorker, "TestTrustedForLasts"},
		{"trust ends by the wall clock too", "shardlease.Worker.trustLeft",
			swap(`$wall.Sub(wall)`, `max($wall.Sub(wall), 1<<62)`), inWorker, "TestTrustEndsWhileTheMachineSleeps"},
		{"a context of trust lasts while heartbeats are confirmed", "shardlease.Tenure.TrustedFor",
			swap(`timer.Reset(left)`, `time.AfterFunc(left, func() { cancel(nil) })`), inWorker, "TestTrustedForLasts"},
		{"a context of trust ends a margin before the trust", "shardlease.Tenure.TrustedFor",
			swap(`t.Trust() - margin`, `t.Trust()`), inWorker, "TestTrust"},
		{"a context of trust ends with the tenure", "shardlease.Tenure.TrustedFor",
			swap(`context.AfterFunc(t.hard, check)`, `func() bool { return true }`), inWorker, "TestTrustedForLasts"},
	}
}
