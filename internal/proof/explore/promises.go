package explore

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Promises are what package judge remembers of the way to a state. It does not distinguish states: if two paths lead to
// the same state, what was remembered first is kept.
//
// Besides what package judge checks, this file checks what only callers of sessions can see:
//
//	exclusive  No tenure starts while another living session trusts in an earlier tenure, unless an operator's
//	           command has ended the earlier one. No session holds a lease after it has stopped trusting in its seat.
//	answers    A Start answers the call that waits. Only a call that does not wait for a holder is refused.
//	stalled    Nobody starts a tenure before the lock delay of a holder has passed that was cut off.
//	failed     A lease is quarantined only after as many failures as its callers allow, under two names, unless the table
//	           has the seat of one session alone; and after so many under two names, no caller gets it.
//	reserved   Nobody else gets a reserved lease until the reservation has ended, and nobody gets a lease that a
//	           command took from its holder, or that a move has cut its holder off from, before the lock delay of that
//	           holder has passed. A holder reserves the lease only for a move of its generation.
type promises struct {
	requests   judge.Requests
	seats      judge.Seats           // that were deleted
	history    judge.History         // only in stories of sessions
	soft       map[judge.Tenure]bool // the soft contexts of their handlers have ended; a handler that has returned is forgotten
	highest    int64                 // the highest revision of a plan
	lastForced engine.Instant        // when the last command ended a tenure, or a holder reserved the lease for a move
	lastCut    engine.Instant        // when the last holder of a lease was cut off; 0: none was
	ordered    int64                 // the generation of the lease that an operator moves; 0: none
}

func newPromises() promises {
	return promises{requests: judge.Requests{}, seats: judge.Seats{}, history: judge.History{}, soft: map[judge.Tenure]bool{}}
}

func (p promises) clone() promises {
	p.requests, p.seats, p.history, p.soft = maps.Clone(p.requests), maps.Clone(p.seats), maps.Clone(p.history), maps.Clone(p.soft)
	return p
}

// row returns the row of a shard as it is in the table now.
func (w *state) row(shard string) lease.Row { return w.table.Row("g", shard) }

// check notes the promise that an error says is broken, if there is one.
func (w *state) check(err error) {
	if err != nil {
		w.blame("%w", err)
	}
}

// Accepted checks a write that the table has accepted, and notes it.
func (w *state) Accepted(by virtual.Sender, write lease.Write, after lease.Record) {
	before := w.put(write.Key(), after)
	switch after := after.(type) {
	case lease.Row:
		old, _ := before.(lease.Row)
		w.acceptedRow(judge.Accepted{Before: old, After: after, Write: write, By: by.Name})
	case lease.Seat:
		w.requests.Saw(after, time.Duration(w.now))
	case lease.Plan:
		var err error
		w.highest, err = judge.Revision(write, w.highest)
		w.check(err)
	case lease.Target:
		old, _ := before.(lease.Target)
		_, err := judge.Revision(write, old.Revision)
		w.check(err)
	case nil:
		if write.Key().Kind == lease.KindSeat {
			w.check(w.seats.Wrote(write, by, time.Duration(w.now), 0, true))
		}
	}
}

func (w *state) acceptedRow(a judge.Accepted) {
	w.check(a.Check(checkpoint.Decimal))
	sessions := w.story.Sessions != nil
	h := judge.Handover{
		Accepted: a, Now: time.Duration(w.now), Drain: drain, Seats: w.seats, Requests: w.requests,
		Seated: true, Same: !sessions && a.Before.Owner.Name == a.After.Owner.Name,
	}
	if !a.Before.Owner.IsZero() {
		h.Holder = w.nodes[a.Before.Owner.Name[0]-'a'].holder(a.Before)
	}
	w.check(h.Check())
	if !sessions {
		w.checkLeft(a)
		w.checkKept(a)
		return
	}
	w.history.Saw(a, checkpoint.Decimal)
	w.checkReserved(a)
	w.checkFailed(a)
	if a.After.Generation > a.Before.Generation && (a.After.Last.Reason == lease.ReasonForced || !a.After.Reserved.IsZero()) {
		w.lastForced = w.now
	}
}

// checkLeft checks that no row is handed over to a worker that has left, and that no row counts the leave of its owner
// as a failed attempt. It checks only stories in which a worker without a seat has given it up itself, and no call is
// late.
func (w *state) checkLeft(a judge.Accepted) {
	left := func(of lease.Owner) bool {
		if of.IsZero() || !w.seats[of.Incarnation].Gone {
			return false
		}
		n := &w.nodes[of.Name[0]-'a']
		return n.stopped && !n.dead
	}
	switch s := w.story; {
	case s.Faults+s.Pauses+s.Proofs > 0:
	case a.After.Owner != a.Before.Owner && left(a.After.Owner):
		w.blame("%v was handed over to a worker that had left: %v", a.Before, a.After)
	case a.After.Attempts() > a.Before.Attempts() && left(a.Before.Owner):
		w.blame("%v counts the leave of its owner as a failed attempt: %v", a.After, a.Before)
	}
}

// checkKept checks that a worker whose reads are denied keeps what it held before, unless it stops.
func (w *state) checkKept(a judge.Accepted) {
	if a.Before.Owner.IsZero() || a.After.Owner == a.Before.Owner {
		return
	}
	n := &w.nodes[a.Before.Owner.Name[0]-'a']
	if n.up() && slices.Contains(n.kept, engine.Tenure{Shard: a.Before.Shard, Generation: a.Before.Generation}) {
		w.blame("%v was taken from a worker whose reads are denied: %v", a.Before, a.After)
	}
}

// checkReserved checks a change of hands of a lease that a command has left reserved.
func (w *state) checkReserved(a judge.Accepted) {
	of := a.Before.Reserved
	if a.After.Generation == a.Before.Generation || of.IsZero() {
		return
	}
	lasts := of.Delay + of.Lasts
	if of.For != "" && of.For != a.By && w.wall().Before(a.Before.Last.At.Add(lasts)) && w.now < w.lastForced.Add(lasts) {
		w.blame("%s claims %v, which is reserved for another session", a.By, a.Before)
	}
	if of.For != "" && a.Before.Last.Reason != lease.ReasonForced && a.Before.Last.Generation != w.ordered+1 {
		w.blame("%v was reserved by its holder, and the operator has moved generation %d", a.Before, w.ordered)
	}
	if w.now < w.lastForced.Add(of.Delay) {
		w.blame("%s claims %v before the lock delay of its former holder has passed", a.By, a.Before)
	}
}

// checkFailed checks that a lease is quarantined if it has failed too often, and not before.
func (w *state) checkFailed(a judge.Accepted) {
	most, seats := w.story.Sessions.MaxAttempts, 0
	for _, r := range w.stands {
		if r.Key().Kind == lease.KindSeat {
			seats++
		}
	}
	switch after := a.After; {
	case after.Generation == a.Before.Generation:
	case after.Quarantined && (after.Attempts() < most || after.FailedWorkers() < 2 && seats > 1):
		w.blame("%v is quarantined after %d failures under %d names, and %d are allowed; there are %d seats", after, after.Attempts(), after.FailedWorkers(), most, seats)
	case most > 0 && !after.Owner.IsZero() && after.Attempts() >= most && after.FailedWorkers() >= 2:
		w.blame("%s acquires %v after %d failures, and %d are allowed", a.By, after, after.Attempts(), most)
	}
}

// holder returns what is known of this node as the owner of a row.
func (n *node) holder(of lease.Row) judge.Holder {
	h := n.Handlers.Of(engine.Tenure{Shard: of.Shard, Generation: of.Generation})
	if h == nil || h.Over || n.dead || n.paused {
		return judge.Holder{}
	}
	return judge.Holder{Works: n.w.story.Sessions == nil, Trusts: !n.lied && n.trusts()}
}

// trusts reports whether the node trusts in its seat.
func (n *node) trusts() bool { return n.w.now < n.Engine.Status().Trust }

// Start begins a handler, which knows its position.
func (n *node) Start(h *virtual.Handler, o engine.Start) {
	w := n.w
	for _, other := range n.Handlers {
		if other.Shard == h.Shard {
			w.blame("%s starts %v while its handler of %v runs", n.name(), o.Tenure, other.Tenure)
		}
	}
	h.Script = position(o.Checkpoint.Position)
	n.raises(h, o.Raise)
	if w.story.Sessions == nil {
		return
	}
	if o.Acquire != n.waits {
		w.blame("%s starts %v for acquisition %d, but its caller waits for the answer to acquisition %d", n.name(), o.Tenure, o.Acquire, n.waits)
	}
	n.waits = 0
	if w.lastCut > 0 && w.now < w.lastCut.Add(w.story.Sessions.LockDelay) {
		w.blame("%s starts %v before the lock delay of a holder has passed that was cut off at %v", n.name(), o.Tenure, time.Duration(w.lastCut))
	}
	if !n.trusts() {
		w.blame("%s starts %v, but does not trust in its seat any more", n.name(), o.Tenure)
	}
	for i := range w.nodes {
		other := &w.nodes[i]
		if other.dead || other.paused || other.Engine == nil {
			continue
		}
		for _, h := range other.Handlers {
			if !h.Over && other.trusts() && w.history[judge.Tenure(h.Tenure)].Ended.Reason != lease.ReasonForced {
				w.blame("%s starts %v while %s still trusts in %v", n.name(), o.Tenure, other.name(), h.Tenure)
			}
		}
	}
}

// Drain and Over leave it open when the handler returns.
func (n *node) Drain(h *virtual.Handler, o engine.Drain) {
	n.w.check(n.end(h, o.Tenure, o.Cause, nil).WindDown())
	n.w.soft[judge.Tenure(o.Tenure)] = true
}

func (n *node) Over(h *virtual.Handler, o engine.Over) {
	n.w.check(n.end(h, o.Tenure, o.Cause, o.Err).Check())
	if h != nil && o.Cause == event.CauseStalled {
		n.w.lastCut = n.w.now
	}
}

// end returns what is known of the reasons for the end of a tenure. Here no source stops listing a shard, and no row is
// finished.
func (n *node) end(h *virtual.Handler, id engine.Tenure, cause event.Cause, err error) judge.End {
	w, t := n.w, judge.Tenure(id)
	sessions := w.story.Sessions != nil
	return judge.End{
		Cause: cause, Err: err, Tenure: t, Ended: judge.EndOf(t, w.row(id.Shard)), Soft: w.soft[t],
		Returned: h == nil, Released: sessions && n.released == id,
		Requested: w.requests.Any(t) || sessions && w.ordered == t.Generation, Stopping: n.stopped, Untrusted: n.slept || !sessions,
		Unlisted: !sessions && len(w.story.Lists) > 0, Stalls: sessions && w.story.Sessions.StallAfter > 0,
	}
}

// Committed checks that an accepted commit was stored.
func (n *node) Committed(h *virtual.Handler, o engine.Committed) {
	if n.w.story.Sessions == nil || h == nil || o.Err != nil {
		return
	}
	if h.Over {
		n.w.blame("%s reports an accepted commit of %v, but it has lost that tenure", n.name(), h.Tenure)
	}
	if at := h.Script.(int) - int(h.Marks) + int(o.Seq); at > 0 {
		n.w.check(n.w.history.Committed(judge.Tenure(h.Tenure), strconv.Itoa(at), checkpoint.Decimal))
	}
}

// checkRefusals checks that a session refuses only the call that waits, and only in a story with Try. The caller then
// does not wait any more.
func (n *node) checkRefusals(out []engine.Output) {
	for _, o := range out {
		if o, ok := o.(engine.Unavailable); ok && !o.Waits {
			if o.ID != n.waits || !n.w.story.Sessions.Try {
				n.w.blame("%s refuses acquisition %d, but its caller waits for the answer to acquisition %d (Try: %t)", n.name(), o.ID, n.waits, n.w.story.Sessions.Try)
			}
			n.waits = 0
		}
	}
}

// checkTrust checks that a session holds no tenure after it has stopped trusting in its seat.
func (n *node) checkTrust() {
	for _, h := range n.Handlers {
		if n.w.story.Sessions != nil && !h.Over && !n.trusts() {
			n.w.blame("%s still holds %v, but does not trust in its seat any more", n.name(), h.Tenure)
		}
	}
}
