package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/handoff"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Handing a shard over: the owner's side of a move. handoff.Owner decides each step.
//
//	requested → eager:       draining → returned or cut → handed over in one write
//	          → cooperative: offered → taken over by the successor, or withdrawn
//
// Called by tenure.serve: move and giveUp; by shard.tend: replaced; by the spine with what a read of the seats shows:
// shards.requested, then attend.
//
// The owner learns of a request from the successor's seat, and the successor of the answer from the row. Neither
// waits for the other without a limit: see handoff.Owner and handoff.Successor. A crash of the owner at any point
// leaves a row in its name, with or without an offer, which is recovered. A crash of the successor ends its request
// with its seat: an owner that has not drained yet goes on, and one that has releases the shard.
//
// Invariant: an owner never stops because of a plan. It serves any standing request for its
// generation, from any worker.
// Invariant: a row has at most one offer, and the owner serves one successor at a time.

// A giving is a move away from this worker. Once the handler drains or the shard is offered, it stays, even if the request
// no longer stands: a handler that drains gives the shard up in any case.
type giving struct {
	to     lease.Owner
	terms  rebalance.Terms
	cause  lease.MoveCause // why the plan moves the shard, as far as this worker knows
	wanted bool            // the last read of the successor's seat still had the request
}

// An offer is the offer that the row has, as this worker last read it, and since when. It may be to another worker
// than the giving: then it is withdrawn first.
type offer struct {
	to    lease.Incarnation // empty: the row has no offer
	since Instant
	until Instant // until when the handler goes on after the offer was accepted; 0: it was not accepted
	torn  bool    // it learnt so by the refusal of a write that may have been stored before
}

// note keeps since when the row has the offer that it has, and reports whether that is new.
func (o *offer) note(t *turn, to lease.Incarnation) bool {
	if o.to == to {
		return false
	}
	o.to, o.since = to, t.now.Mono
	return true
}

// holds reports whether commits wait for the offer to be accepted. Usually the successor takes over in a moment, and a
// commit that is under way then is refused.
func (o *offer) holds(t *turn) bool { return o.to != "" && t.now.Mono < o.since.Add(heldOffer) }

// stands reports whether there is a request that this worker serves, and that still stands.
func (g *giving) stands() bool { return g != nil && g.wanted }

// agreed returns the terms of the move; zero: there is none.
func (g *giving) agreed() rebalance.Terms {
	if g == nil {
		return rebalance.Terms{}
	}
	return g.terms
}

// wantedBy notes one request. Of several, the first that was seen is served for as long as it
// stands. gone: the worker that made the earlier request has no seat any more. Before that, it may still accept an
// offer.
func (of *tenure) wantedBy(t *turn, to lease.Owner, terms rebalance.Terms, gone func(lease.Incarnation) bool) {
	g := of.give
	switch {
	case g != nil && g.to.Incarnation == to.Incarnation:
		g.wanted = true
	case g == nil || !g.wanted && gone(g.to.Incarnation):
		if terms.Mode == rebalance.Cooperative {
			terms.Drain = min(terms.Drain, t.cfg.Drain) // how long an offer stands is for its maker to limit
		}
		of.give = &giving{to: to, terms: terms, wanted: true}
	}
}

// learn notes why the plan moves the shard. A worker that shuts down needs no plan to know that.
func (g *giving) learn(w self) {
	switch {
	case w.leaving:
		g.cause = lease.MoveCause{Why: rebalance.Leaving}
	case w.cause.Why != 0 && (w.cause.Note != "" || w.cause.Why != g.cause.Why): // a later target may have lost the note
		g.cause = w.cause
	}
}

// moving reports whether the owner has to look whether its shard was taken, or is still wanted.
func (of *tenure) moving() bool { return of != nil && (of.give != nil || of.offer.to != "") }

// successors returns the workers that may request shards of this one: those to which the plan
// assigns them. An empty name stands for workers that are not known, so that all seats have to be
// listed. offered are workers that have an offer: the row shows whether they accept it, and costs
// less than a seat with many requests, which shows only whether they still want it.
func (l *shards) successors(f *follow) (all, offered []lease.Incarnation) {
	for _, s := range l.all {
		switch {
		case s.t == nil || s.aim.mine && s.t.give == nil:
		case s.t.give != nil && s.t.offer.to == s.t.give.to.Incarnation:
			offered = append(offered, s.t.offer.to)
		case s.t.give != nil:
			all = append(all, s.t.give.to.Incarnation)
		case f.target.Revision < f.revision: // a later plan may have named another worker
			all = append(all, "")
		default:
			all = append(all, f.successor(s.name))
		}
	}
	return all, offered
}

// requested notes which of the shards of this worker, me, others request, as seats show that were listed, or the one seat
// of only. A request of a generation that this worker does not hold is ignored, unless it says that the row names this
// worker. Then it reads the row. newest returns the seat of the same worker as last read.
func (l *shards) requested(
	t *turn, me lease.Incarnation, seats []lease.Seat, only lease.Incarnation, newest func(lease.Seat) lease.Seat,
) {
	for _, s := range l.all {
		if s.t != nil && s.t.give != nil && (only == "" || s.t.give.to.Incarnation == only) {
			s.t.give.wanted = false
		}
	}
	gone := func(inc lease.Incarnation) bool {
		return (only == "" || only == inc) && !slices.ContainsFunc(seats, func(s lease.Seat) bool { return s.Incarnation == inc })
	}
	for _, seat := range seats {
		if seat = newest(seat); seat.Leaving {
			continue
		}
		for _, w := range seat.Wants {
			s := l.find(w.Shard)
			switch {
			case s != nil && s.t != nil && w.Generation == s.t.generation:
				s.t.wantedBy(t, seat.Owner(), w.Terms, gone)
			case w.Owner == me && (s == nil || s.t == nil && s.row.generation <= w.Generation):
				// A row that names this worker, which does not know of it.
				s = l.know(w.Shard, t.cfg.Group, me)
				s.get(t)
			}
		}
	}
}

// attend tends the shards that others request, or that have an offer, after a read of the seats has shown what stands.
func (l *shards) attend(t *turn, tend func(*shard)) {
	for _, s := range l.all {
		if s.t.moving() {
			if s.t.offer.to != "" && (!t.large || !s.t.give.stands()) { // see tenure.watchOffer
				s.get(t)
			}
			tend(s)
		}
	}
}

// move continues a move away from this worker, while its handler runs. When the handler has returned or was cut,
// serve calls giveUp instead.
func (of *tenure) move(t *turn, r *row, w self) {
	at, g := r.copy.Row(), of.give
	if of.wind.draining { // windDown decides when that ends
		of.serveOn(t, r)
		return
	}
	if g != nil && !g.wanted && of.offer.to != g.to.Incarnation { // an offer to another is withdrawn
		of.give, g = nil, nil
	}
	terms := g.agreed()
	if of.raise.waits { // nobody processes the shard, and the worker before has not consented: see raise.go
		terms.Mode = rebalance.Eager
	}
	switch handoff.Owner(terms, handoff.Giving{
		Wanted:  g.stands(),
		Offered: of.offer.to != "" && (g == nil || of.offer.to == g.to.Incarnation), OfferedFor: t.now.Mono.Sub(of.offer.since),
	}) {
	// An eager move. The row changes hands when the handler is over; until then it commits as before.
	case handoff.Drain:
		of.drain(t, r, event.CauseHandedOff)
		if of.windDown(t, r, w); of.wind.cut {
			of.giveUp(t, r)
		}
	// A crash after it leaves the offer in the row. The successor may accept it; otherwise the row is recovered when
	// the seat of this worker has expired.
	case handoff.Offer:
		wr, err := protocol.Offer(at, of.hold(t, r), g.to.Incarnation, of.marks.unaccepted(), t.stamp())
		of.sendMark(t, r, offering, wr, err)
	// If the successor accepts first, this write is refused, and replaced ends the tenure. A crash after it leaves a
	// row as before the offer.
	case handoff.Withdraw:
		if r.try.sent {
			return // the row that is being read may show that the offer was accepted
		}
		wr, err := protocol.Withdraw(at, of.hold(t, r), t.stamp())
		r.send(t, withdrawing, wr, err)
	default:
		of.serveOn(t, r)
	}
}

// serveOn is a holder's life during a move: the handler continues to mark, and commits wait for
// a moment while an offer stands.
func (of *tenure) serveOn(t *turn, r *row) {
	g := of.give
	if of.offer.to != "" {
		of.watchOffer(t, r)
		if !of.wind.draining { // otherwise nothing is withdrawn any more
			r.at(t, of.offer.since.Add(handoff.Standing(g.agreed())))
		}
		if of.offer.holds(t) {
			r.at(t, of.offer.since.Add(heldOffer))
			return
		}
	}
	of.commit(t, r)
}

// watchOffer reads the row again and again while it has an offer, until it is taken over. In a small fleet that
// happens with each listing of the seats: see shards.attend.
func (of *tenure) watchOffer(t *turn, r *row) {
	if !t.large {
		return
	}
	if at := max(r.answered, of.offer.since).Add(paceWaiting); !r.try.sent && !r.before(t, at) {
		r.get(t)
	}
}

// giveUp hands the shard to the worker that requested it, or to nobody. One write stores the last mark and ends the
// generation, so there is no moment at which the shard is free and the mark is missing.
//
// When it is stored, this worker is not needed any more. If the successor has died, its row is recovered like those of
// any dead owner. If the successor lives and no longer waits, it finds its name in the row (protocol.Copy.Reconcile).
// A released row is claimed by the worker to which the plan assigns it.
func (of *tenure) giveUp(t *turn, r *row) {
	w, at := &of.wind, r.copy.Row()
	end := protocol.End{
		Reason: lease.ReasonReleased, Note: cmp.Or(w.note, of.raise.out), Mark: of.marks.unaccepted(),
		Progressed: of.marks.progress, Excused: w.blame == workerAtFault,
	}
	switch {
	case w.cause == event.CauseStalled:
		end.Reason = lease.ReasonStalled
		if of.commitsLate(t) {
			end.Note = errNotAccepted.Error()
		}
	case w.cause == event.CauseUnlisted:
		end.Reason = lease.ReasonUnlisted
	case w.blame != noFailure:
		end.Reason = lease.ReasonFailed
	case w.cut:
		end.Reason = lease.ReasonDrainTimeout
	}
	if w.move != nil && protocol.EndingOf(end.Reason) != protocol.Failed {
		of.reserve(t, r, end)
		return
	}
	// A failure or a stall is recorded in the row by a release, also if a worker has requested the shard.
	if protocol.EndingOf(end.Reason) != protocol.Failed && handoff.Owner(of.give.agreed(), handoff.Giving{Wanted: of.give.stands(), Returned: true}) == handoff.Yield {
		if end.Reason != lease.ReasonDrainTimeout {
			end.Reason = lease.ReasonHandoff
		}
		end.Mode = of.give.terms.Mode
		wr, err := protocol.Because(of.give.cause)(protocol.Yield(at, of.hold(t, r), of.give.to, end, t.stamp()))
		of.sendMark(t, r, givingUp, wr, err)
		return
	}
	succeeded := w.returned && !w.draining && w.blame == noFailure
	wr, err := release(t, at, of.hold(t, r), end, of.limits.attempts > 0 && !succeeded)
	of.sendMark(t, r, givingUp, wr, err)
}

// release returns the write that releases a row without a successor. A lease by name without a
// checkpoint is discarded, because otherwise nothing would ever remove its row. counts: failed attempts still count, so
// a row that has some is not discarded.
func release(t *turn, at lease.Row, hold lease.Hold, end protocol.End, counts bool) (lease.Write, error) {
	if t.cfg.Discard && !(counts && at.Attempts() > 0) {
		if w, err := protocol.Discard(at, hold, end, t.stamp()); err == nil {
			return w, nil
		}
		// The checkpoint stays, and the failures are forgotten as with a row that is discarded.
		end.Progressed = end.Progressed || at.Attempts() > 0 && protocol.EndingOf(end.Reason) != protocol.Failed
	}
	return protocol.Release(at, hold, end, t.stamp())
}

// replaced ends a tenure whose shard has a later generation, and reports whether it has ended. If the successor has
// accepted the offer, the tenure ends a moment later: its handler can no longer commit, but the successor's has yet to
// begin.
func (of *tenure) replaced(t *turn, r *row, handOver time.Duration) (over bool) {
	at := r.copy.Row()
	if accepted := of.offer.to != "" && at.Owner.Incarnation == of.offer.to; accepted && !of.wind.returned && !of.wind.cut {
		if of.offer.until == 0 {
			of.offer.until = t.now.Mono.Add(handOver)
		}
		if r.before(t, of.offer.until) {
			return false
		}
	}
	of.end(t, r, overtaken(at, of.generation), &checkpoint.StaleError{
		Shard: r.name, Mine: of.generation, Observed: at.Generation, Owner: at.Owner.Name, OutcomeUnknown: of.offer.torn,
	})
	return true
}
