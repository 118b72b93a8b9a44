// Package sim drives whole fleets of real engines through the virtual world of package
// virtual: one goroutine, one seeded source of chance, one queue of events. Between the
// engines and a [memstore.Store] stands a network that loses, repeats, delays and
// refuses; clocks jump and run at rates of their own; processes crash, pause and
// come back; handlers fail, stall and ignore their contexts.
//
// While that goes on, two watchers hold everything against the promises of the
// design. The judge (judge.go, entitled.go) sees every write that the table accepts; S1 to S3
// are checked by package judge. The witness (witness.go) stands beside the workers
// and sees every handler that starts and ends. What streams hold is known
// (stream.go), so that loss, repetition and order are checked record by record.
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
// which is the life of one fleet: trouble, calm, and what has to hold in each. season.go is the
// same for weeks and months; damage.go is what happens to the table itself.
package sim
