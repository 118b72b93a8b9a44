// Package core makes every decision of a worker: when to send a heartbeat, whom to evict, what
// to claim, what to request and hand over, when to commit, when to write the next plan, and when
// to stop trusting its own lease.
//
// An [Engine] is a plain value. It reads no clock, draws no random number, starts no goroutine
// and calls no store: [Engine.Step] takes one thing that has happened, at one moment, and returns
// what to do. So a fleet of engines can be driven through any interleaving, cloned in the middle
// and compared.
//
// The engine is a spine and parts. A part is a struct with its own methods. It gets the [turn]
// (the moment, the configuration, the outputs) and narrow values, and returns what happened. No
// part sees another part; only the spine knows them all.
//
//	engine.go  the spine: takes inputs, calls the parts, in a fixed order
//	seat.go    this worker's seat: heartbeats, trust, the end of trust
//	peers.go   the other workers' seats: who is alive, who is late, evictions
//	duty.go    which workers watch the seats of a large fleet
//	reads.go   which read is under way, and how soon to read again
//	shard.go   what this worker knows of one shard
//	follow.go  this worker's target: what the plan assigns to it
//	feed.go    what the source lists
//	facts.go   what is known of all shards, for plans
//	watch.go   when the next plan is due
//	draft.go   writing the next plan
//	layout.go  computing it
//	wishes.go  removing the wishes of operators that have ended
//	take.go    claiming free shards and requesting held ones
//	hold.go    holding a shard: marks, commits, winding down
//	give.go    handing a shard over
//	leave.go   a graceful shutdown
//	faults.go  faults that last
//	health.go  whose fault a failure is, and whether this worker can work
//
// The plan moves attention, not authority. Only the lease row of a shard says which worker
// holds it, and every write is conditional. So nothing here depends on a plan being right, fresh, or
// there at all.
package core
