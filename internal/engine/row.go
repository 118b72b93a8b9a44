package engine

import (
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The lease row of one shard, as this worker knows it, with the reads and the write of it that are under way. Nothing here
// decides what to do with the shard: shard.go, take.go and wait.go do for a shard that this worker does not hold, hold.go
// and give.go for one that it holds.
//
//	unknown → get: a read is under way → answered → known
//	known   → send: a write is open → sendAgain until an answer decides it → known
//
// Called by the shard and by its tenure. shard.got and shard.settled take the answers.
//
// Invariant: at most one write of a row is open (protocol.Copy). Its answer decides whether the next one is made.

// A row is this worker's copy of the lease row of a shard, which never goes back. The fields beside the copy say how old
// it is, because some decisions need a read that began after a certain step.
type row struct {
	name string
	wake Instant // when the shard wants to be tended

	copy       protocol.Copy
	generation int64   // of the copy
	since      Instant // when this worker first saw that generation
	lost       Instant // when its owner was first seen to have no seat; 0: it was not. Only a session notes that.
	read       order   // the step in which the copy became known
	known      bool    // the row was read, or found missing
	malformed  bool    // the last read found a row that cannot be read
	left       bool    // this session shuts down and stays the owner in the row: see lost
	older      bool    // the answer to the open write may show what it was before the command (rowRead.look)
	behind     bool    // the stored row is older than the copy, so no write of it can be stored
	parent     bool    // it is read for a child that waits for this shard
	doing      doing   // what the open write is for
	stuck      bool    // the last write that was due could not be made
	write      pending
	rowRead
}

// A rowRead is how the row is read by itself, and not in a listing. One read of a row counts at a time.
type rowRead struct {
	asked    order   // the step in which the latest read was sent
	answered Instant // when a read of the row last ended, also with an error
	reading  serial  // the number of that read
	try      retry   // paces the reads
	unread   Instant // since when reads of the row fail; 0: the last one was answered
	failed   order   // the step in which the first of these failing reads was sent
	listed   Instant // when a listing last showed the row in their place
	probed   Instant // when a write was last sent in place of a read: see shard.reach
	look     order   // the step since which it is read because a command has changed it; 0: it is not
}

// A pending is the open write of the row. The write itself is in the copy, which alone decides what its answer means.
type pending struct {
	try retry
}

// doing is what an open write is for. What follows from the answer depends on it: see tenure.held for a holder's writes,
// shard.claimed for the others.
type doing uint8

const (
	nothing      doing = iota
	making             // Begin
	reviving           // Revive
	claiming           // Claim, Recover, Inherit, Take and Seize; of a session also BeginHeld and ReviveHeld
	quarantining       // Quarantine
	removing           // Remove
	committing         // Commit, Progress
	offering           // Offer
	withdrawing        // Withdraw
	givingUp           // Yield, Release, Discard
	ending             // Finish
)

// mine returns the incarnation that the copy writes as.
func (r *row) mine() lease.Incarnation { return r.copy.Me() }

// at makes the engine tend the shard at that instant.
func (r *row) at(t *turn, i Instant) {
	r.wake = min(r.wake, i)
	t.at(i)
}

// before reports whether i is still to come. If so, the shard is tended then.
func (r *row) before(t *turn, i Instant) bool {
	if t.now.Mono < i {
		r.at(t, i)
	}
	return t.now.Mono < i
}

// get reads the row, unless that is under way. After a read that failed it waits.
func (r *row) get(t *turn) {
	switch {
	case r.try.sent:
	case r.before(t, r.try.at):
	default:
		r.try.sent, r.asked, r.reading = true, t.step, t.get(r.copy.Key())
	}
}

// fresh reports whether the row was read lately, or a listing has shown it in place of reads that fail.
func (r *row) fresh(t *turn) bool {
	at := r.answered
	if r.unread > 0 {
		at = r.listed
	}
	return at > 0 && t.now.Mono < at.Add(t.beat)
}

// replaced reports whether reads of the row fail, and a listing has shown it since: only single reads are denied.
func (r *row) replaced() bool { return r.unread > 0 && r.listed >= r.unread }

// looked is called when a read of the row was answered. It reports whether the row is known now as a command has left it. A
// read that was sent before this worker learnt of the command is repeated. If a write was open then, the answer to the read
// does not count, and the answer to the write may show the row as it was before the command (older): the row is read once
// more.
func (r *row) looked(t *turn) (over bool) {
	if r.look == 0 || r.try.sent || r.unread > 0 || r.older {
		return false
	}
	if r.asked < r.look {
		r.get(t)
		return false
	}
	r.look = 0
	return true
}

// send makes w, which a transition returned, the open write of the row. It reports whether the
// transition allowed one. If it did not, that is reported as a fault of the store, and tried again after a heartbeat
// interval.
//
// From here until an answer decides the write, or the seat is lost, this worker writes nothing else to the row. The
// bytes stay the same however often they are sent, so the row has the write once or not at all.
func (r *row) send(t *turn, what doing, w lease.Write, err error) bool {
	if err == nil {
		err = r.copy.Send(w)
	}
	if r.stuck = err != nil; r.stuck {
		t.failedNow(r.name, err) // for example, the counter of the row has reached its limit
		r.at(t, t.now.Mono.Add(t.beat))
		return false
	}
	r.doing, r.write.try = what, retry{sent: true}
	t.do(Send{Write: w})
	return true
}

// sendAgain repeats the open write until it is answered, also after the tenure for which it was made is over: only its
// answer shows what the row is.
func (r *row) sendAgain(t *turn, w lease.Write) {
	if try := &r.write.try; !try.sent && !r.before(t, try.at) {
		try.sent = true
		t.do(Send{Write: w})
	}
}
