package engine

import (
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Which kind of group this is: one of sessions, or one of workers.
//
//	asking → there is no plan: the record of sessions is created → proven
//	       → there is that record                               → proven
//	       → there is a plan                                    → foreign: the session ends
//	       → a record that could not be read was deleted        → foreign and unclear: the session ends
//
// Called by the spine of a session: keep in each step, got and settled with answers.
//
// Invariant: a session acquires nothing before this is proven, and a worker claims nothing without a
// plan. Both records have the same key, so only one of the two kinds gets as far.
// Invariant: a session does not create the record in a run that found one that it could not read. That may
// have been the plan of a group of workers: if an operator deletes it, the workers have to write the next one.

// A kind is the knowledge of a session about the kind of its group.
type kind struct {
	proven  bool
	foreign bool
	spoilt  bool // in this run, a record was found that cannot be read
	unclear bool // and it was deleted: nothing shows which kind it was
	try     retry
	asked   serial
	create  sending
}

// keep reads the record, or creates it.
func (k *kind) keep(t *turn) {
	switch {
	case k.proven || k.foreign:
	case k.create.open():
		k.create.keep(t)
	case k.try.due(t):
		k.try.sent = true
		k.asked = t.get(lease.Plan{Group: t.cfg.Group}.Key())
	}
}

// got takes the answer to the read. It reports whether the kind is proven now.
func (k *kind) got(t *turn, in Got, by lease.Owner) (proven bool) {
	if !k.try.sent || serial(in.Read) != k.asked {
		return false
	}
	if in.Err != nil {
		t.failedNow("", in.Err)
		k.spoilt = k.spoilt || malformed(in.Err)
		k.try.failed(t.now.Mono, t.beat/16, t.beat)
		return false
	}
	t.answeredNow()
	k.try = retry{}
	if in.Record != nil {
		return k.saw(in.Record)
	}
	if k.spoilt {
		k.foreign, k.unclear = true, true
		return false
	}
	w, err := protocol.BeginSessions(t.cfg.Group, by, t.stamp())
	if !k.create.send(t, w, err) {
		k.try.at = k.create.try.at
	}
	return false
}

// settled takes the answer to the creation.
func (k *kind) settled(t *turn, me lease.Incarnation, in Settled) (proven bool) {
	_, now, decided := k.create.settled(t, me, in, t.beat/16, t.beat)
	if malformed(in.Err) { // another process was first: read what it is now
		k.spoilt, k.create = true, sending{}
		k.try.failed(t.now.Mono, t.beat/16, t.beat)
		return false
	}
	if !decided || k.saw(now) {
		return decided
	}
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
