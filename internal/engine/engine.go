package engine

import (
	"errors"
	"slices"
	"time"

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
	news    news
	health  health
}

// New returns a worker that has done nothing yet. Its first step is a [Tick].
func New(c Config, now Moment) *Engine {
	e := &Engine{common: newCommon(c, now), facts: facts{next: Never}}
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
		e.got(in)
	case Settled:
		e.settled(in)
	case Verified:
		e.watch.check = true
		e.common.take(e, &e.seat, in)
	case Source:
		e.sourced(in)
	case Planned:
		if e.planner.answered(in) {
			e.draft.answered(in)
		}
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
		e.proofs.visited(t)
	case Deaf:
		e.seat.deaf = true
		e.faults.deaf.raise(t, t.now.Mono, "", in.Err)
	case Stop:
		if e.leave.stop(t) {
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
	if e.seat.phase == seated {
		if e.watch.known {
			e.shed()
			if !e.leave.on {
				e.feed.keep(t)
			}
		}
		e.follow.keep(t, e.seat.me, e.watch.plan)
	}
	e.shards.tendDue(t, e.seat.phase == seated, e.tend)
	e.keepHealth()
	e.faults.silent.keep(t, e.shards.all)
	reports := e.reporter()
	e.faults.full.keepFull(t, &e.watch.plan, reports)
	if !reports {
		e.faults.unlisted.lower(t)
	}
	// A shard that is no longer assigned stays declined while this worker's source lacks it: no plan gives it back.
	e.news.drop(t, func(n lease.News) bool {
		return n.Kind == lease.NewsDeclined &&
			!e.shards.declines(t, n.Shard, e.health.resting(t), &e.feed) && !e.feed.bars(t, n.Shard)
	})
	if e.fleet.sessions && e.leave.stop(t) {
		e.leave.all, e.leave.since = true, t.now.Mono // a group of sessions has no plan: no successor will come
	}
	e.keepLeaving()
	if e.seat.phase == seated && !e.leave.over {
		e.keepPlanning()
		e.keepWatching()
		e.keepReading()
	}
	health := e.health.says(t, &e.faults.silent)
	health.NoSource = e.feed.blind()
	says := lease.Says{ // Freed counts the changes of the news
		Leaving: e.leave.on, Freed: e.news.count, Revision: e.revision(), Missing: e.follow.missing,
		Health: health, Wants: e.shards.wants(), Address: e.seat.address(t),
	}
	says.News, says.NewsLeft = e.news.says()
	hurry := e.hurry(t, says, e.news.added, e.shards.unsaid)
	if e.seat.speaks(t, hurry) { // settles looks at every shard, which would cost too much in each step
		says.Settled = e.follow.settles(e.revision(), e.shards.all)
	}
	if e.seat.keep(t, says, hurry, e.leave.over) {
		e.shards.forget(t, e.seat.me) // they continue under a new incarnation
	}
	e.report()
	if e.seat.phase == seated {
		t.at(e.shards.due)
	}
}

// report reports the faults that last, and ends those that are over. It comes last in a step, when all parts have noted
// what they have met.
func (e *Engine) report() {
	f, t := &e.faults, &e.turn
	e.scan(e, &e.seat)
	f.keepStale(t, &e.fleet)
	if f.misjudged.on && !t.before(e.seat.hidden) {
		f.misjudged.lower(t)
	}
	f.keep(t)
}

// fails reports whether a call that is about no shard waits to be repeated. The fault of a read that nobody repeats is
// over.
func (e *Engine) fails() bool {
	e.owners.prune(&e.turn)
	return e.reads.fails() || e.peers.fails() || e.owners.fails() || e.draft.fails() ||
		e.duty.swap.try.tries > 0 || e.wishes.swap.try.tries > 0 || e.follow.reading.try.tries > 0
}

// replaceable reports whether another worker could take over the shards of this one.
func (e *Engine) replaceable() bool { return e.seat.capable() && !e.leave.on && e.others() }

// loseSeat ends every tenure. All that was known of the fleet is dropped, because it was known to another incarnation.
func (e *Engine) loseSeat(cause event.Cause, err error) {
	e.lose(&e.seat, cause, err)
	e.reads.forget()
	e.peers, e.owners, e.follow, e.watch, e.sweep, e.draft = peers{}, owners{}, follow{}, watch{}, sweep{}, draft{}
	e.turn.large, e.duty = false, duty{light: e.duty.light} // if it plans next, it reads the source and the rows again
	e.facts, e.wishes, e.news = facts{next: Never}, wishes{}, news{}
}

// tend does what is due for one shard.
func (e *Engine) tend(s *shard) { e.common.tend(e, &e.seat, s) }

// fill adds whether this worker's source has ceased to list a shard that it holds.
func (e *Engine) fill(s *shard, w *self) {
	w.unlisted = s.t != nil && s.t.unlisted(&e.turn, s.name, &e.feed)
}

// acquire makes the next step for a shard that the plan may assign to this worker. It requests one more only when it
// follows the plan that it knows.
func (e *Engine) acquire(s *shard, w self, h *happened) {
	s.acquire(&e.turn, member{
		self: w, room: e.shards.asks < e.turn.cfg.MaxMoves && e.follow.revision >= e.watch.plan.Revision,
		health: &e.health, fleet: &e.fleet, feed: &e.feed, shards: &e.shards,
	}, h)
}

// happened draws the conclusions of what a shard reports that concern more than this shard: news for the seat, facts for
// plans, faults, and what to list or read soon.
func (e *Engine) happened(s *shard, h happened) {
	t := &e.turn
	e.common.happened(&e.seat, s, h)
	if h.finished {
		e.news.add(t, lease.NewsFinished, s.name, e.follow.revision)
		e.facts.finish(t.step, s.name)
	}
	if h.unlisted && e.feed.tells(s.name, s.row.copy.Row().Generation) {
		e.news.add(t, newsUnlisted, s.name, e.follow.revision)
		e.facts.leave(t, s.name, &e.feed)
	}
	if h.declined {
		e.news.add(t, lease.NewsDeclined, s.name, 0)
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
		h.removed = e.news.add(t, newsRemoved, s.name, e.follow.revision)
	}
	if h.removed {
		e.facts.bury(t.step, s.name)
	}
	if h.back {
		e.news.drop(t, func(n lease.News) bool { return n == lease.News{Kind: newsRemoved, Shard: s.name} })
	}
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
	case lease.KindPlan:
		if e.draft.swap.is(in.Write) {
			e.planSettled(in)
		} else if now := e.duty.settled(t, in, e.rank()); now.Revision > 0 {
			e.sawPlan(t, now, e.watch.wishes, 0)
		}
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
		dead := e.proofs.of(lease.Incarnation(in.Write.Key().Name))
		evicted, alive := e.peers.settled(t, e.seat.me, in)
		if evicted {
			e.watch.self, e.watch.orphans = true, true
			if dead != nil {
				e.watch.again = min(e.watch.again, e.watch.since.Add(apartProof))
			}
		}
		if alive && dead != nil { // a heartbeat came first: it may have been on its way when the worker died
			dead.step, e.reads.seats.wanted = t.step, true
		}
		if e.reads.look(t, 0); evicted || alive {
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
	e.reads.near(t.now.Mono.Sub(sent))
	now := e.seat.row
	e.watch.self = e.watch.self || was.Leaving != now.Leaving || was.Freed != now.Freed || ails(was.Health, now.Health)
	e.shards.publish(t, now.Wants)
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
	case lease.KindSeat:
		if e.owners.got(t, in) {
			inc := lease.Incarnation(in.Key.Name)
			if seats, known := e.owners.shown(inc); known {
				e.readWants(seats, inc)
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
		if e.tend(s); first && !e.shards.reading() {
			e.shards.tendAll(t)
		}
		for _, child := range e.shards.children(s) {
			e.tend(child)
		}
	}
}

// reconcile makes the shards follow the target. It sets their aims and makes them due. A held shard that the target
// lacks goes on: its owner waits for a request.
func (e *Engine) reconcile() {
	t, hold := &e.turn, e.follow.target.Hold
	if !e.watching() {
		e.peers = peers{} // the seats were listed for what it was to do before
	}
	e.shards.knowAll(hold, t.cfg.Group, e.seat.me)
	// A row that a recent listing has lacked is created without being read first. If it exists, that is refused.
	lacked := e.facts.begun > 0 && t.now.Mono < e.reads.rows.asked.Add(t.cfg.TTL)
	at := 0
	for _, s := range e.shards.all { // both are sorted
		mine := at < len(hold) && hold[at].Shard == s.name
		s.aim.sure, s.aim.mine, s.aim.given, s.aim.others = s.aim.sure && s.aim.mine == mine, mine, s.aim.given && !mine, false
		if !s.aim.mine {
			continue
		}
		if lacked && e.facts.find(s.name) == nil {
			s.row.known = true
		}
		s.parents = hold[at].Parents
		if src := e.feed.find(s.name); src != nil {
			if s.weight = src.Weight; len(s.parents) == 0 {
				s.parents = src.Parents
			}
		}
		at++
		if e.shards.declines(t, s.name, e.health.resting(t), &e.feed) {
			e.news.add(t, lease.NewsDeclined, s.name, 0)
		}
	}
	e.reads.expect(t, e.watch.wishes.WriteID)
	if e.duty.light { // it does not poll, so what it knows of the source grows old
		e.feed.forget(func(name string) bool { s := e.shards.find(name); return s != nil && (s.aim.mine || s.t != nil) })
	}
	for _, give := range e.follow.target.Give {
		s := e.shards.find(give.Shard)
		switch {
		case s == nil:
		case give.To == e.seat.me: // an audit has found no owner of its row, or the planner's source lacks the shard
			s.get(t)
			if s.t != nil {
				e.feed.doubt(t)
			}
		default:
			s.aim.given = true
		}
	}
	e.shards.forgetIdle(t)
	e.owners.prune(t)
	e.shards.tendAll(t)
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
	if !of.answered(t, r.away, most, in.Err) {
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
		e.sawRows(in, of.begun)
	case &r.targets:
		e.watch.check = true
		e.facts.sawTargets(of, in, e.watch.plan)
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

// sawSeats takes a listing of the seats, with the plan and the wishes. Four parts learn from it: owners, if it was made
// for them; peers, who is alive; watch and duty, the plan; and the holders of shards, what is requested of them.
//
// begun is 0 for a listing that may lag behind: such a one shows no older plan than the known one, and nobody gone.
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
		e.readWants(sight.seats, "")
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
	e.shards.look(t, e.watch.looks, e.seat.me)
	e.watch.looks = nil
	if e.watching() { // the others leave the report to those that list the seats all the time
		e.faults.unreadable(t, lease.KindSeat, in.Unreadable, !r.lax)
	}
	for _, seat := range sight.seats {
		if old := olds.find(seat.Incarnation); e.watching() && (old == nil && seat.Freed > 0 || old != nil && seat.Freed != old.seat.Freed) {
			e.facts.heed(t, seat.News, &e.feed)
		}
	}
	e.readWants(sight.seats, "")
}

// readWants notes which of this worker's shards others request, as seats show that were listed, or
// the one seat of only. A request of a generation that this worker does not hold is ignored, unless it says that the
// row names this worker. Then it reads the row.
func (e *Engine) readWants(seats []lease.Seat, only lease.Incarnation) {
	t := &e.turn
	for _, s := range e.shards.all {
		if s.t != nil && s.t.give != nil && (only == "" || s.t.give.to.Incarnation == only) {
			s.t.give.wanted = false
		}
	}
	gone := func(inc lease.Incarnation) bool {
		return (only == "" || only == inc) && !slices.ContainsFunc(seats, func(s lease.Seat) bool { return s.Incarnation == inc })
	}
	for _, seat := range seats {
		if newer := e.owners.find(seat.Incarnation); newer != nil && newer.seat.Beat > seat.Beat {
			seat = newer.seat // the listing lags behind
		}
		if seat.Leaving {
			continue
		}
		for _, w := range seat.Wants {
			s := e.shards.find(w.Shard)
			switch {
			case s != nil && s.t != nil && w.Generation == s.t.generation:
				s.t.wantedBy(t, seat.Owner(), w.Terms, gone)
			case w.Owner == e.seat.me && (s == nil || s.t == nil && s.row.generation <= w.Generation):
				// A row that names this worker, which does not know of it.
				s = e.shards.know(w.Shard, t.cfg.Group, e.seat.me)
				s.get(t)
			}
		}
	}
	for _, s := range e.shards.all {
		if s.t.moving() {
			if s.t.offer.to != "" && (!t.large || !s.t.give.stands()) { // see tenure.watchOffer
				s.get(t)
			}
			e.tend(s)
		}
	}
}

// sawRows takes a complete listing of the rows: for plans, and for the shards of this worker. A row that names this
// worker makes the shard known, so that it is started or given back. begun is the step in which the listing was sent.
func (e *Engine) sawRows(in Listed, begun order) {
	e.watch.check = true
	t := &e.turn
	e.faults.unreadable(t, lease.KindLease, in.Unreadable, true)
	for _, u := range in.Unreadable {
		if s := e.shards.find(u.Key.Name); s != nil { // what cannot be read is not written over
			s.row.malformed, s.row.answered = true, t.now.Mono
		}
	}
	e.facts.saw(t, begun, in)
	e.facts.relist(t, &e.feed)
	for _, record := range in.Records {
		at, ok := record.(lease.Row)
		if !ok {
			continue
		}
		s := e.shards.find(at.Shard)
		if s == nil && at.Owner.Incarnation == e.seat.me && begun > e.shards.gone {
			s = e.shards.know(at.Shard, t.cfg.Group, e.seat.me)
		}
		if s != nil {
			s.saw(t, at)
		}
	}
	for _, s := range e.shards.all {
		if of := e.facts.find(s.name); of == nil && s.row.read < begun && (s.t != nil || s.row.generation != 0 && !s.row.copy.Row().Removed) {
			s.get(t) // the row is gone, or has become a tombstone
		}
	}
	e.retire()
	e.shards.tendAll(t)
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
	if !e.seat.capable() {
		return
	}
	const most = 8
	n := 0
	for _, of := range e.facts.all {
		if n < most && of.finished && e.feed.omits(of.name, of.ended) {
			n++
			s := e.shards.know(of.name, e.turn.cfg.Group, e.seat.me)
			s.aim.retire = true
		}
	}
}

// keepReading sends the listings that are due. Watchers list the seats; the other workers, and all of a large fleet, read
// the plan by a listing of one record. Owners that have something to give look for requests.
func (e *Engine) keepReading() {
	t, r := &e.turn, &e.reads
	e.keepAuditing()
	if r.targets.due(t) {
		r.targets.send(t, lease.Query{Kind: lease.KindTarget})
	}
	if r.rows.due(t) {
		e.facts.asked = e.watch.plan.Revision
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
			r.plan.send(t, lease.Query{Kind: lease.KindSeat, Eventually: true, Limit: 1})
		}
	}
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
		e.wishes.keep(t, e.watch.wishes, t.now.Wall, func(i int) bool { return e.watch.unread(t, i) })
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

// considerPlan begins a draft if a plan is due. It is called in every step and costs much, so it returns at once unless
// something has changed (watch.check) or a time has come (watch.next). Otherwise it also asks for the listings without
// which it cannot tell.
func (e *Engine) considerPlan() {
	t, w, f := &e.turn, &e.watch, &e.facts
	if e.peers.seen == 0 { // this worker has not listed the seats since it watches
		return
	}
	if !w.check && t.before(w.next) {
		return
	}
	// t.wake is Never meanwhile, so that it shows for which times the questions below wait. The earliest becomes w.next.
	w.check, w.next = false, Never
	wake := t.wake
	defer func() { w.next, t.wake = min(w.next, t.wake), min(wake, t.wake) }()
	t.wake = Never
	added, unknown := f.added(&e.feed, w.plan)
	stale := f.placed.revision != w.plan.Revision && !w.plan.Open && w.plan.Revision != 0
	heeds := !t.large || e.first()
	if heeds && !stale {
		looks := f.heedLooks()
		if t.large { // in a small fleet each worker finds the command itself
			w.stray(looks)
		}
	}
	seats := e.seats()
	mended, look := w.mended(t, &f.pages, seats)
	look = look || heeds && stale && f.looks()
	e.reads.targets.wanted = e.reads.targets.wanted || look && !e.reads.targets.sent
	now := e.due(t, seats, int64(len(f.placed.names)+len(added)) > w.plan.Shards && !stale || mended)
	// Only the source names the unplaced shards without a row: wait for its first listing.
	if now && w.plan.Unplaced > 0 && e.feed.awaited(t) {
		now = false
	}
	if now && (e.first() || !t.large || e.feed.answered || e.feed.complete > 0) {
		e.draft.begin(t, w.plan)
		e.reads.seats.wanted, e.reads.targets.wanted = true, true
		e.reads.rows.wanted = e.reads.rows.wanted || e.draft.rows
		return
	}
	e.reads.look(t, w.pace(t))
	if w.waits == 0 && w.plan.Revision != 0 { // a draft would list these itself
		e.reads.targets.wanted = e.reads.targets.wanted || stale && (len(added) > 0 || unknown || f.back())
		e.reads.rows.wanted = e.reads.rows.wanted || !stale && unknown
	}
	e.news.settled(e.seat.row.Freed, w.plan.Revision, w.waits > 0 || w.plan.Open || w.spoilt != nil)
}

// gather opens the next revision when everything is read that it is made from. That may take several steps; the stage is
// made again in each, from what is known then.
func (e *Engine) gather() {
	t, w, seats := &e.turn, &e.watch, e.seats()
	switch e.draft.gather(t, stage{
		plan: w.plan, spoilt: w.spoilt != nil, stored: w.wishes, me: e.seat.row, seats: seats, begun: e.peers.begun,
		still: t.now.Mono >= w.still(e.peers.changed) && !e.manyLate(t, len(seats)), facts: &e.facts, feed: &e.feed,
		bars:   func(shard string) bool { return e.feed.bars(t, shard) },
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
	e.facts.planned(now.Revision, d.next)
	w.again, w.self, w.waits = t.now.Mono.Add(apart), false, 0
	if mine := slices.IndexFunc(d.next, func(next lease.Target) bool { return next.Incarnation == e.seat.me }); mine >= 0 && !slices.Contains(e.facts.pages.broken, e.seat.me) {
		e.follow.adopt(now.Revision, d.next[mine], 0)
		e.faults.unreadable(t, lease.KindTarget, nil, true)
		e.reconcile()
	}
	*d = draft{}
}

// malformed reports whether a record is there and cannot be read.
func malformed(err error) bool { return errors.Is(err, lease.ErrMalformed) }

// writtenBy returns the write that made a malformed record what it is; empty: that cannot be read either.
func writtenBy(err error) lease.WriteID {
	if of, ok := errors.AsType[*lease.MalformedError](err); ok && of != nil {
		return of.WriteID
	}
	return ""
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
		e.facts, e.sweep = facts{next: Never}, sweep{}
	}
}

// keepWatching evicts, and in a large fleet ticks. A worker that may not claim evicts all the same: a dead seat is dead
// also in a restored table, and the deletion is conditional.
func (e *Engine) keepWatching() {
	t, rank := &e.turn, e.rank()
	if t.cfg.Deathwatch {
		e.proofs.lapse(t)
		e.proofs.adjust(t, &e.peers, e.seat.former, rank >= 0)
		e.proofs.keep(t, &e.peers, &e.faults.unwatched)
		e.reads.seats.wanted = e.proofs.looks(t) && e.watching() || e.reads.seats.wanted
	}
	if e.watching() && e.peers.evict(t, e.seat.former, e.duty.reserve(t, rank), &e.proofs, e.proofDelay()) {
		e.reads.seats.wanted = e.reads.seats.wanted || e.proofs.any()
		e.reads.seats.soon(t, 0)
	}
	if t.large && e.seat.capable() && e.watch.spoilt == nil && (rank == 0 || !e.leave.on) {
		e.duty.late = e.watch.orphans || e.peers.late(t) > 0
		e.duty.keep(t, e.seat.row.Owner(), e.watch.plan, rank, e.vacant())
	}
}

// keepAuditing lists the rows from time to time: in a large fleet page by page. Audits find what
// somebody has changed by hand, and commands whose wish was lost.
func (e *Engine) keepAuditing() {
	t, f := &e.turn, &e.facts
	if !e.audits() {
		return
	}
	if t.large && e.sweep.on { // the next audit begins when this one has ended
		e.sweep.keep(t)
		return
	}
	due := t.now.Mono >= f.next
	if due || f.next == Never || !t.large && e.reads.rows.wanted {
		f.next = t.now.Mono.Add(t.jitter(t.cfg.Audit))
	}
	t.at(f.next)
	if !t.large {
		e.reads.rows.wanted = e.reads.rows.wanted || due
		return
	}
	if due {
		e.sweep.begin(t, e.watch.plan)
	}
}

// swept takes the rows as an audit has found them in a large fleet. The next plan asks a worker to read its row
// again in two cases. A shard of the plan has no living owner: somebody has taken it away by hand, and its worker
// does not know. Or the source has ceased to list a held shard: only the first watcher polls, and the owner does
// not know.
func (e *Engine) swept() {
	w, sweep := &e.watch, e.sweep
	e.sweep, e.facts.asked = sweep.over(), sweep.revision
	e.sawRows(sweep.found, max(e.facts.begun, 1)) // it may be old: no plan is made from it
	if w.plan.Open || w.plan.Revision != sweep.revision || w.waits > 0 || sweep.since < w.since.Add(e.turn.cfg.TTL) {
		return
	}
	w.strays = nil
	for i := range e.facts.all {
		of := &e.facts.all[i]
		if of.over() || !of.begun || !e.facts.isPlaced(of.name) {
			continue
		}
		owner := e.peers.find(of.owner)
		if held := owner != nil || of.owner == e.seat.me; !held && !e.declined(of.name) {
			w.strays = append(w.strays, of.name)
		} else if omits := e.feed.omits(of.name, of.known); !omits {
			of.asked = false
		} else if held && !of.asked && !e.turn.cfg.KeepUnlisted {
			w.strays = append(w.strays, of.name)
		}
	}
}
