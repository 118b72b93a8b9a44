package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// One shard, as this worker knows it and acts on it.
//
//	known → tended when it is due → a write is open → answered: tended again … → forgotten
//
// Called by the spines. tend does what is due for one shard that is held, or whose write is open:
// hold.go and give.go. For all other shards the spine calls take.go, for a shard that the plan
// assigns, or wait.go, for a lease by name.
//
// Invariant: decisions rest on the state alone, and not on what was intended when a write was
// sent. So an answer only has to be taken, and the shard to be tended again.

// A shard is what this worker knows of one shard.
type shard struct {
	row
	parents []string
	weight  int

	aim     aim
	want    *wanted // what a caller of the session wants with it; nil: no caller does, or this is a worker
	ask     *ask    // the successor's side of a move to this worker; nil: there is none
	t       *tenure // this worker's hold; nil: there is none
	running int64   // the generation whose handler has not returned; 0: none is running
	ended   Instant // when the last tenure ended
}

// An aim is what the plan and this worker want with a shard, held or not. The instants in it are pauses, which end by
// themselves.
type aim struct {
	mine   bool          // the plan assigns the shard to this worker
	given  bool          // a plan has assigned it to another since, which may not have requested it yet
	excess bool          // the plan assigns more shards than this worker may hold: it declines this one
	sure   bool          // the row was read for this aim
	retire bool          // it is finished, and the source lists it no more: its row becomes a tombstone
	others bool          // others are to try it first, until this worker follows the next plan
	why    rebalance.Why // why the plan moves it, to this worker or away; zero: it does not, or no longer, or that is unknown
	early  uint8         // tenures in a row that its handler gave up without progress, at most mostTries
	leave  Instant       // until then others are to try it first, because its own handler has given it up
	rest   Instant       // this worker does not claim it before
	paused Instant       // this worker does not request it before
	left   Instant       // when this worker ceased to request it, although its owner may still hand it over; 0: it did not
}

// mostTries is the largest number to which an aim counts. No pause grows any more by then.
const mostTries = 200

// A self is the state of the worker or session that a held shard needs.
type self struct {
	owner   lease.Owner
	capable bool    // the worker may claim
	doubt   bool    // it holds every write until a heartbeat is answered
	leaving bool    // it shuts down
	release bool    // it waits no longer for others to request its shards
	since   Instant // since when
	said    Instant // when the seat was stored that says that it shuts down; 0: not yet

	order *lease.Wish // of a session alone: the move of this lease that an operator has ordered; nil: there is none

	// Of a worker alone.
	cause    lease.MoveCause // why the plan moves this shard to the worker, or from it; zero: it does not, or that is unknown
	unlisted bool            // its source has ceased to list this shard, which it holds
	handOver time.Duration   // how long its handler goes on after an offer was accepted
}

// A member is the state of the worker that a shard needs to be claimed under a plan.
type member struct {
	self
	room bool // it may request one more shard: it follows the plan that it knows
	// Other parts answer the questions of a shard.
	health *health // when it may be tried by a worker that is unwell
	raiser *raiser // when it may be tried by a worker that cannot raise fences
	fleet  *fleet  // whether an owner has a seat, and whether failures are those of the shard
	feed   *feed   // what the source lists
	shards *shards // its parents, and whether rows are being read
}

func (w self) me() lease.Incarnation { return w.owner.Incarnation }

// A happened is what a shard reports to the spine: what concerns more than this shard. The spine draws the conclusions
// at once (Engine.happened, Session.happened); nothing of it is kept.
type happened struct {
	finished  bool              // it needs no worker any more
	unlisted  bool              // its row says that it was given up as unlisted, by this worker or another
	buried    bool              // its row is a tombstone, and it is assigned to this worker
	back      bool              // its row was made, or revived
	removed   bool              // this worker has made its row a tombstone
	declined  bool              // this worker declines it
	late      Instant           // since when its commits are late; 0: they are not
	kept      Instant           // since when a reservation keeps this worker from it; 0: none does, or not for long
	succeeded bool              // the table has accepted a checkpoint, or the handler has called Progress
	tried     bool              // a worker that is unwell tries it
	served    lease.Incarnation // the owner that has begun to serve the requests of this worker; empty: none has
	suspects  bool              // the seats have to be listed before it is judged
	look      bool              // the seats have to be looked at soon: a move goes on
	poll      bool              // the source may list new shards
	restored  error             // the row went back in time
}

// planChanged reports whether something has happened that may make a plan due.
func (h happened) planChanged() bool {
	return h.finished || h.unlisted || h.removed || h.buried || h.declined || h.poll
}

// newShard returns a shard of which nothing is known yet. It is not tended before something asks for that.
func newShard(name, group string, me lease.Incarnation) *shard {
	key := lease.Key{Group: group, Kind: lease.KindLease, Name: name}
	return &shard{row: row{name: name, wake: Never, copy: protocol.NewCopy(key, me)}}
}

// idle reports whether the invariant of shards.go allows to forget the shard, and no read of its row is
// under way. at is its row.
func (s *shard) idle(at lease.Row) bool {
	_, busy := s.row.copy.Open()
	return !busy && !s.row.try.sent && s.t == nil && s.running == 0 && (at.Owner.IsZero() || at.Owner.Incarnation != s.mine())
}

// forget drops what this worker has done and intended as the incarnation it was, and continues
// as me. A write that is open is one of the earlier incarnation: it passes the fence or not.
//
// at becomes the known row, even if it names the earlier incarnation: for this worker that is another owner, whose
// seat it has to find gone like any other.
func (s *shard) forget(t *turn, me lease.Incarnation, at lease.Row) {
	s.callOff(t, me)
	s.row.copy = protocol.NewCopy(s.row.copy.Key(), me)
	s.row.copy.Saw(at)
	s.row.try = retry{at: s.row.try.at}
	s.write, s.doing, s.stuck, s.row.older, s.row.behind = pending{}, nothing, false, false, false
	s.aim = aim{rest: s.aim.rest, leave: s.aim.leave, early: s.aim.early}
	s.wake = t.now.Mono
}

// got takes the answer to a read of the row. It reports whether the row exists no more although
// this worker holds the shard.
func (s *shard) got(t *turn, in Got) (vanished bool) {
	r := &s.row
	if !r.try.sent || serial(in.Read) != r.reading {
		return false
	}
	r.malformed = malformed(in.Err)
	r.answered, s.aim.sure = t.now.Mono, in.Err == nil
	switch {
	case in.Err != nil && !r.malformed:
		if r.unread == 0 {
			r.unread, r.failed = t.now.Mono, r.asked
		}
		t.failedNow(s.name, in.Err)
		r.try.failed(t.now.Mono, t.beat/8, t.beat/8)
		return false
	case r.malformed:
		r.unread = 0
		r.try.failed(t.now.Mono, t.beat/8, 2*t.beat)
		return false
	}
	t.answeredNow()
	r.try, r.unread = retry{}, 0
	_, busy := r.copy.Open()
	if at, ok := in.Record.(lease.Row); ok {
		s.saw(t, at)
		return false
	}
	// There is no row. While a write is open, only its answer counts.
	if busy || r.read >= r.asked {
		return false // the answer is older than what is known
	}
	r.known = true
	// Somebody has deleted the row by hand. A worker without a tenure starts over; with one, the caller ends it.
	if s.t == nil && r.generation != 0 {
		r.copy, r.generation = protocol.NewCopy(r.copy.Key(), s.mine()), 0
	}
	return s.t != nil
}

// saw takes a row that was read, by itself or in a listing.
func (s *shard) saw(t *turn, at lease.Row) {
	s.row.known, s.row.malformed = true, false
	if s.row.copy.Saw(at) {
		s.news(t)
	}
}

// listed notes that a listing, which was sent in the step begun, shows the row or that there is none. If reads of the
// row fail, the listing replaces them.
func (s *shard) listed(t *turn, begun order) {
	if r := &s.row; r.unread > 0 && begun >= r.failed && !r.malformed {
		r.listed, r.known, s.aim.sure = t.now.Mono, true, true
	}
}

// news notes when the present row became known.
func (s *shard) news(t *turn) {
	r := &s.row
	r.read, r.known = t.step, true
	if now := r.copy.Row(); now.Generation != r.generation {
		s.aim.sure, s.aim.left = false, 0
		r.generation, r.since, r.lost = now.Generation, t.now.Mono, 0
		if now.Owner.IsZero() && now.Last.Reason == lease.ReasonForced { // an operator has freed it
			s.aim.rest, s.aim.leave = 0, 0
		}
	}
}

// describe is what the user is told of the shard.
func (s *shard) describe() Shard {
	return Shard{Name: s.name, Parents: slices.Clone(s.lineage()), Weight: s.weight}
}

// tend does what is due for one shard. free: it is not held, no write of it is open, and the worker
// may claim it.
//
// The order: first the end of a tenure that another generation has replaced; then what a handler needs on time, though
// a write may be open; then, if none is open, the next write.
func (s *shard) tend(t *turn, w self, blame func(*shard)) (h happened, free bool) {
	s.wake = Never
	if of := s.t; of != nil && s.row.copy.Row().Generation > of.generation {
		if !of.replaced(t, &s.row, w.handOver) {
			return h, false // for a moment
		}
		s.over(t)
	}
	if of := s.t; of != nil {
		h.look = of.offer.note(t, s.row.copy.Row().OfferedTo)
		if of.keepCommitting(t, &s.row, w.doubt) {
			h.late = of.marks.late
		}
		if of.windDown(t, &s.row, w); of.failing(t) {
			blame(s)
		}
	}
	if open, busy := s.row.copy.Open(); busy {
		s.sendAgain(t, open)
		return h, false
	}
	if s.row.look > 0 {
		s.get(t)
	}
	// A session that shuts down, and whose holder was cut off with a lock delay: it ends the tenure and stays the owner
	// in the row.
	if s.t != nil && w.leaving && s.t.lost(&s.row) && s.t.marks.seq <= s.t.marks.accepted {
		s.end(t, s.t.wind.cause, nil)
		s.left, s.wake = true, Never
	}
	if s.t != nil {
		s.t.serve(t, &s.row, w)
		return h, false
	}
	if s.left {
		return h, false
	}
	return h, w.capable
}

// settled takes the answer to a write of the row. An answer that decides the write is noted in rows: for a lease time from
// then on, a call that only waited for its turn is no fault (rowAnswers.waits).
func (s *shard) settled(t *turn, in Settled, rows *rowAnswers) (h happened) {
	a := s.row.copy.Answer(in.Write, in.Record, in.Err)
	switch {
	// A late answer to a write that is decided, or to one of an earlier incarnation.
	case errors.Is(a.Err(), protocol.ErrNotOpen):
		return h
	// tend sends the same write again.
	case a.Verdict == protocol.Unknown && rows.waits(t, in.Err): // no fault
		s.write.try.sent, s.write.try.at = false, t.now.Mono.Add(min(t.beat/32, longestPause))
		return h
	case a.Verdict == protocol.Unknown:
		t.failedNow(s.name, in.Err)
		s.write.try.failed(t.now.Mono, t.beat/32, t.beat/2)
		return h
	}
	t.answeredNow()
	*rows = rowAnswers{last: t.now.Mono}
	what, at := s.doing, s.row.copy.Row()
	s.write, s.doing, s.stuck, s.row.older = pending{}, nothing, false, false
	if s.row.copy.Row().Generation > 0 {
		s.news(t)
	}
	s.aim.sure = s.aim.sure || a.Verdict == protocol.Stored && (at.Finished || at.Quarantined)
	if a.Verdict == protocol.WentBack {
		h.restored = a.Err()
	}
	if s.t == nil {
		s.claimed(t, what, a, &h)
	} else if s.t.held(t, &s.row, &s.aim, what, a, &h) {
		s.over(t)
	}
	s.unsettle(t, a)
	return h
}

// unsettle takes an answer that should be impossible. A row that is gone, or is another worker's
// under the same generation, has to be read again; and nothing is tried for a lease time, because
// it would be answered the same. Only writes by hand, or a restored table, lead here. The worker repairs nothing.
func (s *shard) unsettle(t *turn, a protocol.Answer) {
	switch a.Verdict {
	case protocol.Conflict, protocol.Gone:
		if a.Verdict == protocol.Gone && a.Row.Generation > 0 {
			return // a tombstone
		}
		// The copy never goes back, so another one is needed for a row that is behind it. The plan has not changed: no other
		// worker would claim the shard.
		mine := s.aim.mine
		s.forget(t, s.mine(), a.Row)
		s.aim.mine = mine
		s.row.lost = 0 // the row may name another owner under the same generation
		s.row.generation, s.row.known = s.row.copy.Row().Generation, false
	case protocol.WentBack:
		s.row.behind = true
	default:
		return
	}
	s.aim.rest = t.now.Mono.Add(t.cfg.TTL)
	s.at(t, s.aim.rest)
}

// claimed concludes a write of a shard that this worker does not hold. It starts nothing: the next tend finds in the
// row whose the shard is.
func (s *shard) claimed(t *turn, what doing, a protocol.Answer, h *happened) {
	at := s.row.copy.Row()
	switch {
	// Usually another worker was faster. The copy has the present row.
	case a.Verdict != protocol.Stored:
		if what == claiming && a.Verdict != protocol.Again {
			if s.want == nil { // otherwise contention.go counts it
				t.report(event.Event{Kind: event.Contended, Shard: s.name, Generation: at.Generation, Peer: at.Owner.Name})
			}
			s.aim.paused, h.look = t.now.Mono.Add(stillFor), true // the plan may have changed
		}
	case what == making || what == reviving:
		t.report(event.Event{Kind: event.Created, Shard: s.name, Generation: at.Generation})
		h.back = true
	case what == quarantining:
		t.report(event.Event{
			Kind: event.Quarantined, Shard: s.name, Generation: at.Generation, Reason: at.Last.Reason, Attempt: int(at.Attempts()),
		})
	case what == removing:
		t.report(event.Event{Kind: event.Removed, Shard: s.name})
		h.removed = true
	}
}
