package protocol

import (
	"errors"
	"reflect"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Verdict is what the answer to a write means for its writer.
type Verdict uint8

const (
	// Unknown: no answer arrived, or none that can be read. The worker sends the same bytes
	// again while it trusts its lease, and writes nothing else to this row meanwhile.
	Unknown Verdict = iota
	// Stored: the write is stored, by this attempt or by an earlier one. The worker continues
	// from the row in the answer.
	Stored
	// Again: the row has changed within its generation. The worker calls the transition again
	// with the present row.
	Again
	// Overtaken: the shard has changed hands. A holder is fenced, and its tenure is over.
	Overtaken
	// Gone: the row is missing, or is a tombstone. The tenure is over, and a holder never
	// creates the row again.
	Gone
	// Conflict: another incarnation has the generation that this one believes to hold. That is
	// possible only if somebody has written without the conditions. The tenure is over, and the
	// worker reports it.
	Conflict
	// WentBack: the row is older than one that was already seen, so the table was restored. The
	// worker reports it and claims nothing more.
	WentBack
	// Unsent: the answer does not count, because the write cannot be sent at all or is not the
	// one that is open.
	Unsent
)

func (v Verdict) String() string {
	return [...]string{"unknown", "stored", "again", "overtaken", "gone", "conflict", "went back", "unsent"}[min(v, Unsent)]
}

// Settle returns what a store's answer to w means for me, the incarnation that made the write; an
// operator has none. It also returns the present record, if the answer contained it.
func Settle(me lease.Incarnation, w lease.Write, reply lease.Record, err error) (Verdict, lease.Record) {
	if err == nil {
		if w.Next != nil && reflect.TypeOf(reply) != reflect.TypeOf(w.Next) {
			return Unknown, nil // the answer does not fit the write
		}
		return Stored, reply
	}
	if refused, ok := errors.AsType[*lease.RefusedError](err); ok && refused != nil {
		return Decide(me, w, refused.Now), refused.Now
	}
	if w.Check() != nil {
		return Unsent, nil
	}
	return Unknown, nil
}

// Decide defines what a refusal means. A refusal answers one attempt: an earlier attempt with the
// same bytes may have been stored, and other writes may have followed. now is the present record,
// nil for none.
func Decide(me lease.Incarnation, w lease.Write, now lease.Record) Verdict {
	switch w.Key().Kind {
	case lease.KindSeat:
		return decideSeat(w, now)
	case lease.KindPlan:
		return decidePlan(w, now)
	case lease.KindTarget:
		return decideTarget(w, now)
	case lease.KindWishes:
		return decideWishes(w, now)
	case lease.KindEnds:
		return decideEnds(w, now)
	case lease.KindJournal:
		return decideAct(w, now)
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
		return Unknown // not an answer to this write
	// The row has my write id; or my write made its generation, and the new holder has
	// written since.
	case at.WriteID == next.WriteID || at.Last.WriteID == next.WriteID:
		return Stored
	// A row never goes back, but a restored table does.
	case at.Compare(old) < 0:
		return WentBack
	// A tombstone has a higher generation than its last holder.
	case at.Removed:
		return Gone
	// I hold the shard already: it was handed over to me before my claim arrived, or an
	// earlier claim of mine arrived.
	case me != "" && at.Owner.Incarnation == me && next.Owner.Incarnation == me &&
		at.Generation == next.Generation && next.Generation > old.Generation:
		return Stored
	case at.Generation > old.Generation:
		return Overtaken
	// The generation and the owner are the same. Either I am the owner, and an earlier write
	// of mine has been stored in between; or another worker is the owner, and has withdrawn
	// its offer to me; or the counter has reached its limit.
	case at.Owner.Incarnation == old.Owner.Incarnation:
		return Again
	}
	return Conflict
}

// decideSeat is Decide for seats. Its verdicts are not alarms: a worker that finds anything but
// its own write in its seat's place was evicted, and takes a seat under a new incarnation. A
// refused eviction is a sign of life of the other worker.
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
