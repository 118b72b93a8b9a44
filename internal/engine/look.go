package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// How closely a worker looks. A settled fleet is looked at once a beat, and only
// its seats: what it costs depends on the workers and not on the shards.
const (
	stillFor     = 500 * time.Millisecond // seats that stood still for so long are settled
	lookSuspect  = 500 * time.Millisecond // a seat has missed a beat
	lookDying    = 200 * time.Millisecond // a seat is about to expire, here or for somebody who looked earlier
	lookUnstill  = 250 * time.Millisecond // seats come and go
	lookMoving   = 120 * time.Millisecond // a shard of this worker's is in a move
	lookWaiting  = 250 * time.Millisecond // … and has been for some time
	movingPrompt = 5 * time.Second        // until then it is lookMoving
)

// A read that is under way.
type read struct {
	id    serial
	begun order // the step it was sent in
	sent  bool
	lax   bool          // eventually consistent
	asked Instant       // when it was sent
	took  time.Duration // by the last one
	rest  Instant       // not again before
	try   retry
}

// looks are this worker's reads of the table.
//
// Invariant: one listing of a kind is under way at a time, so a later answer was
// asked for later.
type looks struct {
	count      serial
	seats      read
	rows       read
	rowsWanted bool
	rowsDue    Instant // when they will be
	rowsRead   Instant // when they were last asked for
	rowsStep   order   // the step in which the rows were last read in full
	planWanted bool    // the seats have to be read, and the plan made: both after the rows
	peers      []peer  // sorted by incarnation; this worker is not one
	seen       Instant // when the seats were last seen, …
	met        Instant // … and first: that is for large fleets
	metStep    order
	seeking    bool    // it plans although it has not listed the rows
	expire     Instant // when the next of them is to be evicted
	next       Instant
	audit      Instant
	away       time.Duration // how far away the table is: how long its quickest answer took
	moving     Instant       // since when shards of this worker's have been in moves; 0: none are
	wake       Instant
}

// A peer is another worker's seat as this one sees it.
type peer struct {
	seat       lease.Seat
	since      Instant // when its beat was first seen
	suspect    bool
	unreadable bool // it is there, and alive for all that anybody knows
	evict      retry
	evicting   lease.Write
}

func (e *Engine) wantRows() { e.looks.rowsWanted = true }

// wantRowsSoon is for what happens often: shards that are finished or given back
// one after the other are read together.
func (e *Engine) wantRowsSoon() {
	l := &e.looks
	l.rowsDue = min(l.rowsDue, max(e.now.Mono, l.rowsRead.Add(e.beat/4)))
}

// keepLooking sends the reads that are due.
func (e *Engine) keepLooking() {
	l := &e.looks
	l.wake = Never
	if e.seat.phase != seated {
		return
	}
	if at := min(l.audit, l.rowsDue); e.now.Mono < at {
		l.wake = at
	} else {
		e.wantRows() // an answer under way, or its next try, wakes the worker
	}
	e.keepEvicting()
	if l.rowsWanted && l.rows.due(e.now.Mono, &l.wake) {
		l.rowsWanted, l.rowsDue, l.rowsRead = false, Never, e.now.Mono
		l.audit = e.now.Mono.Add(e.jitter(max(e.cfg.Audit, audits*e.turn(1+len(l.peers)))))
		l.wake = min(l.wake, l.audit)
		e.list(&l.rows, lease.KindLease, false)
	}
	if !l.seats.due(e.now.Mono, &l.wake) {
		return
	}
	switch {
	case l.planWanted:
		e.list(&l.seats, lease.KindSeat, false)
	case e.now.Mono >= l.next:
		e.list(&l.seats, lease.KindSeat, true)
		e.readMoving()
	default:
		l.wake = min(l.wake, l.next)
	}
}

// due reports whether to ask now; wake is lowered to when, if later.
func (r *read) due(now Instant, wake *Instant) bool {
	if r.sent || !r.try.due(now, wake) {
		return false
	}
	if now < r.rest {
		*wake = min(*wake, r.rest)
		return false
	}
	return true
}

// answered lets a read rest for four times as long as it took, and the one before it,
// within reason. While many things change many workers want to read much; a store that
// becomes slow under that is asked less, and has time left for heartbeats and claims. One
// slow answer does not show that the store is slow: this worker may have been paused. Nor
// does the time that every answer takes: a table that is far away gains nothing from rests.
func (l *looks) answered(r *read, now Instant, longest time.Duration) {
	took := now.Sub(r.asked)
	r.rest = now.Add(min(4*(min(took, cmp.Or(r.took, took))-l.away), longest))
	r.sent, r.took = false, took
}

// near notes how long an answer took.
func (l *looks) near(took time.Duration) { l.away = min(cmp.Or(l.away, took), took) }

// again is the read of a worker that starts over: a slow store is the same store.
func (r *read) again() read { return read{rest: r.rest, took: r.took} }

func (e *Engine) list(r *read, kind lease.Kind, lax bool) {
	e.looks.count++
	r.id, r.begun, r.asked, r.sent, r.lax = e.looks.count, e.step, e.now.Mono, true, lax
	e.do(List{Read: uint64(r.id), Query: lease.Query{Group: e.cfg.Group, Kind: kind, Eventually: lax}})
}

// readMoving reads the rows that are in a move of this worker's: one by one, or
// all in one listing where that is cheaper.
func (e *Engine) readMoving() {
	var moving []*shard
	for _, s := range e.shards {
		if s.asks() || s.t.on && s.t.offeredTo != "" || e.now.Mono < s.given {
			moving = append(moving, s)
		}
	}
	if 4*len(moving) > 8+len(e.shards)/2 {
		e.wantRows()
		return
	}
	for _, s := range moving {
		e.get(s)
	}
}

func (e *Engine) get(s *shard) {
	if s.getting {
		return
	}
	s.getting, s.asked = true, e.step
	e.looks.count++
	e.do(Get{Read: uint64(e.looks.count), Key: s.copy.Key()})
}

// pace is how long until the next look.
func (e *Engine) pace() time.Duration {
	l := &e.looks
	d := e.beat
	if e.now.Mono < e.fleet.changed.Add(stillFor) {
		d = min(d, lookUnstill)
	}
	for i := range l.peers {
		p := &l.peers[i]
		if !p.unreadable { // a worker with a shorter lease is looked at once per its heartbeat
			d = min(d, max(p.seat.TTL/3, lookMoving))
		}
		switch age := e.now.Mono.Sub(p.since); {
		case p.unreadable || !p.suspect:
		case age >= p.seat.TTL-p.seat.TTL/3:
			d = min(d, lookDying)
		default:
			d = min(d, lookSuspect)
		}
	}
	switch {
	case !e.moving():
		l.moving = 0
	case l.moving == 0:
		l.moving = e.now.Mono
		fallthrough
	case e.now.Mono.Sub(l.moving) < movingPrompt:
		d = min(d, lookMoving)
	default:
		d = min(d, lookWaiting)
	}
	return e.jitter(max(d, e.restraint()))
}

// moving reports whether this worker is a side of a move.
func (e *Engine) moving() bool {
	return e.leave.on || e.fleet.asks > 0 || e.fleet.givings > 0
}

// look makes the next look happen at most d from now.
func (e *Engine) look(d time.Duration) {
	e.looks.next = min(e.looks.next, e.now.Mono.Add(d))
}

func (e *Engine) listed(in Listed) {
	l := &e.looks
	switch serial(in.Read) {
	case l.seats.id:
		l.answered(&l.seats, e.now.Mono, e.beat)
		if e.readFailed(&l.seats, longestPause, in.Err) {
			return
		}
		l.near(l.seats.took)
		if l.seen == 0 && e.cfg.ListedRows > 0 {
			l.met, l.metStep = e.now.Mono, e.step
		}
		l.seen = e.now.Mono
		e.sawSeats(in)
		l.next = e.now.Mono.Add(e.pace())
	case l.rows.id:
		l.answered(&l.rows, e.now.Mono, 4*e.beat)
		if e.readFailed(&l.rows, 4*longestPause, in.Err) {
			if e.large() {
				e.takeTurn() // by what this one asks for others would fail
			} else {
				e.wantRows()
			}
			return
		}
		e.sawRows(in)
	}
}

// readFailed paces the repetition of a read that got no answer.
func (e *Engine) readFailed(r *read, longest time.Duration, err error) bool {
	if err == nil {
		r.try = retry{}
		e.faults.answered = e.step
		return false
	}
	if !e.waits(err) {
		e.storeFailed("", err)
	}
	r.rest = min(r.rest, e.now.Mono.Add(longest))
	r.try.failed(e.now.Mono, e.beat/16, e.beat/2)
	return true
}

// sawRows takes in a complete listing of the rows.
func (e *Engine) sawRows(in Listed) {
	l := &e.looks
	e.malformed(lease.KindLease, in.Unreadable, true)
	names := make([]string, 0, len(in.Records)+len(in.Unreadable))
	for _, r := range in.Records {
		names = append(names, r.Key().Name)
	}
	for _, k := range in.Unreadable {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	e.know(slices.Compact(names))
	at := 0
	for _, s := range e.shards { // both are sorted
		s.missing, s.malformed = true, false
		e.checked(s)
		for at < len(in.Records) && in.Records[at].Key().Name <= s.name {
			if row, ok := in.Records[at].(lease.Row); ok {
				s.missing = false
				e.saw(s, row)
			}
			at++
		}
	}
	for _, key := range in.Unreadable {
		if s := e.shard(key.Name); s != nil {
			s.missing, s.malformed = false, true
			s.mine, s.wanted = false, false // what cannot be read is not written over
		}
	}
	begun := l.rows.begun
	e.shards = slices.DeleteFunc(e.shards, func(s *shard) bool { return s.missing && e.vanished(s, begun) })
	l.rowsStep, l.planWanted = e.step, true
	e.tendAllSoon()
}

// know makes sure that these names, which are sorted, are shards; in one pass.
func (e *Engine) know(names []string) {
	all, at := make([]*shard, 0, max(len(e.shards), len(names))), 0
	for _, name := range names {
		for at < len(e.shards) && e.shards[at].name < name {
			all = append(all, e.shards[at])
			at++
		}
		if at == len(e.shards) || e.shards[at].name != name {
			all = append(all, e.newShard(name))
		}
	}
	e.shards = append(all, e.shards[at:]...)
}

// vanished is about a shard that a complete listing lacks: a row was never made,
// or it is a tombstone. It reports whether there is nothing left to know.
func (e *Engine) vanished(s *shard, begun order) bool {
	_, busy := s.copy.Open()
	if busy || s.read >= begun {
		return false // the listing may be older than what is known
	}
	if s.t.on {
		e.get(s) // a holder of its own asks the row itself
		return false
	}
	if row := s.copy.Row(); row.Generation == 0 || row.Removed {
		return s.unlisted() && s.running == 0
	}
	e.forget(s, e.seat.me)
	s.copy = protocol.NewCopy(s.copy.Key(), e.seat.me)
	e.isGone(s)
	return false
}

// isGone is about a shard in whose place there is a tombstone, or nothing any more. A
// tombstone says that somebody saw the source omit the shard. What the source told this
// worker before counts no more; only a listing asked for from now on brings it back.
func (e *Engine) isGone(s *shard) {
	s.gone, s.listed, s.absent = e.step, false, 0
	e.pollSoon()
}

func (e *Engine) got(in Got) {
	s := e.shard(in.Key.Name)
	if s == nil {
		return
	}
	s.getting = false
	if s.unread = in.Err != nil && !e.waits(in.Err); s.unread {
		e.storeFailed(s.name, in.Err)
	}
	if in.Err != nil { // the next look asks again
		if s.mine || e.large() {
			e.at(s, e.now.Mono.Add(min(e.beat/8, longestPause)))
		}
		return
	}
	e.faults.answered = e.step
	_, busy := s.copy.Open()
	guessed, generation := s.guessed(), s.generation
	e.checked(s)
	switch row, ok := in.Record.(lease.Row); {
	case ok:
		e.saw(s, row)
	case in.Record == nil && !busy && s.read < s.asked && s.t.on:
		e.over(s, event.CauseVanished, nil)
		e.vanished(s, s.asked)
	}
	if e.large() && (guessed || s.generation != generation) {
		e.planAgain()
	}
	e.tend(s)
}

// saw takes in a row that was read.
func (e *Engine) saw(s *shard, r lease.Row) {
	if s.copy.Saw(r) {
		e.news(s)
	}
}

// news notes when the row that is now known became known.
func (e *Engine) news(s *shard) {
	s.read = e.step
	if row := s.copy.Row(); row.Generation != s.generation {
		if row.Removed {
			e.isGone(s)
		}
		s.generation, s.since = row.Generation, e.now.Mono
		s.orphan, s.mine, s.wanted, s.lying = "", false, false, 0
	}
}

// sawSeats takes in a listing of the seats. One that may lag behind tells of beats
// and wants; who is there and who is not, only a consistent one.
func (e *Engine) sawSeats(in Listed) {
	l := &e.looks
	e.malformed(lease.KindSeat, in.Unreadable, !l.seats.lax)
	peers, changed, freed, found, dead := make([]peer, 0, len(in.Records)), false, false, false, false
	for _, r := range in.Records {
		seat, ok := r.(lease.Seat)
		switch {
		case !ok:
		case seat.Incarnation == e.seat.me:
			found = found || seat.Beat >= e.seat.seat.Beat || l.seats.begun <= e.seat.confirmed
		default:
			p, c, f := e.watch(seat)
			peers, changed, freed = append(peers, p), changed || c, freed || f
		}
	}
	for _, k := range in.Unreadable {
		if k.Kind != lease.KindSeat {
			continue // a record beside the seats
		}
		if inc := lease.Incarnation(k.Name); inc == e.seat.me {
			found = true // there, for all that can be read of it: the next beat finds out
			continue
		}
		peers = append(peers, peer{seat: lease.Seat{Incarnation: lease.Incarnation(k.Name)}, unreadable: true, since: e.now.Mono})
	}
	if !found && !l.seats.lax && l.seats.begun > e.seat.confirmed {
		e.loseSeat(event.CauseExpired, nil) // evicted; or the table went back, which the next seat finds out
		return
	}
	slices.SortFunc(peers, func(a, b peer) int { return strings.Compare(string(a.seat.Incarnation), string(b.seat.Incarnation)) })
	for _, old := range l.peers {
		if find(peers, old.seat.Incarnation) != nil {
			continue
		}
		changed = true
		if l.seats.lax {
			peers = append(peers, old)
		} else {
			e.tell(event.Event{Kind: event.PeerLeft, Peer: old.seat.Name, Task: old.seat.Task})
			dead = dead || !old.seat.Leaving || old.suspect
		}
	}
	slices.SortFunc(peers, func(a, b peer) int { return strings.Compare(string(a.seat.Incarnation), string(b.seat.Incarnation)) })
	l.peers, l.expire = peers, 0
	if dead { // who has left in good order has told what there was to tell
		e.lookAfter(e.beat)
	}
	if changed {
		e.fleet.changed = e.now.Mono
		e.look(lookUnstill)
	}
	if changed {
		e.wantPlan()
	} else if freed {
		e.wantPlanSoon()
	}
	e.readWants()
	if l.planWanted && !l.seats.lax && l.seats.begun >= l.rowsStep {
		l.planWanted = false
		e.plan()
	}
}

// watch takes in one seat of another worker: whether that changes who is to be
// reckoned with, and whether it has freed something.
func (e *Engine) watch(seat lease.Seat) (p peer, changed, freed bool) {
	old := find(e.looks.peers, seat.Incarnation)
	switch {
	case old == nil:
		e.tell(event.Event{Kind: event.PeerJoined, Peer: seat.Name, Task: seat.Task})
		return peer{seat: seat, since: e.now.Mono}, true, false
	case old.unreadable:
		return peer{seat: seat, since: e.now.Mono}, true, false
	case seat.Beat < old.seat.Beat:
		return *old, false, false // a read that lags behind
	case seat.Written() == old.seat.Written():
		p = *old
		if age := e.now.Mono.Sub(p.since); !p.suspect && age >= seat.TTL/3+seat.TTL/12 && p.seat.Confirmed() {
			p.suspect = true
			e.tell(event.Event{Kind: event.PeerSuspect, Peer: seat.Name})
		}
		return p, false, false
	}
	if seat.Leaving && !old.seat.Leaving {
		e.tell(event.Event{Kind: event.PeerLeaving, Peer: seat.Name})
	}
	changed = seat.Leaving != old.seat.Leaving || seat.Confirmed() != old.seat.Confirmed() || seat.MaxShards != old.seat.MaxShards
	return peer{seat: seat, since: e.now.Mono}, changed, seat.Freed != old.seat.Freed
}

// find is the peer of that incarnation; nil if there is none.
func find(peers []peer, inc lease.Incarnation) *peer {
	i, ok := slices.BinarySearchFunc(peers, inc, func(p peer, inc lease.Incarnation) int {
		return strings.Compare(string(p.seat.Incarnation), string(inc))
	})
	if !ok {
		return nil
	}
	return &peers[i]
}

// keepEvicting evicts the seats that have stood still for their lease time. Their
// deletion stands on the beat that was seen: either it lands or the next beat
// does, and if the deletion does the seat has stood still from the first sight
// until then.
func (e *Engine) keepEvicting() {
	l := &e.looks
	if e.now.Mono < l.expire {
		l.wake = min(l.wake, l.expire)
		return
	}
	l.expire = Never
	for i := range l.peers {
		p := &l.peers[i]
		mine := slices.Contains(e.seat.former, p.seat.Incarnation)
		if p.unreadable || p.evict.sent {
			continue
		}
		if at := p.since.Add(p.seat.TTL + e.reserve(p.seat.Incarnation)); e.now.Mono < at && !mine {
			l.expire = min(l.expire, at)
			continue
		}
		if e.now.Mono.Sub(l.seen) > min(2*lookSuspect, p.seat.TTL/3) {
			e.look(0) // this worker was paused, or p has a shorter lease: p may have beaten since the last look
			continue
		}
		if !p.evict.due(e.now.Mono, &l.expire) {
			continue
		}
		w, err := protocol.Evict(p.seat)
		if err != nil {
			e.storeFailed("", err)
			p.evict.failed(e.now.Mono, e.beat, e.cfg.TTL)
			l.expire = min(l.expire, p.evict.at)
			continue
		}
		p.evict.sent, p.evicting = true, w
		e.do(Send{Write: w})
	}
	l.wake = min(l.wake, l.expire)
}

// evicted takes in the answer to an eviction.
func (e *Engine) evicted(in Settled) {
	p := find(e.looks.peers, lease.Incarnation(in.Write.Key().Name))
	if p == nil || !p.evict.sent || p.evicting.Old.Written() != in.Write.Old.Written() {
		return
	}
	switch verdict, _ := protocol.Settle(e.seat.me, in.Write, in.Record, in.Err); verdict {
	case protocol.Stored:
		if in.Err == nil { // else somebody was first
			e.tell(event.Event{Kind: event.PeerEvicted, Peer: p.seat.Name, Task: p.seat.Task})
		}
		e.looks.peers = slices.DeleteFunc(slices.Clone(e.looks.peers), func(q peer) bool { return q.seat.Incarnation == p.seat.Incarnation })
		e.fleet.changed = e.now.Mono
		e.wantPlan()
		e.lookAfter(e.beat)
	case protocol.Unknown:
		e.storeFailed("", in.Err)
		p.evict.failed(e.now.Mono, e.beat/8, e.beat)
		e.looks.expire = min(e.looks.expire, p.evict.at)
	default: // a sign of life
		p.evict, p.since = retry{}, e.now.Mono
		e.look(0)
	}
}
