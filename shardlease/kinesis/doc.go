// Package kinesis consumes Amazon Kinesis data streams: a fleet of workers shares the shards, as with the
// Kinesis Client Library (KCL), and the lease table refuses checkpoints from a worker that was replaced.
//
// # When a record fails
//
// A record for which the function returns an error, or panics, is tried again in the same tenure
// ([Config.Tries]), and then in other tenures, often under another worker ([Config.Attempts]). After that
// [Config.DeadLetter] gets it, and the shard goes on. Without DeadLetter the shard stops: it is quarantined right
// before the record, and the [PoisonError] in the events and the log says what to do. No record is left out
// because it was slow: if a call hangs, the shard moves after [Config.StallAfter], which is no failed attempt.
// Only two other settings leave out records: [Config.MaxAge], and [Config.Foreign], which by default drops
// packed records that belong to another shard. No record overtakes another one with its key.
//
// # What is promised
//
// The function is called at least once for each record, and for the records of a key in order. Records without
// a key, and all records of a stream whose distribution is AUTO, have no order.
//
// The function is called again for records after the last stored checkpoint. After a crash these are about
// the records of 5 s ([checkpoint.Policy].Every), and more if a slow record held the checkpoint back. A
// worker that was replaced, and does not know it yet, may still call the function. For each effect to happen
// exactly once, the sink must compare the fencing token of the function's context and store [Record.ID],
// both in the transaction of the effect. The example of [Consumer.RunBatch] does so.
//
// # How it works
//
// Each shard of Kinesis is a shard of package shardlease: one worker holds it at a time, and its row in the
// lease table has its checkpoint. The children of a shard that was split or merged begin when the shard is
// processed to its end. A handler reads its shard by polling or by enhanced fan-out ([Config.Read]), as fast
// as Kinesis allows, within bounds of records and bytes, and passes the records to lanes. A checkpoint is
// marked when all records before it are processed.
//
// In this package a consumer is a [Consumer]. A registered consumer is an object in AWS, which enhanced
// fan-out needs: see [Consumer.Register].
package kinesis
