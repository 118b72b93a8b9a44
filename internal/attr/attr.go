// Package attr names the attributes of stored records, and holds the formats
// that both the codec of lease rows and the transitions need. A user of the
// library needs none of it: a store writes the items that lease.Encode makes,
// and a user's own transaction is fenced by dynamostore.Store.Fence.
package attr

import "fmt"

// The attributes of both kinds of record, of lease rows, and of seats. Where the
// meaning is the same, the names are those of the Kinesis Client Library.
const (
	Group   = "leaseGroup" // partition key: group, "/", kind
	Key     = "leaseKey"   // sort key: shard or incarnation
	Version = "version"
	WriteID = "writeId"
	Task    = "task"

	Counter              = "leaseCounter"
	Generation           = "generation"
	Owner                = "leaseOwner"
	Incarnation          = "incarnation"
	Offer                = "offeredTo"
	Position             = "checkpoint"
	State                = "state"
	CheckpointGeneration = "checkpointGeneration"
	CheckpointAt         = "checkpointAt" // milliseconds since 1970, as every time except the next
	Expires              = "expires"      // seconds since 1970: from then on a tombstone may be swept
	Parents              = "parentShardId"
	Finished             = "finished"
	Quarantined          = "quarantined"
	Removed              = "removed"
	Failures             = "failures"
	FailedGeneration     = "failedGeneration"
	Errors               = "errors"
	Last                 = "transfer"  // reason, from, by, at, write id, note; tabs between
	Past                 = "transfers" // packed by AddTransfer

	Beat      = "beat"
	Name      = "worker"
	TTL       = "leaseMillis"
	MaxShards = "maxShards"
	Planner   = "planner"
	Leaving   = "leaving"
	Freed     = "freed"
	Wants     = "wants" // a set: generation, terms, shard; spaces between
	At        = "at"
)

// Format is the version of the format. It changes only when older readers would
// misread a record; attributes that are merely new do not change it.
const Format = 1

// Partition is the partition key of the records of one kind in one group.
func Partition(group string, kind fmt.Stringer) string { return group + "/" + kind.String() }
