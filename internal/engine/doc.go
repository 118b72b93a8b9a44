// Package engine makes every decision of a worker: when to send a heartbeat, whom to evict, what
// to claim, what to request and hand over, when to commit, when to write the next plan, and when
// to stop trusting its own lease. A [Session] is the same for leases by name. It shares some parts, and has no plan.
//
// An [Engine] is a plain value. It reads no clock, draws no random number, starts no goroutine
// and calls no store: [Engine.Step] takes one thing that has happened, at one moment, and returns
// what to do. So a fleet of engines can be driven through any interleaving, cloned in the middle
// and compared.
//
// # Authority and attention
//
// Only the lease row of a shard says which worker holds it, and every write is conditional. The
// plan moves attention, not authority: it says at which rows a worker looks. So nothing here
// depends on a plan being right, fresh, or there at all.
//
// # The spine and its parts
//
// A part is a struct with its own methods. It gets the turn (the moment, the configuration, the
// outputs) and narrow values, and returns what happened. Only the spine knows all parts. The fleet
// joins the parts about workers. A shard gets what it may ask of other parts as a self or a member
// (shard.go), or as a waiter (wait.go), and a tenure gets the row of its shard. The spine calls the parts in a fixed order:
// the part that the input concerns, then each part for what is due, then the heartbeat, and the reports of faults last.
//
// The files below stand in the order in which they call each other: the spines first, and then, with few exceptions, each
// file before those that it calls.
//
//	engine.go    the spine: takes inputs, calls the parts
//	listings.go  the same for listings
//	common.go    what the spine of a session does alike
//	turn.go      what every part gets in a step, and the pacing of calls that are repeated
//	io.go        the inputs and outputs
//
//	a session:
//	session.go   its spine: leases by name, without a plan; it shares common, leave, health, faults, shards, shard, take,
//	             give, hold, row, owners, wishes and seat
//	wait.go      waiting for a lease by name: evictions, lock delays
//	contention.go  the acquisitions that find a lease taken: which of them wait, and how many there were
//	kind.go      which kind of group this is
//	roll.go      its share of the listings of the seats: the dead whose leases nobody wants
//	heed.go      how a session learns that an operator has released one of its leases
//	census.go    the seats of the group, before a lease that fails is quarantined
//	move.go      moves that operators have ordered, of leases by name and of shards
//
//	this worker:
//	leave.go     a graceful shutdown
//	health.go    whose fault a failure is, and whether the worker can work
//	faults.go    faults that last, and their reports
//	unread.go    the fault that reads fail while heartbeats are stored
//
//	the shards of this worker:
//	follow.go    its target: what the plan assigns to it
//	shards.go    which shards it knows
//	shard.go     what it knows of one shard, and what is done next for it
//	take.go      claiming free shards and requesting held ones
//	give.go      handing a shard over
//	hold.go      holding a shard: marks, commits, winding down
//	confirm.go   reads of its row for callers that ask whether it is held
//	raise.go     the fences of the systems that handlers change, while they are not raised
//	row.go       the lease row of a shard: its copy, its reads and its open write
//
//	the fleet and the plan:
//	draft.go     writing the next plan
//	ask.go       asking the user's planner for it
//	layout.go    computing it, with internal/layout
//	watch.go     when the next plan is due
//	fleet.go     joins the seats and the plan: which workers watch, plan, and have a seat
//	peers.go     the other workers' seats: who is alive, who is late, evictions
//	lag.go       workers that beat and do not follow the plan
//	proof.go     connections to the other workers, which may prove that one is dead
//	duty.go      which workers watch the seats of a large fleet, and the tick
//	owners.go    the seats of owners that are read one by one
//	sweep.go     audits of all rows
//	reads.go     which listing is under way, and how soon to list again
//	facts.go     what is known of all shards, for plans
//	feed.go      what the source lists
//	wishes.go    removing the wishes of operators that have ended
//
//	its seat:
//	seat.go      heartbeats, trust, the end of trust
//	news.go      what its seat publishes about shards
//
//	status.go and copy.go show the engine to the shell, and to tests.
//
// A fleet is large if the plan has more than eight workers. In a small one every worker watches
// the seats. In a large one the plan names eight watchers. The first of them plans, and another
// one does if a plan stays due. Newcomers list the seats too until they have seen a tick, but they neither evict nor plan.
//
// # Reading order
//
// A new maintainer reads the seven events below first, each beside its conversation in
// internal/proof/transcript/testdata, then engine.go, common.go, seat.go and shard.go; for moves take.go, hold.go and give.go; for
// plans fleet.go, watch.go, draft.go and peers.go; and the rest when it is needed. The opening comment of a file has the
// states of its part, its callers and its invariants.
//
// Names that occur everywhere:
//
//	me          the incarnation of this worker: a random name, new with every seat
//	beat        the interval between two heartbeats, a third of the lease time
//	order       a number of a step. "In the step" always means a step of this engine
//	begun       the step in which a read was sent. A consistent read shows all that was stored before
//	lax         of a listing: eventually consistent, so it does not prove that something is gone
//	large       the plan has more than eight workers
//	confirmed   of a seat: its worker has sent a heartbeat. A seat that is not confirmed counts for nobody
//
// # Seven events
//
// Each line has a part, what it does, and after the arrow the record that it writes, with the operation of
// [lease.Op] and the transition of internal/protocol. A number is that of a conversation of real engines in
// internal/proof/transcript that shows the event. The operations and their conditions:
//
//	create    there is no record under the key
//	swap      the record is the one that was read: the same write id, and of a row the same counter
//	transfer  only of rows: generation and owner are those that were read; of Take also the offer. The stored
//	          checkpoint stays, and the answer has it
//	delete    as of a swap
//
// Join (09; 19 in a large fleet):
//
//	seat      takes a seat                                       → seat: create (Sit)
//	seat      confirms it; asks the store whether the table      → seat: swap (NextBeat)
//	          is the one that the group has always used
//	follow    of the newcomer: finds no target. The seat says so at once if no plan is due, and
//	          otherwise with the next heartbeat. Large: at once  → seat: swap (NextBeat)
//	watch     small: of the newcomer, because its own seat is the change. If only held shards move, it
//	          waits for half a second without a change of the seats, at most 2 s. Large: of the first
//	          watcher, about a second after it saw the seat
//	draft     lists the seats and the targets, and the rows if
//	          there is no plan
//	ask       if there is a planner of the user: the shell calls it, and the draft waits for its answer
//	layout    decides which shards the newcomer gets
//	draft     opens a revision                                   → plan: swap (OpenPlan); create if there is none
//	draft     writes each target that differs                    → target: create or swap (WriteTarget)
//	draft     completes the revision                             → plan: swap (ClosePlan)
//	follow    of every worker: reads its target of the complete revision
//	take      of the newcomer: reads the rows of its target. It makes the row of a shard that has none,
//	          claims free rows                                   → row: create (Begin); transfer (Claim)
//	take      of the newcomer: requests held rows                → seat: swap (NextBeat)
//	give …    of the owners: as in a move, as soon as a listing shows the request, before or after they
//	          have read their own targets
//
// Crash (12). It leaves a seat, rows and a target in the name of the dead worker:
//
//	peers     has seen the heartbeat stand still for its lease
//	          time, on its own clock                             → seat: delete (Evict)
//	watch     of the worker that evicted it: a plan is due at once. Large: of the first watcher, which
//	          is another worker if the dead one was first
//	draft     as in a join. After the other targets it deletes
//	          that of the dead worker, then completes            → target: delete (DropTarget)
//	follow    of every worker: reads its target
//	take      reads the row, and after the row the seat of its
//	          owner, which is gone. That counts as a failed attempt; a shard that has failed too often is
//	          quarantined instead                                → row: transfer (Recover), or swap (Quarantine)
//	          If the owner was last seen leaving, and has not written the row since the hand-over, nothing
//	          has failed                                         → row: transfer (Inherit)
//
// With a deathwatch, the shells of the watchers find at once that the address refuses connections, or answers as another
// incarnation. That is a proof (proof.go). Each watcher lists the seats, and deletes the seat if it is still there: the
// first one at once, each other 100 ms after the one before it (seat: delete, Evict). The rest is as above.
//
// If all watchers of a large fleet have died, nobody ticks. Then duty of one of the others takes over with
// a tick (plan: swap, TickPlan), and watches and plans until a higher revision is complete.
//
// Crash of a planner (20). Between OpenPlan and ClosePlan it leaves an open revision and some of its targets;
// before and after, it leaves nothing that differs from any crash:
//
//	follow    of every worker: keeps the target that it follows, and reads none while a revision is open
//	watch     of another worker: the plan is due when this worker has seen the revision open for 3 s, and 250 ms
//	          later for each watcher before it that has a seat; at once if its planner has no seat. If that
//	          happens again in a row, after 6 s, 12 s and so on
//	draft     lists the rows as well, because they alone say
//	          who holds what; opens the next revision            → plan: swap (OpenPlan)
//	draft     writes all targets, also those that are the same   → target: create or swap (WriteTarget)
//	draft     completes the revision                             → plan: swap (ClosePlan)
//	peers …   when the seat of the dead planner expires, as in a crash. Until then plans give it shards, which
//	          run under their former owners
//
// A planner that was only slow meets the higher revision when it writes a target, or at the latest when it
// completes its own, and stops.
//
// Eager move (06; 08 when the drain time ends). First the owner stops, then the successor starts:
//
//	take      of the successor: prepares, if the terms say so;
//	          then requests the shard                            → seat: swap (NextBeat), with the request
//	give      of the owner: a read of the successor's seat shows the request; ends the soft context
//	hold      the handler marks, and returns
//	give      hands over: last mark, successor as owner, next
//	          generation                                         → row: swap (Yield)
//	take      of the successor: reads the row every 120 ms at first, and finds its name. Large: every 500 ms,
//	          unless the owner leaves
//	hold      starts the handler at the last mark. The request
//	          goes with the next heartbeat that is due           → seat: swap (NextBeat)
//
// If the handler fails or stalls meanwhile, or the request no longer stands, give releases the shard (row: swap, Release).
// If the drain time ends first, hold ends the hard context, and give hands over without the handler. If the
// owner does not do even that, and the terms allow force, take of the successor takes the shard from it (row:
// transfer, Seize).
//
// Cooperative move (07). First the successor starts, then the owner stops:
//
//	take      of the successor: requests the shard               → seat: swap (NextBeat), with the request
//	give      of the owner: offers it, with its latest mark. The handler continues, and commits wait for
//	          up to a second                                     → row: swap (Offer)
//	take      of the successor: finds the offer in the row       → row: transfer (Take), next generation
//	hold      of the successor: starts the handler at the mark in the row that the transfer has returned
//	give      of the owner: reads the row, or one of its writes is refused; a moment later it ends its handler
//
// If the successor does not accept, give withdraws the offer after twice the drain time, at least two seconds,
// or at once if the request no longer stands (row: swap, Withdraw).
//
// Clean stop (10; 11 with no other worker):
//
//	leave     makes the seat say that the worker leaves; without
//	          another worker the handlers wind down at once      → seat: swap (NextBeat)
//	watch …   small: of the leaving worker itself. Large: of the
//	          first watcher. No plan if no other worker stays    → plan and targets, as in a join
//	give      serves the requests of the successors              → rows, as in a move
//	leave     no shard waits for a request any more, or the drain time is over: hold ends the soft
//	          contexts of the remaining handlers
//	give      releases what nobody has requested                 → row: swap (Release)
//	take      reads the rows that the worker had requested, for as long as their owners may not have seen
//	          that it leaves, and releases a row that names it   → row: swap (Release)
//	leave     no row is in the name of this worker, or handlers and writes have had the drain time and a
//	          lease time; then seat gives itself up              → seat: delete (Evict)
//	draft     of the next planner, whenever a plan is due        → target: delete (DropTarget)
//
// Restore of the table from a backup (17):
//
//	seat      its heartbeat is refused, because the restored seat is an earlier one, or is missing; or a
//	          consistent listing lacks the seat, or the answer to a write shows an older row. The spine ends
//	          every tenure                                       → seat: create (Sit), another incarnation
//	seat      confirms it; the store verifies the table: it went back. From then on this worker neither
//	          plans nor claims                                   → seat: swap (NextBeat)
//	follow    finds no target, and the seat says so              → seat: swap (NextBeat)
//	peers     finds its own former seat, if the backup has it    → seat: delete (Evict)
//	faults    reports the event restored, again and again
//	operator  adopts every row: no owner, and a generation above
//	          all that may have been lost; then records the
//	          table as that of the group                         → row: transfer (Adopt)
//	seat      verifies the table at least once per beat, until the store says that it is the recorded one: proven
//	draft     as in a join, and drops targets of old seats       → plan, targets
//	take      the rows are free                                  → row: transfer (Claim)
//
// Workers that are started on a restored copy take a seat as in a join, and go on with the second line.
//
// # What always holds
//
// Invariant: only the worker that the lease row names holds a shard, and it knows that by the answer to a read or a
// write of the row. Plans, targets, requests and news only say where to look.
//
// Invariant: a worker holds nothing without a confirmed seat that it trusts (seat.go).
//
// Invariant: a row is taken from a living owner only if the owner has offered it, if its drain time is over and the
// terms allow force, or by an operator. The row of an owner without a seat may be taken (take.go, wait.go).
//
// Invariant: every change of hands begins a new generation, so a write of an earlier holder is refused, however late
// it arrives (internal/protocol).
//
// Invariant: every phase of a move and of a shutdown ends by itself, whatever the others do. Only terms that say
// rebalance.Wait let an owner and its successor wait without a limit.
//
// # Times
//
// T is the lease time (Config.TTL), D the drain time of a move or of the worker.
//
//	seat    heartbeat                  T/3, less up to a tenth
//	        trust                      0.9 T from when the last stored heartbeat was first sent
//	peers   late                       T/3 + T/12 since the heartbeat was first seen
//	        evicted                    T since then; a watcher behind others somewhat later
//	proof   evicted                    at once after a proof, 100 ms for each watcher before this one that lives
//	        address is hidden          10 T after an eviction while the lease was valid
//	lag     a worker lags              3 heartbeat intervals of the first watcher under an older plan
//	unread  reads fail                 3 heartbeat intervals without a read of one kind that passes
//	duty    tick                       T/3, less up to a tenth
//	        another worker takes over  2.75 to 3.75 heartbeat intervals after the last tick
//	watch   seats stand still          0.5 s without a change, but a plan waits at most 2 s
//	        between two plans          1 s after this worker's own plan, 250 ms after an eviction on a proof
//	        between ranks of planners  1 s; for an abandoned revision 250 ms, for a first plan 100 ms. A worker whose
//	                                   own seat is the change does not wait
//	        a plan is noticed          small: with the next listing of the seats, at most T/3 later
//	        an open revision is dead   3 s, doubling if it happens in a row; at once if its planner has no seat
//	ask     the user's planner         answers within T/3: the shell sees to that
//	take    row of a requested shard   read every 120 ms at first (large: 500 ms, unless the owner leaves), later every
//	                                   250 ms, then once per heartbeat interval. Many rows of one owner take turns. If reads
//	                                   of the row fail, a takeover is tried every T, or every T/24 if a listing shows the row
//	        patience of a successor    the larger of 2 D and a heartbeat interval, and one more (handoff.Patience)
//	give    an offer stands            the larger of 2 D and 2 s (handoff.Standing); commits wait for 1 s of it
//	        handler after acceptance   twice the slowest answer since the third-last heartbeat, 50 ms to 0.5 s
//	raise   the fault begins           T/3 after the tenure began
//	        tenures are given up       T and T/3 later, if another worker has been well for so long and no raise has passed
//	hold    stalled                    Config.StallAfter, or Acquire.StallAfter, and 50 ms without a sign
//	        a lease is released        if its holder has stalled and was cut off: its lock delay after that
//	        is left to other sessions  T/3 + T/24 after its tenure in this one has failed, unless the seats show no other
//	        lingers                    0.5 s after its tenure has ended
//	leave   waits for successors       D; then D for handlers, and T for writes
//	        after requests             T/3 and 0.5 s from when the seat says that the worker leaves, even if reads of the
//	                                   requested rows fail. Each row is read every T/12, or every 0.5 s if that is less
//	faults  reported again             after T, then at intervals that double up to an hour
//	        no plan                    30 s, or 3 T if that is longer
//	        reserved for another name  T and 2 s
//	        rest without a seat        T, doubling up to 6 T, after the seat was given up because no row could be written
//	health  rest of an unwell worker   T, doubling up to 4 min
//
// # How to change it
//
// Where kinds are told apart, a test has all of them (fixture.Kinds) and names the place that lacks one, so add a
// constant and run all tests. A field of a record goes into the records of fixture.Full first.
//
//	a new write of a row         a transition in internal/protocol, a doing in row.go, its conclusion in held (hold.go) or
//	                             claimed (shard.go), and a line in the table below
//	an attribute of a seat       a field of lease.Seat, which create fills in (seat.go), or of lease.Says, which Engine.says
//	                             fills in; internal/attr, encode and the reader; docs/table.md. fleet.hurry if it cannot wait
//	                             for the next heartbeat; inputs in watch.go if a plan depends on it. Each heartbeat and each
//	                             listing of the seats is billed for its bytes, so the usual value is not stored
//	a reason                     lease.Reason; its ending (protocol.EndingOf), which is all that most code asks; the transition
//	                             that records it, and give.go or take.go, which choose it; overtaken and landed (hold.go)
//	a wish                       lease.WishKinds and Names; a method of Supervisor and a command; internal/layout, which reads the
//	                             wishes that stand. A wish reaches workers only through a plan: the planner takes it into
//	                             account, and the others see targets. Three kinds have another way: "look" (heed,
//	                             watch.go), "raise" (the plan names its number, raise.go) and, among sessions, "move" (move.go)
//	a warning                    a Code of package inspect, its place in Codes, and a section of docs/operations.md
//	a new part                   a field of Engine or fleet; its call in take or live; what loseSeat drops of it; Clone and
//	                             Hash in copy.go
//	a new input or output        io.go, Engine.take, and the shell and the worlds of the tests
//	a new fault                  faults.go: the field, newFaults and keep; a kind of event
//	a new listing                reads.go: the field, of and fails; Engine.listed and keepReading (listings.go)
//
// # What a crash leaves
//
// Every write that an engine makes, and what remains if its worker dies when the write is stored. Nobody has to
// undo anything: each record is complete, and says by itself what another worker may do with it.
//
//	seat: create, Sit           seat        a seat that is not confirmed. It expires like others
//	seat: swap, NextBeat        seat        a seat, with requests: it expires, and the requests with it
//	seat: delete, Evict,        seat,       a target in the name of a worker without a seat, which the next planner
//	EvictSpoilt                 peers,      drops, and rows, which workers recover when the plan assigns them to
//	                            common,     these workers. Sessions recover the leases that they want
//	                            session,
//	                            wait, roll
//	plan: create or swap,       draft,      an open revision, which nobody follows. Another worker opens the next
//	OpenPlan                    duty        one after 3 s
//	plan: swap, ClosePlan       draft       nothing: all targets are stored before
//	plan: swap, TickPlan        duty        a tick that stands still, so that another worker takes over
//	plan: create, BeginSessions kind        nothing: the record is all that there is to say
//	target: create or swap,     draft       one target of an open revision. The next planner writes all targets
//	WriteTarget
//	target: delete, DropTarget  draft       the same, without that target
//	wishes: swap, SetWishes     wishes      nothing
//	row: create, Begin;         take        a free row. The worker to which the next plan assigns it claims it
//	swap, Revive
//	row: transfer, Claim,       take, wait  a row in the name of a dead worker without a handler: it is recovered
//	Recover, Inherit,                       like any other. The table has the last mark that was committed
//	Take, Seize
//	row: create, BeginHeld;     wait        the same
//	swap, ReviveHeld
//	row: swap, Quarantine       take, wait  a quarantined row, which waits for an operator in any case
//	row: swap, Remove           take        a tombstone. The shard is made again if the source lists it again
//	row: swap, Commit, Progress hold,       a mark, at which the next owner starts
//	                            faults
//	row: swap, Offer            give        an offer of a dead owner. The successor may still accept it; otherwise
//	                                        the row is recovered, which clears the offer
//	row: swap, Withdraw         give        a row without an offer
//	row: swap, Yield            give        the successor as owner. If the successor is dead too, it is recovered
//	row: swap, Release          give, take  a free row
//	row: swap, Discard          give, take  a tombstone, of a lease by name
//	row: swap, Reserve          move        a free row, which the named session acquires, or later any other one
//	row: swap, Finish           hold        a finished row. The plan may still assign it: the worker that reads the
//	                                        row then says so on its seat, and the next plan leaves it out
//
// A lost answer is no crash: while the worker keeps its seat, it sends the write again with the same bytes until an
// answer decides it (protocol.Settle). A worker that is evicted meanwhile finds out by its own clock before that, and
// otherwise by the refusal of its next heartbeat: see seat.go. Two deletions of a worker's own seat are sent only once,
// in common.go and session.go: if they do not arrive, the seat expires.
package engine
