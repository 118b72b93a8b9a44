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

// The other workers' seats, as a worker knows them that lists the seats.
//
//	unconfirmed → alive → suspect → evicted
//	                ↑________|         ↑
//	            unreadable, and nobody writes it
//
// Called by the spine: saw with each listing of the seats, glimpse with one of a worker that does
// not watch, evict in each step, settled with the answers to evictions.
//
// An eviction is the only write here. It makes no shard free: it lets workers claim the rows of the dead worker, each
// after it has found the seat gone by itself. If the evicting worker crashes before it has planned, the other watchers
// see the seat gone, and the plan that lacks it is due for them too.
//
// Invariant: a seat expires only after this worker has itself seen its heartbeat counter stand
// still for the seat's lease time, on its own clock; and the deletion is conditional on the
// heartbeat that was seen.
// Invariant: a seat that cannot be read is a sign of life as long as it changes. It expires when
// nobody has written it for ten times the longest lease time that this worker knows.
// Invariant: only a consistent listing shows that a seat is gone.

// spoiltFor is how many lease times an unreadable seat may stand still. Sessions use it too (wait.go).
const spoiltFor = 10

// mostLeft is how many of the workers that have left are remembered.
const mostLeft = 64

// Peers are the seats of the other workers, sorted by incarnation.
type peers struct {
	all     []peer
	changed Instant // when seats last came, went or changed
	from    Instant // when they were first listed
	seen    Instant // when they were last listed; 0: not since this worker watches
	begun   order   // the step in which the last consistent listing was sent; 0: there was none
	evicted []deadSeat
	left    []lease.Incarnation // the latest workers that are gone and were last seen leaving, oldest first
	mute    bool                // the last listing could not read this worker's own seat
	turned  order               // the step in which this list was made or changed; 0: it is not the list of a watcher
}

// A deadSeat is an evicted seat. A listing may still show it that began before the deletion was
// answered, or that lags behind: it is not the seat of a newcomer. But a worker that was paused may
// repeat the creation of its seat, and beat: that seat is alive again.
type deadSeat struct {
	inc lease.Incarnation
	at  order         // the step in which the deletion was answered
	was lease.WriteID // the write that made the seat what it was
}

// dead reports whether the listing shows a dead seat as it was, and not one that was made since.
func (p *peers) dead(inc lease.Incarnation, written lease.WriteID, in sighting) bool {
	return slices.ContainsFunc(p.evicted, func(d deadSeat) bool {
		return d.inc == inc && (d.at >= in.begun || in.lax && d.was == written)
	})
}

// A peer is another worker's seat.
type peer struct {
	seat       lease.Seat
	since      Instant       // when its present heartbeat was first seen
	lags       Instant       // since when its worker does not follow the plan; 0: it does
	suspect    bool          // it has missed a heartbeat
	unreadable bool          // the seat exists and cannot be read
	spoilt     lease.WriteID // the write that made it so
	evict      sending
	proof      error // why the eviction that was sent does not wait for the lease time; nil: it has
}

// leaves reports whether the worker leaves and is not late: when its seat is gone, the worker has given it up.
func (p *peer) leaves() bool { return p.seat.Leaving && !p.suspect }

// name returns the name of its worker, as far as it is known.
func (p *peer) name() string { return cmp.Or(p.seat.Name, string(p.seat.Incarnation)) }

// written returns the write that made the seat what it is.
func (p *peer) written() lease.WriteID {
	if p.unreadable {
		return p.spoilt
	}
	return p.seat.Written()
}

// A sighting is one listing of the seats, with the plan and the wishes.
type sighting struct {
	plan       lease.Plan
	wishes     lease.Wishes
	seats      []lease.Seat        // without this worker's own
	former     []lease.Incarnation // of this worker: what happens to their seats is nothing about a peer
	unreadable []Unreadable
	spoilt     bool // the plan cannot be read
	own        bool // it shows this worker's own seat, as it is or may have been
	mute       bool // this worker's own seat cannot be read
	begun      order
	lax        bool // the listing may lag behind
}

// sight returns what a listing shows to the worker of this seat. A listing that was sent before the last heartbeat was
// confirmed may show this seat as it was, or not at all.
func (c *seat) sight(in Listed, begun order, lax bool) (s sighting) {
	s.begun, s.lax, s.former = begun, lax, c.former
	s.seats = make([]lease.Seat, 0, len(in.Records))
	for _, record := range in.Records {
		switch of := record.(type) {
		case lease.Plan:
			s.plan = of
		case lease.Wishes:
			s.wishes = of
		case lease.Seat:
			if of.Incarnation == c.me {
				s.own = s.own || of.Beat >= c.row.Beat || begun <= c.trust.confirmed
			} else {
				s.seats = append(s.seats, of)
			}
		}
	}
	for _, u := range in.Unreadable {
		switch {
		case u.Key.Kind != lease.KindSeat: // a record beside the seats
			s.spoilt = s.spoilt || u.Key.Kind == lease.KindPlan
		case lease.Incarnation(u.Key.Name) == c.me:
			s.own, s.mute = true, true // it exists; the next heartbeat shows more
		default:
			s.unreadable = append(s.unreadable, u)
		}
	}
	return s
}

// find returns the peer of that incarnation; nil if there is none.
func (p *peers) find(inc lease.Incarnation) *peer {
	return find(p.all, inc, func(p *peer) lease.Incarnation { return p.seat.Incarnation })
}

// named returns the name of a worker, as far as it is known.
func (p *peers) named(inc lease.Incarnation) string {
	if of := p.find(inc); of != nil {
		return of.name()
	}
	return string(inc)
}

// saw takes a listing of the seats. It reports whether workers have come, gone or changed, and
// whether a listing that may lag behind lacks some, so that only a consistent one shows whether
// they have gone.
func (p *peers) saw(t *turn, in sighting) (changed, missing bool) {
	all := make([]peer, 0, len(in.seats)+len(in.unreadable))
	for _, seat := range in.seats {
		if p.dead(seat.Incarnation, seat.Written(), in) {
			continue
		}
		now, c := p.watch(t, seat, slices.Contains(in.former, seat.Incarnation))
		all, changed = append(all, now), changed || c
	}
	for _, u := range in.unreadable {
		if p.dead(lease.Incarnation(u.Key.Name), u.WriteID, in) {
			continue
		}
		now, c := p.watchSpoilt(t, u)
		all, changed = append(all, now), changed || c
	}
	sortPeers(all)
	next := peers{
		all: all, changed: p.changed, from: cmp.Or(p.from, t.now.Mono), seen: t.now.Mono, begun: p.begun, evicted: p.evicted, mute: in.mute,
		turned: t.step, left: p.left,
	}
	for i := range p.all {
		old := &p.all[i]
		switch {
		case next.find(old.seat.Incarnation) != nil:
		case in.lax:
			all, missing = append(all, *old), true
		default:
			changed = true
			if old.leaves() {
				next.left = append(slices.Clip(next.left), old.seat.Incarnation)
				next.left = next.left[max(0, len(next.left)-mostLeft):]
			}
			if !slices.Contains(in.former, old.seat.Incarnation) {
				t.report(event.Event{Kind: event.PeerLeft, Peer: old.name(), Task: old.seat.Task})
			}
		}
	}
	sortPeers(all)
	next.all = all
	if !in.lax {
		next.begun = in.begun
		next.evicted = slices.DeleteFunc(slices.Clone(p.evicted), func(of deadSeat) bool { return of.at < in.begun })
	}
	if changed {
		next.changed = t.now.Mono
	}
	*p = next
	return changed, missing
}

// glimpse takes a consistent listing of a worker that does not watch: the decision to quarantine a
// shard rests on it, and when the worker begins to watch, who is alive.
func (p *peers) glimpse(t *turn, in sighting) {
	if in.lax {
		return
	}
	*p = peers{begun: in.begun}
	for _, seat := range in.seats {
		p.all = append(p.all, peer{seat: seat, since: t.now.Mono})
	}
	for _, u := range in.unreadable {
		now, _ := p.watchSpoilt(t, u)
		p.all = append(p.all, now)
	}
	sortPeers(p.all)
}

// hasLeft reports whether the worker of that incarnation has gone, and was last seen leaving.
func (p *peers) hasLeft(inc lease.Incarnation) bool {
	of := p.find(inc)
	return of != nil && of.leaves() || slices.Contains(p.left, inc)
}

// sortPeers sorts by incarnation.
func sortPeers(all []peer) {
	slices.SortFunc(all, func(a, b peer) int { return strings.Compare(string(a.seat.Incarnation), string(b.seat.Incarnation)) })
}

// watch takes one seat, and reports whether its worker has come or changed. mine: it is a former seat of this worker.
func (p *peers) watch(t *turn, seat lease.Seat, mine bool) (now peer, changed bool) {
	old := p.find(seat.Incarnation)
	switch {
	case old == nil:
		if !mine {
			t.report(event.Event{Kind: event.PeerJoined, Peer: seat.Name, Task: seat.Task})
		}
		return peer{seat: seat, since: t.now.Mono}, true
	case old.unreadable:
		return peer{seat: seat, since: t.now.Mono}, true
	case seat.Beat < old.seat.Beat:
		return *old, false // the listing lags behind
	case seat.Written() == old.seat.Written():
		now = *old
		if age := t.now.Mono.Sub(now.since); !now.suspect && age >= seat.TTL/3+seat.TTL/12 && seat.Confirmed() {
			if now.suspect = true; !mine {
				t.report(event.Event{Kind: event.PeerSuspect, Peer: seat.Name})
			}
		}
		return now, false
	}
	if seat.Leaving && !old.seat.Leaving {
		t.report(event.Event{Kind: event.PeerLeaving, Peer: seat.Name})
	}
	changed = seat.Leaving != old.seat.Leaving || seat.Confirmed() != old.seat.Confirmed() || seat.MaxShards != old.seat.MaxShards
	now = peer{seat: seat, since: t.now.Mono}
	if seat.Revision == old.seat.Revision { // otherwise it follows, if late
		now.lags = old.lags
	}
	return now, changed
}

// watchSpoilt takes one seat that cannot be read, and reports whether it could be until now.
func (p *peers) watchSpoilt(t *turn, u Unreadable) (now peer, changed bool) {
	old := p.find(lease.Incarnation(u.Key.Name))
	if old != nil && old.unreadable && old.spoilt == u.WriteID {
		return *old, false
	}
	now = peer{seat: lease.Seat{Group: u.Key.Group, Incarnation: lease.Incarnation(u.Key.Name)}, unreadable: true, spoilt: u.WriteID, since: t.now.Mono}
	if old != nil {
		now.seat = old.seat
	}
	return now, old == nil || !old.unreadable
}

// patience returns how long a seat may stand still.
func (p *peers) patience(t *turn, of *peer) time.Duration {
	if !of.unreadable {
		return of.seat.TTL
	}
	longest := t.cfg.TTL
	for i := range p.all {
		longest = max(longest, p.all[i].seat.TTL)
	}
	return spoiltFor * longest
}

// pace returns how soon the seats have to be listed again because of their state.
func (p *peers) pace(t *turn) time.Duration {
	d := t.beat
	for i := range p.all {
		of := &p.all[i]
		if of.unreadable {
			continue
		}
		d = min(d, max(of.seat.TTL/3, paceMoving)) // its lease may be shorter
		switch age := t.now.Mono.Sub(of.since); {
		case !of.suspect:
		case age >= of.seat.TTL-of.seat.TTL/3:
			d = min(d, paceDying)
		default:
			d = min(d, paceSuspect)
		}
	}
	return d
}

// late returns how many seats have missed a heartbeat, and expire within this worker's lease time if they
// stand still: plans wait for these only, and not for hours.
func (p *peers) late(t *turn) (n int) {
	for i := range p.all {
		if of := &p.all[i]; of.suspect && t.now.Mono.Sub(of.since) >= of.seat.TTL-t.cfg.TTL {
			n++
		}
	}
	return n
}

// dying reports whether a seat is about to expire.
func (p *peers) dying(t *turn) bool {
	return slices.ContainsFunc(p.all, func(of peer) bool {
		return of.suspect && t.now.Mono.Sub(of.since) >= of.seat.TTL-of.seat.TTL/3
	})
}

// evict deletes the seats whose heartbeat has stood still for their lease time and for reserve
// longer, and at once those of this worker's former incarnations. A seat whose worker is proven to be dead is
// deleted after proof, the pause for this worker's rank. It reports whether the seats have to be listed first,
// because this worker was paused or a lease is shorter than its own, or to find out whether such a seat still
// stands.
//
// Of the deletion and the next heartbeat of a worker that is alive after all, only one is stored: both name the
// heartbeat before as their condition. If the deletion is, the worker finds its next heartbeat refused. If its
// lease has expired, its own trust has ended before; after a wrong proof it is fenced in every write of a row.
func (p *peers) evict(t *turn, former []lease.Incarnation, reserve time.Duration, proofs *proofs, proof time.Duration) (look bool) {
	proven := proofs.any() // in a large fleet it costs much to ask for each peer in each step
	for i := range p.all {
		of := &p.all[i]
		if of.evict.try.sent {
			continue
		}
		patience := p.patience(t, of)
		at, dead := of.since.Add(patience+reserve), (*link)(nil)
		if proven {
			dead = proofs.of(of.seat.Incarnation)
		}
		if of.proof = nil; dead != nil {
			of.proof = dead.proof()
			at = min(at, dead.proven.Add(proof))
		}
		switch mine := slices.Contains(former, of.seat.Incarnation); {
		case !mine && t.before(at):
		case dead != nil && (p.begun <= dead.step || proof > 0 && p.seen < dead.proven.Add(proof-paceProven/2)):
			look = true // the watchers before this one may have deleted it
		case t.now.Mono.Sub(p.seen) > min(2*paceSuspect, patience/3):
			look = true
		case of.evict.try.due(t) && of.unreadable:
			w, err := protocol.EvictSpoilt(of.seat.Key(), of.spoilt)
			of.evict.send(t, w, err)
		case of.evict.try.due(t):
			w, err := protocol.Evict(of.seat)
			of.evict.send(t, w, err)
		}
	}
	return look
}

// settled takes the answer to an eviction, and reports whether the seat is gone by this
// worker's own write, or a sign of life was found instead.
func (p *peers) settled(t *turn, own *seat, in Settled) (evicted, alive bool) {
	of := p.find(lease.Incarnation(in.Write.Key().Name))
	if of == nil {
		return false, false
	}
	verdict, found, decided := of.evict.settled(t, own.me, in, t.beat/8, t.beat)
	switch {
	case !decided:
		return false, false
	case verdict == protocol.Stored:
		if in.Err == nil && !own.was(of.seat.Incarnation) { // otherwise another worker evicted it first, or it is no peer
			t.report(event.Event{Kind: event.PeerEvicted, Peer: of.name(), Task: of.seat.Task, Err: of.proof})
		}
		inc := of.seat.Incarnation
		p.turned, p.changed, p.evicted = t.step, t.now.Mono, append(slices.Clip(p.evicted), deadSeat{inc, t.step, of.written()})
		p.all = slices.DeleteFunc(slices.Clone(p.all), func(q peer) bool { return q.seat.Incarnation == inc })
		return true, false
	}
	// The seat has changed since: its time begins again. Usually it has beaten, and the next listing shows that. But a late
	// write may have created it again after an eviction: its beat is lower, so each listing seems to lag behind, and only
	// this answer shows the new seat.
	if seat, ok := found.(lease.Seat); ok && seat.Beat < of.seat.Beat {
		of.seat = seat
	}
	of.since = t.now.Mono
	return false, true
}

// fails reports whether an eviction waits to be repeated.
func (p *peers) fails() bool {
	return slices.ContainsFunc(p.all, func(of peer) bool { return of.evict.try.tries > 0 })
}
