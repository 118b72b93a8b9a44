package engine

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The listings of the seats that each session sends now and then, so that a dead session is evicted also if nobody
// wants its leases.
//
//	a listing → a seat looks dead → when the seat has stood still for its lease time: read by itself → evicted
//	                              → its heartbeat has moved, or it is gone                            → forgotten
//
// A group lists its seats about four times a minute, whatever its size: each session takes the number of seats from its
// last listing, and pauses for a quarter of a minute for each of them. No session knows of the listings of others.
//
// A new session does not know how large the group is. Its first listing shows at most firstRoll records, and each other
// one at most twice as many as the one before. So while many sessions begin at once, short pauses go with small
// listings.
//
// A seat looks dead if its stored time is older than its lease time or ahead, or if this session has known its
// heartbeat for its lease time. The listing may lag behind: it only shows which seats to read.
//
// Called by the spine of a session: keep in each step, listed with listings. Called by a lease that its session leaves
// to others after a failure: others.
//
// Its write is the eviction of a dead session (rivals.evict). As after any eviction, a crash leaves rows without a
// living owner, which sessions that want them recover.
//
// Invariant: a seat is evicted only if a consistent read has shown the same heartbeat, and was sent at least the seat's
// lease time after this session first saw that heartbeat. The deletion is conditional on that heartbeat.

const (
	apartRolls = time.Minute / 4 // between two listings of a group, on average
	firstRoll  = 24              // how many records the first listing shows at most: about two read units of seats
)

// A roll is this session's share of the listings.
type roll struct {
	next   Instant // when the seats are listed next; 0: the session has had no seat yet
	limit  int     // how many records that shows at most
	try    retry
	asked  serial
	sent   Instant // when the last listing was sent
	seen   Instant // the same of the last one that was answered; 0: none was
	shared bool    // that one has shown the seat of another session
	doubts []doubt
}

// A doubt is a seat that looks dead, with the heartbeat that it had then.
type doubt struct {
	inc     lease.Incarnation
	written lease.WriteID
}

// keep looks at the seats that look dead, and lists the seats when that is due.
func (l *roll) keep(t *turn, me lease.Incarnation, r *rivals, o *owners) {
	l.doubts = slices.DeleteFunc(l.doubts, func(d doubt) bool { return d.over(t, r, o) })
	if l.next == 0 {
		l.next, l.limit = t.now.Mono.Add(apartRolls+time.Duration(rebalance.Tie(string(me))%uint64(apartRolls))), firstRoll
	}
	if t.before(l.next) || !l.try.due(t) {
		return
	}
	t.reads++
	l.try.sent, l.asked, l.sent = true, t.reads, t.now.Mono
	t.do(List{Read: uint64(l.asked), Query: lease.Query{Group: t.cfg.Group, Kind: lease.KindSeat, Eventually: true, Limit: l.limit}})
}

// over reads the seat again, and evicts it if it is dead. It reports whether the doubt is over: the seat is gone, or
// has beaten.
func (d doubt) over(t *turn, r *rivals, o *owners) bool {
	of := r.find(d.inc)
	if of == nil || of.written() != d.written {
		return true
	}
	if at := of.since.Add(r.patience(t, of)); !of.evict.open() {
		if t.before(at) {
			return false
		}
		if of.seen < at {
			o.read(t, d.inc)
			return false
		}
	}
	r.evict(t, of)
	return false
}

// listed takes the answer to a listing, and reports whether this part has sent it.
func (l *roll) listed(t *turn, me lease.Incarnation, r *rivals, in Listed) (mine bool) {
	if !l.try.sent || serial(in.Read) != l.asked {
		return false
	}
	if in.Err != nil {
		t.failedNow("", in.Err)
		l.try.failed(t.now.Mono, t.beat, t.cfg.TTL)
		return true
	}
	t.answeredNow()
	l.try, l.seen, l.shared = retry{}, l.sent, false
	living := 1
	for _, record := range in.Records {
		seat, ok := record.(lease.Seat)
		if !ok || seat.Incarnation == me {
			continue
		}
		if l.shared = true; !l.doubt(t, r, seat) {
			living++
		}
	}
	for _, u := range in.Unreadable {
		if inc := lease.Incarnation(u.Key.Name); u.Key.Kind == lease.KindSeat && inc != me {
			l.shared = true
			r.sawSpoilt(t, inc, u.WriteID, 0)
			l.note(doubt{inc, u.WriteID})
		}
	}
	l.limit = max(firstRoll, 2*(len(in.Records)+len(in.Unreadable)))
	l.next = t.now.Mono.Add(t.jitter(time.Duration(living) * apartRolls))
	return true
}

// others reports whether there are other sessions, and whether the seats show that. That there is none counts for a
// heartbeat interval, because one may join. If the seats do not show it, they are listed now; if that fails, there may
// be others.
func (l *roll) others(t *turn) (others, known bool) {
	if l.seen > 0 && (l.shared || t.now.Mono < l.seen.Add(t.beat)) {
		return l.shared, true
	}
	l.next = min(l.next, t.now.Mono)
	return true, l.try.tries > 0
}

// doubt takes a seat as a listing shows it, and reports whether it looks dead. A seat that looks alive is remembered
// only if this session has met it before.
func (l *roll) doubt(t *turn, r *rivals, seat lease.Seat) bool {
	if r.find(seat.Incarnation) == nil && !untimely(t, seat) {
		return false
	}
	r.saw(t, seat, 0)
	of := r.find(seat.Incarnation)
	stands := t.now.Mono >= of.since.Add(r.patience(t, of))
	if of.written() != seat.Written() || !stands && !of.looksDead(t) { // the listing lags behind, or the session lives
		return false
	}
	l.note(doubt{of.inc, of.written()})
	return true
}

// note adds a doubt.
func (l *roll) note(d doubt) {
	if !slices.Contains(l.doubts, d) {
		l.doubts = append(l.doubts, d)
	}
}

// fails reports whether a listing waits to be repeated.
func (l *roll) fails() bool { return l.try.tries > 0 }
