package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/handoff"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A shard is what this worker knows of one shard, and what it is doing about it.
type shard struct {
	name string
	tie  uint64

	// From the source.
	listed  bool
	named   bool  // by the listing that is being taken in
	absent  int32 // complete listings in a row that lacked it
	parents []string
	weight  int

	// From the table.
	copy       protocol.Copy
	generation int64   // of the copy's row, …
	since      Instant // … and when this worker first saw it
	read       order   // the step in which the copy's row became known
	gone       order   // the step in which its row was found to be gone
	asked      order   // the step since which a Get is …
	getting    bool    // … under way
	checked    Instant // when the row was last seen as it stands; for large fleets
	guess      guess   // whom it has gone to since, as far as can be told; for large fleets
	spare      int64   // the generation at which a leaving worker was left with it; for large fleets
	unread     bool    // the last Get of its row was not answered
	unwritable bool    // the last transition that was tried could not be made
	missing    bool    // the last listing lacked it, …
	malformed  bool    // … or could not read it

	// From the last plan.
	wake   Instant           // when it wants to be tended
	lying  Instant           // from when its lying there counts; 0: the last plan did not find it with nobody
	mine   bool              // to be claimed by this worker as soon as it may be
	wanted bool              // to be asked for
	orphan lease.Incarnation // its owner, proven gone
	bound  int               // where it is on its way to, in the view of one plan

	rest  Instant // this worker does not claim it again before
	early int64   // tenures in a row that its handler gave up without a checkpoint

	doing   doing // what the copy's open write is for
	try     retry // of that write
	running int64 // the generation whose handler has not returned; 0: none has been called
	t       tenure
	ask     *ask    // nil: none
	paused  Instant // it is not asked for before
	given   Instant // until then it may be given to this worker although it asks no more; for large fleets
}

// doing says what an open write of a row is for.
type doing uint8

const (
	nothing doing = iota
	creating
	reviving
	claiming
	quarantining
	removing
	committing // and progress
	offering
	withdrawing
	givingUp // yield, release
	finishing
)

// forget drops what this worker has done and planned as the incarnation it was,
// and goes on as me. A write that is open stays so for the table: it is one of an
// earlier incarnation's, and passes the fence or not.
func (e *Engine) forget(s *shard, me lease.Incarnation) {
	e.callOff(s)
	row := s.copy.Row()
	s.wake = e.now.Mono
	s.copy = protocol.NewCopy(s.copy.Key(), me)
	s.copy.Saw(row)
	s.doing, s.try, s.mine, s.orphan, s.guess = nothing, retry{}, false, "", guess{}
}

// tend does what is due for one shard.
//
// Invariant: decisions rest on the state alone and not on what was intended when
// a write was sent; so an answer of whatever kind needs no more than to be taken
// in, and the shard to be tended again.
func (e *Engine) tend(s *shard) {
	s.wake = Never
	row := s.copy.Row()
	if s.t.on && row.Generation > s.t.generation {
		if e.replaced(s); s.t.on {
			return // for a moment
		}
	}
	if s.t.on {
		e.noteOffer(s, row)
		e.keepCommitting(s)
		e.windDown(s)
	}
	if _, busy := s.copy.Open(); busy {
		e.sendAgain(s)
		return
	}
	switch {
	case s.t.on:
		e.serve(s)
	case e.capable():
		e.acquire(s)
	}
}

// at makes the engine tend s again at that instant.
func (e *Engine) at(s *shard, i Instant) {
	s.wake = min(s.wake, i)
	e.due = min(e.due, i)
}

func (e *Engine) sendAgain(s *shard) {
	w, _ := s.copy.Open()
	again := Never
	if s.try.due(e.now.Mono, &again) {
		s.try.sent = true
		e.do(Send{Write: w})
	}
	e.at(s, again)
}

// send makes w, which a transition gave, the open write of s. It reports whether
// the transition gave one.
func (e *Engine) send(s *shard, what doing, w lease.Write, err error) bool {
	if err == nil {
		err = s.copy.Send(w)
	}
	if s.unwritable = err != nil; s.unwritable {
		e.storeFailed(s.name, err)
		return false
	}
	s.doing, s.try = what, retry{sent: true}
	e.do(Send{Write: w})
	return true
}

// settled takes in the answer to a write.
func (e *Engine) settled(in Settled) {
	if in.Write.Key().Kind == lease.KindSeat {
		e.seatSettled(in)
		return
	}
	s := e.shard(in.Write.Key().Name)
	if s == nil {
		return
	}
	a := s.copy.Answer(in.Write, in.Record, in.Err)
	switch {
	case errors.Is(a.Err(), protocol.ErrNotOpen):
		return
	case a.Verdict == protocol.Unknown && e.waits(in.Err):
		s.try.sent, s.try.at = false, e.now.Mono.Add(min(e.beat/32, longestPause))
	case a.Verdict == protocol.Unknown:
		e.storeFailed(s.name, in.Err)
		s.try.failed(e.now.Mono, e.beat/32, e.beat/2)
	default:
		e.faults.answered = e.step
		e.rows = rowAnswers{last: e.now.Mono}
		what := s.doing
		s.doing, s.try = nothing, retry{}
		if s.copy.Row().Generation > 0 {
			e.news(s)
			e.checked(s)
		}
		e.answered(s, what, a)
		e.unsettle(s, a)
	}
	e.tend(s)
}

// waits reports whether a call ended only because it waited for its turn in a store that
// answers other calls. That is no fault: there are many calls, as at a cold start.
func (e *Engine) waits(err error) bool {
	return errors.Is(err, lease.ErrQueued) && e.now.Mono < e.rows.last.Add(e.cfg.TTL)
}

// unsettle is about an answer that should not be. A row that is gone, or another's
// under the same generation, leaves nothing to go on from but the next listing. And
// whatever it is, nothing is tried again for a while: it would be answered the same.
func (e *Engine) unsettle(s *shard, a protocol.Answer) {
	switch a.Verdict {
	case protocol.Conflict, protocol.Gone:
		if a.Verdict == protocol.Gone && a.Row.Generation > 0 {
			return // a tombstone
		}
		e.forget(s, e.seat.me)
		s.copy = protocol.NewCopy(s.copy.Key(), e.seat.me)
		s.copy.Saw(a.Row)
		s.generation = s.copy.Row().Generation
		e.wantRowsSoon()
	case protocol.WentBack:
	default:
		return
	}
	s.mine, s.rest = false, e.now.Mono.Add(e.cfg.TTL)
}

// answered draws the conclusions that the row alone does not show.
func (e *Engine) answered(s *shard, what doing, a protocol.Answer) {
	if a.Verdict == protocol.WentBack {
		e.seat.restored = true
		e.raise(&e.faults.restored, e.now.Mono, s.name, a.Err())
	}
	switch {
	case s.t.on:
		e.held(s, what, a)
	case a.Verdict != protocol.Stored:
		e.beaten(s, what, a)
	case what == creating || what == reviving:
		e.tell(event.Event{Kind: event.Created, Shard: s.name, Generation: s.copy.Row().Generation})
		s.mine = true // that it was to be made was for it to be claimed
	case what == quarantining:
		e.tell(event.Event{Kind: event.Quarantined, Shard: s.name, Generation: s.copy.Row().Generation, Reason: s.copy.Row().Last.Reason, Attempt: int(s.copy.Row().Attempts())})
	case what == removing:
		e.tell(event.Event{Kind: event.Removed, Shard: s.name})
	case what == givingUp: // a row that came to this worker without being started
		e.freed(s)
	}
}

// beaten handles a claim, or the creation of a row, that was refused. If the shard has changed
// hands the worker plans again: it has less than its part, or the shard is free again, and
// nothing else would make it plan before its audit.
func (e *Engine) beaten(s *shard, what doing, a protocol.Answer) {
	row := s.copy.Row()
	switch {
	case what == claiming && a.Verdict != protocol.Again:
		e.tell(event.Event{Kind: event.Contended, Shard: s.name, Generation: row.Generation, Peer: row.Owner.Name})
		s.mine = false
	case what == creating || what == reviving:
		s.mine = true // there is a free row or a tombstone: go on from that
	default:
		return
	}
	if a.Verdict == protocol.Overtaken {
		e.planAgain()
	}
}

// acquire is about a shard this worker has no tenure of.
func (e *Engine) acquire(s *shard) {
	row := s.copy.Row()
	switch s.copy.Reconcile(false, e.leave.on || s.running != 0) {
	case protocol.GiveBack:
		if e.now.Mono < s.rest {
			e.at(s, s.rest)
			return
		}
		h := lease.Hold{Key: s.copy.Key(), Incarnation: e.seat.me, Generation: row.Generation, Order: e.cfg.Order}
		w, err := protocol.Release(row, h, protocol.End{Reason: lease.ReasonReleased, Note: "not started"}, e.stamp())
		e.send(s, givingUp, w, err)
		return
	case protocol.StartIt:
		e.start(s)
		return
	case protocol.ClaimAgain:
		e.claim(s)
		return
	}
	if e.leave.on || s.running != 0 {
		e.callOff(s)
		return
	}
	if s.mine {
		e.claim(s)
		return
	}
	if s.wanted || s.ask != nil {
		e.pursue(s)
	}
}

// claim takes a shard that nobody holds, or makes the row of one that has none.
func (e *Engine) claim(s *shard) {
	row, me := s.copy.Row(), e.seat.seat.Owner()
	orphan := !row.Owner.IsZero() && row.Owner.Incarnation != e.seat.me
	unproven := orphan && s.orphan != row.Owner.Incarnation
	switch at := e.claimable(s); {
	case e.hearsay(s) && (s.guessed() || !unproven):
		e.get(s)
	case row.Generation == 0:
		w, err := protocol.Begin(e.cfg.Group, s.name, s.parents, e.cfg.Name, e.stamp())
		e.send(s, creating, w, err)
	case row.Removed && s.listed:
		w, err := protocol.Revive(row, s.parents, e.cfg.Name, e.stamp())
		e.send(s, reviving, w, err)
	case row.Removed || row.Finished || row.Quarantined || unproven:
		s.mine = false
	case e.now.Mono < at && !e.exhausted(row, orphan):
		e.at(s, at)
	case e.exhausted(row, orphan):
		reason := row.Last.Reason
		if orphan {
			reason = lease.ReasonExpired
		} else if reason != lease.ReasonFailed && reason != lease.ReasonStalled {
			reason = lease.ReasonFailed
		}
		w, err := protocol.Quarantine(row, protocol.Command{Seen: row.Generation, By: e.cfg.Name, Note: "too many attempts"}, reason, e.stamp())
		e.send(s, quarantining, w, err)
	case orphan:
		w, err := protocol.Recover(row, me, e.stamp())
		e.send(s, claiming, w, err)
	default:
		w, err := protocol.Claim(row, me, e.stamp())
		e.send(s, claiming, w, err)
	}
}

// claimable is when this worker may claim the shard: after a pause, if the last tenure
// failed. The pause grows with the number of tenures that ended by error, panic or stall.
// The death of an owner neither delays a claim nor makes a later pause longer.
func (e *Engine) claimable(s *shard) Instant {
	row := s.copy.Row()
	at := s.rest
	failed := row.Owner.IsZero() && (row.Last.Reason == lease.ReasonFailed || row.Last.Reason == lease.ReasonStalled)
	if n := row.Failed(); failed && n > 0 {
		at = max(at, s.since.Add(backoff(n, e.cfg.Backoff, e.cfg.MaxBackoff)))
	}
	return at
}

// exhausted reports whether the shard has failed too often to be tried again.
func (e *Engine) exhausted(row lease.Row, orphan bool) bool {
	n := row.Attempts()
	if orphan && n < 1<<62 {
		n++
	}
	return e.cfg.MaxAttempts > 0 && n >= e.cfg.MaxAttempts
}

// An ask is the successor's side of a move.
type ask struct {
	phase      askPhase
	said       bool // the others can see that it asks
	hook       bool // the prepare hook was called
	prepared   bool // … and has ended
	generation int64
	terms      rebalance.Terms
	since      Instant // of the phase; of asking, since it is said
}

// An askPhase is how far a worker has come with a shard it asks another for.
type askPhase uint8

const (
	intending askPhase = iota // nothing has been done yet
	preparing
	asked
)

// asks reports whether this worker asks another for s.
func (s *shard) asks() bool { return s.ask != nil && s.ask.phase == asked }

// pursue goes on with a move to this worker.
func (e *Engine) pursue(s *shard) {
	a, row := s.ask, s.copy.Row()
	switch {
	case a != nil && row.Generation != a.generation:
		e.callOff(s)
		return
	case a == nil && e.now.Mono < s.paused:
		return
	case a == nil:
		a = &ask{generation: row.Generation, terms: e.terms(s, row)}
	}
	since := e.now.Mono.Sub(a.since)
	if a.phase == intending || a.phase == asked && !a.said {
		since = 0
	}
	switch handoff.Successor(a.terms, handoff.Taking{
		Planned: s.wanted, Prepared: a.prepared, PreparingFor: since,
		Asked: a.phase == asked, AskedFor: since, Beat: e.notice(row),
		Offered: row.OfferedTo == e.seat.me,
	}) {
	case handoff.Prepare:
		if a.phase == intending {
			e.enter(s, a, preparing)
			a.hook = true
			e.do(Prepare{Shard: e.describe(s), Checkpoint: row.Checkpoint, For: a.terms.Prepare})
		}
		e.at(s, a.since.Add(a.terms.Prepare))
	case handoff.Ask:
		e.enter(s, a, asked)
		e.tell(event.Event{Kind: event.Requested, Shard: s.name, Generation: row.Generation, Peer: row.Owner.Name})
		e.look(lookMoving)
	case handoff.Accept:
		w, err := protocol.Take(row, e.seat.seat.Owner(), e.stamp())
		e.send(s, claiming, w, err)
	case handoff.Seize:
		w, err := protocol.Seize(row, e.seat.seat.Owner(), e.stamp())
		e.send(s, claiming, w, err)
	case handoff.CallOff:
		if a.phase != intending {
			e.tell(event.Event{Kind: event.Retired, Shard: s.name, Generation: a.generation, Peer: row.Owner.Name})
		}
		s.paused = e.now.Mono.Add(e.beat)
		e.callOff(s)
	case handoff.Stay:
		if at := a.since.Add(handoff.Patience(a.terms, e.notice(row))); e.now.Mono < at {
			e.at(s, at)
		}
	}
}

// notice is how long the owner of a row may take to look, by its own heartbeat.
func (e *Engine) notice(row lease.Row) time.Duration {
	if p := find(e.looks.peers, row.Owner.Incarnation); p != nil && !p.unreadable {
		return max(e.beat, p.seat.TTL/3)
	}
	return e.beat
}

func (e *Engine) enter(s *shard, a *ask, p askPhase) {
	if s.ask == nil {
		s.ask = a
		e.fleet.asks++
	}
	a.phase, a.since = p, e.now.Mono
}

// terms asks the strategy, whose terms are valid once they are filled.
func (e *Engine) terms(s *shard, row lease.Row) rebalance.Terms {
	why := rebalance.Balance
	if p := find(e.looks.peers, row.Owner.Incarnation); p != nil && p.seat.Leaving {
		why = rebalance.Leaving
	}
	return e.cfg.Handoff.Terms(s.name, why).Fill(e.cfg.Drain)
}

// callOff ends the successor's side of a move, if there is one: it has ended, or
// is not wanted any more. The want goes with the next beat.
func (e *Engine) callOff(s *shard) {
	s.wanted = false
	if s.ask == nil {
		return
	}
	e.fleet.asks--
	if s.ask.said && s.generation == s.ask.generation && e.large() { // in a small one, the rows are listed
		s.given = e.now.Mono.Add(e.cfg.TTL)
	}
	if s.ask.hook && (s.copy.Row().Owner.Incarnation != e.seat.me || e.seat.me == "") {
		e.do(CallOff{Shard: s.name})
	}
	s.ask = nil
	if e.fleet.asks == 0 {
		e.wantPlan() // the next moves, if there are any
	}
}

func (e *Engine) prepared(in Prepared) {
	if s := e.shard(in.Shard); s != nil && s.ask != nil && s.ask.phase == preparing {
		s.ask.prepared = true
		e.tend(s)
	}
}

// describe is what the user is told of s, and may do with what they like.
func (e *Engine) describe(s *shard) Shard {
	parents := s.parents
	if row := s.copy.Row(); len(row.Parents) > 0 {
		parents = row.Parents
	}
	return Shard{Name: s.name, Parents: slices.Clone(parents), Weight: s.weight}
}

const heldOffer = time.Second // commits wait so long for an offer to be taken
