// Package attr has the names of the attributes of stored records, and the formats that both
// lease.Encode and the transitions need. Users of the library do not need it: a store writes
// the items that lease.Encode makes, and dynamostore.Store.Fence fences a user's own
// transaction.
package attr

import "fmt"

// The attributes of all kinds of record, then those of lease rows, of seats, of targets and plans, of ends, of the journal, and of
// wishes. An attribute with the same meaning has the name that the Kinesis Client Library gives it.
const (
	Group   = "leaseGroup" // partition key: group, "/", kind
	Key     = "leaseKey"   // sort key: the name of the lease.Key
	Version = "version"
	WriteID = "writeId"
	Task    = "task"

	Counter              = "leaseCounter"
	Generation           = "generation"
	Owner                = "leaseOwner"
	Incarnation          = "incarnation"
	LockDelay            = "lockDelayMillis"
	Offer                = "offeredTo"
	ReservedFor          = "reservedFor"
	Reserved             = "reservedMillis"
	Position             = "checkpoint"
	State                = "state"
	CheckpointGeneration = "checkpointGeneration"
	CheckpointAt         = "checkpointAt" // milliseconds since 1970, as every time except the next
	Expires              = "expires"      // seconds since 1970: from then on a tombstone, a count of ends, or an act may be swept
	Parents              = "parentShardId"
	Finished             = "finished"
	Quarantined          = "quarantined"
	Removed              = "removed"
	Failures             = "failures"
	FailedGeneration     = "failedGeneration"
	Errors               = "errors"
	FailedBy             = "failedBy"  // packed by AddFailed
	LastError            = "lastError" // generation, text; a space between
	Last                 = "transfer"  // reason, from, by, at, write id, did, task, note (PackNote); tabs between
	Past                 = "transfers" // packed by AddTransfer

	Beat      = "beat"
	Name      = "worker"
	TTL       = "leaseMillis"
	MaxShards = "maxShards"
	Planner   = "planner"
	Leaving   = "leaving"
	Freed     = "freed"
	Wants     = "wants" // a set: generation, terms, shard; spaces between; then a tab and the owner
	At        = "at"

	Unsettled   = "unsettled"
	Missing     = "missing"
	News        = "news" // a set: kind, shard; a space between
	NewsLeft    = "newsLeft"
	Unwell      = "unwell"
	UnwellSince = "unwellSince"
	Trial       = "trial"
	Silent      = "silent"
	SilentSince = "silentSince"
	NoSource    = "noSource"
	Build       = "build"
	Since       = "since"
	Handoff     = "handoff"
	Backoff     = "backoffMillis"
	Address     = "address"
	Waits       = "waits" // a set: since, lease, task; tabs between
	WaitsLeft   = "waitsLeft"
	Raised      = "raised"

	Revision = "revision" // of seats too
	Pages    = "pages"
	Hold     = "hold"   // packed names
	Give     = "give"   // packed names and successors
	Causes   = "causes" // revision, runs of letters; tabs between; then a line for each cause: letter, note; tabs between

	Open     = "open"
	Inputs   = "inputs"
	Members  = "members"
	Watchers = "watchers" // tabs between
	Unplaced = "unplaced"
	Examples = "examples"
	Shards   = "shards"
	Raise    = "raise"
	Tick     = "tick"
	Late     = "late"
	Sessions = "sessions"

	Ends   = "ends"   // a set: reason, count; a space between
	Recent = "recent" // write ids, the newest first; spaces between

	Act     = "act"
	Subject = "subject"
	To      = "to"
	By      = "by"
	Why     = "why"
	Until   = "until"

	Wishes = "wishes" // a set: kind, with numbers after colons, subject, to, until, by, why; tabs between
)

// Format is the version of the format. It changes only when older readers would misread a record,
// and not when attributes are added.
const Format = 1

// Partition returns the partition key of the records of one kind in one group.
func Partition(group string, kind fmt.Stringer) string { return group + "/" + kind.String() }
