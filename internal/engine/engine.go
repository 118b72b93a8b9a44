package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The spine: it takes each input, hands it to the part that it concerns, and then lets each part
// do what is due, in a fixed order. It has no states of its own: seat.phase is how far the worker
// has come.
//
// Called by the shell, the virtual world and the explorer: New once, Step with every input.
//
// A step (common.step): turn.begin; seat.fence; take hands the input to its part; live lets every part do what is due. An
// input about one shard tends this shard at once (tend). An input about many makes them due (shards.tendAll), and live
// tends them.
//
// Nothing is written here. After a crash at any point the table has what a worker needs that goes on: see doc.go.
//
// Invariant: the seat is written last in a step, after the decisions that it has to publish.

// An Engine is one worker's side of the protocol as a plain value.
type Engine struct {
	common
	fleet
	reads   reads
	follow  follow
	sweep   sweep
	draft   draft
	planner planner
	feed    feed
	facts   facts
	wishes  wishes
	moves   moves
	news    news
	health  health
}

// New returns a worker that has done nothing yet. Its first step is a [Tick].
func New(c Config, now Moment) *Engine {
	e := &Engine{common: newCommon(c, now), sweep: sweep{next: Never}}
	e.reads.forget()
	return e
}

// Step takes what has happened and returns what to do, and when to call it again at the latest.
// The outputs are valid until the next step.
func (e *Engine) Step(now Moment, in Input) (out []Output, wake Instant) {
	return e.common.step(e, &e.seat, now, in)
}

// take hands the input to the part that it concerns, and what follows from it to others.
func (e *Engine) take(in Input) {
	t := &e.turn
	switch in := in.(type) {
	case Listed:
		e.listed(in)
	case Got:
		if in.Err == nil || in.Key.Kind != lease.KindTarget || e.follow.awaits(in) { // otherwise a listing has replaced it
			e.faults.unread.got(t, in.Key.Kind, in.Err)
		}
		e.got(in)
	case Settled:
		e.settled(in)
	// Shards and plans may have waited for the proof that the table is the one it was.
	case Verified:
		e.watch.check = true
		if e.seat.table.awaits(in) {
			e.faults.unread.verified(t, in.Err)
		}
		e.common.take(e, &e.seat, in)
	case Source:
		e.sourced(in)
	// An answer to a question that no draft asks any more changes nothing.
	case Planned:
		if e.planner.answered(in) {
			e.draft.answered(in)
		}
	// The answer may still come. Until then the seat says that the source does not answer.
	case SourceSilent:
		e.feed.silent()
		e.faults.source.raise(t, t.now.Mono, "", in.Err)
	case Prepared:
		if s := e.shards.find(in.Shard); s != nil && s.ask != nil {
			s.ask.prepared = true // also if the hook has failed: the request is next
			e.tend(s)
		}
	case Linked:
		if e.proofs.linked(t, in) {
			e.reads.seats.wanted, e.watch.check = true, true // the seat may be gone already, or newer
			e.shards.tendAll(t)
		}
	case Visited:
		e.proofs.visited(t, e.watching())
	case Deaf:
		e.seat.deaf = true
		e.faults.deaf.raise(t, t.now.Mono, "", in.Err)
	// The heartbeat of this step publishes that the worker leaves (fleet.hurry), which makes a plan due.
	case Stop:
		if e.leave.stop(t) {
			e.shards.recall(t)
			e.reads.look(t, 0)
			e.shards.tendAll(t)
		}
	default:
		e.common.take(e, &e.seat, in)
	}
}

// sourced takes a listing of the source. Shards may be listed again or no more, and a parent without a row may count as
// finished, so all shards are tended.
func (e *Engine) sourced(in Source) {
	t := &e.turn
	e.feed.sourced(t, in)
	e.facts.relist(t, &e.feed)
	if e.facts.forget(&e.feed); e.duty.light {
		e.feed.only(e.shards.knows)
	} else {
		e.feed.forget(func(name string) bool { return e.shards.knows(name) || e.facts.find(name) != nil })
	}
	e.retire()
	e.watch.check = true
	e.shards.tendAll(t)
	e.faults.sourced(t, in.Err)
}

// live does what is due, whatever it was that happened. The order is that of cause and effect: the target, the shards,
// health and news, the shutdown, the plan, evictions and ticks, listings; then the seat, which publishes all that; then the
// reports of what the step has met.
func (e *Engine) live() {
	t := &e.turn
	// Before the plan was looked for, nothing shows whether this worker plans, and so polls the source.
	if e.seat.phase == seated {
		if e.watch.known {
			e.shed()
			if !e.leave.on {
				e.feed.keep(t)
			}
		}
		if e.follow.keep(t, e.seat.me, e.watch.plan) {
			e.reads.targets.wanted = true
		}
	}
	if e.shards.crowded {
		e.shards.bound(t, e.turn.cfg.MaxShards)
	}
	e.shards.tendDue(t, e.seat.phase == seated, e.tend)
	if e.health.keep(t, e.shards.all, &e.faults.unwell, e.helpless) {
		e.shards.tendAll(t)
	}
	e.faults.silent.keep(t, e.shards.all)
	e.raiser.obey(t, e.watch.plan.Raise)
	if e.seat.phase == seated && e.raiser.keep(t, &e.shards, &e.fleet) {
		e.decline()
	}
	// Faults of the fleet are reported by one worker, as long as it is the one that reports.
	reports := e.reporter()
	e.faults.full.keepFull(t, &e.watch.plan, reports)
	if !reports {
		e.faults.unlisted.lower(t)
	}
	// A shard that is no longer assigned stays declined while this worker's source lacks it, or while its reads fail: no plan
	// gives it back.
	e.news.drop(t, func(n lease.News) bool {
		return n.Kind == lease.NewsDeclined && !e.faults.unread.on && !e.declines(n.Shard) && !e.feed.bars(t, n.Shard)
	})
	if e.fleet.sessions && e.leave.stop(t) {
		e.leave.all, e.leave.since = true, t.now.Mono // a group of sessions has no plan: no successor will come
	}
	e.keepLeaving()
	// Listings come last: the plan and the evictions want some of them from now on.
	if e.seat.phase == seated && !e.leave.over {
		e.keepPlanning()
		look, soon := e.fleet.keep(t, e.leave.on, &e.faults.unwatched)
		if soon {
			e.reads.seats.soon(t, 0)
		}
		if e.watching() {
			e.reads.seats.wanted = e.reads.seats.wanted || look
		} else {
			e.reads.plan.wanted = e.reads.plan.wanted || look
		}
		e.keepReading()
	}
	// The seat comes after all decisions. If it begins a new incarnation, the shards continue under it.
	says := e.says()
	hurry := e.hurry(t, says, e.news.added, e.shards.unsaid)
	if e.seat.speaks(t, hurry) { // settles looks at every shard, which would cost too much in each step
		says.Settled = e.follow.settles(e.revision(), e.shards.all)
		tell(&says, t, &e.shards, e.faults.silent.busy)
	}
	if e.seat.keep(t, says, hurry, e.leave.over) {
		e.shards.forget(t, e.seat.me)
	}
	e.report()
	if e.seat.phase == seated {
		t.at(e.shards.due)
	}
}

// says returns what the next heartbeat publishes, except whether the worker has settled.
func (e *Engine) says() lease.Says {
	t := &e.turn
	health := e.health.says(t, &e.faults.silent)
	health.NoSource = e.feed.blind()
	e.raiser.says(t, &health)
	if f := &e.faults.unread; f.on && health.Unwell == "" {
		health.Unwell, health.UnwellSince = errUnread.Error(), t.now.Wall.Add(-t.now.Mono.Sub(f.since))
	}
	says := lease.Says{ // Freed counts the changes of the news
		Leaving: e.leave.on, Freed: e.news.count, Revision: e.follow.revision, Missing: e.follow.missing,
		Health: health, Wants: e.shards.wants(), Address: e.seat.address(t), Raised: e.raiser.saysRaised(t),
	}
	says.News, says.NewsLeft = e.news.says()
	return says
}

// report reports the faults that last, and ends those that are over. It comes last in a step, when all parts have noted
// what they have met.
func (e *Engine) report() {
	f, t := &e.faults, &e.turn
	e.scan(e, &e.seat)
	f.unread.keep(t, e.seat.me, &e.reads.rows)
	f.keepStale(t, &e.fleet)
	if f.misjudged.on && !t.before(e.seat.hidden) {
		f.misjudged.lower(t)
	}
	f.keep(t)
	e.raiser.fault.keep(t)
}

// fails reports whether a call that is about no shard waits to be repeated. The fault of a read that nobody repeats is
// over.
func (e *Engine) fails() bool {
	e.owners.prune(&e.turn)
	return e.reads.fails() || e.peers.fails() || e.owners.fails() || e.draft.fails() ||
		e.duty.swap.try.tries > 0 || e.wishes.swap.try.tries > 0 || e.follow.reading.try.tries > 0
}

// declines reports whether this worker cannot have the shard at present.
func (e *Engine) declines(name string) bool {
	return e.shards.declines(&e.turn, name, e.health.resting(&e.turn) || e.raiser.declines(&e.turn), e.faults.unread.on, &e.feed)
}

// needsRows reports whether this worker waits for a listing of all rows, to plan or to find what a worker that lags does not
// take.
func (e *Engine) needsRows() bool { return e.lag.asked > 0 || e.draft.phase == gathering }

// replaceable reports whether another worker could take over the shards of this one.
func (e *Engine) replaceable() bool { return e.seat.capable() && !e.leave.on && e.others() }

// keepLeaving continues the shutdown. When it ceases to wait for successors, all handlers wind down, and tenure.serve
// releases what nobody has requested.
func (e *Engine) keepLeaving() {
	l, t := &e.leave, &e.turn
	if !l.keep(t, &e.seat) {
		return
	}
	if !l.all && !(e.expected(&e.follow, &e.shards) && t.before(l.began.Add(t.cfg.Drain))) {
		l.all, l.since = true, t.now.Mono
		e.shards.tendAll(t)
		e.shards.tendDue(t, true, e.tend)
	}
	l.finish(t, &e.seat, &e.shards)
}

// loseSeat ends every tenure. All that was known of the fleet is dropped, because it was known to another incarnation.
func (e *Engine) loseSeat(cause event.Cause, err error) {
	e.lose(&e.seat, cause, err)
	e.reads.forget()
	e.peers, e.owners, e.follow, e.watch, e.lag, e.sweep, e.draft = peers{}, owners{}, follow{}, watch{}, lag{}, sweep{next: Never}, draft{}
	e.turn.large, e.duty = false, duty{light: e.duty.light} // if it plans next, it reads the source and the rows again
	e.facts, e.wishes, e.moves, e.news = facts{}, wishes{}, moves{}, news{}
	e.faults.unread.forget()
}

// tend does what is due for one shard.
func (e *Engine) tend(s *shard) { e.common.tend(e, &e.seat, s) }

// fill adds whether this worker's source has ceased to list a shard that it holds, how long a move may overlap, and why the
// plan moves the shard.
func (e *Engine) fill(s *shard, w *self) {
	w.handOver = e.reads.handOver()
	w.unlisted = s.t != nil && s.t.unlisted(&e.turn, s.name, &e.feed)
	if s.aim.why == 0 {
		return
	}
	if w.cause = e.follow.target.CauseOf(s.name); w.cause.Why != s.aim.why { // a later target does not name the move
		w.cause = lease.MoveCause{Why: s.aim.why}
	}
}

// blame draws the conclusion from a handler's failure. While this worker rests it declines what it
// does not hold, so that the next plan gives these shards to others.
func (e *Engine) blame(s *shard) {
	if e.health.blame(&e.turn, s.t, &s.row) {
		e.decline()
	}
}

// decline says of each shard that the plan assigns to this worker, and that it does not hold, that it cannot have it.
func (e *Engine) decline() {
	t := &e.turn
	for _, s := range e.shards.all {
		if e.shards.declines(t, s.name, true, false, &e.feed) {
			e.news.add(t, lease.NewsDeclined, s.name, 0)
		}
	}
	e.shards.tendAll(t)
}

// acquire makes the next step for a shard that the plan may assign to this worker. It requests one more only when it
// follows the plan that it knows.
func (e *Engine) acquire(s *shard, w self, h *happened) {
	s.acquire(&e.turn, member{
		self: w, room: e.shards.asks < e.turn.cfg.MaxMoves && e.follow.revision >= e.watch.plan.Revision,
		health: &e.health, raiser: &e.raiser, fleet: &e.fleet, feed: &e.feed, shards: &e.shards,
	}, h)
}

// happened draws the conclusions of what a shard reports that concern more than this shard: news for the seat, facts for
// plans, faults, and what to list or read soon.
func (e *Engine) happened(s *shard, h happened) {
	t := &e.turn
	e.common.happened(&e.seat, s, h)
	// The next planner learns of it by the news on the seat. If that is this worker, its own facts have it at once.
	if h.finished {
		e.news.add(t, lease.NewsFinished, s.name, e.follow.revision)
		e.facts.finish(t.step, s.name)
	}
	if h.unlisted && e.feed.tells(s.name, s.row.copy.Row().Generation) {
		e.news.add(t, layout.NewsUnlisted, s.name, e.follow.revision)
		e.facts.leave(t, s.name, &e.feed)
	}
	if h.declined {
		e.news.add(t, lease.NewsDeclined, s.name, 0)
	}
	if h.kept > 0 {
		e.faults.reserved.raise(t, h.kept, s.name, reservedError{s.row.copy.Row().Reserved})
	}
	if h.succeeded {
		e.health.succeeded(t)
	}
	if h.tried {
		e.health.trial, e.health.tried = s.name, t.now.Mono
	}
	if h.planChanged() {
		e.watch.check = true
	}
	if h.buried {
		e.feed.soon(t)
		h.removed = e.news.add(t, layout.NewsRemoved, s.name, e.follow.revision)
	}
	if h.removed {
		e.facts.bury(t.step, s.name)
	}
	if h.back {
		e.news.drop(t, func(n lease.News) bool { return n == lease.News{Kind: layout.NewsRemoved, Shard: s.name} })
	}
	// What the shard waits for: a listing of the seats, or the rows of other shards of the same owner.
	if h.suspects {
		e.reads.seats.wanted = true
	}
	if h.look {
		e.reads.look(t, paceMoving)
	}
	if h.served != "" {
		e.shards.hasten(t, h.served)
	}
	if h.poll {
		e.feed.soon(t)
	}
}

// settled takes the answer to a write.
func (e *Engine) settled(in Settled) {
	t := &e.turn
	switch key := in.Write.Key(); key.Kind {
	case lease.KindSeat:
		e.seatSettled(in)
	// The worker swaps the plan for a draft, or with a tick.
	case lease.KindPlan:
		if e.draft.swap.is(in.Write) {
			e.planSettled(in)
		} else if now := e.duty.settled(t, in, e.rank()); now.Revision > 0 {
			e.sawPlan(t, now, e.watch.wishes, 0)
		}
	// Another planner has overtaken this one: look at its plan.
	case lease.KindTarget:
		if e.draft.targetSettled(t, in) {
			e.watch.check = true
			e.reads.look(t, 0)
		}
	case lease.KindWishes:
		if e.wishes.settled(t, in) {
			e.reads.seats.soon(t, 0)
		}
	case lease.KindLease:
		e.rowSettled(e, &e.seat, in)
	}
}

// seatSettled takes the answer to a write of a seat: to an eviction, or to a write of this worker's own seat.
func (e *Engine) seatSettled(in Settled) {
	t := &e.turn
	if in.Write.Op == lease.OpDelete && in.Write.Key().Name != string(e.seat.me) {
		decided, unsure := e.evictionSettled(t, in)
		e.reads.seats.wanted = e.reads.seats.wanted || unsure
		if e.reads.look(t, 0); decided {
			e.reads.seats.soon(t, paceDying)
		}
		return
	}
	e.watch.check = true
	was, sent := e.seat.row, e.seat.beat.sent
	switch e.common.seatSettled(e, &e.seat, in) {
	case seatLost, seatGone, seatUnchanged:
		return
	case seatConfirmed:
		e.peers.changed, e.watch.self = t.now.Mono, true
		e.reads.seats.wanted = true
	}
	e.reads.age()
	e.reads.near(t.now.Mono.Sub(sent))
	now := e.seat.row
	// The others see this change with their next listings, and this worker knows of it already: it plans first.
	e.watch.self = e.watch.self || was.Leaving != now.Leaving || was.Freed != now.Freed || ails(was.Health, now.Health)
	e.shards.publish(t, now.Wants)
	if now.Leaving && !was.Leaving {
		e.leave.said = t.now.Mono
		e.shards.tendAll(t)
	}
}

// got takes the answer to the read of one record.
func (e *Engine) got(in Got) {
	t := &e.turn
	switch in.Key.Kind {
	case lease.KindTarget:
		if e.follow.got(t, in) {
			e.faults.unreadable(t, lease.KindTarget, e.follow.broken, true)
			e.reconcile()
		}
	// The seat of an owner, which may request shards of this worker too.
	case lease.KindSeat:
		if e.owners.got(t, in) {
			inc := lease.Incarnation(in.Key.Name)
			if seats, known := e.owners.shown(inc); known {
				e.sawWants(seats, inc)
			}
			e.shards.tendAll(t)
		}
	case lease.KindLease:
		s := e.shards.find(in.Key.Name)
		if s == nil {
			return
		}
		first := !s.row.known
		if s.got(t, in) {
			s.end(t, event.CauseVanished, nil)
		}
		e.watch.check = e.facts.looked(t, s, in, &e.feed) || e.watch.check
		// Shards wait until all rows of a new target are known: then one read of a seat answers for all that an owner holds.
		if e.tend(s); first && !e.shards.reading() {
			e.shards.tendAll(t)
		}
		for _, child := range e.shards.children(s) {
			e.tend(child)
		}
	}
}

// reconcile makes the shards follow the target, and notes what follows from that for other parts.
func (e *Engine) reconcile() {
	t := &e.turn
	if !e.watching() {
		e.peers = peers{} // the seats were listed for what it was to do before
	}
	// A row that a recent listing has lacked is created without being read first. If it exists, that is refused.
	recent := e.facts.begun > 0 && t.now.Mono < e.reads.rows.asked.Add(t.cfg.TTL)
	lacked := func(name string) bool { return recent && e.facts.find(name) == nil }
	doubted := e.shards.follow(t, e.seat.me, &e.follow.target, lacked, &e.feed)
	e.shards.bound(t, e.turn.cfg.MaxShards)
	for _, s := range e.shards.all {
		if s.aim.mine && e.declines(s.name) {
			e.news.add(t, lease.NewsDeclined, s.name, 0)
		}
	}
	e.reads.expect(t, e.watch.wishes.WriteID)
	if e.duty.light { // it does not poll, so what it knows of the source grows old
		e.feed.forget(func(name string) bool { s := e.shards.find(name); return s != nil && (s.aim.mine || s.t != nil) })
	}
	if doubted {
		e.feed.doubt(t)
	}
	e.shards.forgetIdle(t)
	e.owners.prune(t)
	e.shards.tendAll(t)
}

// keepPlanning begins a plan when one is due, and continues it.
func (e *Engine) keepPlanning() {
	t, d := &e.turn, &e.draft
	if d.phase <= gathering && !e.plans(&e.turn) {
		*d = draft{}
		if e.reserve() == 0 { // it does not watch
			e.watch.waits = 0
			e.news.settled(e.seat.row.Freed, e.watch.plan.Revision, true)
			return
		}
	}
	if !e.seat.capable() {
		return
	}
	if e.first() {
		e.moves.keep(t, e.seat.me, e.watch.wishes, &e.shards)
		e.wishes.keep(t, e.watch.wishes, t.now.Wall, func(i int) bool { return e.watch.unread(t, i) },
			func(w lease.Wish) bool { return e.shards.arrived(w) || e.allRaised(w) })
	}
	switch {
	// Nothing shows yet which shards there are: read the rows once, and wait for the source.
	case !e.feed.answered && e.feed.complete == 0 && e.watch.plan.Revision == 0 && len(e.facts.all) == 0 && !e.leave.on:
		e.reads.rows.wanted = e.reads.rows.wanted || e.watch.known && e.facts.begun == 0 && !e.reads.rows.sent
	case d.phase == idle:
		e.considerPlan()
	case d.phase == gathering:
		e.gather()
	default:
		d.keep(t)
	}
}

// considerPlan begins a draft if a plan is due. Otherwise it wants the listings without which the worker cannot tell.
func (e *Engine) considerPlan() {
	t, r := &e.turn, &e.reads
	if e.lag.keep(t, &e.fleet, &e.facts) {
		r.targets.wanted, r.rows.wanted = true, true
	}
	e.watch.check = e.watch.check || len(e.lag.stalls) > 0
	found := e.consider(t, &e.facts, &e.feed)
	if !found.looked {
		return
	}
	r.targets.wanted = r.targets.wanted || found.targets || found.again && !r.targets.sent
	r.rows.wanted = r.rows.wanted || found.rows
	if found.due {
		e.draft.begin(t, e.watch.plan)
		r.seats.wanted, r.targets.wanted, r.rows.wanted = true, true, r.rows.wanted || e.draft.rows
		return
	}
	r.look(t, e.watch.pace(t))
	e.news.settled(e.seat.row.Freed, e.watch.plan.Revision, e.watch.waits > 0 || e.watch.plan.Open || e.watch.spoilt != nil)
}

// gather opens the next revision when everything is read that it is made from. That may take several steps; the stage is
// made again in each, from what is known then.
func (e *Engine) gather() {
	t, w, seats := &e.turn, &e.watch, e.seats()
	switch e.draft.gather(t, stage{
		Input: layout.Input{
			Seats: seats, Still: t.now.Mono >= w.still(e.peers.changed) && !e.manyLate(t, len(seats)),
			Stalls: e.lag.stalls, Me: e.seat.row, Bars: func(shard string) bool { return e.feed.bars(t, shard) },
		},
		plan: w.plan, spoilt: w.spoilt != nil, stored: w.wishes, begun: e.peers.begun, facts: &e.facts, feed: &e.feed,
		blind:  e.reads.rows.try.tries > 0,
		strays: w.strays, acting: e.duty.acting > 0, late: func(inc lease.Incarnation) bool { p := e.peers.find(inc); return p != nil && p.suspect },
		planner: &e.planner,
	}) {
	case beaten:
		w.check = true
		e.reads.look(t, paceWaiting)
	case lacking:
		e.reads.rows.wanted = e.reads.rows.wanted || !e.reads.rows.sent
	case unchanged:
		w.again, w.check = e.peers.changed.Add(stillFor), true
	}
}

// planSettled takes the answer to a swap of the plan. When the revision is complete, this worker follows its own target
// without a read.
func (e *Engine) planSettled(in Settled) {
	t, w, d := &e.turn, &e.watch, &e.draft
	w.check = true
	now, finished := d.planSettled(t, in)
	if now != nil {
		e.sawPlan(t, *now, w.wishes, 0)
	}
	if !finished {
		return
	}
	if now.Revision < e.follow.revision { // the answer is late: another worker has made a plan since
		*d = draft{}
		return
	}
	e.facts.planned(now.Revision, d.next)
	e.proofs.knock(t, d.next)
	w.again, w.self, w.waits, w.withheld = t.now.Mono.Add(apart), false, 0, d.withheld
	if len(w.withheld.lagging) > 0 {
		w.lapses++
	}
	if mine := slices.IndexFunc(d.next, func(next lease.Target) bool { return next.Incarnation == e.seat.me }); mine >= 0 && !slices.Contains(e.facts.pages.broken, e.seat.me) {
		e.follow.adopt(now.Revision, d.next[mine], 0)
		e.faults.unreadable(t, lease.KindTarget, nil, true)
		e.reconcile()
	}
	*d = draft{}
}

// shed drops what only a worker needs that watches or plans. In a small fleet that is every worker.
func (e *Engine) shed() {
	t, d := &e.turn, &e.duty
	plans := e.plans(t)
	if !e.watching() {
		e.faults.unreadable(t, lease.KindSeat, nil, true) // it will not see their end
		if e.peers.seen > 0 {
			e.peers = peers{}
		}
	}
	if d.light {
		e.faults.unreadable(t, lease.KindLease, nil, true)
	}
	switch {
	case plans && d.light:
		d.light = false
		e.feed.start()
	case !plans && !d.light && e.draft.phase <= gathering:
		d.light = true
		e.feed.stop(e.shards.knows)
		e.facts, e.sweep = facts{}, sweep{next: Never}
	}
}
