// Package sim drives whole fleets of real engines through the virtual world of package
// virtual: one goroutine, one seeded source of chance, one queue of events. Between the
// engines and a [memstore.Store] stands a network that loses, repeats, delays and
// refuses; clocks jump and run at rates of their own; processes crash, pause and
// come back; handlers fail, stall and ignore their contexts.
//
// While that goes on, package judge checks everything against the promises of the design.
// promises.go tells it what happens: every write that the table accepts, and every handler that
// starts and ends. What streams hold is known (stream.go), so that loss, repetition and order are
// checked record by record.
//
// Everything follows from the seed. A failure carries it, and the same seed makes
// the same trace: its hash says so.
//
// What it assumes: a call is answered or given up within half a lease time; clocks
// run at most 4 % off; between the snapshot of a table and its restore wall clocks are off
// by less than the restore takes, nothing sent to the old table arrives at the new one, and
// it took longer than anybody trusts itself.
//
// Read world.go, then node.go (a process) with clock.go, network.go, handler.go, and round.go,
// which is the life of one fleet: trouble, calm, and what has to hold in each. faults.go is the table
// of what may go wrong; trouble.go, advice.go, operator.go and damage.go make it happen. rest.go is
// what a fleet has to come to, and life.go what happens to it in calm. season.go is the same for
// weeks and months; sessions.go is a fleet of sessions.
package sim
