package core

import (
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The removal of wishes that have ended, by the first watcher. The next plan is due because the
// wishes have changed.
//
//	a wish has ended → swap of the wishes without it → answered
//
// Called by the spine: keep in each step, settled with the answer.
//
// A crash before the answer leaves the wishes as they were or without those that have ended. No
// plan obeys a wish that has ended.

// Wishes is the removal that is under way.
type wishes struct {
	seen  lease.WriteID // of the wishes as last read
	next  Instant       // when to look again whether one has ended
	write lease.Write
	try   retry
}

// keep removes the wishes that have ended by this worker's wall clock.
func (r *wishes) keep(t *turn, now lease.Wishes) {
	if r.seen != now.WriteID {
		*r = wishes{seen: now.WriteID}
	}
	switch {
	case len(now.List) == 0:
		return
	case t.now.Mono < r.next:
		t.at(r.next)
		return
	}
	r.next = t.now.Mono.Add(t.beat)
	stand := standing(now.List, t.now.Wall)
	if r.write.Op == 0 && len(stand) < len(now.List) {
		var err error
		if r.write, err = protocol.SetWishes(now, stand, t.stamp()); err != nil {
			t.failedNow("", err)
		}
	}
	if r.write.Op != 0 && r.try.due(t) {
		r.try.sent = true
		t.do(Send{Write: r.write})
	}
}

// settled takes the answer, and reports whether the wishes have changed.
func (r *wishes) settled(t *turn, in Settled) (changed bool) {
	if r.write.Op == 0 || in.Write.ID() != r.write.ID() {
		return false
	}
	if verdict, _ := protocol.Settle("", r.write, in.Record, in.Err); verdict == protocol.Unknown {
		t.failedNow("", in.Err)
		r.try.failed(t.now.Mono, t.beat/16, t.beat/2)
		return false
	}
	t.answeredNow()
	return true
}
