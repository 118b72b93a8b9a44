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
//	                  → held, and the caller only tries → its owner looks alive: the caller is refused
//	                                                    → looks dead: as for a caller that waits, until it beats
//	                  → free, after a failure of this session: left to others for a time, unless there are none
//
// A waiting session does not ask a living owner for a lease: it reads the row until the owner has
// released it. Each session reads after a random pause of its own, so the sessions acquire the lease
// in random order.
//
// Called by the spine of a session: wait for each lease that is not held, rivals.saw with reads of seats,
// rivals.settled with the answers to evictions.
//
// Its writes: the acquisition of a lease (BeginHeld, ReviveHeld, Claim, Recover), the eviction of its owner, and the
// quarantine of a lease that has failed too often (shard.setAside). A crash
// after an acquisition leaves a row in the name of a dead session, for which other sessions wait as for any other. A
// crash after an eviction leaves rows without a living owner: every waiting session finds the seat gone by itself.
//
// A session remembers the seats of the owners that it has met. So when a caller that only tries comes again, the
// session knows that a heartbeat has stood still meanwhile. For the seats of dead sessions whose leases nobody wants,
// see roll.go.
//
// Invariant: a lease is taken from its owner only if a consistent read that began after the row was
// read, or the deletion itself, has shown that the owner has no seat.
// Invariant: the lock delay counts from when this session first saw that the owner has no seat, or that a command took
// the lease from it, whether or not a caller has waited since. The loss was earlier, so the delay may be longer and is
// never shorter.
// Invariant: a seat is evicted only after this session has itself seen its heartbeat counter stand
// still for the seat's lease time, by its own monotonic clock. The time in the seat only decides whether a caller that
// only tries waits for that: otherwise it is refused at once. A seat that cannot be read is a sign of life as long as
// it changes: it is evicted when nobody has written it for ten times the longest lease time that this session knows.

// A wanted is what a caller of the session wants with a lease that the session does not hold. There is at most one: the
// shell refuses a second caller while the first one waits.
type wanted struct {
	id    uint64
	task  string
	delay time.Duration // its lock delay
	limits
	try   bool
	wait  time.Duration // of a caller that only tries: how long it waits (Acquire.Wait)
	since Instant       // when the caller came
	watch lease.WriteID // of a caller that only tries: the heartbeat that looked dead; empty: none has
	look  Instant       // when the row is read again; 0: at once
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
	census *census
	roll   *roll
	proofs *proofs
	former []lease.Incarnation
}

// A refusal is why a lease is not available at present.
type refusal struct {
	lost  bool      // the holder is gone, and its lock delay is not over
	left  bool      // the lease is free, and this session leaves it to others
	until Instant   // when it ends, at the latest; 0: that is unknown; Never: an answer of the store decides it
	beat  time.Time // the stored time of the holder's heartbeat; zero: its seat was not read
}

// deadline returns until when the caller waits. One that only tries waits for the answer to an eviction, and otherwise
// as long as it wants to.
func (w *wanted) deadline(of refusal) Instant {
	switch {
	case !w.try || of.until == Never:
		return Never
	case w.wait < 0:
		return 0
	case w.wait > 0:
		return w.since.Add(min(w.wait, Never.Sub(w.since)))
	}
	return of.until
}

// watches returns why the lease of a holder that has a seat is not available. For the holder's lease time, a caller
// that only tries watches a holder that looks dead. A heartbeat ends that: the holder lives, whatever time is in its
// seat.
func (w *wanted) watches(t *turn, of *rival) (why refusal) {
	switch {
	case of == nil:
		return why
	case of.evict.open():
		why.until = Never
	case of.unreadable:
		return why
	}
	if why.beat = of.seat.At; w.watch == "" && of.looksDead(t) {
		w.watch = of.seat.Written()
	}
	if w.watch == of.seat.Written() {
		why.until = max(why.until, of.since.Add(of.seat.TTL))
	}
	return why
}

// delayed returns the refusal because of a lock delay that lasts until end. A caller that only tries waits for the end
// if it is near: otherwise programs that live for less than the delay would never acquire the lease.
func delayed(t *turn, end Instant) refusal {
	if end > t.now.Mono.Add(t.cfg.TTL) {
		end = 0
	}
	return refusal{lost: true, until: end}
}

// delays is delayed for the lock delay of a holder of this session that was cut off. When it is over, the answer to the
// release decides.
func (of *tenure) delays(t *turn, r *row) refusal {
	end := of.wind.hard.Add(r.copy.Row().Owner.LockDelay)
	if t.now.Mono >= end {
		return refusal{lost: true, until: Never}
	}
	return delayed(t, end)
}

// wait makes the next step for a lease that this session does not hold, and of which no write is open.
func (s *shard) wait(t *turn, w waiter, h *happened) {
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
		s.putOff(t, refusal{})
	case !s.row.known:
		s.get(t)
	default:
		s.aim.rest = 0
		s.contend(t, w, h)
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
func (s *shard) contend(t *turn, w waiter, h *happened) {
	switch at := s.row.copy.Row(); {
	case at.Generation == 0:
		wr, err := protocol.BeginHeld(t.cfg.Group, s.name, s.want.owner(w.owner), t.stamp())
		s.send(t, claiming, wr, err)
	case at.Removed:
		w.claimFree(t, s, protocol.ReviveHeld)
	// A free lease may be reserved: an operator has given it to another session for a time, or the lock delay of the
	// holder from which an operator took it is not over.
	case at.Finished || at.Quarantined || at.Owner.IsZero() && s.before(t, s.reserved(t)):
		why := refusal{}
		if end := s.row.delayed(); t.now.Mono < end {
			why = delayed(t, max(end, s.reserved(t)))
		}
		s.putOff(t, why)
	case !at.Owner.IsZero():
		s.outlast(t, w, h)
	case s.setAside(t, false, s.want.attempts, w.census.since, h):
		w.undecided(t, s, h)
	default:
		w.claimFree(t, s, protocol.Claim)
	}
}

// othersFirst returns until when a session leaves a lease to others that it has just released; 0: it does not. It does
// after a failure or a stall. Sessions that wait poll only about once per heartbeat interval. So a session whose holders
// fail at once would acquire the lease before any of them, again and again, and all failures would be under its name. The
// time is long enough for one poll of each waiter with the same lease time.
func (w *winding) othersFirst(t *turn) Instant {
	if !t.cfg.Discard || w.blame == noFailure {
		return 0
	}
	return t.now.Mono.Add(t.beat + t.beat/8)
}

// claimFree acquires a lease that nobody holds, unless this session leaves it to others (othersFirst). It leaves to
// nobody a lease that is reserved for it, and none at all if the seats show no other session: the seats are listed if
// the last listing does not show another session and is older than a heartbeat interval. Whether another session waits
// for this lease is not asked: a seat shows the start of a wait late, and calls that only try not at all.
//
// Only the memory of the session has this. A program that was started again may acquire the lease at once.
func (w waiter) claimFree(t *turn, s *shard, transition func(lease.Row, lease.Owner, protocol.Stamp) (lease.Write, error)) {
	if t.now.Mono < s.aim.leave && s.row.copy.Row().Reserved.For != t.cfg.Name {
		switch others, known := w.roll.others(t); {
		case !known: // the answer to the listing decides
			s.at(t, s.aim.leave)
			return
		case others:
			s.at(t, s.aim.leave)
			s.putOff(t, refusal{left: true, until: s.aim.leave})
			return
		}
	}
	s.claimAs(t, transition, w)
}

// claimAs sends the write that makes this session the owner of an existing row. A crash before the answer is read leaves
// the session as owner: its seat stands still and is evicted, and the lock delay passes, before another session has the
// lease.
func (s *shard) claimAs(t *turn, transition func(lease.Row, lease.Owner, protocol.Stamp) (lease.Write, error), w waiter) {
	wr, err := transition(s.row.copy.Row(), s.want.owner(w.owner), t.stamp())
	s.send(t, claiming, wr, err)
}

// outlast waits until another session has released the lease or is lost.
func (s *shard) outlast(t *turn, w waiter, h *happened) {
	at := s.row.copy.Row()
	inc := at.Owner.Incarnation
	switch w.owners.recent(t, inc, s.row.read) {
	case gone:
		if s.row.lost == 0 {
			s.row.lost = t.now.Mono
		}
		end := s.row.lost.Add(at.Owner.LockDelay)
		switch {
		case s.before(t, end):
			s.putOff(t, delayed(t, end))
		case s.setAside(t, true, s.want.attempts, w.census.since, h):
			w.undecided(t, s, h)
		default:
			s.claimAs(t, protocol.Recover, w)
		}
	// If a loss was noted, it is forgotten: the lock delay begins when the seat is gone again.
	case alive:
		s.row.lost = 0
		of := w.rivals.outlast(t, s, inc, slices.Contains(w.former, inc), w.proofs.of(inc))
		s.putOff(t, s.want.watches(t, of))
	default:
		s.at(t, t.now.Mono.Add(t.beat/16))
	}
}

// undecided is for a lease that has failed too often: if the listing of the seats fails that decides whether the lease is
// quarantined, the lease is not available.
func (w waiter) undecided(t *turn, s *shard, h *happened) {
	if h.suspects && w.census.fails() {
		s.putOff(t, refusal{})
	}
}

// putOff is for a lease that is not available. A caller that only tries is told so, if it does not want to wait until
// it is, and any caller if the lease is finished. Others wait on: the row is read again after a random pause of a half
// to a whole heartbeat interval. The pause is random so that the waiting sessions acquire the lease in random order.
func (s *shard) putOff(t *turn, why refusal) {
	if s.row.copy.Row().Finished && !s.row.malformed || !s.before(t, s.want.deadline(why)) {
		s.refuse(t, why)
		return
	}
	if s.want.look <= s.row.answered { // the row was read since, for this purpose or another
		spread := uint64(t.beat/2 + 1)
		s.want.look = t.now.Mono.Add(t.beat - time.Duration(rebalance.Tie(t.now.Chance+s.name)%spread))
		if s.want.try {
			s.tell(t, why, true)
		}
	}
	if !s.before(t, s.want.look) {
		s.get(t)
	}
}

// refuse tells the caller that the lease is not available, and ends its wait.
func (s *shard) refuse(t *turn, why refusal) {
	s.tell(t, why, false)
	s.want = nil
}

// tell tells the caller why the lease is not available at present.
func (s *shard) tell(t *turn, why refusal, waits bool) {
	at := s.row.copy.Row()
	if s.row.malformed {
		at = lease.Row{}
	}
	left := time.Duration(0)
	if why.left {
		left = why.until.Sub(t.now.Mono)
	}
	t.do(Unavailable{Name: s.name, ID: s.want.id, Row: at, Lost: why.lost, Left: left, Beat: why.beat, Waits: waits})
}

// Rivals are the seats of other sessions that this session has met, sorted by incarnation: those of owners of leases
// that it wanted, and those that looked dead in a listing.
type rivals []rival

// A rival is the seat of one other session.
type rival struct {
	inc   lease.Incarnation
	seat  lease.Seat
	since Instant // when its present heartbeat was first seen
	seen  Instant // when the last consistent read that showed this heartbeat was sent; 0: only a listing has
	late  bool
	evict sending
	proof error // why the eviction that was sent does not wait for the lease time; nil: it has

	untimely   bool          // its stored time looks old, or ahead, although it beats: that time says nothing
	unreadable bool          // the seat exists and cannot be read; seat is what it was before, if it could be
	spoilt     lease.WriteID // the write that made it so

	begun order // the step in which the eviction was first sent
}

// mostRivals is how many seats are remembered. If there are more, those that were met first are forgotten, and have to
// stand still for their whole lease time again.
const mostRivals = 1000

// untimely reports whether the time in a seat is older than its lease time, or ahead by more than a heartbeat interval.
func untimely(t *turn, seat lease.Seat) bool {
	age := t.now.Wall.Sub(seat.At)
	return age > seat.TTL || -age > seat.TTL/3
}

// looksDead reports whether the time in the seat is untimely, unless the session was seen to live with such a time.
// That is a reason to watch the seat, and none to evict it.
func (of *rival) looksDead(t *turn) bool {
	return !of.unreadable && !of.untimely && untimely(t, of.seat)
}

// written returns the write that made the seat what it is.
func (of *rival) written() lease.WriteID {
	if of.unreadable {
		return of.spoilt
	}
	return of.seat.Written()
}

func (r rivals) find(inc lease.Incarnation) *rival {
	return find(r, inc, func(of *rival) lease.Incarnation { return of.inc })
}

// named returns the name of the session of a seat, as far as it is known.
func (r rivals) named(inc lease.Incarnation) string {
	if of := r.find(inc); of != nil {
		return cmp.Or(of.seat.Name, string(inc))
	}
	return string(inc)
}

// spoilt reports whether a seat exists and cannot be read, as far as this session knows.
func (r rivals) spoilt(inc lease.Incarnation) bool {
	of := r.find(inc)
	return of != nil && of.unreadable
}

// saw takes a read of a seat. sent is when it was sent; 0: a listing that may lag behind has shown the seat.
func (r *rivals) saw(t *turn, seat lease.Seat, sent Instant) {
	of := know((*[]rival)(r), seat.Incarnation, func(of *rival) lease.Incarnation { return of.inc })
	of.inc = seat.Incarnation
	if of.unreadable || of.seat.Written() != seat.Written() && seat.Beat >= of.seat.Beat {
		// This heartbeat was sent after the known one was seen. So the clock is wrong if it says something else.
		known, age := of.seat.Confirmed() && !of.unreadable, t.now.Wall.Sub(seat.At)
		wrong := of.untimely || known && (age < 0 || age > t.now.Mono.Sub(of.since)+seat.TTL/3)
		// An eviction that is under way is refused.
		*of = rival{inc: of.inc, seat: seat, since: t.now.Mono, untimely: wrong && untimely(t, seat)}
	}
	if of.seat.Written() == seat.Written() {
		of.seen = max(of.seen, sent)
	}
}

// sawSpoilt is saw for a seat that cannot be read since the given write.
func (r *rivals) sawSpoilt(t *turn, inc lease.Incarnation, written lease.WriteID, sent Instant) {
	of := know((*[]rival)(r), inc, func(of *rival) lease.Incarnation { return of.inc })
	of.inc = inc
	if !of.unreadable || of.spoilt != written {
		*of = rival{inc: inc, seat: of.seat, since: t.now.Mono, unreadable: true, spoilt: written}
	}
	of.seen = max(of.seen, sent)
}

// gone forgets a seat that does not exist any more. An eviction that is under way is answered first.
func (r *rivals) gone(inc lease.Incarnation) {
	r.drop(func(of rival) bool { return of.inc == inc && !of.evict.open() })
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

// outlast evicts a seat that has stood still for too long, and at once one of this session's own former seats, or one
// whose session is dead (proven). The deletion is conditional on the heartbeat that stood still, so a session that
// comes back in time keeps its seat. It returns the seat as it is known; nil: it is not.
func (r *rivals) outlast(t *turn, s *shard, inc lease.Incarnation, former bool, proven *link) *rival {
	of := r.find(inc)
	if of == nil || of.evict.try.sent {
		return of
	}
	at := of.since
	switch {
	case proven != nil:
		of.proof = proven.proof()
	case !former:
		of.proof, at = nil, at.Add(r.patience(t, of))
	}
	if !s.before(t, at) {
		r.evict(t, of)
		return of
	}
	// The heartbeat stood still only until the last read was sent, and may have moved since: reads are rare.
	if stood := of.seen.Sub(of.since); !of.late && !of.unreadable && stood >= of.seat.TTL/3+of.seat.TTL/12 {
		of.late = true
		t.report(event.Event{Kind: event.PeerSuspect, Peer: of.seat.Name})
	}
	return of
}

// evict deletes a seat that has stood still, and repeats the deletion until it is answered.
func (r *rivals) evict(t *turn, of *rival) {
	switch {
	case of.evict.open():
		of.evict.keep(t)
	case of.evict.try.due(t):
		w, err := protocol.Evict(of.seat)
		if of.unreadable {
			w, err = protocol.EvictSpoilt(lease.Key{Group: t.cfg.Group, Kind: lease.KindSeat, Name: string(of.inc)}, of.spoilt)
		}
		of.evict.send(t, w, err)
		of.begun = t.step
	}
}

// settled takes the answer to an eviction, and returns the incarnation of its seat. If the seat is
// gone, evicted is the step in which the eviction was sent.
func (r *rivals) settled(t *turn, own *seat, in Settled) (inc lease.Incarnation, evicted order) {
	of := r.find(lease.Incarnation(in.Write.Key().Name))
	if of == nil {
		return "", 0
	}
	verdict, now, decided := of.evict.settled(t, own.me, in, t.beat/8, t.beat)
	switch {
	case !decided:
		return "", 0
	case verdict == protocol.Stored:
		if in.Err == nil && !own.was(of.inc) { // otherwise another session evicted it first, or it is no peer
			t.report(event.Event{Kind: event.PeerEvicted, Peer: cmp.Or(of.seat.Name, string(of.inc)), Task: of.seat.Task, Err: of.proof})
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

// prune forgets the seats that were met first, if there are too many.
func (r *rivals) prune() {
	over := len(*r) - mostRivals
	if over <= 0 {
		return
	}
	met := func(of rival) Instant { return max(of.since, of.seen) }
	var all []Instant
	for _, of := range *r {
		all = append(all, met(of))
	}
	slices.Sort(all)
	r.drop(func(of rival) bool { return !of.evict.open() && met(of) <= all[over-1] })
}

// fails reports whether an eviction waits to be repeated.
func (r rivals) fails() bool {
	return slices.ContainsFunc(r, func(of rival) bool { return of.evict.try.tries > 0 })
}

// holders returns the addresses at which the holders answer for whose leases callers wait, sorted by incarnation.
func (l *shards) holders(r rivals) (all []link) {
	for _, s := range l.all {
		if s.want == nil {
			continue
		}
		of := r.find(s.row.copy.Row().Owner.Incarnation)
		if of != nil && !of.unreadable && of.seat.Address != "" && of.seat.Confirmed() {
			all = append(all, link{inc: of.inc, address: of.seat.Address})
		}
	}
	slices.SortFunc(all, func(a, b link) int { return cmp.Compare(a.inc, b.inc) })
	return slices.CompactFunc(all, func(a, b link) bool { return a.inc == b.inc })
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

// forgetDone drops the leases that this session neither holds nor wants. It keeps those that it leaves to others, those
// whose owners are lost, and those that are reserved by the wall clock: lock delays and reservations count from when this
// session first saw them, and callers that only try would never see their end.
func (l *shards) forgetDone(t *turn) {
	var losses []Instant
	l.all = slices.DeleteFunc(l.all, func(s *shard) bool {
		at := s.row.copy.Row()
		switch {
		case !s.idle(at) || s.want != nil || t.now.Mono < s.aim.leave || at.Reserved.For != "" && t.now.Wall.Before(at.Last.At.Add(at.Reserved.Delay+at.Reserved.Lasts)):
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
