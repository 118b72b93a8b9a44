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
// Some words: an incarnation is one seat of one worker, and never comes back. A
// tenure is one incarnation's hold of one shard under one generation, from start
// to end. A mark says how far a handler has come; a checkpoint is a mark that was
// accepted. A Hold is the handle a tenure writes with.
//
// # Four conditional writes
//
//	create     there is no row, and no tombstone
//	swap       the write id and the counter are those that were read, and so
//	           everything is
//	transfer   the generation and the owner are those that were read, whatever
//	           was committed since; it returns where the new generation starts
//	delete     as swap; of seats alone
//
// A holder swaps: its write id is replaced by any takeover, so its next write is
// refused. Whoever takes over transfers: the owner's commits cannot starve it,
// and fencing the old owner and reading the new one's start are one step. [Op]
// and [Write.Apply] say it exactly.
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
// Read internal/protocol/protocol.go from top to bottom: a table of the transitions,
// and then each of them in that order. A transition is a function of a [Row] that
// gives a [Write], or a reason why not. A write is a plain value that carries its own
// condition. A [Store] makes writes and knows nothing else. A protocol.Copy is what a
// worker keeps of a row between them; the example of that package shows the whole
// round.
//
// # When something goes wrong
//
//	what happened                          what the writer sees        what follows
//	the write was stored, its reply lost   Unknown, then Stored        nothing
//	the write was lost                     Unknown, then Stored        nothing: the same bytes were sent again
//	the write arrives once more, late      nothing                     refused: the write id or the generation moved on
//	the shard changed hands meanwhile      Overtaken                   the tenure ends, with a StaleError
//	the row was removed                    Gone                        the tenure ends; the row is not made again
//	somebody wrote past the conditions     Conflict                    the tenure ends, with protocol.ErrConflict
//	the table was restored from a backup   WentBack                    nothing is claimed before the rows are adopted
//	a claim was stored, its reply lost     the row names me            started at the next look (protocol.Copy.Reconcile)
//	a release was lost for good            the row names me            claimed again, under a new generation
//	the writer died                        –                           its seat is evicted, its rows are claimed
//
// protocol.Decide is that table in code. A store answers with a RefusedError; Copy.Answer
// asks Decide what it means and has the error for the user. A copy has one write
// open at a time, and never takes an older row over a newer one.
package lease
