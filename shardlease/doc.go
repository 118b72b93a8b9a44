// Package shardlease will hold the Worker: the part that a stream consumer
// embeds. It is not written yet.
//
// What there is of the library is the ground it will stand on, from the bottom:
//
//   - checkpoint: positions, their order, and what refuses a stale one
//   - rebalance: the named choice between a gap and an overlap
//   - shardlease/lease: the protocol, as pure functions over a row. Start there:
//     its package comment is the whole idea, and lease.go the life of one lease
//   - memstore: the embedded store
//   - dynamostore: the real one
//   - shardlease/storetest: what every store has to pass
package shardlease
