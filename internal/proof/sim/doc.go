// Package sim drives whole fleets of real engines through the virtual world of package
// virtual: one goroutine, one seeded source of chance, one queue of events. Between the
// engines and a [memstore.Store] there is a network that loses, repeats, delays and
// refuses requests; clocks jump and run at rates of their own; processes crash, pause and
// come back; handlers fail, stall and ignore their contexts.
//
// Meanwhile package judge checks everything against the promises of the design. promises.go passes
// to it what happens: every write that the table accepts, and every handler that starts and ends. It
// is known what streams contain (stream.go), so loss, repetition and order are checked record by
// record.
//
// Everything follows from the seed. A failure prints its seed, and the same seed makes the same
// trace, with the same hash.
//
// The simulator assumes: a call is answered or given up within half a lease time; clocks run at most
// 4 % off; between the snapshot of a table and its restore, wall clocks are off by less time than the
// restore takes; no request to the old table arrives at the restored one; and the restore takes longer
// than any worker trusts its lease.
//
// Read world.go, then node.go (a process) with clock.go, network.go, handler.go, and round.go, which
// has the life of one fleet: trouble, then calm, and what has to hold in each. faults.go has the table
// of faults; trouble.go, advice.go, operator.go and damage.go make them happen. rest.go checks that a
// fleet comes to rest, and life.go changes a fleet that is at rest. season.go is the same for weeks
// and months; sessions.go is a fleet of sessions, and holders.go the holders of its leases.
package sim
