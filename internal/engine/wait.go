package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Acquiring a lease by name, without a plan.
//
//	wanted → row read → none, removed or free: acquired in one write
//	                  → held: the owner's seat is read → alive: both are read again within a heartbeat interval
//	                                                   → stands still for its lease time: evicted
//	                                                   → gone: after the lock delay, acquired
//
// A waiting session does not ask a living owner for a lease: it reads the row until the owner has
// released it. Each session reads after a random pause of its own, so the sessions acquire the lease
// in random order.
//
// Called by the spine of a session: wait for each lease that is not held, rivals.saw with reads of seats,
// rivals.settled with the answers to evictions.
//
// Its writes: the acquisition of a lease (BeginHeld, ReviveHeld, Claim, Recover), and the eviction of its owner. A crash
// after an acquisition leaves a row in the name of a dead session, for which other sessions wait as for any other. A
// crash after an eviction leaves rows without a living owner: every waiting session finds the seat gone by itself.
//
// A session evicts only the owners of leases that it waits for. The seat of a dead session stays while
// nobody wants a lease of it.
//
// Invariant: a lease is taken from its owner only if a consistent read that began after the row was
// read, or the deletion itself, has shown that the owner has no seat.
// Invariant: the lock delay counts from when this session first saw that the owner has no seat, or that a command took
// the lease from it, whether or not a caller has waited since. The loss was earlier, so the delay may be longer and is
// never shorter.
// Invariant: a seat is evicted only after this session has itself seen its heartbeat counter stand
// still for the seat's lease time. One that cannot be read is a sign of life as long as it changes: it is
// evicted when nobody has written it for ten times the longest lease time that this session knows.

// A wanted is what a caller of the session wants with a lease that the session does not hold. There is at most one: the
// shell refuses a second caller while the first one waits.
type wanted struct {
	id    uint64
	task  string
	delay time.Duration // its lock delay
	try   bool
	look  Instant // when the row is read again; 0: at once
}

// owner returns the owner that this session writes into the row.
func (w *wanted) owner(seat lease.Owner) lease.Owner {
	if w.task != "" {
		seat.Task = w.task
	}
	seat.LockDelay = w.delay
	return seat
}

// A waiter has the parts of its session that a lease needs to be acquired.
type waiter struct {
	self
	owners *owners
	rivals *rivals
	former []lease.Incarnation
}

// wait makes the next step for a lease that this session does not hold, and of which no write is open.
func (s *shard) wait(t *turn, w waiter) {
	unwanted := w.leaving || s.want == nil
	switch s.row.copy.Reconcile(false, unwanted || s.running != 0) {
	case protocol.GiveBack:
		s.giveBack(t, w.self, lease.ReasonReleased)
		return
	case protocol.StartIt:
		if s.row.copy.Row().Owner != s.want.owner(w.owner) { // acquired for an earlier caller, with another task
			s.claimAs(t, protocol.Claim, w)
			return
		}
		s.start(t)
		return
	case protocol.ClaimAgain:
		s.claimAs(t, protocol.Claim, w)
		return
	}
	switch {
	// While an earlier handler runs, this session does not acquire the lease again.
	case unwanted || s.running != 0:
	case s.before(t, s.aim.rest):
	case s.row.malformed:
		s.putOff(t, false)
	case !s.row.known:
		s.get(t)
	default:
		s.aim.rest = 0
		s.contend(t, w)
	}
}

// doubt makes the session read a row again that it knew before the lease was wanted. If the last read
// showed the row free or its own, it does not: the conditional write of the claim shows as much.
func (s *shard) doubt() {
	at := s.row.copy.Row()
	free := at.Owner.IsZero() && !at.Finished && !at.Quarantined && at.Reserved.IsZero() || at.Owner.Incarnation == s.mine()
	s.row.known, s.row.malformed = s.row.known && free && !s.row.malformed, false
}

// contend makes the next step towards a lease whose row is known. If another session is faster, the write is refused,
// and the row that the refusal shows is the state from which the next step is made.
func (s *shard) contend(t *turn, w waiter) {
	switch at := s.row.copy.Row(); {
	case at.Generation == 0:
		wr, err := protocol.BeginHeld(t.cfg.Group, s.name, s.want.owner(w.owner), t.stamp())
		s.send(t, claiming, wr, err)
	case at.Removed:
		s.claimAs(t, protocol.ReviveHeld, w)
	// A free lease may be reserved: an operator has given it to another session for a time, or the lock delay of the
	// holder from which an operator took it is not over.
	case at.Finished || at.Quarantined || at.Owner.IsZero() && s.before(t, s.reserved(t)):
		s.putOff(t, t.now.Mono < s.row.delayed())
	case at.Owner.IsZero():
		s.claimAs(t, protocol.Claim, w)
	default:
		s.outlast(t, w)
	}
}

// claimAs sends the write that makes this session the owner of an existing row. A crash before the answer is read leaves
// the session as owner: its seat stands still and is evicted, and the lock delay passes, before another session has the
// lease.
func (s *shard) claimAs(t *turn, transition func(lease.Row, lease.Owner, protocol.Stamp) (lease.Write, error), w waiter) {
	wr, err := transition(s.row.copy.Row(), s.want.owner(w.owner), t.stamp())
	s.send(t, claiming, wr, err)
}

// outlast waits until another session has released the lease or is lost.
func (s *shard) outlast(t *turn, w waiter) {
	at := s.row.copy.Row()
	inc := at.Owner.Incarnation
	switch w.owners.recent(t, inc, s.row.read) {
	case gone:
		if s.row.lost == 0 {
			s.row.lost = t.now.Mono
		}
		if !s.before(t, s.row.lost.Add(at.Owner.LockDelay)) {
			s.claimAs(t, protocol.Recover, w)
			return
		}
		s.putOff(t, true)
	// If a loss was noted, it is forgotten: the lock delay begins when the seat is gone again.
	case alive:
		s.row.lost = 0
		w.rivals.outlast(t, s, inc, slices.Contains(w.former, inc))
		s.putOff(t, false)
	default:
		s.at(t, t.now.Mono.Add(t.beat/16))
	}
}

// putOff is for a lease that is not available. A caller that only tries is told so, and any caller if the lease is
// finished. Others wait on: the row is read again after a random pause of a half to a whole heartbeat interval. The pause is
// random so that the waiting sessions acquire the lease in random order.
func (s *shard) putOff(t *turn, lost bool) {
	at := s.row.copy.Row()
	if s.row.malformed {
		at = lease.Row{}
	}
	if s.want.try || at.Finished {
		t.do(Unavailable{Name: s.name, ID: s.want.id, Row: at, Lost: lost})
		s.want = nil
		return
	}
	if s.want.look <= s.row.answered { // the row was read since, for this purpose or another
		spread := uint64(t.beat/2 + 1)
		s.want.look = t.now.Mono.Add(t.beat - time.Duration(rebalance.Tie(t.now.Chance+s.name)%spread))
	}
	if !s.before(t, s.want.look) {
		s.get(t)
	}
}

// Rivals are the seats of owners for whose leases this session waits, sorted by incarnation.
type rivals []rival

// A rival is the seat of one owner for whose leases this session waits.
type rival struct {
	inc   lease.Incarnation
	seat  lease.Seat
	since Instant // when its present heartbeat was first seen
	seen  Instant // when the seat was last read, or needed
	late  bool
	evict sending

	unreadable bool          // the seat exists and cannot be read; seat is what it was before, if it could be
	spoilt     lease.WriteID // the write that made it so

	begun order // the step in which the eviction was first sent
}

func (r rivals) find(inc lease.Incarnation) *rival {
	return find(r, inc, func(of *rival) lease.Incarnation { return of.inc })
}

// saw takes a read of a seat.
func (r *rivals) saw(t *turn, seat lease.Seat) {
	of := know((*[]rival)(r), seat.Incarnation, func(of *rival) lease.Incarnation { return of.inc })
	of.inc = seat.Incarnation
	if of.unreadable || of.seat.Written() != seat.Written() && seat.Beat >= of.seat.Beat {
		*of = rival{inc: of.inc, seat: seat, since: t.now.Mono} // an eviction that is under way is refused
	}
	of.seen = t.now.Mono
}

// sawSpoilt takes a read of a seat that cannot be read, and which that write has made.
func (r *rivals) sawSpoilt(t *turn, inc lease.Incarnation, written lease.WriteID) {
	of := know((*[]rival)(r), inc, func(of *rival) lease.Incarnation { return of.inc })
	of.inc = inc
	if !of.unreadable || of.spoilt != written {
		*of = rival{inc: inc, seat: of.seat, since: t.now.Mono, unreadable: true, spoilt: written}
	}
	of.seen = t.now.Mono
}

// patience returns how long a seat may stand still.
func (r rivals) patience(t *turn, of *rival) time.Duration {
	if !of.unreadable {
		return of.seat.TTL
	}
	longest := t.cfg.TTL
	for i := range r {
		longest = max(longest, r[i].seat.TTL)
	}
	return spoiltFor * longest
}

// outlast evicts a seat that has stood still for too long, and at once one of this session's own former
// seats. The deletion is conditional on the heartbeat that stood still, so a session that comes back in time keeps its
// seat.
func (r *rivals) outlast(t *turn, s *shard, inc lease.Incarnation, former bool) {
	of := r.find(inc)
	if of == nil || of.evict.try.sent {
		return
	}
	at := of.since
	if !former {
		at = at.Add(r.patience(t, of))
	}
	switch seat := of.seat; {
	case s.before(t, at):
		if age := t.now.Mono.Sub(of.since); !of.late && !of.unreadable && age >= seat.TTL/3+seat.TTL/12 {
			of.late = true
			t.report(event.Event{Kind: event.PeerSuspect, Peer: seat.Name})
		}
	case of.evict.open():
		of.evict.keep(t)
	case of.evict.try.due(t):
		w, err := protocol.Evict(seat)
		if of.unreadable {
			w, err = protocol.EvictSpoilt(lease.Key{Group: t.cfg.Group, Kind: lease.KindSeat, Name: string(inc)}, of.spoilt)
		}
		of.evict.send(t, w, err)
		of.begun = t.step
	}
}

// settled takes the answer to an eviction, and returns the incarnation of its seat. If the seat is
// gone, evicted is the step in which the eviction was sent.
func (r *rivals) settled(t *turn, me lease.Incarnation, in Settled) (inc lease.Incarnation, evicted order) {
	of := r.find(lease.Incarnation(in.Write.Key().Name))
	if of == nil {
		return "", 0
	}
	verdict, now, decided := of.evict.settled(t, me, in, t.beat/8, t.beat)
	switch {
	case !decided:
		return "", 0
	case verdict == protocol.Stored:
		if in.Err == nil { // otherwise another session evicted it first
			t.report(event.Event{Kind: event.PeerEvicted, Peer: cmp.Or(of.seat.Name, string(of.inc)), Task: of.seat.Task})
		}
		inc, evicted = of.inc, of.begun
		r.drop(func(of rival) bool { return of.inc == inc })
		return inc, evicted
	}
	of.since = t.now.Mono // a sign of life
	if seat, ok := now.(lease.Seat); ok {
		of.seat, of.unreadable, of.spoilt = seat, false, ""
	}
	return of.inc, 0
}

func (r *rivals) drop(which func(rival) bool) { *r = slices.DeleteFunc(*r, which) }

// prune drops the seats for whose leases this session no longer waits. A seat that is read again later has to stand
// still for its whole lease time again.
func (r *rivals) prune(t *turn) {
	all := *r
	r.drop(func(of rival) bool {
		return !of.evict.open() && t.now.Mono.Sub(of.seen) > max(4*t.beat, all.patience(t, &of))
	})
}

// fails reports whether an eviction waits to be repeated.
func (r rivals) fails() bool {
	return slices.ContainsFunc(r, func(of rival) bool { return of.evict.try.tries > 0 })
}

// wanted counts the leases that callers wait for.
func (l *shards) wanted() (n int) {
	for _, s := range l.all {
		if s.want != nil {
			n++
		}
	}
	return n
}

// mostLosses is how many leases are kept although nobody wants them, because their lock delays are running. If there are
// more, those that were lost first are dropped, and their lock delays begin again when a caller comes.
const mostLosses = 2000

// forgetDone drops the leases that this session neither holds nor wants. It keeps those whose owners are lost, and those
// that are reserved by the wall clock: lock delays and reservations count from when this session first saw them, and
// callers that only try would never see their end.
func (l *shards) forgetDone(t *turn) {
	var losses []Instant
	l.all = slices.DeleteFunc(l.all, func(s *shard) bool {
		at := s.row.copy.Row()
		switch {
		case !s.idle(at) || s.want != nil || at.Reserved.For != "" && t.now.Wall.Before(at.Last.At.Add(at.Reserved.Delay+at.Reserved.Lasts)):
			return false
		case s.row.lossSeen() > 0:
			losses = append(losses, s.row.lossSeen())
			return false
		}
		return true
	})
	over := len(losses) - mostLosses
	if over <= 0 {
		return
	}
	slices.Sort(losses)
	first := losses[over-1]
	l.all = slices.DeleteFunc(l.all, func(s *shard) bool {
		seen := s.row.lossSeen()
		if over == 0 || seen == 0 || seen > first || s.want != nil || !s.idle(s.row.copy.Row()) {
			return false
		}
		over--
		return true
	})
}

// lossSeen returns from when the lock delay of a holder that has lost the lease counts; 0: there is no such delay.
func (r *row) lossSeen() Instant {
	switch at := r.copy.Row(); {
	case at.Reserved.Delay > 0:
		return r.since
	case at.Owner.LockDelay > 0:
		return r.lost
	}
	return 0
}
