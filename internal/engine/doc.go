// Package engine makes every decision of a worker: when to beat, when to look, whom
// to evict, what to claim, what to ask for and give away, when to commit, and when to
// stop trusting itself.
//
// An [Engine] is a plain value. It reads no clock, draws no random number, starts no
// goroutine and calls no store: [Engine.Step] takes in one thing that has happened, at
// a moment, and says what to do. So a fleet of them can be driven through any
// interleaving, cloned in the middle, and compared; and what shardlease.Worker adds
// around one is thin.
//
// To see engines at work before you read them, read the transcripts in
// internal/transcript/testdata: what each worker sends to the table, and what follows. Begin
// with 01-claim.txt.
//
// Read engine.go, then in the order of a worker's life: seat.go (the sign of life and
// the end of trust), look.go (what it sees of the others, and when it evicts),
// fleet.go (the plan), shard.go (claims, and asking for shards), tenure.go (holding
// and giving away), leave.go (a clean stop). feed.go is the source's side; large.go is
// what a fleet does differently that is too large for everybody to list all rows.
package engine
