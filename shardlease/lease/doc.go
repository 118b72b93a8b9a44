// Package lease defines the rows of a lease table and the contract of a store: what
// authors of stores and operators need to know. [Write.Check] and [Write.Apply] define exactly
// how a row may change.
//
// # The rows
//
// A table holds the rows of any number of groups. In each group there is one [Row] for
// each shard and one [Seat] for each running worker.
//
// The lease row of a shard stores who holds the shard, under which generation, and the
// last accepted checkpoint. The generation is a fencing token: it grows with every change
// of hands, also when the shard is released, and never with a commit. A worker
// that was paused, replaced and woken up still writes under the old generation, and the
// table refuses every such write.
//
// The seat of a worker stores its heartbeat counter and its requests. The lease row of a held
// shard that makes no progress is not written, so an idle fleet costs by the number of its
// workers and not of its shards. A worker whose heartbeat counter stands still for
// the lease time is evicted: another worker deletes its seat, and the shards that it held
// become claimable.
//
// # The plan, targets and wishes
//
// A group also has a written plan: which worker should hold which shard. The [Plan] itself is
// small. It has the present revision, and says whether the targets of this revision are still
// being written. The [Target] of a worker, in pages, lists the shards that the worker should
// hold. [Wishes] are those of operators. All three are advice: a lease row is
// the only record that decides who holds a shard, so nothing is lost with a plan that is wrong,
// late or missing.
//
// [Ends] count for people how tenures have ended, in one record for each hour.
//
// One worker at a time writes the plan and the targets, and each worker reads its own target. If two
// planners meet, the one that opened the lower revision stops.
//
// # The states of a shard
//
//	no row ─── create ───▶ free ─── claim ────▶ held ─── finish ───▶ finished
//	                     ▲ │ ▲ ▲                │ │                     │
//	                     │ │ │ └─── release ────┘ │                     │
//	                     │ │ └────────────────────│────── rewind ───────┘
//	        unquarantine │ │ quarantine           │
//	                     │ ▼                      │
//	                  quarantined ◀─ quarantine ──┘
//
//	free, quarantined or finished ─── remove ───▶ removed ─── revive ───▶ free
//
// Each of these changes begins a new generation. So does each change that gives a held shard
// another owner: hand over, take over, recover and seize. A holder's other writes (commit,
// progress, offer, withdraw) do not.
//
//   - hand over, take over: the two planned moves, eager and cooperative.
//   - withdraw: the owner takes an offer back that the successor has not accepted.
//   - recover: a worker claims a shard whose owner was evicted.
//   - seize: a successor claims a shard although its owner has not handed it over. When the
//     drain time of an eager move is over, the owner cuts its handler off and hands the shard
//     over. If the owner has not done so after twice the drain time, the successor seizes the
//     shard. If the terms say wait, the move waits for the handler instead.
//   - release: the holder gives the shard up without a successor. The worker stops, the handler has
//     returned or failed, or the source no longer lists the shard. An unlisted shard is claimed
//     again when a source lists it. With force-release an operator takes a shard from its holder.
//   - rewind: an operator sets another position, and takes the shard from its holder if it has one. A
//     finished shard is free afterwards; a free or quarantined one stays what it is.
//   - conclude: an operator marks a shard as finished, and takes it from its holder if it has one.
//   - remove: a worker whose source no longer lists the shard, or an operator, replaces the
//     row by a tombstone, which keeps the generation.
//   - revive: a worker whose source lists the shard again turns the tombstone into a row.
//   - a session creates or revives the row of a lease by name as its holder, in one write.
//   - discard: a session releases a lease without a checkpoint and leaves a tombstone, in one write.
//   - adopt: an operator takes the rows of a restored table into use. Each keeps its state,
//     loses its owner, and gets a generation above all that were issued after the backup.
//
// # The four conditional writes
//
//	operation   condition                                        made by
//	create      there is no row and no tombstone                 a worker that creates a row or takes a seat; the worker
//	                                                             that plans, for the first plan and for targets
//	swap        write id and counter are as read, and so the     the holder; an operator that rewinds or finishes a shard;
//	            whole row is                                     for a row without owner also other commands, and
//	                                                             a worker that removes or revives the shard; a
//	                                                             worker for its seat (heartbeat); the worker that plans,
//	                                                             for the plan and targets; an operator, for the wishes
//	transfer    generation and owner are as read, and so is the  a worker that takes or quarantines a shard; an operator
//	            offer that is accepted; commits do not matter    that takes it away, quarantines or adopts it
//	delete      as swap; for seats and targets only; of a        a worker that evicts another, gives up its seat, or
//	            malformed seat, and of malformed wishes, only    drops the target of a dead worker; an operator, for
//	            the write id is compared                         malformed seats and wishes
//
// The holder of a row writes by swap. Any change of hands replaces the write id, so the next
// swap of the former holder is refused. A worker that takes a shard writes by transfer, which
// the commits of the owner cannot make fail. One transfer both fences the old owner and
// returns the checkpoint at which the new owner starts. [Op] and [Write.Apply] define the
// operations exactly.
//
// A write has three outcomes. It is stored; or it is refused, and the refusal contains the row
// as it is now ([RefusedError]); or its outcome is unknown, because no answer arrived. A
// worker sends an unknown write again, with the same bytes, until it is answered. The write id
// in the row shows whether an earlier attempt was stored.
//
// # Writing a store
//
// Implement [Store]: List, Get, Write and Verify. A store translates and decides nothing:
// check each write with [Write.Check], apply it atomically as [Write.Apply] does, and
// store records with [Encode] and [Decode]. [Kind.Listed] says which records one listing has.
// Package storetest has the suite that every store must pass.
//
// # Glossary
//
// The words in parentheses are those of other systems for the same or a similar thing;
// docs/leases.md compares them.
//
// Who and what:
//
//   - shard: one part of a stream, which one worker processes at a time (partition).
//   - worker: one running shardlease.Worker, a member of a fleet (consumer, member).
//   - session: one running shardlease.Session, which holds leases by name. On this page, "worker"
//     includes sessions and "shard" includes leases by name, except where plans, moves or attempts
//     are concerned.
//   - group: the name that a fleet shares; groups in one table do not see each other
//     (application, consumer group).
//   - fleet: all running workers of a group.
//   - lease row: the row of one shard, [Row] (lease, lock).
//   - seat: the row of one running worker, [Seat] (session, ephemeral node, member entry).
//   - incarnation: the random id of one seat, never used again; a worker that loses its
//     seat returns under another incarnation (session id).
//   - owner: the incarnation that a lease row names as the holder of its shard (holder,
//     leader).
//   - successor: the worker to which a shard moves.
//   - source: the user's code that lists the shards and their parents.
//
// Time and life:
//
//   - heartbeat: a worker's write that adds 1 to the counter in its seat, three times per
//     lease time (renewal, keep-alive).
//   - lease time: how long a heartbeat counter may stand still before the worker is
//     evicted, Config.TTL (TTL, session timeout, failover time).
//   - trust: the time for which a worker relies on its own leases, nine tenths of the lease
//     time after it sent the last confirmed heartbeat.
//   - evict: to delete the seat of a worker whose heartbeat counter has stood still for the
//     lease time, or whose death a deathwatch has proven. An operator can evict any worker.
//   - expire: a lease expires when its owner is evicted.
//   - poll: to read the seats, or the plan alone, once per heartbeat interval. While one of its
//     shards moves, a worker reads the seats and the rows of these shards every 120 to 250 ms
//     (watch).
//   - list: to read a source, every Config.PollEvery, or all rows of one kind.
//   - audit: a periodic complete listing of all lease rows.
//
// Holding a shard:
//
//   - generation: the number in a lease row that grows with every change of hands
//     (fencing token, epoch, term, sequencer).
//   - tenure: one worker's hold of one shard under one generation, from the start of its
//     handler to its end.
//   - soft context: the handler's ctx, which ends when the handler should wind down.
//   - hard context: Tenure.Context, which ends when the tenure is over.
//   - claim: to take a shard that has no owner, or whose owner was evicted (acquire).
//   - position: a place in the shard, as the user's text; the library does not interpret it
//     (offset, sequence number).
//   - mark: the position up to which a handler has processed the shard; it is in memory only.
//   - commit: to write the latest mark to the lease row (checkpoint, offset commit).
//   - checkpoint: a mark that the table accepted; the next tenure starts there (committed
//     offset).
//   - hold: the handle with which a tenure writes, [Hold]; the argument of dynamostore's
//     Store.Fence (receipt handle).
//   - release: to give a shard up without a successor.
//   - finish: to record that a shard has ended and is processed to its end (SHARD_END).
//   - attempts: failed tenures of a shard since it last made progress, by an accepted
//     checkpoint or a call of Tenure.Progress.
//   - rest: the time in which nobody claims a shard after an error, a panic or a stall of its
//     handler, Config.Backoff (back-off).
//   - quarantine: to set a shard aside, so that nobody claims it until an operator decides
//     (poison, dead letter).
//   - tombstone: the row of a removed shard, which keeps its generation.
//
// Moving a shard:
//
//   - plan: which worker should hold which shard; one worker computes it and writes it (target
//     assignment).
//   - revision: the number of a written plan, which grows with every plan (assignment epoch).
//   - target: the shards that one worker should hold under a revision, [Target] (member's
//     target assignment).
//   - hint: the entry of a target that names the successor of a shard; its stored name is give.
//   - watcher: a worker that lists the seats. In a fleet of at most eight workers every worker
//     does; in a larger one the plan names eight.
//   - tick: the write of the first watcher to the plan, once per heartbeat interval.
//   - news: what a worker reports about shards on its seat: finished, removed, unlisted, declined, and for people
//     hangs and silent.
//   - unwell: three failures in a row under this worker, of different shards or of shards that
//     make progress under others; or its reads of the table fail.
//   - wish: what an operator wants of the next plan: cordon, drain, pause, pin, move; or to raise all fences again.
//   - move, handoff: the planned change of hands between two live workers.
//   - cause (of a move): why the plan moves the shard: leaving, pin, move, return, drain or balance. Its stored names
//     are causes and the first letter of a transfer's note.
//   - mode: eager (a gap, no overlap) or cooperative (an overlap, usually no gap).
//   - terms: mode, drain time, what follows the drain time, and preparation time of one move;
//     the request states them.
//   - request: the successor's wish for a shard, on its seat; its stored name is wants.
//   - hand over: the owner's last write in an eager move, which names the successor as
//     owner; its reason is stored as handoff.
//   - offer: the owner's permission, in a cooperative move, to take the shard over.
//   - take over: the successor's write in a cooperative move, which accepts the offer.
//   - drain time: how long a handler may take to wind down, Config.Drain (grace period).
//   - graceful shutdown: the end of a worker that first moves or releases all its shards
//     (drain, clean stop).
//
// # Outside of the promises
//
// The promises do not cover rows that are deleted or edited by hand, nor tables that are
// replicated so that the last writer wins. A rewind by an operator may move a position back,
// under a generation of its own. docs/design.md has the promises and all exceptions.
package lease
