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
//
// Called by the spine of a session: keep in each step, got and settled with answers.
//
// Invariant: a session acquires nothing before it has read this record, and a worker claims nothing
// without a plan. The record and the plan have the same key, so only one of the two kinds can act.

// A kind is the knowledge of a session about the kind of its group.
type kind struct {
	proven  bool
	foreign bool
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
		k.try.failed(t.now.Mono, t.beat/16, t.beat)
		return false
	}
	t.answeredNow()
	k.try = retry{}
	if in.Record != nil {
		return k.saw(in.Record)
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
