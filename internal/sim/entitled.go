package sim

import (
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// slack is what clocks that run up to 4 % too fast make of a time.
func slack(d time.Duration) time.Duration { return d*1000/1040 - time.Millisecond }

// judgeSeat: nobody is evicted before its time.
func (j *judge) judgeSeat(w lease.Write, by virtual.Sender) {
	inc := lease.Incarnation(w.Key().Name)
	s := j.seats[inc]
	if s == nil {
		s = &sitting{by: by, began: j.w.Now()}
		j.seats[inc] = s
	}
	if w.Op != lease.OpDelete {
		s.beaten = j.w.Now()
		next := w.Next.(lease.Seat)
		if old, ok := w.Old.(lease.Seat); ok && next.Revision < old.Revision {
			j.w.fault("%s goes back from revision %d to %d", by.Name, old.Revision, next.Revision)
		}
		j.noteWants(next)
		return
	}
	old := w.Old.(lease.Seat)
	still := j.w.Now() - s.beaten
	if s.by != by && !s.gone && still < slack(old.TTL) && !j.lately() && !j.w.proven(inc, s) {
		j.w.fault("S4: %s evicted %s (%s), which had stood still for %v only", by.Name, inc, s.by.Name, still)
	}
	s.gone = true
}

// noteWants keeps since when each want stands.
func (j *judge) noteWants(s lease.Seat) {
	for _, want := range s.Wants {
		k := wish{by: s.Incarnation, tenure: engine.Tenure{Shard: want.Shard, Generation: want.Generation}}
		if _, known := j.wants[k]; !known {
			j.wants[k] = j.w.Now()
		}
	}
}

// wanted reports whether any worker has requested the shard of a tenure.
func (j *judge) wanted(id engine.Tenure) bool {
	for k := range j.wants {
		if k.tenure == id {
			return true
		}
	}
	return false
}

// entitled asks whether whoever made a change of hands was entitled to.
func (j *judge) entitled(w lease.Write, before, after lease.Row) {
	id := engine.Tenure{Shard: before.Shard, Generation: before.Generation}
	h, last := j.handlers[id], after.Last
	// Only the first claim of a row: a child that began too early, in a table that had
	// lost its parent's row, goes on.
	if !after.Owner.IsZero() && before.Owner.IsZero() && before.Last.Reason == lease.ReasonInitial {
		for _, name := range after.Parents {
			if p := j.w.stream(name); p != nil && j.w.awaited(p) {
				j.w.fault("%v was claimed before its parent %s was finished", after, name)
			}
		}
	}
	switch {
	case before.Owner.IsZero():
	case w.Op == lease.OpSwap:
		j.entitledGiver(h, before, after)
	case last.Reason == lease.ReasonExpired && !after.Owner.IsZero():
		j.entitledHeir(h, before, after)
	case last.Reason == lease.ReasonHandoff:
		if before.OfferedTo != after.Owner.Incarnation {
			j.w.fault("%v was taken by %v, and not offered to it", before, after.Owner)
		}
	case after.Owner.IsZero(): // by command, or set aside
	case last.Reason != lease.ReasonDrainTimeout:
		j.w.fault("%v was taken by %v: %s", before, after.Owner, last.Reason)
	default:
		since, wanted := j.wants[wish{by: after.Owner.Incarnation, tenure: id}]
		if !wanted || j.w.Now()-since < slack(2*j.w.set.drain) {
			j.w.fault("%v was seized after %v", before, j.w.Now()-since)
		}
	}
}

// entitledGiver: an owner gives a shard up only when its handler has returned, or
// was cut off after its time.
func (j *judge) entitledGiver(h *handler, before, after lease.Row) {
	if h == nil || !h.n.Up() {
		return
	}
	if !h.returned && !h.Over && !h.finishing {
		j.w.fault("overlap: %v was given up (%s) while its handler runs", h, after.Last.Reason)
	}
	if after.Last.Reason == lease.ReasonDrainTimeout && h.n.well() && j.w.Now()-h.softAt < slack(j.w.set.drain) {
		j.w.fault("%v was cut off after %v", h, j.w.Now()-h.softAt)
	}
	if !after.Owner.IsZero() {
		k := wish{by: after.Owner.Incarnation, tenure: engine.Tenure{Shard: before.Shard, Generation: before.Generation}}
		if _, wanted := j.wants[k]; !wanted {
			j.w.fault("%v was yielded to somebody who did not ask: %v", before, after)
		}
	}
}

// entitledHeir: a shard is recovered when its owner's seat is gone. By then the
// owner, if it runs, has ended its tenure by its own clock.
func (j *judge) entitledHeir(h *handler, before, after lease.Row) {
	s := j.seats[before.Owner.Incarnation]
	heir := j.seats[after.Owner.Incarnation]
	if s != nil && heir != nil && s.by == heir.by {
		return // its own earlier incarnation, of which it knows that it is over
	}
	if s != nil && !s.gone && j.sits(before.Owner.Incarnation) && !j.lately() {
		j.w.fault("S4: %v was recovered by %v, and its owner's seat is there", before, after.Owner)
	}
	if h == nil || h.Over || h.returned || !h.n.well() || h.n.Clock.Slept > 0 || j.lately() || s != nil && j.w.proven(before.Owner.Incarnation, s) {
		return
	}
	j.w.fault("%v was recovered by %s while its holder still trusts itself", h, after.Owner.Name)
}
