package kinesis

import (
	"context"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Record is one record of a stream. Usually an entry of the stream is one record. If the Kinesis Producer Library (KPL)
// has packed several records into an entry, each of them is a Record.
type Record struct {
	Stream   string    // the name of the stream
	Shard    string    // the id that Kinesis gives the shard
	Sequence string    // the sequence number of the entry
	Index    int       // the index within an entry of packed records; otherwise 0
	Key      string    // the partition key
	Keyless  bool      // the record has no partition key, and so no order
	Data     []byte    // shares memory with the other records of an answer: to keep the data for long, copy it
	Arrived  time.Time // when Kinesis received the entry
}

// ID returns a text that is the same whenever the record is processed, and different for each record of the group's
// streams. Within a shard, a later record has a greater ID. A sink that stores the IDs recognizes a repeated record.
//
// Sequence numbers are decimal numbers of any length, so the text has their length.
func (r Record) ID() string {
	return fmt.Sprintf("%s/%s/%03d.%s.%06d", r.Stream, r.Shard, len(r.Sequence), r.Sequence, r.Index)
}

// Hold returns the hold on the shard, for a fenced sink in DynamoDB: pass it to the method Fence of
// dynamostore.Store. The ctx must come from the one that the function got; for any other context Hold returns false.
// Other sinks find the fencing token in ctx: see package fence.
func Hold(ctx context.Context) (lease.Hold, bool) {
	l, ok := ctx.Value(laneKey{}).(*lane)
	if !ok {
		return lease.Hold{}, false
	}
	return l.p.tenure.Hold(), true
}

// Alive reports that the function still works on its records, and restarts the time of [Config.StallAfter]. Only a function
// that needs many minutes must call it. The ctx must come from the one that the function got; with any other context
// Alive does nothing.
func Alive(ctx context.Context) {
	if l, ok := ctx.Value(laneKey{}).(*lane); ok {
		l.alive()
	}
}

// laneKey is the key of the lane in the context of a function.
type laneKey struct{}

// A PoisonError ends a tenure before a record that could not be processed. The lease row stores
// only its type; logs and events have its text.
type PoisonError struct {
	Record   Record
	Attempts int // how many tenures in a row have failed, this one included
	Limit    int // Config.Attempts
	// Err is why the record failed, and why Config.DeadLetter failed if it did.
	Err error

	dead bool // Config.DeadLetter is set
}

func (e *PoisonError) Error() string {
	text := fmt.Sprintf("shard %s of stream %s stops before record %s/%d, which failed in attempt %d of %d: %v",
		e.Record.Shard, e.Record.Stream, e.Record.Sequence, e.Record.Index, e.Attempts, e.Limit, e.Err)
	switch {
	case e.dead:
		return text
	case e.Attempts >= e.Limit:
		text += "; if the shard is quarantined now, correct the function and then unquarantine the shard, or"
	default:
		text += "; it will be tried again:"
	}
	return text + " set Config.DeadLetter to store such records elsewhere, or to kinesis.Skip to leave them out"
}

// Unwrap returns why the record failed.
func (e *PoisonError) Unwrap() error { return e.Err }

// A StallError ends a tenure because for [Config.StallAfter] the function has not returned, or the shard could not be
// read. It does not count as a failed attempt.
type StallError struct {
	Stream, Shard string
	// Record is the first record of the call that has not returned. It is zero if the shard could not be read.
	Record Record
	After  time.Duration
}

func (e *StallError) Error() string {
	if e.Record.Sequence == "" {
		return fmt.Sprintf("stalled: shard %s of stream %s could not be read for %v", e.Shard, e.Stream, e.After)
	}
	return fmt.Sprintf("stalled: the function has not returned for %v after its call for record %s/%d of shard %s of stream %s; "+
		"a function that works for so long must call kinesis.Alive", e.After, e.Record.Sequence, e.Record.Index, e.Shard, e.Stream)
}
