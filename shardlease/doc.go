// Package shardlease says who may work on a shard now, and whose writes still count.
//
// A program that processes a stream embeds a [Worker]. Workers of one group share the
// shards of a [Source]: each claims some, calls a [Handler] for each, stores how far
// it has come, and hands shards over as workers come and go. They agree through rows
// in a table, a [lease.Store]; there is no leader, no gossip, and nothing to clean up
// after a kill -9.
//
//	w, err := shardlease.New(store, source, shardlease.Config{Group: "orders", Handoff: rebalance.Cooperative})
//	err = w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error { … })
//
// # What is promised
//
// Under any pause, crash, clock fault, lost reply or late delivery:
//
//   - A stale owner's checkpoint is refused by the table; accepted ones are ordered by
//     generation. (TestPausedWorkerIsRefused, TestLateCommitIsRefusedByDynamoDB)
//   - A stored position never moves back within a generation, as far as [Config.Order]
//     can tell, and the next tenure starts at it.
//     (TestEagerMove, TestStore/ClaimRacingACommitStartsFromWhatWasStored)
//   - Generations only grow, and each has one owner.
//     (TestStore/RecreatedShardRefusesEarlierGenerations, TestExplore)
//   - A worker that cannot reach its store loses nothing in half a lease time, and has
//     ended all it held before anybody else can hold it. (TestShortOutageLosesNothing,
//     TestLongOutage, TestOutageOnDynamoDB)
//   - A handler that fails, hangs or panics ends its own tenure and no other; a store
//     that fails does not end [Worker.Run]; no goroutine outlives it.
//     (TestHandlersThatFail, TestStuckHandlerLosesItsShard, TestStoreFallsSilent)
//   - No store, source or hook can end the process or the worker, whether it panics,
//     calls runtime.Goexit or returns nil. (TestEveryHookSurvives)
//
// And of a move, by the mode that was chosen for it:
//
//	                  gap: nobody processes      overlap: two do
//	eager             a look and a start         none, unless the drain time runs out
//	cooperative       none                       a look
//	crash             4/3 lease time + 0.5 s     a paused owner may wake up, and is fenced
//
// (TestEagerMove, TestCooperativeMove, TestDrainDeadline, TestCrashIsRecovered,
// TestDyingInEveryPhase, TestCleanStop, TestWorkerLife)
//
// # What is not
//
// That two handlers never run at once. A paused process cannot know that it is stale;
// nobody can promise that for it. What counts is what the fence lets through: the
// checkpoint always, and every other effect whose sink compares [Tenure.Generation].
//
// Expiry is what others see: with nobody alive, nothing expires. Rows that are deleted
// by hand, and tables that are replicated with last-writer-wins, are outside. The plan
// is even and minimal once the fleet has settled, and not at every moment before.
//
// # The states of a shard
//
//	           create                claim
//	no row ───────────────▶ free ──────────────▶ held ──┐ commit, offer, withdraw:
//	                         ▲  ▲                 │ ▲   │ the same generation
//	                revive,  │  │ release,        │ └───┘
//	             unquarantine│  │ force-release   ├──────▶ held by another: yield, take,
//	                         │  └─────────────────┤        recover, seize
//	                removed, │                    │
//	             quarantined ◀────────────────────┴──────▶ finished ──▶ removed
//
// Every arrow but those on the loop adds to the generation. Package lease has each of
// them as a pure function, and the conditions under which a table accepts it.
//
// # The life of one lease
//
//  1. A worker takes a seat: a row of its own, under a new incarnation, that it beats
//     three times per lease time. Nothing else proves that it lives; so what a fleet
//     costs depends on its workers and not on its shards.
//  2. It lists the rows, and then the seats. Free shards, and those whose owner has no
//     seat, fall to the workers that the plan names; each claims its own, at once.
//  3. The handler is called with a [Tenure]: the shard, its checkpoint, its generation.
//     [Tenure.Mark] says how far it is; the commit policy writes.
//  4. When the plan gives the shard to another worker, that one asks for it by a want
//     on its seat. Eager: the handler is told to wind down ([Tenure.Reading] ends), and
//     when it returns the shard is handed over, last mark and all, in one write.
//     Cooperative: the owner stores its latest mark with an offer, the successor takes
//     it in one write, and only then does the owner's context end.
//  5. When the shard itself has ended, [Tenure.Finish] says so, and its children start.
//
// # When something fails
//
//	what happens                        who notices, and when              what follows
//	a process dies                      its peers, after the lease time    evicted by one conditional delete; its shards are claimed at once
//	a process is paused                 the same; itself, when it wakes    its context ends with [Expired] before anything else; its commits are refused
//	the store does not answer           the worker                         it serves on for nine tenths of the lease time, then ends with [Unreachable]
//	a reply is lost                     the worker                         the same bytes are sent again until they are answered
//	a write arrives late                the table                          its condition does not hold any more
//	a handler fails or panics           the worker                         released as failed; claimed again after a pause that doubles
//	a handler hangs                     the worker, with StallAfter        told to wind down, then released as stalled
//	it ignores that                     the worker, after Drain            its context ends, the shard is given up; whatever it still does is fenced
//	the table accepts no commit         the worker, after CommitTimeout    reported while it lasts; a worker that can write no row gives up its seat, if another worker has room
//	one side of a move dies             the other                          every phase ends by itself; a dead owner's shard is claimed
//	the machine was suspended           the worker, by its wall clock      commits wait until a heartbeat is answered
//	the wall clock steps                nobody                             nothing compares it
//	the table is restored               the worker, from its own seat      nothing is claimed until somebody adopts the table
//	a row cannot be read                who lists it                       set aside and told; the others go on
//
// # Knobs
//
// [Config] documents each field. The ones to think about: Handoff, which has no default;
// TTL, which trades how fast a crash is noticed against how long a pause is forgiven and
// what heartbeats cost; Drain, how long a handler may take to wind down; StallAfter,
// without which a live process is enough; Commit, how much may be processed twice after a
// crash; MaxAttempts, after which a shard that fails is set aside. [Config.Observe] and
// [Config.Logger] tell all that happens, and [Supervisor] lists and commands from outside.
package shardlease
