package sim

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The witness stands beside the workers: it sees every handler that starts and
// ends, and knows what the table said at that moment.

// eagerGap is the longest that a shard may go without a handler in an eager move
// between healthy workers: a fast look, and the way to the table and back twice.
const eagerGap = 600 * time.Millisecond

// witnessStart holds the beginning of a tenure against the promises.
func (w *world) witnessStart(h *handler, o engine.Start) {
	n, j := h.n, w.judge
	for _, other := range n.running() {
		if other.s == h.s {
			w.fault("%s runs two handlers of one shard: %v and %v", n.Name, other, h)
		}
	}
	if j.started[h.Tenure] {
		w.fault("S3: %v was started before", h)
	}
	j.started[h.Tenure] = true
	if owner := j.promises.Owner(rowKey(h.s.name), h.Tenure.Generation); owner.Incarnation != n.me {
		w.fault("S3: %v is started by %s, and is %v's", h, n.me, owner)
	}
	if base := j.base[h.Tenure]; base != h.from {
		w.fault("S2: %v does not start from what was stored: %d", h, base)
	}
	if left := engine.Instant(n.config.TTL - n.config.TTL/10); !n.seated || n.Mono() >= n.trusted+left {
		w.fault("%v is started without trust: seated %t", h, n.seated)
	}
	if n.leaver && w.Now()-n.leaves > 0 {
		w.fault("%v is started by a worker that leaves", h)
	}
	for _, name := range h.s.parents {
		if p := w.stream(name); p != nil && w.awaited(p) && o.Transfer.Reason == lease.ReasonInitial {
			w.fault("%v is started before its parent %s is finished", h, name)
		}
	}
	j.handlers[h.Tenure] = h
	w.witnessOverlap(h, o.Transfer)
	w.witnessGap(h, o.Transfer)
}

// witnessOverlap asks of every other handler of the shard why it still runs. One
// whose worker has told it to stop, or is paused, may; one that offered the shard
// may until it looks. Whoever gave the shard up may not.
func (w *world) witnessOverlap(h *handler, last lease.Transfer) {
	for _, o := range h.s.active {
		if o.n == h.n || o.Over || !o.n.well() {
			continue
		}
		how := w.judge.ended[o.Tenure]
		switch {
		case !how.given && how.reason == lease.ReasonHandoff:
			o.taken = w.Now()
			if w.strict {
				limit := w.set.ttl/3 + 300*time.Millisecond
				w.After(limit, func() {
					if w.strict && !o.Over && !o.returned && o.n.well() {
						w.fault("overlap: %v still runs %v after it was taken over by %v", o, limit, h)
					}
				})
			}
		case how.given:
			w.fault("overlap: %v starts while %v runs, which its worker gave up: %s (%v)", h, o, how.reason, last)
		case w.strict && how.reason != lease.ReasonForced:
			w.fault("overlap in calm: %v starts while %v runs: %s", h, o, how.reason)
		}
	}
}

// witnessGap measures how long nobody worked on the shard.
func (w *world) witnessGap(h *handler, last lease.Transfer) {
	s := h.s
	if len(s.active) > 0 || s.by == nil || !w.strict || s.emptied < w.calm {
		return
	}
	gap := w.Now() - s.emptied
	how := w.judge.ended[s.by.Tenure]
	if how.reason != lease.ReasonHandoff || how.generation != h.Tenure.Generation {
		return
	}
	w.stats.Gap = max(w.stats.Gap, gap)
	if gap > eagerGap {
		w.fault("gap: nobody worked on %s for %v before %v (%v)", s.name, gap, h, last)
	}
}

// gone is a handler that runs no more, because it returned or its process is dead.
func (w *world) gone(h *handler) {
	s := h.s
	h.returned = true
	s.active = slices.DeleteFunc(s.active, func(o *handler) bool { return o == h })
	if len(s.active) == 0 {
		s.emptied, s.by = w.Now(), h
	}
	if !w.strict || h.taken <= w.calm {
		return
	}
	w.stats.Overlap = max(w.stats.Overlap, w.Now()-h.taken)
	if len(s.active) == 0 && h.n.Up() {
		w.fault("gap: %v has ended, taken over cooperatively, and nobody works on the shard", h)
	}
}

// witnessOver asks why a tenure ends. There has to be a reason in the table, on
// the clock, or in the handler itself: a reply that was lost is none (S4).
func (w *world) witnessOver(h *handler, o engine.Over) {
	n, j := h.n, w.judge
	how, over := j.ended[h.Tenure]
	ok := true
	switch o.Cause {
	case event.CauseExpired, event.CauseUnreachable:
		trust := n.config.TTL - n.config.TTL/10
		ok = n.Mono() >= n.believed.Add(trust) || !j.sits(n.me) || j.evicted(n.me) || j.lately()
	case event.CauseHandedOff:
		ok = over && (how.reason == lease.ReasonHandoff || how.reason == lease.ReasonDrainTimeout) || h.Soft
	case event.CauseFenced:
		ok = over || j.lately()
	case event.CauseForced:
		ok = over && how.reason == lease.ReasonForced
	case event.CauseFinished:
		ok = h.finishing && h.s.ended > 0
	case event.CauseGivenUp:
		ok = h.returned || h.news.Release || h.Soft || h.temper == releasing
	case event.CauseStalled:
		ok = h.Soft || (h.returned || h.finishing) && w.unheard(h) // witnessDrain has checked a soft end
	case event.CauseStopped:
		ok = n.leaver || h.Soft // as above
	case event.CauseVanished: // its end was stored, and it was removed before the answer came
		ok = j.lately() || h.finishing && h.s.dropped
	case event.CauseConflict:
		ok = j.lately()
	case event.CauseUnlisted:
		ok = h.Soft // as above
	}
	if !ok {
		w.fault("S4: %v ends for no reason that can be seen: cause %d, %v, the table says %+v", h, o.Cause, o.Err, how)
	}
	if w.strict && (o.Cause == event.CauseExpired || o.Cause == event.CauseUnreachable || o.Cause == event.CauseConflict || o.Cause == event.CauseVanished) {
		w.fault("S4: %v ends in calm: cause %d, %v", h, o.Cause, o.Err)
	}
}

// witnessDrain checks that a handler winds down for a move only where another worker has requested its shard, as stalled only where the configuration has a
// StallAfter or nothing of its worker is answered, and as stopped only where its worker stops or
// nothing of it is answered.
func (w *world) witnessDrain(h *handler, cause event.Cause) {
	switch {
	case cause == event.CauseHandedOff:
		if !w.judge.wanted(h.Tenure) {
			w.fault("S4: %v is told to wind down, and nobody has requested its shard", h)
		}
	case cause == event.CauseUnlisted:
		if h.n.absent[h.Shard] < 2 {
			w.fault("S4: %v is told that the source of its worker no longer lists its shard, but it does", h)
		}
	case cause != event.CauseStalled && cause != event.CauseStopped, w.unheard(h):
	case cause == event.CauseStalled && h.n.config.StallAfter > 0, cause == event.CauseStopped && h.n.leaver:
	default:
		w.fault("S4: %v is told to wind down although its worker's writes are answered: cause %d", h, cause)
	}
}

// unheard reports whether, for CommitTimeout, the table has accepted no marks of a handler or
// answered no write of a row by its worker.
func (w *world) unheard(h *handler) bool {
	return w.Now()-min(max(h.began, h.accepted), h.n.heard) >= slack(h.n.config.CommitTimeout)
}

// witnessDoubt holds that a worker whose wall clock says that its trust has ended,
// because the machine slept, writes nothing new on its shards before a beat has been
// confirmed. What was sent before may be sent again.
func (w *world) witnessDoubt(n *node, write lease.Write) {
	key := write.Key()
	if key.Kind != lease.KindLease {
		return
	}
	again := n.sending[key.Name] == write.ID()
	n.sending[key.Name] = write.ID()
	trust := n.config.TTL - n.config.TTL/10
	if silent := w.Now() + n.Clock.Wall - n.wallTrue; !again && n.seated && silent >= trust {
		w.fault("%s sends %v in doubt: %v since its last beat, by the wall clock", n.Name, write, silent)
	}
}

// witnessCommitted holds that what the handler is told was accepted, was.
func (w *world) witnessCommitted(h *handler, o engine.Committed) {
	h.accepted = w.Now()
	switch {
	case int(o.Seq) > len(h.marks):
		w.fault("%v: %d marks are accepted of %d", h, o.Seq, len(h.marks))
	case o.Err != nil:
		if !w.judge.lately() {
			w.fault("%v: its marks are refused for good: %v", h, o.Err)
		}
	case o.Seq > 0 && w.judge.accepted[h.Tenure] < h.marks[o.Seq-1]:
		w.fault("%v: it is told that %d is accepted, and %d is", h, h.marks[o.Seq-1], w.judge.accepted[h.Tenure])
	}
}

// witnessDone holds that a worker that has left has left nothing behind.
func (w *world) witnessDone(n *node) {
	if !n.leaver {
		w.fault("%s is done and was not told to stop", n.Name)
	}
	if !w.strict {
		return
	}
	if took, limit := w.Now()-n.leaves, w.set.drain+w.set.ttl; took > limit {
		w.fault("%s took %v to stop", n.Name, took)
	}
	if w.judge.sits(n.me) {
		w.fault("%s is done, and its seat is there", n.Name)
	}
	for _, s := range w.streams {
		if row := w.judge.row(s.name); row.Owner.Incarnation == n.me {
			w.fault("%s is done, and holds %v", n.Name, row)
		}
	}
}
