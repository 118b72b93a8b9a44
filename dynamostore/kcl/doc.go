// Package kcl migrates a consumer from the Kinesis Client Library (KCL) 2.x or 3.x to
// shardlease, and back: it moves the positions from the KCL's lease table to a group of this
// library, or the other way round.
//
// Neither direction locks anything: stop the old fleet first. Import and Export refuse a table
// that still changes, but they cannot detect a worker of the KCL that is paused at that time, or
// that holds no lease. If such a worker continues later, nothing fences it.
//
// # From the KCL
//
// [Import] reads the table twice, with twice the KCL's failover time in between, and refuses
// it if anything has changed meanwhile. It never writes to that table. Each lease becomes a
// lease row, which is written by the same transitions as any other; a row that exists already
// stays as it is. Import can be called again after any failure.
//
//	checkpoint of the lease   row
//	a sequence number         free, with this number as its position
//	SHARD_END                 finished
//	TRIM_HORIZON              free, without a position
//	LATEST                    refused; free, without a position, if ImportOptions.Unstarted is set
//	AT_TIMESTAMP              as LATEST
//
// LATEST and AT_TIMESTAMP are refused because the table does not store which position they
// meant. A shard whose row has no position begins where the handler begins any new shard,
// whichever of the three words its lease had; [Outcome.Start] contains the word.
// [ImportOptions.Word] turns the word into a position, for a handler that can read such
// positions.
//
// The KCL deletes the leases of shards that it has finished, but Kinesis lists these shards
// until their last record expires. Import creates finished rows for the ancestors of the
// shards that have leases. Without these rows a worker would treat the ancestors as new
// shards, and process them again.
//
// A checkpoint of the KCL has a second number, the sub-sequence number: it counts the records
// that the Kinesis Producer Library (KPL) has packed into one entry of the stream.
// [ImportOptions.Mark] decides how it is stored. A lease with a prepared checkpoint, which the
// application has not made yet, causes a [*PendingError] unless [ImportOptions.Pending] decides
// what becomes of it. Items of KCL 3.5 that are no leases are skipped.
//
// # Back to the KCL
//
// [Export] writes the positions of a group whose workers have stopped into a table of the KCL
// that does not change. The leases then have no owner; their other attributes stay as they are.
// A missing lease is created with counter 0. Leases of shards that the group does not know stay
// as they are.
//
//	row                   checkpoint of the lease
//	finished              SHARD_END
//	with a position       the result of ExportOptions.Checkpoint: a sequence number or a word
//	without a position    the word that the lease has already, if it is TRIM_HORIZON, LATEST
//	                      or AT_TIMESTAMP; else ExportOptions.Unstarted
//
// A prepared checkpoint stays if the lease keeps its checkpoint, and is removed otherwise.
//
// Export adds hash keys, parents and (for finished shards) children to the leases that lack
// them. Parents and children are those of the rows and of [ExportOptions.Shards]; hash keys
// are those of [ExportOptions.Shards].
//
// The attributes are those that DynamoDBLeaseSerializer and DynamoDBMultiStreamLeaseSerializer
// read and write in versions 2.0.0 to 3.5.1.
package kcl
