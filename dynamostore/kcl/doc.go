// Package kcl moves positions from a lease table of the Kinesis Client Library (KCL) 2.x
// and 3.x to a group of this library, and back.
//
// Neither direction is a lock. The fleet that is left has to be stopped. What still
// moves is refused, but a worker of the KCL that is frozen meanwhile, or holds no lease,
// looks like one that is gone; and when it wakes up, nobody fences it.
//
// # From the KCL
//
// [Import] reads the table twice, longer apart than the KCL's failover time, and refuses
// it where anything has moved. It never writes there. Each lease becomes a row that is
// made by the same transitions as any other, and a row that is there already stays as it
// is. It can be called again, after whatever has gone wrong.
//
//	checkpoint      row
//	digits          free, with the sequence number as its position
//	SHARD_END       finished
//	TRIM_HORIZON    free, without a position
//	LATEST          refused, because nothing says where that was; or free, without a
//	AT_TIMESTAMP    position, where [ImportOptions.Unstarted] says so
//
// A shard whose row has no position begins where the handler begins any new shard, whichever
// of the three words its lease had; [Outcome.Start] has the word. [ImportOptions.Word] makes
// a position of the word, for a handler that reads such positions.
//
// The KCL deletes the leases of shards that it has finished, while Kinesis lists them
// until their last record is too old. Import makes finished rows for the ancestors of
// what has a lease; without them a worker would take those shards for new, and process
// them again.
//
// A checkpoint of the KCL has a second number: which record it was, of those that the
// Kinesis Producer Library has packed into one. [ImportOptions.Mark] decides what becomes
// of that. A lease with a checkpoint that was prepared and not made causes a [*PendingError],
// unless [ImportOptions.Pending] decides what becomes of the prepared checkpoint. Rows of 3.5
// that are no leases are left out.
//
// # Back to it
//
// [Export] writes the positions of a group whose workers have stopped into a table of the
// KCL that does not move: leases that nobody owns, with what else the KCL has stored of
// them left as it is. A lease that is not there is made, at counter 0. Leases of shards
// that the group does not know stay as they are.
//
//	row             checkpoint of the lease
//	finished        SHARD_END
//	with a position the result of [ExportOptions.Checkpoint]: digits or a word; a prepared
//	                checkpoint is removed, unless the lease has the same checkpoint already
//	without         the word that the lease has, if it is TRIM_HORIZON, LATEST or
//	                AT_TIMESTAMP; else [ExportOptions.Unstarted]
//
// An export adds hash keys, parents and (to leases of finished shards) children to the leases
// that lack them. Parents and children come from the rows and from [ExportOptions.Shards],
// hash keys from [ExportOptions.Shards].
//
// The attributes are those that DynamoDBLeaseSerializer and DynamoDBMultiStreamLeaseSerializer
// read and write in versions 2.0.0 to 3.5.1.
package kcl
