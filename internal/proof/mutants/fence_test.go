package mutants

import "slices"

const (
	inFence     = "./shardlease/fence"
	inFenceHTTP = "./shardlease/fencehttp"
	inFenceTest = "./shardlease/fencetest"
)

// fenceMutants break the rules by which a generation reaches the effects of a user, and the rules between a session
// and its callers.
func fenceMutants() []mutant {
	return slices.Concat(tokenMutants(), httpMutants(), sinkMutants(), callerMutants(), raiseMutants())
}

// tokenMutants break the rules of fencing tokens, and those of the sink that keeps its values in memory.
func tokenMutants() []mutant {
	return []mutant{
		{"a token with only some of its fields is malformed, and not absent", "shardlease/fence.Parse",
			swap(`len($a)+len($b)+len($c) == 0`, `len($a)*len($b)*len($c) == 0`), inFence, "TestMalformedTokensAreRefused"},
		{"each field of a token occurs once", "shardlease/fence.only",
			swap(`len(all) != 1`, `len(all) < 1`), inFence, "TestMalformedTokensAreRefused"},
		{"a generation has only one text form", "shardlease/fence.number",
			without("formatint"), inFence, "TestMalformedTokensAreRefused"},
		{"a token that no tenure can have is not read", "shardlease/fence.Parse",
			swap(`parsed.Validate()`, `error(nil)`), inFence, "TestMalformedTokensAreRefused"},
		{"a token that no tenure can have is not sent", "shardlease/fence.Token.Fields",
			swap(`t.Validate()`, `error(nil)`), inFence, "TestInvalidTokensAreNotSent"},
		{"two effects have two ids", "shardlease/fence.Token.Operation",
			swap(`parts[i] = url.PathEscape(part)`, `parts[i], _ = part, url.PathEscape`), inFence, "TestOperationsAreDistinct"},
		{"the id of an effect is the same under each generation", "shardlease/fence.Token.Operation",
			swap(`[]string{t.Group, t.Shard, position, effect}`, `[]string{t.String(), t.Shard, position, effect}`), inFence, "TestOperationsAreDistinct"},
		{"no effect is applied without a token", "shardlease/fence.Do",
			never("ok"), inFence, "TestDoUsesTheTokenOfTheContext"},
		{"the contexts of a tenure carry its token", "shardlease.run.begin",
			swap(`o.Hold.Generation`, `o.Hold.Generation - 1`), inFenceHTTP, "TestTenureSendsItsToken"},
		{"a guarded value accepts an equal generation", "shardlease/lease.Guarded.Put",
			swap(`generation < g.Generation`, `generation <= g.Generation`), inStore, "TestRegister/LowerGenerationIsRefused"},
		{"a register refuses before the effect", "memstore.Register.put",
			swap(`if err != nil { return err }; if r.values == nil { r.values = $m }; r.values[name] = next; return nil`,
				`if r.values == nil { r.values = $m }; next.Value = *value; r.values[name] = next; return err`), inStore, "TestRegister/LowerGenerationIsRefused"},
		// The mutant calls ctx.Err where a real sink would call its store: Play stops a writer that uses its context.
		{"a register compares and writes in one step", "memstore.Register.put",
			swap(`r.values[name] = next`, `r.mu.Unlock(); _ = ctx.Err(); r.mu.Lock(); r.values[name] = next`), inFenceTest, "TestReports"},
	}
}

// httpMutants break the rules of tokens over HTTP.
func httpMutants() []mutant {
	return []mutant{
		{"a handler applies nothing without a token", "shardlease/fencehttp.Handler.ServeHTTP",
			swap(`t, err := tokenOf(r); if err != nil { _; _ }`, `t, err := tokenOf(r)`), inFenceHTTP, "TestResponses"},
		{"Require lets no request through without a token", "shardlease/fencehttp.Require",
			never("err"), inFenceHTTP, "TestRequireNeedsAToken"},
		{"a malformed token is not reported as absent", "shardlease/fencehttp.unparsed",
			always("errmissing"), inFenceHTTP, "TestResponses"},
		{"the body is read before the step that compares and writes", "shardlease/fencehttp.Handler.ServeHTTP",
			swap(`body, err := io.ReadAll(from)`,
				`var body []byte; err = h.Guard.Do(r.Context(), t, func(context.Context, E) (err error) { body, err = io.ReadAll(from); return err })`),
			inFenceHTTP, "TestSlowClientHoldsNoStep"},
		{"an effect whose response reports a failure is rolled back", "shardlease/fencehttp.Handler.ServeHTTP",
			never("erreffect == nil && a.failed"), inFenceHTTP, "TestFailedResponseIsRolledBack"},
		{"an error of the effect is not reported as a refusal", "shardlease/fencehttp.Handler.ServeHTTP",
			cut("refused && erreffect"), inFenceHTTP, "TestOnlyTheGuardRefuses"},
		{"an error of the effect is not lost", "shardlease/fencehttp.Handler.ServeHTTP",
			cut("cmp.or(err, erreffect)"), inFenceHTTP, "TestFailedEffectIsNoSuccess"},
		{"an effect has the token in its context", "shardlease/fencehttp.Handler.ServeHTTP",
			swap(`fence.NewContext(r.Context(), t)`, `r.Context()`), inFenceHTTP, "TestEffectHasTheToken"},
		{"a refusal names the generation of the request", "shardlease/fencehttp.refusalOf",
			without("stale.mine"), inFenceHTTP, "TestOnlyTheGuardRefuses"},
		{"only a refusal of its own generation stops a client", "shardlease/fencehttp.concerns",
			without("p.generation"), inFenceHTTP, "TestCheckReportsEveryFailure"},
		{"only a response with a problem stops a client", "shardlease/fencehttp.isProblem",
			without("kind"), inFenceHTTP, "TestCheckReportsEveryFailure"},
		{"the transport sets the request of a response", "shardlease/fencehttp.Transport.RoundTrip",
			never("response.request"), inFenceHTTP, "TestResponseHasItsRequest"},
		{"a token follows no redirect", "shardlease/fencehttp.fieldsOf",
			never("r.response"), inFenceHTTP, "TestRedirectsAreNotFollowed"},
	}
}

// sinkMutants remove from fencetest, one after the other, the checks that find a wrong sink.
func sinkMutants() []mutant {
	return []mutant{
		{"Play finds a sink that checks first", "shardlease/fencetest.shard.inOrder",
			never("f.generation"), inFenceTest, "TestHolesAreFound/check,_then_write"},
		{"Play stops writers at calls of Pause", "shardlease/fencetest.gate.point",
			swap(`g.seen == g.at`, `g.seen == g.at && !pause`), inFenceTest, "TestHolesAreFound/check,_then_write,_with_pauses"},
		{"Play finds a sink with a fence for each worker, and not for each shard", "shardlease/fencetest.stage.lateWriters",
			swap(`replaced.succeed("a", "b")`, `replaced.succeed("a", "b", "a")`), inFenceTest, "TestHolesAreFound/per_worker,_not_per_shard"},
		{"Play finds a sink that keeps only the fence of the last shard", "shardlease/fencetest.stage.twoShards",
			swap(`one.refuses(_, _, _)`, `error(nil)`), inFenceTest, "TestHolesAreFound/the_last_shard_only"},
		{"Play finds a fence that is raised after the effect", "shardlease/fencetest.pair.begin",
			always("successor"), inFenceTest, "TestHolesAreFound/the_fence_after_the_effect"},
		{"Play finds a fence that is lowered", "shardlease/fencetest.pair.nextWrites",
			swap(`p.refuses(_, _, _)`, `error(nil)`), inFenceTest, "TestHolesAreFound/a_fence_that_is_lowered"},
		{"Play finds a fence that is raised in another transaction", "shardlease/fencetest.pair.refusedAlone",
			never("contains"), inFenceTest, "TestHolesAreFound/fence_in_another_transaction"},
		{"Play finds an effect that was refused and applied", "shardlease/fencetest.shard.late",
			never("reply != nil"), inFenceTest, "TestHolesAreFound/effect_before_the_comparison"},
		{"Play finds a sink that applies a late repetition", "shardlease/fencetest.stage.repeats",
			never("slices.equal"), inFenceTest, "TestHolesAreFound/late_repetition"},
		{"Play finds a fence that is lost in a restart", "shardlease/fencetest.stage.restart",
			swap(`sh.refuses(_, _, _)`, `error(nil)`), inFenceTest, "TestHolesAreFound/lost_in_a_restart"},
		{"Play finds a sink that refuses an equal generation", "shardlease/fencetest.stage.succession",
			swap(`2`, `1`), inFenceTest, "TestHolesAreFound/equal_is_refused"},
		{"MustPause demands a call of Pause", "shardlease/fencetest.stage.stops",
			never("s.paused == 0"), inFenceTest, "TestMustPause"},
	}
}

// callerMutants break the rules between a session and the callers of Acquire.
func callerMutants() []mutant {
	return []mutant{
		{"a lease whose tenure is over is not held", "shardlease.Session.begin",
			without("hard.err"), inWorker, "TestLeaseThatEndedIsNotHeld"},
		{"a tenure goes only to the call that waits for it", "shardlease.Session.deliver",
			without("acquire"), inWorker, "TestAnswerIsForTheCallThatWaits"},
		{"a refusal goes only to the call that waits for it", "shardlease.Session.refuse",
			without("o.id"), inWorker, "TestAnswerIsForTheCallThatWaits"},
		{"a lease that arrives as its caller gives up is released", "shardlease.Session.forgo",
			never("got != nil"), inWorker, "TestLeaseArrivesAsItsCallerGivesUp"},
		{"a lock delay is rounded up, and so never shortened", "shardlease.lockDelay",
			swap(`max(d, 0) + time.Millisecond - 1`, `max(d, 0)`), inWorker, "TestLockDelayIsRoundedUp"},
	}
}
