// Package endtoend runs fleets of Kinesis consumers for a simulated month, within minutes, and judges what they have done. It
// contains only tests.
//
// Several consumers share one store and two streams: orders, whose records have keys, and events, whose distribution
// is AUTO, so that most have none. While records are put, one consumer is killed, one is frozen and wakes up after it was
// replaced, shards are split and merged, and the whole fleet is deployed three times. Meanwhile reads are empty or return
// records again, listings leave out shards, and requests are slow, are not answered, or fail with each code that the API
// reference has for them.
//
// The parts:
//
//   - producer_test.go puts the records, and notes them in a ledger (ledger_test.go). It has its own code to pack records.
//   - sink_test.go is the sink. It compares tokens and stores the id of each record, as docs/sinks.md describes.
//   - member_test.go is one consumer, which can be killed and frozen; wire_test.go is its way to Kinesis.
//   - judge_test.go compares the ledger, the effects in the sink and the lease rows. It shares no code with the consumer,
//     and parses positions by itself.
//
// The seed decides which records are put, and which faults happen when and to whom. It does not decide the order of
// goroutines, so the same seed may need several runs to repeat a failure.
package endtoend
