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

// Holding a shard: a tenure from its start to its end, with its marks and commits.
//
//	start → serving → draining → returned or cut → released, handed over or finished
//	           |__________________________________↑ replaced, or the seat is lost
//
// A tenure gets the row of its shard (row.go), and returns whether it is over: only the shard forgets it.
//
// Called by shard.tend: keepCommitting and windDown whether or not a write is open, serve when none is. Called by the
// spines: marked and returned with what the handler says. shard.settled calls held with answers. The acquiring parts
// call shard.start when the row names this worker, and a spine that finds the tenure over calls shard.end.
//
// A mark is in memory until the answer to a write with it is read. A crash loses the marks since the last stored one: the
// next owner starts at the stored checkpoint and processes the rest again. The row stays in the name of this worker,
// and is recovered when its seat has expired.
//
// Invariant: after its soft context has ended a tenure never resumes.
// Invariant: contexts end on time even while the store does not answer. So windDown writes
// nothing, and serve writes what windDown has decided.
// Invariant: every write of a holder is a swap of the row as last known, so none is stored after another worker
// has taken the shard.
// Invariant: marks.sent and marks.accepted are never above marks.seq.

// A tenure is this worker's hold of a shard under one generation. It begins when the row is known to name this
// worker, and ends when that is no longer so, or with the seat. The handler may run longer: see shard.running.
type tenure struct {
	generation int64
	limits
	began Instant
	step  order // the step in which the tenure began
	marks marks
	wind  winding
	raise raising
	give  *giving // nil: no worker has requested the shard
	offer offer
}

// Limits are how much of a shard is tolerated: those of the worker, or in a session those of the caller that wants the
// lease.
type limits struct {
	stall    time.Duration // how long its handler may be silent; 0: forever
	attempts int64         // how many of its tenures may fail; 0: any number
}

// Marks are what the handler has marked, and what of it the table has. Only the latest mark is kept: a commit stores
// it, and with it all earlier ones. sent counts for the open write only: an answer that does not store the write sets
// it back.
type marks struct {
	mark     checkpoint.Mark // the latest
	seq      uint64          // how many there were
	sent     uint64          // how many of them the open write covers
	accepted uint64          // how many the table has
	flush    uint64          // a caller waits until this many are accepted
	first    Instant         // when the commit window of the first mark that is not sent began
	made     Instant         // when the shell says that this mark was made
	late     Instant         // since when no write that was due was answered; 0: none is late
	signs
}

// Signs are what the handler shows of its progress.
type signs struct {
	pulse    Instant // the last sign
	doubted  Instant // when limits.stall had passed since then
	progress bool    // the handler has made progress, with marks or without
	busy     bool    // the handler was not idle: it has marked, or called Alive while it worked
	expected bool    // there is a sign to wait for: the holder of a plain lock need not show any
}

// A winding is the end of a handler. Once draining, returned or cut is set, it stays: no answer of the store makes a
// handler that winds down go on.
type winding struct {
	finish   bool  // the shard itself has ended
	release  bool  // the handler wants to give the shard up
	draining bool  // its soft context has ended
	returned bool  // the handler has returned
	cut      bool  // its hard context has ended, and the shard is given up without it
	overdue  bool  // it had some time to return before that
	blame    blame // it has stalled, or returned an error before its soft context ended
	cause    event.Cause
	since    Instant // when its soft context ended
	hard     Instant // when it was cut
	note     string
	move     *lease.Wish // of an operator, for which it has ended; nil: there was none
}

// heldOffer is how long commits wait for an offer to be accepted.
const heldOffer = time.Second

// How long a handler may continue after its offer was accepted: see reads.handOver.
const (
	leastHandOver = 50 * time.Millisecond
	mostHandOver  = 500 * time.Millisecond
)

// stallGrace passes between the moment at which a handler seems to have stalled and its end. What
// it has marked by then may still be on its way: other inputs may come first, and after a pause of
// the process the worker may run before the handler does.
const stallGrace = 50 * time.Millisecond

// returnGrace is how long a handler may take to return when its tenure has ended, before its worker leaves
// the shard to others.
const returnGrace = 500 * time.Millisecond

// errNotReturned is the error in the end of a tenure whose handler has not wound down in time.
var errNotReturned = errors.New("handler did not return after its context ended")

// errNotAccepted is the error in a report of failing commits. The store fault that is reported
// beside it says why the commits fail.
var errNotAccepted = errors.New("commits are not accepted")

// over reports whether the handler needs no more time: it has returned, or was cut, or the
// shard has ended. After Finish there is nothing to cut: the handler has nothing left to process.
func (w *winding) over() bool { return w.returned || w.cut || w.finish }

// id is what the shell calls the tenure.
func (of *tenure) id(r *row) Tenure { return Tenure{Shard: r.name, Generation: of.generation} }

// hold is the handle of the tenure.
func (of *tenure) hold(t *turn, r *row) lease.Hold {
	return lease.Hold{Key: r.copy.Key(), Incarnation: r.mine(), Generation: of.generation, Order: t.cfg.Order}
}

// start begins a tenure of the row as it stands: nothing is written, because the row already names this worker. It does
// nothing if a tenure of this generation began before.
func (s *shard) start(t *turn) {
	hold, ok := s.row.copy.Start(t.cfg.Order)
	if !ok {
		return
	}
	// The move to this worker is over. The event has the terms of its request, unless the shard moved in another mode:
	// then the request had been withdrawn, or the move was another one.
	at, now := s.row.copy.Row(), t.now.Mono
	asked := rebalance.Terms{Mode: at.Last.Mode}
	if s.ask != nil && s.ask.terms.Mode == asked.Mode {
		asked = s.ask.terms
	}
	s.callOff(t, s.mine())
	s.running, s.aim.why = hold.Generation, 0
	caller, within := uint64(0), limits{t.cfg.StallAfter, t.cfg.MaxAttempts}
	if s.want != nil {
		caller, within, s.want = s.want.id, s.want.limits, nil
	}
	s.t = &tenure{
		generation: hold.Generation, limits: within, began: now, step: t.step,
		marks: marks{signs: signs{pulse: now, expected: caller == 0 || within.stall > 0}},
	}
	if within.stall > 0 {
		s.at(t, now.Add(within.stall))
	}
	how := raises(t, at.Last)
	s.t.raise = raising{on: how != RaiseNothing, waits: how == RaiseFirst || t.cfg.Before, step: t.step, since: now}
	t.do(Start{
		Tenure: s.t.id(&s.row), Raise: how, Acquire: caller, Hold: hold, Shard: s.describe(), Checkpoint: at.Checkpoint, Attempt: at.Attempts(),
		Transfer: at.Last,
		Event: event.Event{
			Kind: event.Started, Shard: s.name, Generation: hold.Generation, Reason: at.Last.Reason, Peer: at.Last.From,
			Transfer: at.Last, Terms: asked, Why: at.Last.Why, Attempt: int(at.Attempts()),
		},
	})
}

// end ends the tenure. The handler may continue to run; what it still writes is fenced. end writes nothing: if the row
// still names this worker, shard.acquire gives it back or claims it again. The shard then forgets the tenure (shard.over).
//
// err is what was observed, for the callers that wait for commits; nil: nothing was observed.
func (of *tenure) end(t *turn, r *row, cause event.Cause, err error) {
	m := &of.marks
	if !of.wind.cut { // otherwise it was told already
		t.do(Over{Tenure: of.id(r), Cause: cause, Err: err, Open: of.unknown(r)})
	}
	ended := event.Event{
		Kind: event.Ended, Shard: r.name, Generation: of.generation, Cause: cause,
		Took: t.now.Mono.Sub(of.began), Pending: m.seq - m.accepted,
	}
	if cause != event.CauseHandedOff { // otherwise a late commit was refused: part of the move
		ended.Err = err
	}
	if of.wind.cut && of.wind.overdue {
		ended.Err = errors.Join(ended.Err, errNotReturned)
	}
	if at := r.copy.Row(); at.Generation > of.generation {
		ended.Peer, ended.Reason, ended.Transfer = at.Owner.Name, at.Last.Reason, at.Last
		next := firstAfter(at, of.generation)
		if ended.Next = next.Generation; next.Mode != 0 {
			ended.Terms, ended.Why = of.give.agreed(), next.Why
		}
	}
	if of.wind.draining {
		ended.Drained = t.now.Mono.Sub(of.wind.since)
	}
	t.report(ended)
}

// unknown reports whether a write with a mark, or with the end of the shard, is under way.
func (of *tenure) unknown(r *row) bool {
	_, open := r.copy.Open()
	return open && (of.marks.sent > of.marks.accepted || r.doing == ending)
}

// end ends the tenure of a shard that has one.
func (s *shard) end(t *turn, cause event.Cause, err error) {
	s.t.end(t, &s.row, cause, err)
	s.over(t)
}

// over forgets a tenure that has ended.
func (s *shard) over(t *turn) { s.t, s.ended, s.wake = nil, t.now.Mono, t.now.Mono }

// lingers reports whether a handler runs although its tenure has ended, for longer than it takes to return. While it
// runs this worker cannot start another tenure of the shard.
func (s *shard) lingers(t *turn) bool {
	return s.running != 0 && s.t == nil && !s.before(t, s.ended.Add(returnGrace))
}

// hangs is shard.lingers for the seat. It asks for no step when a handler begins to hang: the next heartbeat is soon enough.
func hangs(t *turn, s *shard) bool {
	return s.running != 0 && s.t == nil && t.now.Mono >= s.ended.Add(returnGrace)
}

// marked takes what a handler has marked and asked for. It decides nothing: the spine tends the shard after all marks
// of a batch are taken.
func (of *tenure) marked(t *turn, name string, in Marks) {
	m, w := &of.marks, &of.wind
	if in.Seq > m.seq {
		// No earlier mark waits for a write, so the commit window of this one counts.
		if m.seq <= max(m.sent, m.accepted) {
			m.first, m.made = window(t, rebalance.Tie(name)), in.Made
		}
		m.mark, m.seq = in.Mark, in.Seq
	}
	m.pulse = t.now.Mono
	// A handler that only reports progress has caught up, and one that releases the shard or finishes it has nothing left.
	m.busy = m.busy || in.Seq > 0 || !in.Progress && !in.Release && !in.Finish
	m.flush = max(m.flush, in.Flush)
	m.progress = m.progress || in.Progress
	m.expected = m.expected || !in.Release
	w.finish = w.finish || in.Finish
	if in.Release {
		w.release, w.note = true, in.Note
	}
}

// returned takes the end of the handler. An error after its soft context has ended is no failure: the handler was told
// to stop.
func (of *tenure) returned(in Returned) {
	w := &of.wind
	w.returned = true
	switch {
	case !in.Failed:
		w.note = in.Note
	// A stop may arrive before the return of a handler that has failed by then. Otherwise the note of what is no failure
	// would have the error.
	case !w.draining, in.Unasked && w.cause == event.CauseStopped:
		w.blame, w.note = unjudged, in.Note
	}
}

// windDown decides whether the handler has to wind down, and ends its hard context when it has
// had its time.
func (of *tenure) windDown(t *turn, r *row, w self) {
	wind := &of.wind
	if wind.over() {
		return
	}
	switch {
	// The first cause stays, and so does the time from which the drain time counts.
	case wind.draining:
	case wind.release || of.raise.out != "":
		of.drain(t, r, event.CauseGivenUp)
	case w.release:
		of.drain(t, r, event.CauseStopped)
	case w.order != nil:
		order := *w.order
		wind.move = &order
		of.drain(t, r, event.CauseHandedOff)
	case w.unlisted:
		of.drain(t, r, event.CauseUnlisted)
	}
	of.stall(t, r)
	if !wind.draining {
		return
	}
	terms, since := of.drainTerms(t, w)
	switch handoff.Owner(terms, handoff.Giving{Wanted: of.give.stands(), Draining: true, Drained: t.now.Mono.Sub(since)}) {
	case handoff.CutOff:
		of.cut(t, r)
	default:
		if limit, limited := handoff.Limit(terms); limited {
			r.at(t, since.Add(limit))
		}
	}
}

// unlisted reports whether two complete listings in a row have lacked the shard since the tenure began. Only this
// worker's own source counts: the source of another worker may be wrong. Listings from before do not count: the shard
// may be new.
func (of *tenure) unlisted(t *turn, name string, source *feed) bool {
	return !t.cfg.KeepUnlisted && source.omits(name, of.step)
}

// drainTerms returns the terms that limit the winding down, and from when they count. In a move
// these are the terms of the move, unless the worker stops; otherwise the configuration's.
func (of *tenure) drainTerms(t *turn, w self) (rebalance.Terms, Instant) {
	wind := &of.wind
	own := rebalance.Terms{Drain: t.cfg.Drain, AfterDrain: rebalance.Force}
	if wind.cause != event.CauseHandedOff || of.give == nil { // a lease by name moves without a request
		return own, wind.since
	}
	terms := of.give.agreed()
	// A worker that stops has the drain time from when it releases its shards, unless the terms of the move end sooner.
	if !w.release {
		return terms, wind.since
	}
	since := max(wind.since, w.since)
	if limit, limited := handoff.Limit(terms); limited && wind.since.Add(limit) < since.Add(own.Drain) {
		return terms, wind.since
	}
	return own, since
}

// drain ends the handler's soft context.
func (of *tenure) drain(t *turn, r *row, cause event.Cause) {
	wind := &of.wind
	wind.draining, wind.cause, wind.since = true, cause, t.now.Mono
	t.do(Drain{Tenure: of.id(r), Cause: cause})
	ev := event.Event{Kind: event.Draining, Shard: r.name, Generation: of.generation, Cause: cause}
	if wind.move != nil {
		ev.Peer = wind.move.To
	}
	if of.give != nil {
		ev.Peer, ev.Terms, ev.Why = of.give.to.Name, of.give.terms, of.give.cause.Why
	}
	t.report(ev)
}

// cut ends the hard context of a handler that has not returned in time. Later marks do not
// count. The shard is given up next: serve writes that as soon as no write is open, so the row may name this worker
// for longer than the handler had. The handler can do no harm to the table: the shell refuses its marks.
func (of *tenure) cut(t *turn, r *row) {
	wind := &of.wind
	wind.cut, wind.overdue, wind.hard = true, t.now.Mono > wind.since, t.now.Mono
	t.do(Over{Tenure: of.id(r), Cause: wind.cause, Open: of.marks.seq > of.marks.accepted})
}

// stall drains a handler that makes no progress. A handler that waits for this worker to write is not stalled, nor
// one that is not called yet. A handler
// that drains already has only the drain time left, so it is not drained a second time. But if a successor waits for it
// without a limit, the stall sets one.
func (of *tenure) stall(t *turn, r *row) {
	wind, m := &of.wind, &of.marks
	unlimited := wind.draining && wind.cause == event.CauseHandedOff && of.give.agreed().AfterDrain == rebalance.Wait
	if of.limits.stall <= 0 || of.raise.waits || wind.draining && !unlimited {
		return
	}
	// A caller waits for this worker to commit, and the time does not count.
	if m.flush > m.accepted {
		m.pulse = t.now.Mono
	}
	at := max(m.pulse, wind.since).Add(of.limits.stall)
	// It seems to have stalled. Marks that are on their way get stallGrace to arrive.
	if t.now.Mono >= at && m.doubted < at {
		m.doubted = t.now.Mono
	}
	switch confirmed := max(at, m.doubted.Add(stallGrace)); {
	case r.before(t, confirmed):
	case unlimited: // a successor that waits without a limit does not wait for a stalled handler
		wind.cause, wind.since = event.CauseStalled, t.now.Mono
	default:
		of.drain(t, r, event.CauseStalled)
	}
}

// keepCommitting finds a tenure whose row this worker cannot write, and reports whether it has
// not been able to for CommitTimeout. A seat that is renewed while rows cannot be written keeps others from the
// shards: see faults.scanCommits for what follows.
func (of *tenure) keepCommitting(t *turn, r *row, doubt bool) (late bool) {
	m := &of.marks
	_, open := r.copy.Open()
	due := m.seq > m.accepted && m.due(t) || open && r.write.try.tries > 0
	switch {
	case !open && (doubt || of.offer.holds(t)): // this worker itself delays the commit
		m.late = 0
	case due && m.late == 0:
		m.late = t.now.Mono
	}
	if late = of.commitsLate(t); t.cfg.CommitTimeout > 0 && m.late > 0 && !late {
		r.at(t, m.late.Add(t.cfg.CommitTimeout))
	}
	return late
}

// commitsLate reports whether the table has answered no write of the row for CommitTimeout although
// one was due. Without a tenure, none was due.
func (of *tenure) commitsLate(t *turn) bool {
	return of != nil && of.marks.late > 0 && t.cfg.CommitTimeout > 0 && t.now.Mono >= of.marks.late.Add(t.cfg.CommitTimeout)
}

// serve makes the next write of a holder, if one is due and none is open. The order of the cases is their priority.
func (of *tenure) serve(t *turn, r *row, w self) {
	at := r.copy.Row()
	if of.give != nil {
		of.give.learn(w)
	}
	switch {
	case w.doubt: // every write waits until a heartbeat is answered
	// The last mark, and the end of the shard, in one write. A crash after it leaves a finished row: nobody claims it,
	// and its children may start.
	case of.wind.finish:
		wr, err := protocol.Finish(at, of.hold(t, r), of.marks.unaccepted(), t.stamp())
		of.sendMark(t, r, ending, wr, err)
	case of.lost(r) && of.marks.seq > of.marks.accepted: // the lease is not released; only the last mark is written
		wr, err := protocol.Commit(at, of.hold(t, r), of.marks.mark, t.stamp())
		of.sendMark(t, r, committing, wr, err)
	case of.lost(r) && r.before(t, of.wind.hard.Add(at.Owner.LockDelay)):
	case of.wind.returned || of.wind.cut:
		of.giveUp(t, r)
	// Also if the request no longer stands: an offer has to be withdrawn.
	case of.give != nil || of.offer.to != "":
		of.move(t, r, w)
	default:
		of.commit(t, r)
	}
}

// lost reports whether this is a lease with a lock delay whose holder was cut off. Such a holder may still write
// to its sink, so the session releases the lease only when the lock delay has passed since the cut. If it gives up its
// seat before, the row keeps it as its owner, and the lock delay counts from then. A session that gives up one lease
// for a move leaves the delay in the row (reserve).
func (of *tenure) lost(r *row) bool {
	w := &of.wind
	return w.cut && !(w.release && w.returned) && w.cause != event.CauseHandedOff && r.copy.Row().Owner.LockDelay > 0
}

// unaccepted returns the mark that the table does not have; none, if it has all.
func (m *marks) unaccepted() checkpoint.Mark {
	if m.seq > m.accepted {
		return m.mark
	}
	return checkpoint.Mark{}
}

// sendMark sends a write that contains the latest mark. A mark that the rules refuse is dropped,
// and its writer learns why: it must not hold up the other writes. err is that of the transition that made w.
func (of *tenure) sendMark(t *turn, r *row, what doing, w lease.Write, err error) {
	m := &of.marks
	if err != nil && m.seq > m.accepted && (errors.Is(err, checkpoint.ErrBackwards) || errors.Is(err, checkpoint.ErrInvalid)) {
		of.committed(t, r, m.seq, err)
		r.at(t, t.now.Mono)
		return
	}
	sent := m.seq
	if r.send(t, what, w, err) {
		m.sent = sent
	}
}

// committed notes that the first seq marks are accepted, or with an error that they never will be. Refused marks
// count as accepted too, because nothing more is to be done for them.
func (of *tenure) committed(t *turn, r *row, seq uint64, err error) {
	m := &of.marks
	m.accepted, m.late = seq, 0
	if m.seq <= seq {
		m.made = 0
	}
	t.do(Committed{Tenure: of.id(r), Seq: seq, Oldest: m.made, Err: err})
}

// commit writes the latest mark when the policy or a caller says so. Without a new mark, it records progress once in a
// tenure, if the row counts failed attempts: otherwise the count would grow although the handler works.
//
// A crash before the answer loses nothing that was promised: a caller that waits for the commit has no answer either.
func (of *tenure) commit(t *turn, r *row) {
	m, at := &of.marks, r.copy.Row()
	if m.seq <= m.accepted {
		m.flush = min(m.flush, m.accepted)
		if m.progress && at.Attempts() > 0 && at.Checkpoint.Generation < of.generation {
			w, err := protocol.Progress(at, of.hold(t, r), t.stamp())
			of.sendMark(t, r, committing, w, err)
		}
		return
	}
	if !m.due(t) {
		if due, ok := t.cfg.Commits.At(time.Duration(m.first)); ok {
			r.at(t, roundUp(Instant(due)))
		}
		return
	}
	w, err := protocol.Commit(at, of.hold(t, r), m.mark, t.stamp())
	of.sendMark(t, r, committing, w, err)
}

// roundUp makes deadlines that need not be kept to the millisecond fall together: with thousands
// of shards, each would wake the worker on its own.
func roundUp(i Instant) Instant {
	const grain = Instant(10 * time.Millisecond)
	return (i + grain - 1) / grain * grain
}

// window returns when the present commit window of a shard began. A mark is written at the end of the
// window in which it was made, so no mark waits for longer than the policy says. Each shard has
// windows with an offset of its own, so that tenures that begin together do not commit together.
// If the policy has no interval, the window begins with the mark.
func window(t *turn, tie uint64) Instant {
	every, timed := t.cfg.Commits.At(0)
	if !timed {
		return t.now.Mono
	}
	offset := Instant(tie % uint64(every))
	into := (t.now.Mono - offset) % Instant(every)
	if into < 0 {
		into += Instant(every)
	}
	return t.now.Mono - into
}

// due reports whether a caller waits for a mark, or the policy wants one stored.
func (m *marks) due(t *turn) bool {
	return m.flush > m.accepted || t.cfg.Commits.Due(int(m.seq-m.accepted), time.Duration(m.first), time.Duration(t.now.Mono))
}

// held takes the answer to a holder's write, and reports whether the tenure is over. The verdict counts, and not whether
// this attempt was stored: an earlier attempt with the same bytes may have been.
func (of *tenure) held(t *turn, r *row, aim *aim, what doing, a protocol.Answer, h *happened) (over bool) {
	m := &of.marks
	switch a.Verdict {
	case protocol.Stored:
		return of.stored(t, r, aim, what, h)
	case protocol.Again: // continue from the row as it stands
		m.sent = m.accepted
	// No store accepts this write. Its marks are refused, because the same write would be made again otherwise.
	case protocol.Unsent:
		of.committed(t, r, m.sent, a.Err())
	default:
		return of.refused(t, r, aim, what, a, h)
	}
	return false
}

// stored concludes a holder's write. After one that gives the shard up, the tenure is over.
func (of *tenure) stored(t *turn, r *row, aim *aim, what doing, h *happened) (over bool) {
	m := &of.marks
	m.late = 0
	if m.sent > m.accepted {
		h.succeeded = of.wind.blame == noFailure // a failure with a last mark is one
		of.committed(t, r, m.sent, nil)
	}
	if what != givingUp && what != ending {
		return false
	}
	if what == givingUp {
		h.declined = of.leave(t, aim, r.copy.Row().Failed()) || of.raise.out != ""
	}
	h.unlisted = left(r.copy.Row())
	if what == ending {
		h.finished, h.poll = true, true // its children may be listed now
	}
	of.end(t, r, of.causeOf(what), nil)
	return true
}

// causeOf returns why a tenure ends that this worker has given up.
func (of *tenure) causeOf(what doing) event.Cause {
	switch {
	case what == ending:
		return event.CauseFinished
	case of.wind.draining:
		return of.wind.cause
	}
	return event.CauseGivenUp
}

// leave keeps this worker from claiming what its own handler has just given up: other workers may
// want to try. It declines the shard for two heartbeats more, because the others notice that later
// and then rest as long themselves. Without Backoff, as in a session, it declines nothing, and only waits for a moment:
// otherwise a handler that fails at once would keep the table busy. failed is how many failures the row counts.
func (of *tenure) leave(t *turn, aim *aim, failed int64) (declines bool) {
	w, m := &of.wind, &of.marks
	switch {
	case w.draining && w.cause != event.CauseGivenUp && w.cause != event.CauseStalled:
		return false
	case t.cfg.Backoff <= 0:
		aim.rest, aim.leave = t.now.Mono.Add(paceMoving), w.othersFirst(t)
		return false
	}
	// The pause grows with the failures. If nothing has failed, it grows with the tenures in a row that its handler gave
	// up without progress.
	tries := max(failed, 1)
	if w.blame == noFailure && w.cause != event.CauseStalled {
		if m.accepted > 0 || m.progress {
			aim.early = 0
		}
		aim.early = min(aim.early+1, mostTries)
		tries = int64(aim.early)
	}
	aim.rest = t.now.Mono.Add(backoff(tries, t.cfg.Backoff, t.cfg.MaxBackoff))
	aim.leave, aim.others = aim.rest.Add(2*t.beat), true
	return true
}

// refused ends the tenure: the table shows that this worker does not hold the shard.
func (of *tenure) refused(t *turn, r *row, aim *aim, what doing, a protocol.Answer, h *happened) (over bool) {
	if a.Torn && landed(a.Row, of.generation, what) {
		return of.stored(t, r, aim, what, h)
	}
	// It is nil if the shard was being given up, and its row is gone.
	err := a.Err()
	if err != nil {
		ev := event.Event{Kind: event.Refused, Shard: r.name, Generation: of.generation, Peer: a.Row.Owner.Name, Reason: a.Row.Last.Reason}
		if a.Verdict != protocol.Overtaken || overtaken(a.Row, of.generation) != event.CauseHandedOff {
			ev.Err = err // otherwise it was a late commit, as in any such move
		}
		t.report(ev)
	}
	// The handler has a moment more, which the next tend gives it.
	if of.accepted(a) {
		of.offer.torn = a.Torn // see replaced
		return false
	}
	cause := of.lostBy(t, a)
	if a.Verdict == protocol.Gone && err == nil {
		cause = of.causeOf(what)
	}
	of.end(t, r, cause, err)
	return true
}

// accepted reports whether the successor has accepted the offer, as an answer shows.
func (of *tenure) accepted(a protocol.Answer) bool {
	return a.Verdict == protocol.Overtaken && of.offer.to != "" && a.Row.Owner.Incarnation == of.offer.to
}

// lostBy returns why a tenure is over, as an answer shows.
func (of *tenure) lostBy(t *turn, a protocol.Answer) event.Cause {
	switch {
	case a.Verdict == protocol.Conflict:
		return event.CauseConflict
	// A session is overtaken also if a later holder has left a tombstone.
	case a.Verdict == protocol.Overtaken, t.cfg.Discard && a.Row.Generation > of.generation:
		return overtaken(a.Row, of.generation)
	}
	return event.CauseVanished
}

// firstAfter returns the change of hands that ended a generation; zero: the row has changed hands so
// often since that it no longer has it.
func firstAfter(at lease.Row, generation int64) lease.Transfer {
	first := at.Last
	for _, past := range at.History() { // newest first
		if past.Generation <= generation {
			break
		}
		first = past
	}
	if first.Generation != generation+1 {
		return lease.Transfer{}
	}
	return first
}

// overtaken returns why the tenure of generation mine ended, as the row tells it. If the row has changed hands so often
// that it no longer tells, the tenure was fenced. Handed off and forced are told apart; everything else is fenced.
func overtaken(at lease.Row, mine int64) event.Cause {
	switch firstAfter(at, mine).Reason {
	case lease.ReasonHandoff:
		return event.CauseHandedOff
	case lease.ReasonForced:
		return event.CauseForced
	}
	return event.CauseFenced
}

// landed reports whether the write with which this worker gave the shard up was stored by an
// earlier attempt that was not answered, although the shard has changed hands or was removed
// since: only the owner ends a generation in such a way. A takeover and a seizure have a mode. So has a hand-over, but
// after it the row still shows the write, unless the successor has lost the shard too.
func landed(at lease.Row, mine int64, what doing) bool {
	first := firstAfter(at, mine)
	switch protocol.EndingOf(first.Reason) {
	case protocol.GivenUp, protocol.Moved, protocol.Failed:
		if first.Reason == lease.ReasonFinished {
			return what == ending
		}
		return what == givingUp && first.Mode == 0 && first.Did != "quarantined"
	}
	return false
}
