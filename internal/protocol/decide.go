package protocol

import (
	"errors"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Verdict says what the answer to a write means for its writer.
type Verdict uint8

const (
	// Unknown: no answer, or none that can be read. Send the same bytes again
	// for as long as the worker's own lease lasts; nothing else of this row is
	// written meanwhile.
	Unknown Verdict = iota
	// Stored: the write is in, by this sending or by an earlier one. The row
	// as it stands is the one to go on from.
	Stored
	// Again: the row has moved on within its generation. Go on from the row as
	// it stands, and ask the transition once more; it may have an answer.
	Again
	// Overtaken: the shard has changed hands. For a holder this is the fence:
	// its tenure is over.
	Overtaken
	// Gone: the row is missing, or a tombstone stands there. The tenure is
	// over, and the row is never created again by a holder.
	Gone
	// Conflict: another incarnation under the generation this one believes to
	// hold. It cannot be; somebody wrote past the conditions. The tenure is
	// over, loudly.
	Conflict
	// WentBack: the row is older than one already seen. The table was
	// restored. Claim nothing more, and say so loudly.
	WentBack
	// Unsent: there is nothing to be answered. The write cannot be made at
	// all, or it is not the one that is open.
	Unsent
)

func (v Verdict) String() string {
	return [...]string{"unknown", "stored", "again", "overtaken", "gone", "conflict", "went back", "unsent"}[min(v, Unsent)]
}

// Settle reads a store's answer to w, as me, the incarnation that wrote it; an
// operator has none. It returns the record as it stands, where the answer
// carried one.
func Settle(me lease.Incarnation, w lease.Write, reply lease.Record, err error) (Verdict, lease.Record) {
	if err == nil {
		_, wrote := w.Next.(lease.Row)
		if _, answered := reply.(lease.Row); wrote && !answered {
			return Unknown, nil // an answer to something else
		}
		return Stored, reply
	}
	if refused, ok := errors.AsType[*lease.RefusedError](err); ok {
		return Decide(me, w, refused.Now), refused.Now
	}
	if w.Check() != nil {
		return Unsent, nil
	}
	return Unknown, nil
}

// Decide is the one place that says what a refusal means. A refusal is an
// answer to one sending; an earlier sending of the same bytes may have been
// stored, and others may have come after. now is the record as it stands, nil
// for none.
func Decide(me lease.Incarnation, w lease.Write, now lease.Record) Verdict {
	if w.Key().Kind == lease.KindSeat {
		return decideSeat(w, now)
	}
	next, ok := w.Next.(lease.Row)
	switch {
	case !ok:
		return Unsent
	case now == nil:
		return Gone
	}
	old, _ := w.Old.(lease.Row)
	at, ok := now.(lease.Row)
	switch {
	case !ok:
		return Unknown // no answer to this
	// The row carries my write, or the transfer that made its generation was
	// my write and the new holder has written since.
	case at.WriteID == next.WriteID || at.Last.WriteID == next.WriteID:
		return Stored
	// No row goes back. A table does, when it is restored.
	case at.Compare(old) < 0:
		return WentBack
	// A tombstone, and it has a higher generation than its last holder.
	case at.Removed:
		return Gone
	// I hold what I tried to get, by another way: a yield to me overtook my
	// claim, or an earlier claim of mine arrived.
	case me != "" && at.Owner.Incarnation == me && next.Owner.Incarnation == me &&
		at.Generation == next.Generation && next.Generation > old.Generation:
		return Stored
	case at.Generation > old.Generation:
		return Overtaken
	// The same generation, then, and the same owner: mine still, and an
	// earlier write of mine has come between; or another's, whose offer to me
	// has gone, or whose counter is at its end.
	case at.Owner.Incarnation == old.Owner.Incarnation:
		return Again
	}
	return Conflict
}

// decideSeat knows no alarms. Whatever a worker finds in the place of its own
// seat, if it is not what it wrote, it was evicted, and takes a new
// incarnation. An evictor that is refused has seen a sign of life.
func decideSeat(w lease.Write, now lease.Record) Verdict {
	switch {
	case w.Op == lease.OpDelete && now == nil:
		return Stored
	case w.Op == lease.OpDelete:
		return Again
	case now != nil && now.Written() == w.ID():
		return Stored
	}
	return Gone
}
