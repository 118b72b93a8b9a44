package mutants

const (
	engineDir = "internal/engine/"
	inEngine  = "./internal/engine"
	inWorker  = "./shardlease"
	inMoves   = "./rebalance"
	inSim     = "./internal/sim"
	inDynamo  = "./dynamostore"

	inExplorer = "./internal/explore"
	inScale    = "./internal/scale"
)

// engineMutants break what a worker decides.
func engineMutants() []mutant {
	return []mutant{
		// Who is alive.
		{"trust counts from the sending", engineDir + "seat.go",
			`c.trust, c.trustWall = c.sent.Add(e.trusted()), c.sentWall`,
			`c.trust, c.trustWall = e.now.Mono.Add(e.trusted()), c.sentWall`, inEngine, "TestTrustCountsFromTheFirstSending"},
		{"a beat sent again is as old as it was", engineDir + "seat.go",
			"c.try.sent = true\n\t\t\te.do(Send{Write: c.open})",
			"c.try.sent = true\n\t\t\tc.sent = e.now.Mono\n\t\t\te.do(Send{Write: c.open})", inEngine, "TestTrustCountsRepeatedBeatsOnce"},
		{"trust ends before anybody may evict", engineDir + "seat.go",
			`return e.cfg.TTL - e.cfg.TTL/10`, `return e.cfg.TTL + e.cfg.TTL/2`, inWorker, "TestLongOutage"},
		{"a suspended machine beats first", engineDir + "seat.go",
			`if !c.doubt && e.wall()`, `if false && e.wall()`, inEngine, "TestSuspendIsNotTrusted"},
		{"an old answer does not end the doubt", engineDir + "seat.go",
			`if c.doubt && e.wall()-c.trustWall < wall(e.trusted()) {`, `if c.doubt {`, inEngine, "TestOldBeatDoesNotEndDoubt"},
		{"first sight starts the clock", engineDir + "look.go",
			"return peer{seat: seat, since: e.now.Mono}, true, false\n\tcase old.unreadable",
			"return peer{seat: seat, since: e.now.Mono - Instant(seat.TTL)}, true, false\n\tcase old.unreadable", inEngine, "TestFleetLife"},
		{"expiry takes a whole lease time", engineDir + "look.go",
			`if at := p.since.Add(p.seat.TTL + e.reserve(p.seat.Incarnation)); e.now.Mono < at && !mine`,
			`if at := p.since.Add(p.seat.TTL/4); e.now.Mono < at && !mine`, inEngine, "TestFleetLife"},
		{"who is about to die is watched closely", engineDir + "look.go",
			`d = min(d, lookDying)`, `d = min(d, e.beat)`, inEngine, "TestCrashIsNoticedTogether"},
		{"a seat that cannot be read is a life", engineDir + "fleet.go",
			`if p := find(e.looks.peers, row.Owner.Incarnation); p != nil && p.unreadable && !slices`,
			`if p := find(e.looks.peers, row.Owner.Incarnation); p != nil && false && !slices`, inEngine, "TestUnreadableSeatIsALife"},
		{"nor does its owner fear for it", engineDir + "look.go",
			"found = true // there", "_ = found // there", inEngine, "TestUnreadableSeatOfOnesOwn"},
		{"expiry takes a whole lease time, in every interleaving", engineDir + "look.go",
			`if at := p.since.Add(p.seat.TTL + e.reserve(p.seat.Incarnation)); e.now.Mono < at && !mine`,
			`if at := p.since.Add(p.seat.TTL/4); e.now.Mono < at && !mine`, inExplorer, "TestCrashesAreExplored"},
		{"a seat is an incarnation's and not a name's", engineDir + "seat.go",
			`c.me = lease.Incarnation(s.ID)`, `c.me = lease.Incarnation("i" + e.cfg.Name + string(s.ID[:0]))`, inSim, "TestScenarios"},
		{"one slow answer is no sign of a slow store", engineDir + "look.go",
			`min(took, cmp.Or(r.took, took))`, `cmp.Or(took, r.took)`, inEngine, "TestOneSlowReadDelaysNothing"},
		{"an earlier seat of one's own is over, readable or not", engineDir + "fleet.go",
			`&& p.unreadable && !slices.Contains(e.seat.former, p.seat.Incarnation)`, `&& p.unreadable`, inEngine, "TestUnreadableFormerSeat"},
		{"a listing that is wanted comes soon", engineDir + "feed.go",
			`	f.next = min(f.next, e.now.Mono.Add(e.jitter(e.cfg.Poll)))`, `	f.next = e.now.Mono.Add(e.jitter(e.cfg.Poll))`, inEngine, "TestPollSoonDuringAPoll"},
		{"who came last is let in first", "dynamostore/lane.go",
			"last := len(l.waiting) - 1\n\t\tw := l.waiting[last]\n\t\tl.waiting[last], l.waiting = nil, l.waiting[:last]",
			"w := l.waiting[0]\n\t\tl.waiting = slices.Delete(l.waiting, 0, 1)", inDynamo, "TestLaneRecovers"},
		{"a table that does not answer is asked less", "dynamostore/lane.go",
			`l.limit = max(l.limit/2, 1)`, `l.limit = max(l.limit, 1)`, inDynamo, "TestLaneFindsItsWidth"},
		// Large fleets.
		{"not everybody lists all rows", engineDir + "large.go",
			`case !e.large():`, `case true:`, inScale, "TestChangesOfALargeFleet"},
		{"nor at every audit", engineDir + "look.go",
			`max(e.cfg.Audit, audits*e.turn(1+len(l.peers)))`, `e.cfg.Audit`, inScale, "TestChangesOfALargeFleet"},
		{"the few do not list without end", engineDir + "large.go",
			`l.rowsDue = min(l.rowsDue, max(e.now.Mono, l.rowsRead.Add(e.turn(e.cfg.Few))))`, `e.wantRows()`, inScale, "TestChangesOfALargeFleet"},
		{"who comes back with a whole fleet asks before it claims", engineDir + "shard.go",
			`case e.unsought(s):`, `case false:`, inScale, "TestChangesOfALargeFleet"},
		{"what may have been claimed long ago is left alone", engineDir + "large.go",
			`return e.large() && e.looks.rowsRead < at`, `return false && e.looks.rowsRead < at`, inScale, "TestChangesOfALargeFleet"},
		{"who is about to die is planned as dead", engineDir + "large.go",
			`return p != nil && p.suspect`, `return false && p.suspect`, inScale, "TestChangesOfALargeFleet"},

		{"a read that took long rests", engineDir + "look.go",
			`r.rest = now.Add(`, `_ = now.Add(`, inEngine, "TestFleetRecoversFromOverload"},
		{"a worker's own earlier seats are evicted at once", engineDir + "look.go",
			`mine := slices.Contains(e.seat.former, p.seat.Incarnation)`, `mine := false`, inWorker, "TestLongOutage"},
		{"nothing is claimed in an unproven table", engineDir + "seat.go",
			`return e.seat.phase == seated && e.seat.proven && !e.seat.doubt`, `return e.seat.phase == seated && !e.seat.doubt`,
			inEngine, "TestUnprovenTableIsNotClaimed"},
		{"an answer proves the seat it was asked for", engineDir + "seat.go",
			`if !c.check.sent || serial(in.Read) != c.asked {`, `if false {`, inEngine, "TestLateAnswerProvesNothing"},

		// Who should hold what.
		{"held shards move only when the seats stand still", engineDir + "fleet.go",
			`case !e.fleet.settled || v.split || room <= 0 || e.looks.rowsStep == 0:`, `case v.split || room <= 0:`, inEngine, "TestMovesWaitForStillSeats"},
		{"and all are of one mind", engineDir + "fleet.go",
			`case !e.fleet.settled || v.split || room <= 0 || e.looks.rowsStep == 0:`, `case !e.fleet.settled || room <= 0:`, inEngine, "TestOnlyOneMindMovesShards"},
		{"and the budget has room", engineDir + "fleet.go",
			`case !e.fleet.settled || v.split || room <= 0 || e.looks.rowsStep == 0:`, `case !e.fleet.settled || v.split:`, inEngine, "TestBudgetDelaysMoves"},
		{"children wait for their parents", engineDir + "fleet.go",
			`return p.generation == 0 || !p.over()`, `return false`, inWorker, "TestChildrenWaitForTheirParents"},
		{"a parent that is listed again is not over", engineDir + "fleet.go",
			`return !s.listed && (s.gone == 0 || s.absent > 0)`, `return !s.listed`, inEngine, "TestParentThatIsListedAgain"},
		{"a parent nobody knows may be there", engineDir + "fleet.go",
			`return !e.feed.complete`, `return false`, inEngine, "TestUnknownParentMayBeThere"},
		{"what has begun waits for no parent", engineDir + "fleet.go",
			`e.goesOn) || s.begun()`, `e.goesOn)`, inEngine, "TestChildOutlivesItsParentsRow"},
		{"what was adopted has not begun by that", engineDir + "fleet.go",
			`if t.From != "" {`, `if t.From != "" || t.Reason == lease.Adopted {`, inEngine, "TestAdoptedChildWaits"},
		{"two listings have to lack a shard", engineDir + "fleet.go",
			`s.absent < 2`, `s.absent < 1`, inEngine, "TestTwoListingsHaveToLackAShard"},
		{"what is freed is told", engineDir + "tenure.go",
			"		e.seat.freed++\n		e.wantPlanSoon()", "		e.wantPlanSoon()", inEngine, "TestFreedIsTold"},
		{"a row that cannot be read is not planned", engineDir + "fleet.go",
			"	case s.malformed:\n		return 0, false", "	case false:\n		return 0, false", inWorker, "TestStopEndsThoughARowIsMalformed"},
		{"failing shards rest", engineDir + "shard.go",
			"if n := s.copy.Row().Attempts(); n > 0 {\n\t\tat =", "if n := s.copy.Row().Attempts(); n > 99 {\n\t\tat =", inEngine, "TestFailingShardsRest"},
		{"failing shards are set aside", engineDir + "shard.go",
			`return e.cfg.MaxAttempts > 0 && n >= e.cfg.MaxAttempts`, `return false`, inWorker, "TestQuarantineIsReversible"},
		{"who gives up rests", engineDir + "shard.go", "at := s.rest\n", "at := Instant(0)\n", inWorker, "TestRelease"},

		// Moving a shard.
		{"a want is for a generation", engineDir + "fleet.go",
			`s != nil && s.t.on && w.Generation == s.t.generation`, `s != nil && s.t.on`, inEngine, "TestWantForAnotherGeneration"},
		{"a dead owner's shard is free, whoever asked", engineDir + "fleet.go",
			`case ok && s.bound != rebalance.Nobody:`, `case s.bound != rebalance.Nobody:`, inWorker, "TestDyingInEveryPhase"},
		{"the yield brings the last mark", engineDir + "tenure.go",
			`Note: t.note, Mark: e.unaccepted(t)`, `Note: t.note, Mark: checkpoint.Mark{}`, inWorker, "TestEagerMove"},
		{"the offer brings the latest mark", engineDir + "tenure.go",
			`g.to.Incarnation, e.unaccepted(t), e.stamp())`, `g.to.Incarnation, checkpoint.Mark{}, e.stamp())`, inWorker, "TestCooperativeMove"},
		{"commits wait for an offer", engineDir + "tenure.go",
			`if until := t.offered.Add(heldOffer); e.now.Mono < until {`, `if until := t.offered.Add(0); e.now.Mono < until {`, inEngine, "TestCommitsWaitForAnOffer"},
		{"a torn commit of an offered shard says so", engineDir + "tenure.go",
			`t.torn = a.Torn // as offered`, `t.torn = false // as offered`, inEngine, "TestTornCommitOfAnOfferedShard"},
		{"a successor waits as long as the owner looks", engineDir + "shard.go",
			`return max(e.beat, p.seat.TTL/3)`, `return e.beat`, inEngine, "TestSlowOwnerIsNotSeized"},
		{"a drain ends though a write is open", engineDir + "tenure.go",
			`if d, ok := t.give.agreed().Limit(); ok {`, `if d, ok := t.give.agreed().Limit(); ok && d < 0 {`, inEngine, "TestDrainEndsThoughAWriteIsOpen"},
		{"who drains never resumes", "rebalance/handoff.go",
			"case v.Draining:\n\t\treturn Serve", "case v.Draining && v.Wanted:\n\t\treturn Serve\n\tcase v.Draining:\n\t\treturn Withdraw", inMoves, "TestOwnerSide"},
		{"an offer is withdrawn in the end", "rebalance/handoff.go",
			`case v.Offered && (!v.Wanted || v.OfferedFor >= t.Standing()):`, `case v.Offered && !v.Wanted:`, inMoves, "TestEveryPhaseEndsByItself"},
		{"a preparation has a deadline", "rebalance/handoff.go",
			`!v.Prepared && v.PreparingFor < t.Prepare:`, `!v.Prepared:`, inMoves, "TestEveryPhaseEndsByItself"},
		{"a stuck handler loses its shard", engineDir + "tenure.go",
			"	default:\n		e.drain(s, Stalled)", "	default:\n		_ = Stalled", inWorker, "TestStuckHandlerLosesItsShard"},
		{"who waits for the store is not stuck", engineDir + "tenure.go",
			`if t.flush > t.accepted {
		t.pulse`, `if false {
		t.pulse`, inWorker, "TestWaitingForTheStoreIsNoStall"},

		// Stopping.
		{"a leaver serves until others ask", engineDir + "leave.go",
			`if e.fleet.held > 0 && e.successors() && e.now.Mono < at {`, `if false {`, inWorker, "TestCleanStop"},
		{"and not for nobody", engineDir + "leave.go",
			`e.fleet.held > 0 && e.successors() &&`, `e.fleet.held > 0 &&`, inWorker, "TestCleanStop"},
		{"a leaver gives up its seat", engineDir + "leave.go",
			`if l.over && e.seat.open.Op == 0 {`, "if l.over {\n\t\tl.done = true\n\t}\n\tif false {", inWorker, "TestCleanStop"},
		{"a stop ends, whatever the table answers", engineDir + "leave.go",
			`if !e.nothingLeft() && e.now.Mono < at {`, `if !e.nothingLeft() {`, inWorker, "TestStopEndsThoughRowsAreMute"},
	}
}
