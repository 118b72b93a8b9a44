package engine

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The seats of owners that are read one by one, to find out whether an owner is alive, or what it requests.
//
//	asking → alive: believed for a heartbeat interval
//	       → gone:  counts for rows that were known when the read of the seat was sent
//
// Called by the fleet: owner, for a shard that this worker wants. Called by the spine: lookAll for the successors of held
// shards, keep in each step, saw with consistent listings of the seats, got with reads of single seats. A session calls
// recent, got and prune.
//
// Nothing is written here.
//
// Invariant: a read counts from when it was sent. An owner whose row was read later is asked for again.

// An ownerState is what is known of an owner: whether it has a seat.
type ownerState uint8

const (
	asking ownerState = iota // it is not known yet: a read is wanted
	alive
	gone
)

// Owners are the seats of owners that this worker has read one by one, to find out whether they
// are alive. A watcher asks its listings first (fleet.owner).
type owners struct {
	all []ownerRead
}

// An ownerRead is the seat of one owner.
type ownerRead struct {
	inc   lease.Incarnation
	seat  lease.Seat
	state ownerState
	begun order   // the step in which the read was sent that state rests on
	asked order   // the step in which the present read was sent
	sent  Instant // when that was
	read  serial
	try   retry
	at    Instant // when it was answered

	wanted bool // it is asked for in this step
	listed bool // the next consistent listing of the seats shows it
}

func (o *owners) find(inc lease.Incarnation) *ownerRead {
	return find(o.all, inc, func(of *ownerRead) lease.Incarnation { return of.inc })
}

// owner reports whether inc has a seat, as far as a read shows that was sent in the step since or
// later. A seat that was found is believed for a heartbeat.
func (o *owners) owner(t *turn, inc lease.Incarnation, since order) (ownerState, lease.Seat) {
	of := o.find(inc)
	if of != nil && (of.state == gone && of.begun >= since || of.state == alive && t.now.Mono.Sub(of.at) < t.beat) {
		return of.state, of.seat
	}
	of = o.know(inc)
	of.wanted = true
	return asking, of.seat
}

// newest returns a seat that a listing shows, or the same seat as read by itself if the listing lags behind.
func (o *owners) newest(seat lease.Seat) lease.Seat {
	if of := o.find(seat.Incarnation); of != nil && of.seat.Beat > seat.Beat {
		return of.seat
	}
	return seat
}

func (o *owners) know(inc lease.Incarnation) *ownerRead {
	of := know(&o.all, inc, func(of *ownerRead) lease.Incarnation { return of.inc })
	of.inc = inc
	return of
}

const (
	seatsInUnit = 12 // about how many seats a read unit of a listing has
	manyTries   = 4  // after how many failed reads of a record all are listed instead: only single reads may be denied
)

// keep reads the seats that were asked for in this step. It reports whether a listing of all seats, begun from now on,
// is wanted instead: it costs less, as for a newcomer that is to have a shard of each worker, or single reads fail.
// watching: this worker lists the seats anyway, eventually consistent. members: the number of workers in the plan.
func (o *owners) keep(t *turn, watching bool, members int64) (list bool) {
	n := int64(0)
	for i := range o.all {
		if of := &o.all[i]; of.wanted && !of.listed && !of.try.sent {
			n++
			list = list || of.try.tries >= manyTries
		}
	}
	list = list || t.large && !watching && n > 2+members/seatsInUnit
	for i := range o.all {
		switch of := &o.all[i]; {
		case !of.wanted:
			continue
		case list && !of.try.sent:
			of.listed = true
		case !of.listed:
			o.read(t, of.inc)
		}
		o.all[i].wanted = false
	}
	return list
}

// saw takes a consistent listing of the seats, and reports whether it was wanted here. One that does not show all seats
// answers nothing.
//
// Invariant: the listing counts from when it was sent, like the read of a single seat. An owner whose row was read
// later is asked for again.
func (o *owners) saw(t *turn, in sighting, part bool) (mine bool) {
	for i := range o.all {
		of := &o.all[i]
		if !of.listed {
			continue
		}
		mine, of.listed = true, false
		if part {
			continue
		}
		of.state, of.begun, of.at, of.try = gone, in.begun, t.now.Mono, retry{}
		for _, seat := range in.seats {
			if seat.Incarnation == of.inc && seat.Confirmed() {
				of.state, of.seat = alive, seat
			}
		}
		if slices.ContainsFunc(in.unreadable, func(u Unreadable) bool { return lease.Incarnation(u.Key.Name) == of.inc }) {
			of.state = alive // a seat that cannot be read is a sign of life
		}
	}
	return mine
}

// read reads the seat of inc, unless that is under way.
func (o *owners) read(t *turn, inc lease.Incarnation) *ownerRead {
	of := o.know(inc)
	if of.try.due(t) {
		of.try.sent, of.asked, of.sent = true, t.step, t.now.Mono
		of.read = t.get(lease.Key{Group: t.cfg.Group, Kind: lease.KindSeat, Name: string(inc)})
	}
	return of
}

// got takes the answer to such a read.
func (o *owners) got(t *turn, in Got) (mine bool) {
	of := o.find(lease.Incarnation(in.Key.Name))
	if of == nil || !of.try.sent || of.read != serial(in.Read) {
		return false
	}
	of.try.sent = false
	seat, ok := in.Record.(lease.Seat)
	switch {
	case in.Err != nil && !malformed(in.Err):
		t.failedNow("", in.Err)
		of.try.failed(t.now.Mono, t.beat/16, t.beat/2)
		return true
	case in.Err != nil: // a seat that cannot be read is a sign of life
		of.state = alive
	case ok && seat.Confirmed():
		of.state, of.seat = alive, seat
	default:
		of.state = gone
	}
	t.answeredNow()
	of.try, of.begun, of.at = retry{}, of.asked, t.now.Mono
	return true
}

// look reads the seat of a worker that may request something, again and again.
func (o *owners) look(t *turn, inc lease.Incarnation, pace time.Duration) {
	if of := o.find(inc); of == nil || t.now.Mono >= of.at.Add(pace) {
		o.read(t, inc)
	} else if !of.try.sent {
		t.at(of.at.Add(pace))
	}
}

// lookAll is look for several workers. It reports whether all seats have to be listed, because one of these workers is
// not known, or its seat cannot be read by itself.
func (o *owners) lookAll(t *turn, of []lease.Incarnation, pace time.Duration) (list bool) {
	for _, inc := range of {
		if inc == "" {
			list = true
		} else {
			o.look(t, inc, pace)
			list = list || o.know(inc).try.tries >= manyTries
		}
	}
	return list
}

// shown returns the seat of inc, or none if it has none, as the last read shows it.
func (o *owners) shown(inc lease.Incarnation) (seats []lease.Seat, known bool) {
	of := o.find(inc)
	if of == nil || of.try.sent || of.try.tries > 0 {
		return nil, false
	}
	if of.state == alive {
		seats = append(seats, of.seat)
	}
	return seats, true
}

// fails reports whether a read waits to be repeated.
func (o *owners) fails() bool {
	return slices.ContainsFunc(o.all, func(of ownerRead) bool { return of.try.tries > 0 })
}

// prune drops seats that were last read more than four heartbeat intervals ago. A read that waits to be repeated stays,
// because the fault of the store lasts.
func (o *owners) prune(t *turn) {
	o.all = slices.DeleteFunc(o.all, func(of ownerRead) bool {
		return !of.try.sent && !of.wanted && !of.listed && t.now.Mono.Sub(max(of.at, of.try.at)) > 4*t.beat
	})
}

// recent is owner for a waiter: it believes a seat that was found for half a heartbeat, so that each
// look at a row comes with one at its owner's seat, and one for all rows of that owner.
func (o *owners) recent(t *turn, inc lease.Incarnation, since order) ownerState {
	of := o.find(inc)
	switch {
	case of == nil || of.state == gone && of.begun < since || of.state == alive && t.now.Mono.Sub(of.at) >= t.beat/2:
		of = o.read(t, inc)
	case of.state == asking:
		o.read(t, inc)
	}
	if of.state == gone && of.begun < since {
		return asking
	}
	return of.state
}

// evicted notes that inc has no seat. A deletion that was sent in the step begun has shown it: rows that were known then
// may be recovered without a read of the seat. A read that is under way may show the seat as it was: its answer is
// ignored.
func (o *owners) evicted(t *turn, inc lease.Incarnation, begun order) {
	if of := o.find(inc); of != nil {
		of.state, of.begun, of.at, of.try = gone, max(of.begun, begun), t.now.Mono, retry{}
	}
}
