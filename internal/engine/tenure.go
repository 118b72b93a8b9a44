package engine

import (
	"errors"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/handoff"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A tenure is this worker's hold of a shard at one generation, from the holder's
// side.
type tenure struct {
	generation int64
	began      Instant

	mark     checkpoint.Mark // the latest
	seq      uint64          // how many marks there were
	sent     uint64          // how many of them the open write covers
	accepted uint64          // … and how many the table has
	flush    uint64          // somebody waits for so many
	late     Instant         // since when the table has answered no write of the row although one was due; 0: none is late
	first    Instant         // when the commit window began in which the first mark that is not sent was made
	made     Instant         // when the shell says that this mark was made

	on       bool
	progress bool        // it got somewhere, marks or not
	finish   bool        // the shard itself has ended
	release  bool        // its handler wants to give it up
	returned bool        // its handler has returned, …
	failed   bool        // … with an error, and not after it was told to wind down
	draining bool        // its handler was told to wind down
	cause    event.Cause // … for this
	unheard  bool        // it was told to wind down because the table accepted none of its marks
	cut      bool        // its handler's context has ended, and the shard is given up without it
	overdue  bool        // its handler had some time to return before it was cut
	torn     bool        // its offer was taken, which it learnt when a write was refused that may have been stored before

	pulse   Instant // the last sign of progress
	doubted Instant // when StallAfter had passed since then
	drained Instant // when its handler was told to wind down
	taken   Instant // when this worker learnt that its offer was taken
	note    string

	give *giving // nil: nobody has asked
	// The offer that the row carries, and since when.
	offeredTo lease.Incarnation
	offered   Instant
}

// A giving is a move this worker is asked for.
type giving struct {
	to     lease.Owner
	terms  rebalance.Terms
	wanted bool // the last look still saw the want
}

func (g *giving) stands() bool { return g != nil && g.wanted }

func (g *giving) agreed() rebalance.Terms {
	if g == nil {
		return rebalance.Terms{}
	}
	return g.terms
}

// hold is the handle of this worker's tenure of s.
func (e *Engine) hold(s *shard) lease.Hold {
	return lease.Hold{Key: s.copy.Key(), Incarnation: e.seat.me, Generation: s.t.generation, Order: e.cfg.Order}
}

// start begins a tenure of the row as it stands.
func (e *Engine) start(s *shard) {
	hold, ok := s.copy.Start(e.cfg.Order)
	if !ok {
		return
	}
	e.callOff(s)
	row, now := s.copy.Row(), e.now.Mono
	s.mine, s.orphan = false, ""
	s.running = hold.Generation
	s.t = tenure{on: true, generation: hold.Generation, began: now, pulse: now}
	e.fleet.held++
	if e.cfg.StallAfter > 0 {
		e.at(s, now.Add(e.cfg.StallAfter))
	}
	id := Tenure{Shard: s.name, Generation: hold.Generation}
	e.do(Start{Tenure: id, Hold: hold, Shard: e.describe(s), Checkpoint: row.Checkpoint, Attempt: row.Attempts(), Transfer: row.Last})
	e.tell(event.Event{Kind: event.Started, Shard: s.name, Generation: hold.Generation, Reason: row.Last.Reason, Peer: row.Last.From, Transfer: row.Last, Attempt: int(row.Attempts())})
}

// id is what the shell calls the tenure.
func (s *shard) id() Tenure { return Tenure{Shard: s.name, Generation: s.t.generation} }

// over ends a tenure. The handler may go on running; whatever it still does is
// fenced.
func (e *Engine) over(s *shard, cause event.Cause, err error) {
	t := &s.t
	_, open := s.copy.Open()
	if !t.cut { // then it was told already
		e.do(Over{Tenure: s.id(), Cause: cause, Err: err, Open: open && (t.sent > t.accepted || s.doing == finishing)})
	}
	ended := event.Event{
		Kind: event.Ended, Shard: s.name, Generation: t.generation, Cause: cause,
		Took: e.now.Mono.Sub(t.began), Pending: t.seq - t.accepted,
	}
	if cause != event.CauseHandedOff { // else the table has refused a late commit, as in any such move
		ended.Err = err
	}
	if t.cut && t.overdue {
		ended.Err = errors.Join(ended.Err, errNotReturned)
	}
	if row := s.copy.Row(); row.Generation > t.generation {
		ended.Peer, ended.Reason, ended.Transfer = row.Owner.Name, row.Last.Reason, row.Last
	}
	if t.draining {
		ended.Drained = e.now.Mono.Sub(t.drained)
	}
	e.tell(ended)
	if t.give != nil {
		e.fleet.givings--
	}
	e.fleet.held--
	s.t = tenure{}
}

// errNotReturned is the error in the end of a tenure whose handler has not wound down in time.
var errNotReturned = errors.New("handler did not return after its context ended")

// handOver is what a handler is given after its offer was taken: the successor has
// learnt of it at the same time, and has yet to call its own. Whatever the first still
// does is fenced.
const handOver = 50 * time.Millisecond

// replaced ends a tenure whose shard another generation has taken over.
func (e *Engine) replaced(s *shard) {
	t, row := &s.t, s.copy.Row()
	if took := t.offeredTo != "" && row.Owner.Incarnation == t.offeredTo; took && !t.returned && !t.cut {
		if t.taken == 0 {
			t.taken = e.now.Mono
		}
		if at := t.taken.Add(handOver); e.now.Mono < at {
			e.at(s, at)
			return
		}
	}
	e.freed(s)
	e.over(s, overtaken(row, s.t.generation), &checkpoint.StaleError{
		Shard: s.name, Mine: s.t.generation, Observed: row.Generation, Owner: row.Owner.Name, OutcomeUnknown: t.torn,
	})
}

// marked takes in what handlers have marked and asked for.
func (e *Engine) marked(batch ...Marks) {
	for _, in := range batch {
		if s := e.present(in.Tenure); s != nil {
			e.absorb(s, in)
		}
	}
	for _, in := range batch {
		if s := e.present(in.Tenure); s != nil {
			e.tend(s)
		}
	}
}

// present returns the shard of a tenure; nil: the tenure is over, as the shell was told.
func (e *Engine) present(id Tenure) *shard {
	s := e.shard(id.Shard)
	if s == nil || !s.t.on || s.t.generation != id.Generation {
		return nil
	}
	return s
}

func (e *Engine) absorb(s *shard, in Marks) {
	t := &s.t
	if in.Seq > t.seq {
		if t.seq <= max(t.sent, t.accepted) {
			t.first, t.made = e.window(s), in.Made
		}
		t.mark, t.seq = in.Mark, in.Seq
	}
	t.pulse = e.now.Mono
	t.flush = max(t.flush, in.Flush)
	t.progress = t.progress || in.Progress
	t.finish = t.finish || in.Finish
	if in.Release {
		t.release, t.note = true, in.Note
	}
}

// returned takes in the end of a handler.
func (e *Engine) returned(in Returned) {
	s := e.shard(in.Tenure.Shard)
	if s == nil || s.running != in.Tenure.Generation {
		return
	}
	s.running = 0
	if s.t.on {
		s.t.returned, s.t.note = true, in.Note
		s.t.failed = in.Failed && !s.t.draining
	}
	e.tend(s)
}

// windDown decides whether a handler has to wind down, and when it has had its
// time. It writes nothing: contexts end on time even when the store does not
// answer.
func (e *Engine) windDown(s *shard) {
	t := &s.t
	if t.returned || t.cut || t.finish {
		return
	}
	switch {
	case t.draining:
	case t.release:
		e.drain(s, event.CauseGivenUp)
	case e.leave.all:
		e.drain(s, event.CauseStopped)
	}
	e.stall(s)
	if at := e.cutOff(s); e.now.Mono >= at {
		e.cut(s)
	} else {
		e.at(s, at)
	}
}

// keepCommitting finds a tenure whose marks the table does not accept, or whose row the worker
// cannot write for another reason, a release for instance. The tenure goes on, because a worker
// that cannot write a row cannot release the shard either.
// See surrenders for a worker that can write no row.
func (e *Engine) keepCommitting(s *shard) {
	t := &s.t
	_, open := s.copy.Open()
	due := t.seq > t.accepted && e.commitDue(t) || open && s.try.tries > 0
	switch {
	case !open && e.holdsCommits(s):
		t.late = 0
	case due && t.late == 0:
		t.late = e.now.Mono
	}
	switch {
	case e.cfg.CommitTimeout <= 0 || t.late == 0:
	case e.commitsLate(s):
		e.raise(&e.faults.commits, t.late, s.name, errNotAccepted)
	default:
		e.at(s, t.late.Add(e.cfg.CommitTimeout))
	}
}

// holdsCommits reports whether this worker itself sends no commit of s at present: in doubt about
// its seat, or for a moment while an offer stands. That says nothing about the table.
func (e *Engine) holdsCommits(s *shard) bool {
	t := &s.t
	return e.seat.doubt || t.offeredTo != "" && e.now.Mono < t.offered.Add(heldOffer)
}

// errNotAccepted is the error in a report of failing commits. The StoreFault that is reported
// beside it says why the commits fail.
var errNotAccepted = errors.New("commits are not accepted")

// commitsLate reports whether the table has answered no write of s for CommitTimeout although
// one was due.
func (e *Engine) commitsLate(s *shard) bool {
	t := &s.t
	return t.on && t.late > 0 && e.cfg.CommitTimeout > 0 && e.now.Mono >= t.late.Add(e.cfg.CommitTimeout)
}

// stallGrace passes between the moment at which a handler seems to have stalled and its end. What
// it has marked by then may still be on its way: other inputs may come first, and after a pause of
// the process the worker may run before the handler does.
const stallGrace = 50 * time.Millisecond

// stall drains a handler that gets nowhere. One that waits for this worker to write is
// not it.
func (e *Engine) stall(s *shard) {
	t := &s.t
	waits := t.draining && t.cause == event.CauseHandedOff && t.give.agreed().AfterDrain == rebalance.Wait
	if e.cfg.StallAfter <= 0 || t.draining && !waits {
		return
	}
	if t.flush > t.accepted {
		t.pulse = e.now.Mono
	}
	at := max(t.pulse, t.drained).Add(e.cfg.StallAfter)
	if e.now.Mono >= at && t.doubted < at {
		t.doubted = e.now.Mono
	}
	switch confirmed := max(at, t.doubted.Add(stallGrace)); {
	case e.now.Mono < confirmed:
		e.at(s, confirmed)
	case waits: // even who waits for it, does not wait for one that is stuck
		t.cause, t.drained = event.CauseStalled, e.now.Mono
	default:
		e.drain(s, event.CauseStalled)
	}
}

// cutOff is when the time of a handler that winds down is over. In a move the terms
// say so, unless the worker stops; otherwise the configuration does.
func (e *Engine) cutOff(s *shard) Instant {
	t := &s.t
	if !t.draining {
		return Never
	}
	if t.cause != event.CauseHandedOff {
		return t.drained.Add(e.cfg.Drain)
	}
	at := Never
	if d, ok := handoff.Limit(t.give.agreed()); ok {
		at = t.drained.Add(d)
	}
	if e.leave.all {
		at = min(at, max(t.drained, e.leave.since).Add(e.cfg.Drain))
	}
	return at
}

// drain tells the handler to wind down. There is no way back.
func (e *Engine) drain(s *shard, cause event.Cause) {
	s.t.draining, s.t.cause, s.t.drained = true, cause, e.now.Mono
	e.do(Drain{Tenure: s.id(), Cause: cause})
	told := event.Event{Kind: event.Draining, Shard: s.name, Generation: s.t.generation, Cause: cause}
	if s.t.give != nil {
		told.Peer = s.t.give.to.Name
	}
	e.tell(told)
}

// cut gives a handler up that has not returned in time: its context ends now, and
// what it marks from here on counts no more. The shard is given up next.
func (e *Engine) cut(s *shard) {
	s.t.cut, s.t.overdue = true, e.now.Mono > s.t.drained
	e.do(Over{Tenure: s.id(), Cause: s.t.cause, Open: s.t.seq > s.t.accepted})
}

// serve makes the next write of a holder, if one is due and none is open.
func (e *Engine) serve(s *shard) {
	t, row := &s.t, s.copy.Row()
	switch {
	case e.seat.doubt: // hold everything until a beat is answered
	case t.finish:
		w, err := protocol.Finish(row, e.hold(s), e.unaccepted(t), e.stamp())
		e.sendMark(s, finishing, w, err)
	case t.returned || t.cut:
		e.giveUp(s)
	case t.give != nil || t.offeredTo != "":
		e.move(s)
	default:
		e.commit(s)
	}
}

// unaccepted is the mark that the table does not have; none, if it has all.
func (e *Engine) unaccepted(t *tenure) checkpoint.Mark {
	if t.seq > t.accepted {
		return t.mark
	}
	return checkpoint.Mark{}
}

// sendMark sends a write that carries the latest mark. A mark that the rules
// refuse is dropped, and its writer told: it cannot hold up what else there is to
// say.
func (e *Engine) sendMark(s *shard, what doing, w lease.Write, err error) {
	t := &s.t
	if err != nil && t.seq > t.accepted && (errors.Is(err, checkpoint.ErrBackwards) || errors.Is(err, checkpoint.ErrInvalid)) {
		e.committed(s, t.seq, err)
		e.at(s, e.now.Mono)
		return
	}
	sent := t.seq
	if e.send(s, what, w, err) {
		t.sent = sent
	} else {
		e.at(s, e.now.Mono.Add(e.beat)) // a row at the end of its numbers, say: nothing can be written there
	}
}

// committed notes that the first seq marks are accepted, or with an error that they never will be.
func (e *Engine) committed(s *shard, seq uint64, err error) {
	t := &s.t
	t.accepted, t.late = seq, 0
	if t.seq <= seq {
		t.made = 0
	}
	e.do(Committed{Tenure: s.id(), Seq: seq, Oldest: t.made, Err: err})
}

// commit writes the latest mark when the policy or a caller says so.
func (e *Engine) commit(s *shard) {
	t, row := &s.t, s.copy.Row()
	if t.seq <= t.accepted {
		if t.flush > t.accepted {
			t.flush = t.accepted
		}
		if t.progress && row.Attempts() > 0 && row.Checkpoint.Generation < t.generation {
			w, err := protocol.Progress(row, e.hold(s), e.stamp())
			e.sendMark(s, committing, w, err)
		}
		return
	}
	if !e.commitDue(t) {
		if at, ok := e.cfg.Commits.At(time.Duration(t.first)); ok {
			e.at(s, Instant(at).roundUp())
		}
		return
	}
	w, err := protocol.Commit(row, e.hold(s), t.mark, e.stamp())
	e.sendMark(s, committing, w, err)
}

// window is when the present commit window of s began. A mark is written at the end of the
// window in which it was made, so no mark waits for longer than the policy says. Each shard
// has windows with an offset of its own. Without offsets, tenures that begin together, as in
// a cold start, would commit together from then on.
func (e *Engine) window(s *shard) Instant {
	every, timed := e.cfg.Commits.At(0)
	if !timed {
		return e.now.Mono
	}
	offset := Instant(s.tie % uint64(every))
	into := (e.now.Mono - offset) % Instant(every)
	if into < 0 {
		into += Instant(every)
	}
	return e.now.Mono - into
}

func (e *Engine) commitDue(t *tenure) bool {
	return t.flush > t.accepted || e.cfg.Commits.Due(int(t.seq-t.accepted), time.Duration(t.first), time.Duration(e.now.Mono))
}

// move goes on with a move away from this worker.
func (e *Engine) move(s *shard) {
	t, row, now := &s.t, s.copy.Row(), e.now.Mono
	g := t.give
	if t.draining { // windDown says when that ends
		e.serveOn(s)
		return
	}
	switch handoff.Owner(g.agreed(), handoff.Giving{
		Wanted:  g.stands(),
		Offered: t.offeredTo != "" && (g == nil || t.offeredTo == g.to.Incarnation), OfferedFor: now.Sub(t.offered),
	}) {
	case handoff.Drain:
		e.drain(s, event.CauseHandedOff)
		if e.windDown(s); t.cut {
			e.giveUp(s)
		}
	case handoff.Offer:
		w, err := protocol.Offer(row, e.hold(s), g.to.Incarnation, e.unaccepted(t), e.stamp())
		e.sendMark(s, offering, w, err)
	case handoff.Withdraw:
		w, err := protocol.Withdraw(row, e.hold(s), e.stamp())
		e.send(s, withdrawing, w, err)
	default:
		e.serveOn(s)
	}
}

// serveOn is a holder's life during a move: it goes on marking, and holds its
// commits for a moment while an offer stands.
func (e *Engine) serveOn(s *shard) {
	t, g := &s.t, s.t.give
	if g != nil && !g.wanted && !t.draining && t.offeredTo == "" {
		t.give = nil
		e.fleet.givings--
	}
	if t.offeredTo != "" {
		if !t.draining { // else nothing is withdrawn any more
			e.at(s, t.offered.Add(handoff.Standing(g.agreed())))
		}
		if until := t.offered.Add(heldOffer); e.now.Mono < until {
			e.at(s, until)
			return
		}
	}
	e.commit(s)
}

// noteOffer keeps since when the row carries the offer it carries.
func (e *Engine) noteOffer(s *shard, row lease.Row) {
	if t := &s.t; t.offeredTo != row.OfferedTo {
		t.offeredTo, t.offered = row.OfferedTo, e.now.Mono
		e.look(lookMoving)
	}
}

// giveUp hands the shard to who asked for it, or to nobody.
func (e *Engine) giveUp(s *shard) {
	t, row := &s.t, s.copy.Row()
	end := protocol.End{Reason: lease.ReasonReleased, Note: t.note, Mark: e.unaccepted(t), Progressed: t.progress}
	switch {
	case t.cause == event.CauseStalled && t.unheard:
		end.Reason, end.Note = lease.ReasonStalled, errNotAccepted.Error()
	case t.cause == event.CauseStalled:
		end.Reason = lease.ReasonStalled
	case t.failed:
		end.Reason = lease.ReasonFailed
	case t.cut:
		end.Reason = lease.ReasonDrainTimeout
	}
	planned := end.Reason == lease.ReasonReleased || end.Reason == lease.ReasonDrainTimeout
	if planned && handoff.Owner(t.give.agreed(), handoff.Giving{Wanted: t.give.stands(), Returned: true}) == handoff.Yield {
		if end.Reason == lease.ReasonReleased {
			end.Reason = lease.ReasonHandoff
		}
		w, err := protocol.Yield(row, e.hold(s), t.give.to, end, e.stamp())
		e.sendMark(s, givingUp, w, err)
		return
	}
	w, err := protocol.Release(row, e.hold(s), end, e.stamp())
	e.sendMark(s, givingUp, w, err)
}

// held takes in the answer to a holder's write.
func (e *Engine) held(s *shard, what doing, a protocol.Answer) {
	t := &s.t
	switch a.Verdict {
	case protocol.Stored:
		e.stored(s, what)
	case protocol.Again: // go on from the row as it stands
		t.sent = t.accepted
	case protocol.Unsent:
		e.committed(s, t.sent, a.Err())
	default:
		e.refused(s, what, a)
	}
}

// firstAfter returns the reason of the change of hands that ended a generation; empty: the row has
// changed hands so often since that it no longer has it.
func firstAfter(row lease.Row, generation int64) lease.Reason {
	first := row.Last
	for _, t := range row.History() { // newest first
		if t.Generation <= generation {
			break
		}
		first = t
	}
	if first.Generation != generation+1 {
		return ""
	}
	return first.Reason
}

// overtaken is why the tenure of that generation ended. The row may have changed
// hands more than once since: what counts is the first time.
func overtaken(row lease.Row, mine int64) event.Cause {
	switch firstAfter(row, mine) {
	case lease.ReasonHandoff:
		return event.CauseHandedOff
	case lease.ReasonForced:
		return event.CauseForced
	}
	return event.CauseFenced
}

// landed reports whether the write with which this worker gave the shard up was stored by an
// earlier attempt that was not answered, although the shard has changed hands or was removed
// since: nobody but the owner ends a generation for these reasons.
func landed(row lease.Row, mine int64, what doing) bool {
	switch firstAfter(row, mine) {
	case lease.ReasonReleased:
		return what == givingUp
	case lease.ReasonFinished:
		return what == finishing
	}
	return false
}

// refused ends the tenure: the table has told this holder that it is none.
func (e *Engine) refused(s *shard, what doing, a protocol.Answer) {
	t := &s.t
	if a.Torn && landed(a.Row, t.generation, what) {
		e.stored(s, what)
		return
	}
	err := a.Err()
	if err != nil {
		refused := event.Event{Kind: event.Refused, Shard: s.name, Generation: t.generation, Peer: a.Row.Owner.Name, Reason: a.Row.Last.Reason}
		if a.Verdict != protocol.Overtaken || overtaken(a.Row, t.generation) != event.CauseHandedOff { // else it was a late commit, as in any such move
			refused.Err = err
		}
		e.tell(refused)
	}
	if a.Verdict == protocol.Overtaken && t.offeredTo != "" && a.Row.Owner.Incarnation == t.offeredTo {
		t.torn = a.Torn // as offered: see replaced
		return
	}
	cause := event.CauseVanished
	switch {
	case a.Verdict == protocol.Gone && err == nil:
		cause = e.ending(s, what)
	case a.Verdict == protocol.Conflict:
		cause = event.CauseConflict
	case a.Verdict == protocol.Overtaken:
		cause = overtaken(a.Row, t.generation)
	}
	e.freed(s)
	e.over(s, cause, err)
}

// freed tells everybody, if it is so, that nobody holds s any more.
func (e *Engine) freed(s *shard) {
	if s.copy.Row().Owner.IsZero() {
		e.seat.freed++
		e.wantPlanSoon()
	}
}

// ending is why a tenure ends that this worker has given up.
func (e *Engine) ending(s *shard, what doing) event.Cause {
	switch {
	case what == finishing:
		return event.CauseFinished
	case s.t.draining:
		return s.t.cause
	}
	return event.CauseGivenUp
}

// stored concludes a holder's write.
func (e *Engine) stored(s *shard, what doing) {
	t := &s.t
	t.late = 0
	if t.sent > t.accepted {
		e.committed(s, t.sent, nil)
	}
	if what != givingUp && what != finishing {
		return
	}
	e.rest(s, what)
	e.freed(s)
	e.over(s, e.ending(s, what), nil)
	if what == finishing {
		e.pollSoon() // its children may be listed now
	}
}

// rest keeps this worker from claiming at once what its own handler gave up by
// itself: others may want to try.
func (e *Engine) rest(s *shard, what doing) {
	t := &s.t
	if what != givingUp || t.failed || t.draining && t.cause != event.CauseGivenUp || e.cfg.Backoff <= 0 {
		return
	}
	if t.accepted > 0 || t.progress {
		s.early = 0
	}
	s.early++
	s.rest = e.now.Mono.Add(backoff(s.early, e.cfg.Backoff, e.cfg.MaxBackoff))
}
