package engine

import (
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Which kind of group this is: one of sessions, or one of workers.
//
//	asking → there is that record                               → proven
//	       → there is a plan                                    → foreign: the session ends
//	       → a record that could not be read was deleted        → foreign and unclear: the session ends
//	       → there is no record: the session takes a seat → listing
//	listing → no seat names a plan: the record of sessions is created → proven
//	        → the seat of a worker names a plan                       → foreign: the session ends
//
// Called by the spine of a session: keep in each step, got, listed and settled with answers.
//
// The record of sessions is created once in the life of a group, and never changed. A crash before the record is stored
// leaves nothing, or the write on its way; a crash after that leaves nothing to be done. If two sessions create the record
// at the same time, one of them is refused. Both would have made the same record, so the refused one has what it wanted.
//
// Invariant: a session acquires nothing before it has read the record of sessions, and a worker claims nothing without a
// plan. Both records have the same key, so in one group only sessions or only workers get so far.
// Invariant: if a session could not read the record that it found, it creates none before its process ends. An operator
// may delete the unreadable record. Perhaps it was the plan of a group of workers, and then the workers have to write the
// next plan.
// Invariant: a session does not create the record while the seat of a worker names a plan. Then somebody has deleted that
// plan, and the workers have to write the next one.

// A kind is the knowledge of a session about the kind of its group. It is kept when the seat is lost.
type kind struct {
	proven  bool
	foreign bool
	spoilt  bool // in this run, a record was found that cannot be read
	unclear bool // and it was deleted: nothing shows which kind it was
	missing bool // there was no record when it was last read
	try     retry
	asked   serial // the number of the last read or listing
	create  sending
}

// keep reads the record. If there is none and the session has a seat, keep lists the seats, and then creates the
// record: see listed.
func (k *kind) keep(t *turn, seated bool) {
	switch {
	case k.proven || k.foreign:
	case k.create.open():
		k.create.keep(t)
	case k.missing && !seated:
	case !k.try.due(t):
	case k.missing:
		t.reads++
		k.try.sent, k.asked = true, t.reads
		t.do(List{Read: uint64(k.asked), Query: lease.Query{Group: t.cfg.Group, Kind: lease.KindSeat}})
	default:
		k.try.sent = true
		k.asked = t.get(lease.Plan{Group: t.cfg.Group}.Key())
	}
}

// needsSeat reports whether the session needs a seat: to create the record, or because the group is one of
// sessions. In a group of workers the session takes no seat.
func (k *kind) needsSeat() bool { return k.proven || k.missing || k.create.open() }

// got takes the answer to the read. It reports whether the kind is proven now. A record that cannot be read is read again
// and again: it may be either kind.
func (k *kind) got(t *turn, in Got) (proven bool) {
	if !k.answered(t, in.Read, in.Err) {
		k.spoilt = k.spoilt || malformed(in.Err) && serial(in.Read) == k.asked
		return false
	}
	if in.Record != nil {
		return k.saw(in.Record)
	}
	k.foreign, k.unclear, k.missing = k.spoilt, k.spoilt, !k.spoilt
	return false
}

// answered takes the answer to a read or a listing, and reports whether it is the one that is awaited, and no error.
func (k *kind) answered(t *turn, read uint64, err error) bool {
	if !k.try.sent || serial(read) != k.asked {
		return false
	}
	if err != nil {
		t.failedNow("", err)
		k.try.failed(t.now.Mono, t.beat/16, t.beat)
		return false
	}
	t.answeredNow()
	k.try = retry{}
	return true
}

// listed takes the seats, and creates the record if no seat names a plan.
func (k *kind) listed(t *turn, in Listed, by lease.Owner) {
	if !k.answered(t, in.Read, in.Err) {
		return
	}
	for _, r := range in.Records {
		if seat, ok := r.(lease.Seat); ok && seat.Revision > 0 {
			k.foreign = true
			return
		}
		if plan, ok := r.(lease.Plan); ok { // another process has created the record
			k.saw(plan)
			return
		}
	}
	w, err := protocol.BeginSessions(t.cfg.Group, by, t.stamp())
	if !k.create.send(t, w, err) {
		k.try.at = k.create.try.at
	}
}

// settled takes the answer to the creation, and reports whether the kind is proven now.
func (k *kind) settled(t *turn, me lease.Incarnation, in Settled) (proven bool) {
	_, now, decided := k.create.settled(t, me, in, t.beat/16, t.beat)
	if malformed(in.Err) { // another process was first: read what it is now
		k.spoilt, k.missing, k.create = true, false, sending{}
		k.try.failed(t.now.Mono, t.beat/16, t.beat)
		return false
	}
	if !decided || k.saw(now) {
		return decided
	}
	k.missing = false
	k.try.failed(t.now.Mono, t.beat/16, t.beat)
	return false
}

// saw takes the record. If there is none, because somebody deleted it by hand, the session reads again.
func (k *kind) saw(r lease.Record) bool {
	if plan, ok := r.(lease.Plan); ok {
		k.proven, k.foreign = plan.Sessions, !plan.Sessions
	}
	return k.proven
}

// fails reports whether a call waits to be repeated.
func (k *kind) fails() bool { return k.try.tries > 0 || k.create.try.tries > 0 }
