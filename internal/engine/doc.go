// Package engine makes every decision of a worker: when to send a heartbeat, whom to evict, what
// to claim, what to request and hand over, when to commit, when to write the next plan, and when
// to stop trusting its own lease. [Session] makes these decisions for a session, which acquires leases
// by name: with the same parts, but without a plan.
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
// joins the parts about workers, and what a shard may ask of other parts is in self. The spine
// calls them in a fixed order: the part that the input concerns, then each part for what is due,
// and the seat last.
//
//	engine.go  the spine: takes inputs, calls the parts
//	turn.go    what every part gets in a step, and the pacing of calls that are repeated
//	io.go      the inputs and outputs
//
//	this worker:
//	seat.go    its own seat: heartbeats, trust, the end of trust
//	news.go    what its seat publishes about shards
//	health.go  whose fault a failure is, and whether the worker can work
//	faults.go  faults that last, and their reports
//	leave.go   a graceful shutdown
//
//	the fleet and the plan:
//	fleet.go   the seats and the plan as one part: who watches, who plans, who has a seat
//	peers.go   the other workers' seats: who is alive, who is late, evictions
//	duty.go    which workers watch the seats of a large fleet, and the tick
//	reads.go   which listing is under way, and how soon to list again; audits of a large fleet
//	feed.go    what the source lists
//	facts.go   what is known of all shards, for plans
//	watch.go   when the next plan is due
//	draft.go   writing the next plan
//	layout.go  computing it
//	wishes.go  removing the wishes of operators that have ended
//
//	the shards of this worker:
//	follow.go  its target: what the plan assigns to it
//	shard.go   what it knows of one shard
//	take.go    claiming free shards and requesting held ones; the seats of owners
//	hold.go    holding a shard: marks, commits, winding down
//	give.go    handing a shard over
//
//	a session:
//	session.go its spine: leases by name, without a plan; it shares seat, shards, hold, leave and faults
//	wait.go    waiting for a lease by name: evictions, lock delays
//	kind.go    which kind of group this is
//	heed.go    how a session learns that an operator has released one of its leases
//
//	status.go and copy.go show the engine to the shell, and to tests.
//
// A fleet is large if the plan has more than eight workers. In a small one every worker watches
// the seats. In a large one the plan names eight watchers. The first of them plans, and another
// one does if a plan stays due.
//
// # Seven events
//
// Each line names a part, what it does, and after the arrow what it writes. A number is that of a
// conversation of real engines in internal/transcript, which shows the event.
//
// Join (09; 19 in a large fleet):
//
//	seat           takes a seat → create; confirms it → heartbeat
//	follow         of the newcomer: finds no target → heartbeat that says so
//	watch          of the newcomer (large: of the first watcher): its own seat is the change
//	draft, layout  → plan opened; targets that differ; plan completed
//	follow         of every worker: reads its target of the complete revision
//	take           of the newcomer: free shards → rows created where there are none, then claimed;
//	               requests held ones → heartbeat
//	give, hold     of the owners: as in a move
//
// Crash (12):
//
//	peers          has seen the heartbeat stand still for the lease time → seat deleted
//	watch          of the worker that evicted it (large: of the first watcher): a plan is due
//	draft, layout  → plan opened; targets; target of the dead worker deleted; plan completed
//	follow, take   reads the row, then the owner's seat, which is gone → row claimed
//
// Crash of a planner (20): it leaves an open revision and some of its targets.
//
//	follow         of all workers: reads no target of an open revision
//	watch          of another worker: after 3 s, or when the planner has no seat, a plan is due
//	draft, layout  the rows are listed → the next revision opened; all targets; plan completed
//	peers …        later, as in a crash
//
// Eager move (06; 08 when the drain time ends):
//
//	take           of the successor: prepares, requests → heartbeat with the request
//	give           of the owner: sees the request, ends the handler's soft context
//	hold, give     the handler returns → row: last mark, successor as owner, next generation
//	take, hold     of the successor: reads its name in the row, starts; → heartbeat without the
//	               request
//
// Cooperative move (07):
//
//	take           of the successor: prepares, requests → heartbeat with the request
//	give           of the owner → row: offer and latest mark; the handler continues
//	take, hold     of the successor → row taken over, next generation; starts; → heartbeat without
//	               the request
//	give, hold     of the owner: reads the row or is refused, and ends its handler 50 ms later
//
// Graceful stop (10; 11 with no other worker):
//
//	leave, seat    → heartbeat that says so
//	watch … draft  of the leaving worker (large: of the first watcher) → plan and targets,
//	               unless no other worker is left
//	give, hold     serves the requests of successors → rows, as in a move
//	leave, hold    nobody requests more, or the drain time is over → rows released
//	seat           no row is in its name, or handlers and writes have had their time → seat deleted;
//	               the next planner deletes its target
//
// Restore of the table (17):
//
//	seat           its heartbeat is refused; the spine ends every tenure → another seat created
//	seat           verifies the table: it went back, so nothing is planned or claimed
//	peers          → its own former seat deleted
//	faults         reports restored while it lasts; an operator adopts → each row, no owner
//	seat           verifies again: proven
//	draft, take    → plan and targets; rows claimed
//
// The workers of a new table begin with the second line of a restore. The parts that no event names
// read and remember; of these only duty writes (ticks), and wishes.
package engine
