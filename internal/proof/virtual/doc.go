// Package virtual is the world in which engines run in tests: virtual time, machines that each
// run one worker's engine, and the table that the workers share.
//
// A [Time] is a clock and a queue of what will happen; nothing waits. A [Table] answers the calls
// of engines, each at one instant, and shows every accepted write to a watcher. A [Host] gives an
// engine its inputs and carries out its outputs. The [Shell] of a host decides what the host cannot
// know: how calls travel to the table, how handlers behave, what the source lists. A [Process]
// is a host in virtual time: it has a clock of its own, crashes, pauses, and wakes its engine.
//
// Each user composes what it needs:
//
//   - The simulator (internal/proof/sim) uses all of it, and draws delays, faults and the behaviour of
//     handlers at random.
//   - The explorer (internal/proof/explore) uses hosts and a table without a queue: it chooses what
//     happens next, and clones and compares whole worlds.
//   - The measurement of large fleets (internal/proof/scale) uses processes and a queue, with a table of
//     its own that charges capacity units and refuses requests.
//   - The tests of the engine (internal/engine) use all of it, each with a story of its own.
//   - The transcripts (internal/proof/transcript) use all of it, with scripts, and record the conversation.
//
// A host runs whatever implements [Engine]; [New] makes the engine of the library. A [Worker] is a process with a plain
// shell, for users whose workers are all alike.
package virtual
