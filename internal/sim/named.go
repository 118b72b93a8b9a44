package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
)

// Nothing stands still without a name for it: when nobody processes a shard for longer than its
// bound, an event, the row or the plan has to say why. Only what happens by itself counts: the
// bound starts again with each disturbance, such as a crash.
//
// This is checked where workers write their plan.

// Reports are the faults that workers have reported.
type reports struct {
	disturbed time.Duration            // when something last happened to the fleet
	idle      map[string]time.Duration // since when nobody processes a shard
	shards    map[string]time.Duration // when an event last named a cause for a shard
	fleet     time.Duration            // when an event last named one that may concern any shard
	lasting   []lasting                // faults that were reported and are not over
}

// A lasting is a fault that one worker has reported.
type lasting struct {
	by   string
	kind event.Kind
	name string // of the shard; empty: it concerns any
}

// reported notes what an event names.
func (w *world) reported(n *node, ev event.Event) {
	r := &w.reports
	switch ev.Kind {
	case event.Joined, event.PeerJoined, event.PeerLeft, event.PeerLeaving, event.PeerSuspect, event.PeerEvicted, event.Started,
		event.Requested, event.Draining, event.Contended, event.Created, event.Removed, event.Retired:
		return // no faults
	}
	names := slices.Clone(ev.Shards)
	if ev.Shard != "" {
		names = append(names, ev.Shard)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "!") }) // the plan: it concerns all
	if len(names) == 0 {
		r.fleet = w.Now()
		names = []string{""}
	}
	for _, name := range names {
		is := lasting{by: n.Name, kind: ev.Kind, name: name}
		r.lasting = slices.DeleteFunc(r.lasting, func(l lasting) bool {
			return l == is || ev.Over && l.by == is.by && l.kind == is.kind && len(ev.Shards) == 0
		})
		if !ev.Over && ev.Kind != event.Ended && ev.Kind != event.Refused {
			r.lasting = append(r.lasting, is)
		}
		r.shards[name] = w.Now()
	}
}

// silenced forgets the lasting faults of a process that has ended.
func (w *world) silenced(n *node) {
	w.reports.lasting = slices.DeleteFunc(w.reports.lasting, func(l lasting) bool { return l.by == n.Name })
}

// disturb starts every bound again.
func (w *world) disturb() { w.reports.disturbed = w.Now() }

// standsStill is how long nobody may process a shard without a cause that is named: an owner is
// evicted, a rest ends, the source is polled, and a plan is made and carried out, also where some
// requests are lost.
func (w *world) standsStill() time.Duration {
	s := &w.set
	return 6*s.ttl + 4*s.drain + max(s.maxBackoff, 5*time.Second) + 2*max(s.poll, 30*time.Second) + s.prepare + 10*time.Second
}

// keepNaming looks at all shards once per lease time.
func (w *world) keepNaming() {
	w.After(w.set.ttl, w.keepNaming)
	r := &w.reports
	for _, s := range w.streams {
		works := slices.ContainsFunc(s.active, func(h *handler) bool { return !h.Over && h.n.Up() })
		if works || s.ended > 0 || s.dropped || !w.ready(s) || len(w.live()) == 0 {
			delete(r.idle, s.name)
			continue
		}
		since, known := r.idle[s.name]
		if !known {
			r.idle[s.name] = w.Now()
			continue
		}
		if since = max(since, r.disturbed); w.Now()-since > w.standsStill() && !w.explained(s.name, since) {
			w.restless("nobody has processed %s for %v, and no event and no plan says why", s.name, w.Now()-since)
		}
	}
}

// explained reports whether something says why nobody processes the shard, or one of its parents.
func (w *world) explained(shard string, since time.Duration) bool {
	r := &w.reports
	plan, _ := w.theirs()
	switch {
	case r.shards[shard] >= since, r.fleet >= since, w.judge.row(shard).Quarantined, plan.Unplaced > 0:
		return true
	}
	if slices.ContainsFunc(w.stream(shard).parents, func(parent string) bool { return w.explained(parent, since) }) {
		return true
	}
	return slices.ContainsFunc(r.lasting, func(l lasting) bool { return l.name == shard || l.name == "" })
}
