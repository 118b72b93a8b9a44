// Package shardlease distributes the shards of a stream over a fleet of workers, with
// leases and fencing tokens kept in DynamoDB. It decides which worker may process a
// shard now, and whose writes still count.
//
// A program that consumes a stream embeds a [Worker]. The workers of one group share the
// shards of a [Source]: each worker claims some of them, calls a [Handler] for each,
// stores how far the handler has come, and hands shards over as workers join and leave.
// The workers agree through rows in a table, a [lease.Store]. No worker has authority
// over the others, and there is nothing to clean up after a kill -9.
//
//	w, err := shardlease.New(store, source, shardlease.Config{Group: "orders", Handoff: rebalance.Cooperative})
//	err = w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error { … })
//
// A program that needs a lock, a leader or another lease without a stream embeds a [Session], which
// acquires leases by name.
//
// Package [lease] has the glossary.
//
// # The authority statement
//
//  1. What is leased: the right to process one shard. The lease covers neither the
//     records nor the sink.
//  2. What makes a lease valid: the heartbeat counter of its worker. The other workers
//     watch that counter, each on its own monotonic clock; no wall clocks are compared.
//  3. How long a lease lasts: until another worker has seen the counter stand still for
//     the lease time ([Config.TTL]). The holder itself trusts its leases for nine tenths
//     of the lease time after it sent its last confirmed heartbeat.
//  4. Which token fences the lease, and where the token is checked: the generation of the
//     shard ([Tenure.Generation]), which grows with every change of hands. The table
//     checks it in every commit, and your sink checks it if you make the sink compare.
//  5. Who refuses a stale owner: the table, and every sink that compares generations. The
//     stale owner cannot stop itself reliably, because it may be paused.
//
// # Tenures and their contexts
//
// A tenure is one worker's hold of one shard under one generation. The worker calls the
// handler once for each tenure, with a [Tenure] and two contexts.
//
// The soft context, the handler's ctx, ends when the handler should wind down: read
// nothing more, finish what has been read, mark it and return. The hard context,
// [Tenure.Context], ends when the tenure is over. It outlives ctx by at most the drain
// time ([Config.Drain], or that of a move), unless the terms of the move say to wait. In
// between the tenure still accepts marks. If the shard is lost, or was taken over in a
// cooperative move, both contexts end together. After the end of the hard context, whatever
// the handler still does is fenced. [context.Cause] says why a context ended, as an
// [*EndError]. Neither ends with the context that Run was given.
//
// # How it works
//
// The table holds one lease row for each shard (owner, generation, checkpoint) and one
// seat for each running worker (heartbeat counter, requests). Every change of either is
// one conditional write, which the table stores or refuses.
//
// Heartbeat. A worker takes a seat under an incarnation, a random id that is new with
// each seat, and then adds 1 to the counter in its seat three times per lease time. Only
// this write proves that the worker lives. The lease row of a held shard that makes no
// progress is not written, so the cost of an idle fleet depends on the number of its
// workers and not of its shards. Three times per lease time a worker also polls all seats, or
// in a fleet of more than eight workers the plan alone: there the plan names eight workers that
// watch the seats for all.
//
// Plan. When workers join, leave or die, or the source lists new shards, one worker computes
// which worker should hold which shard. It opens the next revision of the plan, writes the
// targets that differ, one for each worker, and completes the revision. Each worker reads its
// own target. The plan is advice: no row depends on it. If the worker that plans dies, another
// one plans again.
//
// Claim. A worker reads the lease row of each shard in its target. A shard is claimable if its
// row has no owner and is neither finished, quarantined nor removed. A shard without a row is
// created first, once all its parents (the shards that it was split or merged from) are finished. A
// shard whose owner was evicted is claimable as well: the owner was evicted if no seat has its
// incarnation. To know that, a worker first reads the row and then the seat. In the other order
// it could miss the seat of a worker that has just joined and claimed the shard. The worker to
// which the plan assigns the shard claims it with one write, on condition that generation and
// owner are still those that the worker read. The write stores the new owner and a higher
// generation. If two workers claim at once, the table refuses the second. The answer to the
// first contains the row as it is now, and the handler starts at the checkpoint in it.
//
// Commit. [Tenure.Mark] records, in memory, that everything up to a position is
// processed. The policy ([Config.Commit], by default every 5 s) writes the latest mark to
// the lease row as its checkpoint, on condition that the row is exactly as this worker
// left it. After a change of hands the row is different, so the table refuses the commit,
// the tenure ends, and the calls of the handler return an [EndError] with a
// [checkpoint.StaleError]. A worker that could not reach the table for too long has
// stopped trusting its lease before that. Its tenure is over already, and the calls return
// an [EndError] with the cause unreachable or expired, without asking the table. If a
// write is not answered, the worker sends the same bytes again: each write has a random
// id, and the id in the row shows whether an earlier attempt was stored.
//
// Eager move. When the plan assigns a held shard to another worker, that worker (the
// successor) prepares ([Config.Prepare]) and then writes a request to its own seat, with
// the generation that it saw and the terms of the move: its mode, its drain time, and
// whether to wait longer for a handler. The owner finds the request when it polls, and
// ends the soft context of its handler. The handler marks what it has finished and
// returns. The owner then hands the shard over in one write: the last mark, the successor
// as owner, the next generation. The successor reads the row every 120 ms, and starts at
// that checkpoint. In between nobody processes the shard: the gap. If the handler does
// not return within the drain time, the owner ends the hard context and hands the shard
// over without waiting for the handler, unless the terms of the move say to wait. If the owner does
// not hand it over within twice the drain time, the successor takes it, at the last checkpoint.
//
// Cooperative move. The successor requests the shard in the same way. The owner stores
// its latest mark together with an offer to that successor, in one write, and continues
// to process. The successor takes the shard over in one write, on condition that the
// offer still stands; the owner waits with its commits for at most a second, and withdraws an offer
// that nobody accepts. The handler of the successor starts at the checkpoint in the answer. The
// owner reads the row every 120 ms. When it has found the new generation there, or its commit was
// refused, it gives the successor time to start, twice the slowest recent answer of the table but at
// least 50 ms and at most half a second, and then ends both contexts of its handler. In between both
// workers process the shard: the overlap. There is a gap only if the successor needs longer to start;
// its event Started has the delay. Records that the owner processed after the offer are processed
// twice.
//
// Expiry. Each worker remembers when it first saw the present value of every heartbeat counter.
// A worker that has seen a counter stand still for the lease time deletes that seat, on
// condition that the counter still has this value: it evicts the silent worker. Either the
// eviction or the next heartbeat is stored, never both. The shards of the evicted worker are
// claimable then. The next plan, which is made at once, assigns them to other workers, which
// claim them under higher generations. If the silent worker was running, it ended its tenures
// before the eviction, because it trusts its leases for only nine tenths of the lease time. If
// it was paused, it ends them when it wakes up, and the table refuses what its handlers still
// commit. With a [Deathwatch], a worker whose process was killed is evicted at once.
//
// Graceful shutdown. When the context of [Worker.Run] ends, the worker marks its seat as
// leaving and continues to process. The next plan assigns its shards to others. They request
// the shards, and each moves in the mode that its successor requests. After [Config.Drain], or
// at once if the plan has a successor for none of its shards, the worker ends the soft contexts of its remaining
// handlers. It releases each of their shards when the handler returns, or after Drain again.
// Then it deletes its seat, so that nobody has to wait for anything to expire.
//
// End of a shard. When the stream reports that a shard has ended, the handler calls
// [Tenure.Finish]. Nobody claims the shard again, and shards that have it as a parent
// become claimable.
//
// # What is promised
//
// Under any pause, crash, clock fault, lost reply or late delivery:
//
//   - S1. Accepted checkpoints of a shard are ordered by generation. The table refuses
//     the checkpoint of a stale owner.
//   - S2. The stored position never moves back within a generation, as far as
//     [Config.Order] can compare positions. A new generation starts from the stored
//     position.
//   - S3. The generation of a shard only grows, also when its row is removed and created
//     again or the table is restored. One generation of a shard has at most one owner.
//   - S4. No healthy worker loses a shard because a reply was lost. A commit that fails
//     reports whether its outcome is unknown.
//   - S5. The end of one tenure never affects another shard. A store error never ends
//     Run. No goroutine outlives Run. No store, source or hook ends the process or the
//     worker, whether it panics, calls runtime.Goexit or returns nil instead of a value.
//
// It is not promised that two handlers never run at once. A paused process cannot know
// that it is stale, so nobody can promise that. The promise is about whose writes count:
// the checkpoint always, and every other effect whose sink compares the generation.
//
// Expiry is observed by the other workers: while no worker runs, nothing expires. Rows
// that are deleted or edited by hand, and tables that are replicated so that the last
// writer wins, are outside of all promises. The generations of new rows and of adopted
// rows begin at the wall clock of the worker or operator, so S3 depends on that clock when
// the row of an earlier generation is lost. The plan is even and minimal when the fleet has
// settled, but not at every moment before.
//
// docs/design.md lists these exceptions and the tests that hold each promise.
//
// # When something fails
//
//	what happens                     noticed by                           what follows
//	a process dies                   its peers, after the lease time      its seat is deleted; its shards are claimed at once
//	a process is killed              its peers, at once by a deathwatch   as above
//	a process is paused              its peers, and itself on waking up   the tenure ends with the cause expired; its commits are refused
//	the store does not answer        the worker                           it serves for nine tenths of the lease time, then ends with unreachable
//	a reply is lost                  the worker                           it sends the same bytes until they are answered
//	a write arrives late             the table                            the table refuses it: its condition no longer holds
//	a handler fails or panics        the worker                           the shard is released as failed, and claimed again after a pause that doubles
//	a handler hangs                  the worker, if StallAfter is set     its soft context ends, then the shard is released as stalled
//	a handler ignores its contexts   the worker, after Drain              the shard moves on without the handler; whatever the handler still does is fenced
//	commits are not stored           the worker, after CommitTimeout      a report while it lasts; a worker that can write no row at all gives up its seat, if there is another worker
//	one side of a move dies          the other side                       every phase has a time limit; the shard of a dead owner is claimed
//	the machine was suspended        the worker, by its wall clock        commits wait until a heartbeat is confirmed
//	the wall clock is set            the worker, if it is set forward     as above; no shard moves: no two wall clocks are compared
//	the table is restored            the worker, by the table's identity  nothing is claimed until an operator adopts the table, which raises all generations
//	the source drops a shard         the worker, by two listings          the handler winds down, and the row stays, until a source lists the shard again
//	a row cannot be read             the worker that lists it             the row is skipped and reported; the others are served
//
// # Configuration
//
// [Config] documents each field. Group and Handoff have no default. With a shorter TTL a
// crash is noticed sooner; with a longer one longer pauses are forgiven and heartbeats cost
// less. Drain is how long a handler may take to wind down. Commit bounds how much is
// processed twice after a crash. StallAfter takes a shard from a handler that hangs, and
// MaxAttempts quarantines a shard that fails again and again; both are off by default.
// [Config.Observe] receives events and [Config.Logger] logs them, [Worker.Probes] serves
// /livez and /readyz, [Worker.Status] describes the worker, and a [Supervisor] lists,
// releases, quarantines and rewinds shards from another process.
package shardlease
