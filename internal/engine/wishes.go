package engine

import (
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The removal of wishes that have ended, by the first watcher. The next plan is due because the
// wishes have changed. In a group of sessions, a session that holds a lease removes them.
//
//	a wish has ended → swap of the wishes without it → answered
//
// Called by the spine of a worker, and by the heed of a session: keep in each step, settled with the answer.
//
// A crash before the answer leaves the wishes as they were or without those that have ended. No
// plan obeys a wish that has ended.
//
// Invariant: a wish that an operator sets meanwhile is not lost: the swap is conditional on the wishes as they were
// read, and is refused then.

// Wishes is the removal that is under way. It is dropped when other wishes are read: its swap would be refused.
type wishes struct {
	seen lease.WriteID // of the wishes as last read
	next Instant       // when to look again whether one has ended
	swap sending
}

// keep removes the wishes whose end is before at, a time by this process's wall clock, except those for whose
// index young returns true: others may not have read them yet. It also removes those that are done.
//
// The wall clocks of an operator and of this worker may differ. A wish ends earlier or later by that.
func (r *wishes) keep(t *turn, now lease.Wishes, at time.Time, young func(i int) bool, done func(lease.Wish) bool) {
	if r.seen != now.WriteID {
		*r = wishes{seen: now.WriteID}
	}
	switch {
	case len(now.List) == 0:
		return
	case t.before(r.next):
		return
	}
	wait := t.beat // not longer: somebody may set the wall clock
	var stand []lease.Wish
	for i, w := range now.List {
		if !done(w) && (w.Stands(at) || young(i)) {
			stand = append(stand, w)
		}
		if !w.Until.IsZero() && !young(i) {
			wait = min(wait, max(0, w.Until.Sub(at)))
		}
	}
	r.next = t.now.Mono.Add(max(wait, t.beat/16))
	t.at(r.next)
	if r.swap.open() {
		r.swap.keep(t)
	} else if len(stand) < len(now.List) {
		w, err := protocol.SetWishes(now, stand, t.stamp())
		r.swap.send(t, w, err)
	}
}

// settled takes the answer, and reports whether the wishes have changed.
func (r *wishes) settled(t *turn, in Settled) (changed bool) {
	_, _, changed = r.swap.settled(t, "", in, t.beat/16, t.beat/2)
	return changed
}
