package mutants

// seatMutants break the rules of heartbeats, of trust and of expiry.
func seatMutants() []mutant {
	return []mutant{
		{"trust counts from the sending of a heartbeat", "internal/engine.seat.confirm",
			swap(`c.beat.sent.Add(t.trusted())`, `t.now.Mono.Add(t.trusted())`), inEngine, "TestTrustCountsFromTheFirstSending"},
		{"a repeated heartbeat counts from its first sending", "internal/engine.seat.keep",
			swap(`b.keep(t)`, `b.keep(t); b.sent = t.now.Mono`), inEngine, "TestTrustCountsRepeatedBeatsOnce"},
		{"a worker on a machine that was suspended sends a heartbeat first", "internal/engine.seat.fence",
			never("wall()"), inEngine, "TestSuspendIsNotTrusted"},
		{"an old answer does not confirm the seat after a suspension", "internal/engine.seat.confirm",
			always("wall()"), inEngine, "TestOldBeatDoesNotEndDoubt"},
		{"a worker that wakes up ends its tenures before it writes", "internal/engine.Engine.Step",
			swap(`if cause, over := e.seat.fence(t); over { _ }; e.take(in)`,
				`e.take(in); if cause, over := e.seat.fence(t); over { e.loseSeat(cause, nil) }`), inEngine, "TestNoWriteAfterWakingUp"},
		{"the time of a heartbeat counts from when it was first seen", "internal/engine.peers.watch",
			swap(`return peer{seat: seat, since: $now}, changed`, `return peer{seat: seat, since: $now - Instant(seat.TTL)}, changed`),
			inEngine, "TestFleetLife"},
		{"a seat that is about to expire is polled more often", "internal/engine.peers.pace",
			swap(`paceDying`, `t.beat`), inEngine, "TestCrashIsNoticedTogether"},
		{"a seat that cannot be read is a live worker", "internal/engine.fleet.owner",
			without("=p.unreadable"), inEngine, "TestUnreadableSeatIsALife"},
		{"the owner of a seat that cannot be read keeps it", "internal/engine.seat.sight",
			cut("s.own = true"), inEngine, "TestUnreadableSeatOfOnesOwn"},
		{"a worker's own earlier seat is dead, readable or not", "internal/engine.fleet.owner",
			never("former"), inEngine, "TestUnreadableFormerSeat"},
		{"expiry takes a whole lease time, in every interleaving", "internal/engine.peers.evict",
			swap(`of.seat.TTL + reserve`, `of.seat.TTL/4`), inExplorer, "TestCrashesAreExplored"},
		{"a seat belongs to an incarnation and not to a name", "internal/engine.seat.create",
			swap(`lease.Incarnation(s.ID)`, `lease.Incarnation("i" + t.cfg.Name + string(s.ID[:0]))`), inSim, "TestScenarios"},
		{"nothing is claimed in an unproven table", "internal/engine.seat.capable",
			without("=c.table.proven"), inEngine, "TestUnprovenTableIsNotClaimed"},
		{"an answer about the table counts for the seat that it was requested for", "internal/engine.seat.verified",
			without("asked"), inEngine, "TestLateAnswerProvesNothing"},

		// Reading.
		{"one slow answer is no sign of a slow store", "internal/engine.read.answered",
			swap(`min(took, cmp.Or($before, took))`, `cmp.Or(took, $before)`), inEngine, "TestSlowListings"},
		{"a pause follows a read that took long", "internal/engine.read.answered",
			cut("r.rest = t.now"), inEngine, "TestSlowListings"},
		{"a pause has a bound, however often a call was made", "internal/engine.backoff",
			swap(`min(_, 63)`, `tries-1`), inEngine, "TestBackoffIsBounded"},
		{"a listing that a worker waits for is made soon", "internal/engine.feed.sourced",
			swap(`min(f.next, t.now.Mono.Add(t.jitter(t.cfg.Poll)))`, `t.now.Mono.Add(t.jitter(t.cfg.Poll))`), inEngine, "TestPollSoonDuringAPoll"},
	}
}
