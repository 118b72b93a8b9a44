package engine

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The listings of a worker, as its spine sees them: which it makes, and which parts learn from each. reads.go has their
// pace, and sweep.go the audits.
//
//	the seats    owners, peers, the plan and the wishes, and what others request of the shards of this worker
//	the plan     the plan alone, for a worker that does not watch
//	the targets  facts
//	the rows     facts, and the shards of this worker
//
// Called by take with each answer: listed; and by live: keepReading.
//
// Invariant: a listing that may lag behind never replaces the known plan by an older one, and never brings back a seat that
// is gone.

// keepReading sends the listings that are due. Watchers list the seats; the other workers, and all of a large fleet, read
// the plan by a listing of one record. Owners that have something to give look for requests.
func (e *Engine) keepReading() {
	t, r := &e.turn, &e.reads
	if e.audits() {
		e.sweep.keep(t, &e.watch, &r.rows)
	}
	if r.targets.due(t) {
		r.targets.send(t, lease.Query{Kind: lease.KindTarget})
	}
	if r.rows.due(t) {
		e.facts.sent = e.watch.plan.Revision
		r.rows.send(t, lease.Query{Kind: lease.KindLease})
	}
	watching, all := e.watching(), false
	if e.owners.keep(t, watching, e.duty.members) {
		r.seats.wanted = true
	}
	if t.large {
		successors, offered := e.shards.successors(&e.follow)
		all = e.owners.lookAll(t, successors, paceWaiting)
		e.owners.lookAll(t, offered, t.beat)
	}
	if all || watching || r.seats.wanted {
		r.seats.wake(t, 0)
		if r.seats.due(t) {
			r.seats.send(t, lease.Query{Kind: lease.KindSeat, Eventually: !r.seats.wanted, Limit: e.duty.limit()})
		}
	}
	if t.large || !watching {
		if r.plan.wake(t, paceWaiting); r.plan.due(t) {
			r.plan.send(t, lease.Query{Kind: lease.KindSeat, Eventually: !r.plan.wanted, Limit: 1})
		}
	}
}

// listed takes a listing, and sets when the next of its kind is due. An answer to a listing of an earlier seat is
// ignored: its number is no longer known.
func (e *Engine) listed(in Listed) {
	t, r, id := &e.turn, &e.reads, serial(in.Read)
	of, most := r.of(id), time.Duration(1)
	switch {
	case id == e.sweep.page.id:
		of = &e.sweep.page
	case of == nil:
		return
	case of == &r.rows:
		most = 4
	}
	// An audit that fails keeps nobody from working. One of its pages, or the plan alone, shows no other record.
	switch {
	case of == &e.sweep.page, in.Err != nil && of.kind == lease.KindLease && !e.needsRows():
	case of == &r.plan:
		e.faults.unread.lists.saw(t, of.kind, in.Err)
	default:
		e.faults.unread.listed(t, of.kind, in.Err)
	}
	if !of.answered(t, r.away, most, in.Err) {
		if of == &r.rows && e.duty.light { // only unread wants it, and will again
			of.wanted = false
		}
		if !e.faults.rows.waits(t, in.Err) {
			t.failedNow("", in.Err)
		}
		return
	}
	switch of {
	case &r.seats:
		r.near(of.took)
		e.sawSeats(in)
		d := t.beat
		if !t.large {
			if d = r.pace(t, e.leave.on || e.shards.moving()); t.now.Mono < r.expects && e.shards.yielding() {
				d = min(d, stillFor)
			}
		}
		of.next = t.now.Mono.Add(e.pace(t, d))
	case &r.plan:
		of.wanted = false
		sight := e.seat.sight(in, of.begun, of.lax)
		sight.wishes = e.watch.wishes
		e.watch.spoilt = nil
		if sight.plan.Revision > 0 || sight.spoilt {
			e.sighted(t, sight, 0)
		}
	case &r.rows:
		e.sawRows(in, of.begun, false)
	case &r.targets:
		e.watch.check = true
		e.facts.sawTargets(of, in, e.watch.plan)
		if of.begun >= e.watch.at && e.follow.listed(e.seat.me, &e.facts.pages, e.watch.plan) {
			e.reconcile()
		}
	default:
		if e.sweep.saw(t, in) {
			e.swept()
		}
	}
	if of == &r.seats || of == &r.plan { // either shows the plan
		// It waits for a plan: because it leaves, has no target of the present revision, or the fleet has no plan yet.
		waits := e.leave.on || e.follow.revision == e.follow.missing || e.duty.crowded
		plan := e.watch.plan
		if e.watch.spoilt != nil {
			plan, waits = lease.Plan{}, false
		}
		r.plan.next = t.now.Mono.Add(e.duty.reading(t, plan, waits, e.watching()))
	}
}

// sawSeats takes a listing of the seats, with the plan and the wishes. From it owners learn which of the seats that
// they look for are there; peers, which workers are alive; watch and duty, the plan; and the shards, what other workers
// request. Peers learn less if this worker does not watch, or if the listing is only a part. A listing that may lag
// behind does not prove that a seat is gone, so it counts as sent in step 0.
func (e *Engine) sawSeats(in Listed) {
	e.watch.check = true
	t, r := &e.turn, &e.reads.seats
	sight := e.seat.sight(in, r.begun, r.lax)
	begun := r.begun
	if r.lax {
		begun, r.wanted = 0, r.wanted || e.watching() && (begun >= e.watch.at && e.watch.older(sight.plan) || e.faults.unsure(lease.KindSeat, in.Unreadable))
	}
	part := r.limit > 0 && len(in.Records)+len(in.Unreadable) >= r.limit
	asked := !r.lax && e.owners.saw(t, sight, part)
	if asked {
		e.shards.tendAll(t)
	}
	switch {
	case part:
		e.crowded(t, sight, begun)
		return
	case !e.watching():
		e.sighted(t, sight, begun)
		e.sawWants(sight.seats, "")
		if !asked { // otherwise it was for the owners alone
			e.peers.glimpse(t, sight)
		}
		return
	case !sight.own && !r.lax && r.begun > e.seat.trust.confirmed:
		e.loseSeat(event.CauseExpired, nil) // evicted; or the table went back: the next seat finds out
		return
	}
	olds := e.peers
	changed, missing := e.peers.saw(t, sight)
	r.wanted = r.wanted || missing
	// The plan of a worker that leaves has already given its shards to others.
	e.watch.orphans = e.watch.orphans || slices.ContainsFunc(olds.all, func(p peer) bool {
		return !p.seat.Leaving && e.peers.find(p.seat.Incarnation) == nil
	})
	if e.sighted(t, sight, begun) || changed {
		e.shards.tendAll(t)
	}
	e.peers.noteLag(t, &e.watch.plan)
	looks := slices.DeleteFunc(slices.Clone(e.watch.looks), func(shard string) bool { return shard == protocol.LookAll })
	e.sweep.look = e.sweep.look || len(looks) < len(e.watch.looks) && e.audits()
	e.shards.look(t, looks, e.seat.me)
	e.watch.looks = nil
	if e.watching() { // the others leave the report to those that list the seats all the time
		e.faults.unreadable(t, lease.KindSeat, in.Unreadable, !r.lax)
	}
	for _, seat := range sight.seats {
		if old := olds.find(seat.Incarnation); e.watching() && (old == nil && seat.Freed > 0 || old != nil && seat.Freed != old.seat.Freed) {
			e.facts.heed(t, seat.News, &e.feed)
		}
	}
	e.sawWants(sight.seats, "")
}

// sawWants takes what others request of this worker, as seats show that were listed, or the one seat of only.
func (e *Engine) sawWants(seats []lease.Seat, only lease.Incarnation) {
	e.shards.requested(&e.turn, e.seat.me, seats, only, e.owners.newest)
	e.shards.attend(&e.turn, e.tend)
}

// sawRows takes a complete listing of the rows: for plans, and for the shards of this worker. begun is the step in which
// the listing was sent. audit: the rows are the pages of an audit, which may be older.
func (e *Engine) sawRows(in Listed, begun order, audit bool) {
	e.watch.check = true
	t := &e.turn
	e.faults.unreadable(t, lease.KindLease, in.Unreadable, true)
	e.facts.saw(t, begun, in)
	e.facts.relist(t, &e.feed)
	e.shards.saw(t, e.seat.me, in, begun, audit, func(name string) bool { return e.facts.find(name) != nil })
	e.retire()
	e.shards.tendAll(t)
	if t.large && e.duty.light && !e.watching() { // it has listed them only to find out whether it can read
		e.facts = facts{}
	}
}

// swept takes the rows as an audit has found them in a large fleet. The next plan asks workers to read their rows again
// if something does not fit the plan.
func (e *Engine) swept() {
	w, audit := &e.watch, e.sweep
	e.sweep = audit.over()
	if e.facts.begun <= audit.begun { // otherwise the rows were listed since, and the pages may be older than that listing
		e.facts.sent = audit.revision
		e.sawRows(audit.found, max(e.facts.begun, 1), true) // begun stays what it was: no plan is made from these rows
	}
	if w.stands(audit.revision, audit.since.Add(-e.turn.cfg.TTL)) {
		held := func(inc lease.Incarnation) bool { return inc == e.seat.me || e.peers.find(inc) != nil }
		w.strays = e.facts.strays(&e.turn, &e.feed, held, e.declined)
	} else {
		e.sweep.look = e.sweep.look || audit.looking
	}
}

// retire makes tombstones of finished shards that the source no longer lists, a few at a time, and reports the
// unfinished ones. The first watcher does it. The caller tends all shards afterwards.
func (e *Engine) retire() {
	if !e.first() {
		return
	}
	if e.facts.begun > 0 && e.reporter() {
		e.faults.unlisted.keepUnlisted(&e.turn, &e.facts, &e.feed)
	}
	if e.seat.capable() {
		e.shards.retire(&e.turn, e.seat.me, e.facts.obsolete(&e.feed))
	}
}
