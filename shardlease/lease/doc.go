// Package lease is the protocol: who may work on a shard now, and whose writes
// still count. It is pure. Everything here is a value or a function over values;
// clocks, random numbers and the network are somebody else's.
//
// # The idea
//
// A shard has one [Row] in a table. The row says who holds the shard and under
// which generation. Every change of hands adds to the generation, so a
// generation is a fencing token: whoever was paused, replaced and woken up
// still has the old one, and every write it makes is refused by the table
// itself. A lease says who may try; the fence says whose writes still count.
//
// A worker has one [Seat] in the same table, and beats it. Held rows stay quiet:
// what a fleet costs does not depend on how many shards it holds. A seat that
// stands still is deleted by whoever watched it, and what its worker held can
// be claimed by anybody.
//
// # What is promised
//
// Under any pause, crash, clock fault, lost reply or late delivery:
//
//   - S1. Accepted checkpoints of a shard are ordered by generation; a stale
//     owner's checkpoint is refused by the table.
//     (TestStore/StaleGenerationIsRefused, TestExplore, TestStorm)
//   - S2. The stored position never moves back within a generation, and a new
//     generation starts from the stored one.
//     (TestStore/ClaimRacingACommitStartsFromWhatWasStored, TestExplore, TestStorm)
//   - S3. A shard's generation only grows, also when its row is removed and made
//     anew, and one generation has one owner.
//     (TestStore/RecreatedShardRefusesEarlierGenerations, TestExplore,
//     TestFirstGenerationIsAboveAllIssuedBefore)
//   - S4. No healthy worker loses a shard because a reply was lost. A commit that
//     was overtaken by a change of hands before its outcome was known is
//     answered "stale, outcome unknown".
//     (TestStore/EveryWriteUnderEveryFate, TestExplore, TestStorm,
//     TestStaleAnswerSaysWhatIsUnknown)
//
// # What is not promised
//
// That two handlers never run at once. A holder that is paused cannot know that
// it was replaced, and nobody can promise that it does. What it writes is
// refused here; whether it is refused elsewhere depends on whether elsewhere
// compares generations.
//
// That a rewind by command is harmless: it moves a position back because
// somebody said so, under a generation of its own.
//
// Rows that are deleted or edited by hand, and tables replicated so that the
// last writer wins, are outside.
//
// # The life of one lease
//
// Read lease.go from top to bottom: it is the state diagram and its arrows in
// order. An arrow is a method of [Row] that gives a [Write], or a reason why
// not. A write is a plain value that carries its own condition; [Op] explains
// the four there are. A [Store] makes writes and knows nothing else.
//
// # When something goes wrong
//
//	what happened                          what the writer sees        what follows
//	the write was stored, its reply lost   Unknown, then Stored        nothing
//	the write was lost                     Unknown, then Stored        nothing: the same bytes were sent again
//	the write arrives once more, late      nothing                     refused: the write id or the generation moved on
//	the shard changed hands meanwhile      Overtaken, a StaleError     the tenure ends
//	the row was removed                    Gone                        the tenure ends; the row is not made again
//	somebody wrote past the conditions     Conflict                    the tenure ends, loudly
//	the table was restored from a backup   WentBack                    nothing more is claimed before it is adopted
//	a claim was stored, its reply lost     the row names me            started at the next look (Copy.Reconcile)
//	a release was lost for good            the row names me            claimed again, under a new generation
//	the writer died                        –                           its seat is evicted, its rows are claimed
//
// [Decide] is that table in code, and [Copy] is what a worker keeps of a row so
// that it can be asked: one write open at a time, and never an older row over a
// newer one.
package lease
