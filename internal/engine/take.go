package engine

import (
	"cmp"
	"time"

	"github.com/shardlease/shardlease-go/internal/handoff"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Claiming free shards, and requesting those that another worker holds.
//
//	assigned → row read → free: claimed
//	                    → its owner has no seat: claimed
//	                    → held: prepared for → requested → taken over, or handed over
//
// handoff.Successor decides each step of a move.
//
// Called by the spine of a worker: acquire; shards.publish when a request is stored, owners
// with reads of single seats. A session uses owners, giveBack and setAside too.
//
// A request is a line on this worker's own seat (lease.Want). It names the generation that it asks for, so
// a request that was served, or that came too late, means nothing. It needs no write of the row: while a shard
// is held, only its holder writes the row.
//
// After every write here that is stored, a crash leaves a row that another worker can act on without knowing
// what this worker intended: free, quarantined, a tombstone, or in the name of a worker whose seat expires.
//
// Invariant: a shard that nobody has held yet is claimed only when the rows of its parents show
// that they are processed. The plan says so too, but it may be out of date.
// Invariant: a row is taken from its owner without the owner's consent only if a consistent read
// that began after the row was read has found no confirmed seat of the owner, or if the terms of
// a move allow to force it. Had the seat been read before the row, a newcomer's claim would be
// stolen.

// acquire makes the next step for a shard that this worker does not hold, and of which no write is open.
//
// The row comes first: if it names this worker, the shard is started or given back, whether or not the plan
// still assigns it. Otherwise the aim decides.
func (s *shard) acquire(t *turn, w member, h *happened) {
	switch s.row.copy.Reconcile(false, w.leaving || s.running != 0) {
	// The worker leaves, or its last handler of this shard still runs: it cannot start a tenure, so another worker
	// is to have the shard. Unless the worker leaves, aim.rest keeps it from repeating the write all the time.
	case protocol.GiveBack:
		if w.leaving || !s.before(t, s.aim.rest) {
			s.giveBack(t, w.self, lease.ReasonReleased)
		}
		return
	// This generation was never started: the claim is stored, or the owner has handed the shard over, perhaps
	// after this worker has ceased to request it.
	case protocol.StartIt:
		if w.feed.bars(t, s.name) { // the release writes "unlisted" into the row, where all workers read it
			s.giveBack(t, w.self, lease.ReasonUnlisted)
			return
		}
		if s.ask != nil {
			h.served = s.ask.owner
		}
		s.start(t)
		return
	// The tenure of this generation is over, and its end did not reach the row. One generation is one tenure, so
	// the worker begins the next generation.
	case protocol.ClaimAgain:
		s.claim(t, w, false, h)
		return
	}
	switch {
	case s.aim.retire && !w.leaving:
		s.remove(t)
	// Nothing to do for this worker. If the plan assigns the shard to it and its last handler does not return, or it has as
	// many shards as it may, the worker declines the shard, and the next plan gives it to another.
	case w.leaving || s.running != 0 || !s.aim.mine || s.aim.excess:
		s.retire(t, w.me())
		s.watchLeft(t, w.self)
		h.declined = s.aim.mine && (s.aim.excess || s.lingers(t))
	// Its own handler has just given the shard up. A shard that has failed too often does not wait: it is judged, and
	// perhaps quarantined.
	case !s.exhausted(t.cfg.MaxAttempts, false) && (s.before(t, s.aim.rest) || s.aim.others && w.fleet.others() && s.before(t, s.aim.leave)):
	// A row that cannot be read is not written over: it is read until it can be.
	case !s.row.known || s.row.malformed:
		s.get(t)
	default:
		if t.now.Mono >= s.aim.rest {
			s.aim.rest = 0
		}
		if s.before(t, w.raiser.from(t, w.shards)) {
			return
		}
		// An unwell worker tries one shard at a time.
		if w.health.unwell() {
			busy := w.health.tries(t, w.shards.find(w.health.trial))
			if s.before(t, w.health.from(t, s.name, busy)) {
				return
			}
			h.tried = !busy
		}
		s.seek(t, w, h)
	}
}

// giveBack releases a shard without having started a tenure. A crash before the write is stored leaves the row in
// the name of this worker: its seat expires, and another worker recovers it.
func (s *shard) giveBack(t *turn, w self, why lease.Reason) {
	if s.row.behind && s.before(t, s.aim.rest) { // also when the worker leaves: the release would be refused again
		return
	}
	at := s.row.copy.Row()
	hold := lease.Hold{Key: s.row.copy.Key(), Incarnation: w.me(), Generation: at.Generation, Order: t.cfg.Order}
	wr, err := release(t, at, hold, protocol.End{Reason: why, Note: "not started"}, true)
	s.send(t, givingUp, wr, err)
}

// remove makes a tombstone of a finished row. A tombstone keeps the generation, so the shard never gets an old
// generation if the source lists it again. A command that has changed the row since it was read is not undone: the
// swap is then refused.
func (s *shard) remove(t *turn) {
	switch at := s.row.copy.Row(); {
	case !s.row.known:
		s.get(t)
	case at.Finished:
		s.aim.retire = false
		w, err := protocol.Remove(at, protocol.Command{Seen: at.Generation, By: t.cfg.Name, Note: "listed no more"}, t.stamp())
		s.send(t, removing, w, err)
	default:
		s.aim.retire = false
	}
}

// retire makes the rows of these finished shards tombstones: see remove.
func (l *shards) retire(t *turn, me lease.Incarnation, names []string) {
	for _, name := range names {
		l.know(name, t.cfg.Group, me).aim.retire = true
	}
}

// seek makes the next step towards a shard that the plan assigns to this worker.
func (s *shard) seek(t *turn, w member, h *happened) {
	at := s.row.copy.Row()
	switch {
	// A tombstone says that a source has omitted the shard. The spine publishes that, and polls the source. Only a
	// listing that was asked for since this worker saw the tombstone revives the shard.
	case at.Removed && !w.feed.relisted(s.name, s.row.read):
		h.buried = true
		s.at(t, t.now.Mono.Add(t.cfg.Poll))
		return
	// This worker's source does not list the shard, and nobody holds it.
	case w.feed.bars(t, s.name) && (at.Generation == 0 || left(at)):
		s.leaveAlone(t, w, h)
		return
	// Parents come first. A shard that somebody has held before needs no check.
	case !begun(at) && !w.shards.ready(t, w.feed, w.me(), s.lineage()):
		s.at(t, t.now.Mono.Add(t.beat))
		return
	// A crash after it leaves a free row. The claim is the next step, when the answer is read.
	case at.Generation == 0:
		wr, err := protocol.Begin(t.cfg.Group, s.name, s.parents, t.cfg.Name, t.stamp())
		s.send(t, making, wr, err)
		return
	case at.Removed:
		wr, err := protocol.Revive(at, s.parents, t.cfg.Name, t.stamp())
		s.send(t, reviving, wr, err)
		return
	case (at.Finished || at.Quarantined) && !s.aim.sure: // a command may have changed that since the row was read
		s.get(t)
		return
	// The plan was made without this knowledge. The news makes the next plan leave the shard out. A quarantined
	// shard counts as finished in that, because it needs no worker either.
	case at.Finished || at.Quarantined:
		s.aim.mine = false
		h.finished = true
		return
	case at.Owner.IsZero():
		s.claim(t, w, false, h)
		return
	}
	// While the rows of a new target are being read, wait for a moment: then one read of a seat answers for all
	// shards of that owner.
	if until := s.row.since.Add(t.beat / 64); t.now.Mono < until && w.shards.reading() {
		s.at(t, until)
		return
	}
	switch state, seat := w.fleet.owner(t, at.Owner.Incarnation, s.row.read); state {
	// A leaving owner hands its shards over, and then deletes its seat. Both may have been stored after the row was
	// read, so a requested row is read once more before it is recovered.
	case gone:
		if s.requests() && !s.final(t) { // it may have handed the shard over before it left
			s.get(t)
			return
		}
		s.callOff(t, w.me())
		s.claim(t, w, !(seat.Leaving && protocol.Untouched(at)), h)
	case alive:
		s.pursue(t, w, seat, h)
	default:
		s.at(t, t.now.Mono.Add(t.beat/16))
		if s.ask != nil { // the move goes on while the owner is looked for
			s.pursue(t, w, seat, h)
		}
	}
}

// leaveAlone gives up the attempt to get a shard that this worker's own source no longer lists. The worker
// declines the shard: other workers may have sources that list it.
func (s *shard) leaveAlone(t *turn, w member, h *happened) {
	s.retire(t, w.me())
	at := s.row.copy.Row()
	h.declined, h.unlisted = true, at.Generation == 0 || left(at)
}

// lineage returns the parents of the shard. If the row has some, these count: the plan and the source may have been
// read before the row was made.
func (s *shard) lineage() []string {
	if at := s.row.copy.Row(); len(at.Parents) > 0 && !at.Removed {
		return at.Parents
	}
	return s.parents
}

// claim takes a shard that nobody holds, or whose owner has no seat any more. died: the owner has died, which is a
// failed attempt; false if the owner was leaving and never started the shard. If the shard has failed too often and the
// failures are its own, claim quarantines it instead.
//
// A claim begins a new generation: once it is stored, no write of an earlier owner is. A crash before this worker
// reads the answer leaves a row in its name without a handler.
func (s *shard) claim(t *turn, w member, died bool, h *happened) {
	at := s.row.copy.Row()
	switch when := max(s.claimable(t), s.aim.rest, s.reserved(t)); {
	case s.setAside(t, died, t.cfg.MaxAttempts, w.fleet.listedSince, h):
	case s.before(t, when):
		h.kept = s.kept(t)
	case died:
		wr, err := protocol.Recover(at, w.owner, t.stamp())
		s.send(t, claiming, wr, err)
	case !at.Owner.IsZero() && at.Owner.Incarnation != w.me():
		wr, err := protocol.Inherit(at, w.owner, t.stamp())
		s.send(t, claiming, wr, err)
	default:
		wr, err := protocol.Claim(at, w.owner, t.stamp())
		s.send(t, claiming, wr, err)
	}
}

// setAside quarantines a shard that has failed too often, if the failures are its own, and reports whether nobody may
// claim it now. seats returns the seats of a listing that began after the row
// was known in the given step, if there was one.
func (s *shard) setAside(t *turn, died bool, most int64, seats func(since order) ([]lease.Seat, bool), h *happened) (busy bool) {
	at := s.row.copy.Row()
	if !s.exhausted(most, died) {
		return false
	}
	switch all, known := seats(s.row.read); {
	// Whose fault the failures are depends on the other workers: list the seats first.
	case !known:
		h.suspects = true
		s.at(t, t.now.Mono.Add(t.beat/16))
	case !atFault(at, died, all, most):
		return false
	// If the row has changed since it was read, the write is refused, and the refusal shows the row: a commit may have
	// ended the count. Only an operator ends a quarantine, so a crash after this write leaves nothing to do.
	default:
		reason := at.Last.Reason
		if died {
			reason = lease.ReasonExpired
		} else if protocol.EndingOf(reason) != protocol.Failed {
			reason = lease.ReasonFailed
		}
		wr, err := protocol.Quarantine(at, protocol.Command{Seen: at.Generation, By: t.cfg.Name, Note: "too many attempts"}, reason, t.stamp())
		s.send(t, quarantining, wr, err)
	}
	return true
}

// claimable returns from when on this worker may claim the shard: after a pause that grows with
// the number of tenures that failed. The death of an owner delays nothing.
func (r *row) claimable(t *turn) Instant {
	at := r.copy.Row()
	failed := at.Owner.IsZero() && protocol.EndingOf(at.Last.Reason) == protocol.Failed
	if n := at.Failed(); failed && n > 0 {
		return r.since.Add(backoff(n, t.cfg.Backoff, t.cfg.MaxBackoff))
	}
	return 0
}

// reserved returns until when a released shard is reserved for another worker or session, or for nobody; 0: it is not
// reserved. The end of a reservation for a name is also computed from the wall clock, for a process that starts again
// and again: such a process would never see a whole reservation pass.
//
// Invariant: for this process a reservation ends at the latest when Reservation.Delay and Reservation.Lasts have passed
// since the process first saw the row, whatever the clocks of others show.
// Invariant: nobody claims a lease before its Reservation.Delay has passed since the command, whatever wall clocks show,
// unless a later command ends the reservation.
func (r *row) reserved(t *turn) Instant {
	at, until := r.copy.Row(), r.delayed()
	if of := at.Reserved; of.For != "" && of.For != t.cfg.Name {
		lasts := of.Delay + of.Lasts
		left := max(0, at.Last.At.Add(lasts).Sub(t.now.Wall))
		return max(until, min(r.since.Add(lasts), t.now.Mono.Add(left)))
	}
	return until
}

// keptFor is for how much longer than a lease time a reservation may keep a shard from its worker before that is a
// fault. If there is a worker with the reserved name, the next plan assigns the shard to that one.
const keptFor = 2 * time.Second

// kept returns since when a reservation for another name keeps this worker from a shard that the plan assigns to it; 0:
// none does, or not for long. Perhaps no worker has the name.
func (s *shard) kept(t *turn) Instant {
	of := s.row.copy.Row().Reserved
	if !s.aim.mine || of.For == "" || of.For == t.cfg.Name || s.reserved(t) <= t.now.Mono || s.before(t, s.row.since.Add(t.cfg.TTL+keptFor)) {
		return 0
	}
	return s.row.since
}

// delayed returns until when the lock delay that a command has left in the row lasts; 0: no command has left one.
func (r *row) delayed() Instant {
	if delay := r.copy.Row().Reserved.Delay; delay > 0 {
		return r.since.Add(delay)
	}
	return 0
}

// exhausted reports whether the shard has failed too often to be tried again. The death of its owner
// (died) counts, as Recover will count it: a shard may kill its worker.
func (r *row) exhausted(most int64, died bool) bool {
	n := r.copy.Row().Attempts()
	if died && n < 1<<62 {
		n++
	}
	return most > 0 && n >= most
}

// An ask is the successor's side of a move. It exists from the first step of the move until a tenure of the shard
// begins here, or the move is called off. Only the request on the seat is visible to others.
type ask struct {
	requested  bool // the seat is to have the request; before, the worker prepares
	published  bool // the others can see the request
	hook       bool // the prepare hook was called
	prepared   bool // it has ended
	leaving    bool // the owner leaves
	generation int64
	owner      lease.Incarnation
	terms      rebalance.Terms
	cause      lease.MoveCause
	since      Instant       // when the move began; once requested, when it was requested, then when that was published
	looked     Instant       // when the row was last read for it
	pace       time.Duration // how soon to read it again at first
	gone       order         // the step that found the owner's seat gone; 0: none has
}

// requests reports whether this worker requests s.
func (s *shard) requests() bool { return s.ask != nil && s.ask.requested }

// final reports whether a read of the row was answered that began after its owner's seat was found gone. The first
// call notes the step.
func (s *shard) final(t *turn) bool {
	if s.ask.gone == 0 {
		s.ask.gone = t.step
	}
	return !s.row.try.sent && s.row.asked >= s.ask.gone
}

// incoming returns the move of this shard to this worker: the one under way, or one that begins now; nil: there is none yet.
// owner is the seat of the row's owner, as last read; it is zero if no read has shown it yet.
func (s *shard) incoming(t *turn, w member, owner lease.Seat) *ask {
	at := s.row.copy.Row()
	switch {
	// The shard has changed hands. The request names a generation that is over, so the move begins again with the
	// present owner.
	case s.ask != nil && at.Generation != s.ask.generation:
		s.callOff(t, w.me())
		s.at(t, t.now.Mono)
	// A move is under way, or this worker pauses, or has no room: the end of another move makes some.
	case s.ask != nil, s.before(t, s.aim.paused), !w.room:
	// Reads of the row fail: nobody would process the shard from the hand-over until this worker learns of it. If listings
	// show the row, only single reads are denied, and takeovers replace them soon (reach).
	case s.row.unread > 0 && !s.row.replaced():
		s.get(t)
	// The strategy is asked once. Its terms stay those of this move.
	default:
		cause := w.cause
		if owner.Leaving { // also if the plan moves it for another cause: the owner waits only for a while
			cause = lease.MoveCause{Why: rebalance.Leaving}
		}
		s.ask = &ask{
			generation: at.Generation, owner: at.Owner.Incarnation, leaving: owner.Leaving, terms: s.terms(t, cause.Why), cause: cause, since: t.now.Mono,
		}
	}
	return s.ask
}

// pursue makes the next step of a move to this worker. owner is as for incoming.
func (s *shard) pursue(t *turn, w member, owner lease.Seat, h *happened) {
	if w.feed.bars(t, s.name) {
		s.leaveAlone(t, w, h)
		return
	}
	a, at := s.incoming(t, w, owner), s.row.copy.Row()
	if a == nil {
		return
	}
	// The patience of a request begins when the request is published: the owner cannot see it before.
	since := t.now.Mono.Sub(a.since)
	if a.requested && !a.published {
		since = 0
	}
	// An owner with a longer lease time looks for requests less often.
	notice := max(t.beat, owner.TTL/3)
	switch handoff.Successor(a.terms, handoff.Taking{
		Prepared: a.prepared, PreparingFor: since, Asked: a.requested, AskedFor: since, Beat: notice, Offered: at.OfferedTo == w.me(),
	}) {
	case handoff.Prepare:
		if !a.hook {
			a.hook = true
			t.do(Prepare{Shard: s.describe(), Checkpoint: at.Checkpoint, For: a.terms.Prepare})
		}
		s.at(t, a.since.Add(a.terms.Prepare))
	// The spine publishes the request with a heartbeat at once (fleet.hurry). A crash leaves it on a seat that
	// expires; no owner begins to serve a request whose seat is gone.
	case handoff.Ask:
		a.requested, a.since = true, t.now.Mono
		t.report(event.Event{Kind: event.Requested, Shard: s.name, Generation: at.Generation, Peer: at.Owner.Name, Terms: a.terms, Why: a.cause.Why})
		h.look = true
	// If the owner withdraws the offer first, the transfer is refused. If the transfer is stored first, every later
	// write of the owner is refused. It makes no difference whether the owner still lives.
	case handoff.Accept:
		h.served = a.owner
		wr, err := protocol.Because(a.cause)(protocol.Take(at, w.owner, t.stamp()))
		s.send(t, claiming, wr, err)
	// The owner may be alive and too slow. This write fences it, as a claim fences a dead owner.
	case handoff.Seize:
		wr, err := protocol.Because(a.cause)(protocol.Seize(at, w.owner, t.stamp()))
		s.send(t, claiming, wr, err)
	// A cooperative owner has not offered the shard in time. It still processes the shard, so the worker just tries
	// again after a heartbeat interval.
	case handoff.CallOff:
		s.aim.paused = t.now.Mono.Add(t.beat)
		s.retire(t, w.me())
		s.at(t, s.aim.paused)
	case handoff.Stay:
		s.watchRow(t, w.self, a, notice)
	}
}

// watchRow reads the row of a requested shard again and again until the request is served. After
// its patience a successor has all the time there is: its terms say so.
func (s *shard) watchRow(t *turn, w self, a *ask, notice time.Duration) {
	if !a.published {
		return
	}
	pace, until := a.pace, a.since.Add(handoff.Patience(a.terms, notice))
	switch {
	case !s.before(t, until):
		pace = t.beat
	case t.now.Mono.Sub(a.since) > movingPrompt:
		pace = max(pace, paceWaiting)
	}
	if at := a.looked.Add(pace); s.before(t, at) {
		return
	}
	a.looked = t.now.Mono
	s.reach(t, w)
}

// reach reads the row of a shard that its owner may have handed over to this worker. While reads of the row fail, reach
// also sends a takeover, as if the owner had offered the shard. If the owner has not, the table refuses the takeover, and
// the refusal shows the row, which may name this worker. There is one takeover per lease time, or, if only single reads
// fail, one for each read.
func (s *shard) reach(t *turn, w self) {
	r, pause := &s.row, t.cfg.TTL
	if r.replaced() {
		pause = t.beat / 8
	}
	if s.get(t); r.unread == 0 || w.leaving || t.now.Mono < max(r.unread, r.probed).Add(pause) {
		return
	}
	r.probed = t.now.Mono
	wr, err := protocol.Because(w.cause)(protocol.Reach(r.copy.Row(), w.owner, t.stamp()))
	s.send(t, claiming, wr, err)
}

// brisk is how soon the row of a requested shard is read again at first. A worker that joins a
// large fleet requests many shards, and waits until their owners have read the plan. An owner that
// leaves looks for requests all the time.
func (a *ask) brisk(t *turn) time.Duration {
	if t.large && !a.leaving {
		return paceSuspect
	}
	return paceMoving
}

// publish starts the time of the requests that the others can see from now on. An owner notices
// all that are for it at the same time. Until one is served, their rows are read in turn, each less
// often the more there are, and at least every paceSuspect. said is what the seat says, as stored.
func (l *shards) publish(t *turn, said []lease.Want) {
	of := map[lease.Incarnation]time.Duration{}
	for _, w := range said {
		of[w.Owner]++
	}
	nth := map[lease.Incarnation]time.Duration{}
	for _, w := range said {
		nth[w.Owner]++
		s := l.find(w.Shard)
		if s == nil || !s.requests() || s.ask.published || s.ask.generation != w.Generation {
			continue
		}
		a := s.ask
		a.published, a.since, a.pace = true, t.now.Mono, min(of[w.Owner]*a.brisk(t), paceSuspect)
		a.looked = t.now.Mono.Add(min(nth[w.Owner]*a.brisk(t), a.pace) - a.pace)
		s.at(t, t.now.Mono)
		l.due = t.now.Mono
	}
}

// hasten reads the rows soon that are requested from an owner that has begun to serve: one listing has shown it all
// requests, so it serves the others at about the same time.
func (l *shards) hasten(t *turn, owner lease.Incarnation) {
	for _, s := range l.all {
		if a := s.ask; a != nil && a.owner == owner && a.pace > a.brisk(t) {
			a.pace, a.looked = a.brisk(t), 0
			s.at(t, t.now.Mono)
			l.due = t.now.Mono
		}
	}
}

// terms asks the strategy for the terms of the move. A move of unknown cause counts as one for balance.
func (s *shard) terms(t *turn, why rebalance.Why) rebalance.Terms {
	return t.cfg.Handoff.Terms(s.name, cmp.Or(why, rebalance.Balance)).Fill(t.cfg.Drain)
}

// retire ends a move to this worker that has no result, if there is one.
func (s *shard) retire(t *turn, me lease.Incarnation) {
	if a := s.ask; a != nil {
		t.report(event.Event{Kind: event.Retired, Shard: s.name, Generation: a.generation, Peer: s.row.copy.Row().Owner.Name})
	}
	s.callOff(t, me)
}

// callOff ends the successor's side of a move, if there is one, also when the tenure starts. The request goes with
// the next heartbeat. The context of the prepare hook ends too, unless the row names this worker, me: then the
// preparation is for the tenure.
func (s *shard) callOff(t *turn, me lease.Incarnation) {
	if s.ask == nil {
		return
	}
	if s.ask.hook && (s.row.copy.Row().Owner.Incarnation != me || me == "") {
		t.do(CallOff{Shard: s.name})
	}
	// The owner may have read the request, and may still serve it: see watchLeft.
	if s.ask.requested && s.ask.generation == s.row.copy.Row().Generation {
		s.aim.left = t.now.Mono
	}
	s.ask = nil
}

// watchLeft reads the row of a shard that this worker has requested and requests no more. The owner
// may have handed it over before it saw that. In a large fleet, or if reads fail, nothing shows this worker that
// others then request the shard from it. A worker that leaves gives up its seat only after that: see leave.awaits.
func (s *shard) watchLeft(t *turn, w self) {
	unseen := t.large || s.row.unread > 0
	from, lasts, pace := s.aim.left, noticed(t), t.beat
	switch {
	case w.leaving:
		from, pace = w.said, min(t.beat/4, paceSuspect)
	case unseen:
		lasts = 2 * t.cfg.TTL
	}
	switch at, until := s.row.answered.Add(pace), from.Add(lasts); {
	case s.aim.left == 0 || from == 0:
	case t.now.Mono >= until:
		s.aim.left = 0
	case !unseen && !w.leaving:
	case s.before(t, min(at, until)):
	default:
		s.reach(t, w)
	}
}

// noticed is how long an owner may take to notice that a worker has ceased to request a shard, if the table answers.
// Until then it may hand the shard over to that worker.
func noticed(t *turn) time.Duration { return min(t.beat, longestPause) + paceSuspect }

// recall is called when the worker shuts down. It drops the requests that were called off so long ago that their owners
// have noticed.
func (l *shards) recall(t *turn) {
	for _, s := range l.all {
		if t.now.Mono >= s.aim.left.Add(noticed(t)) {
			s.aim.left = 0
		}
	}
}
