package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
)

// No shard is left alone silently: if nobody processes a shard for longer than its bound, an event, the row or the plan
// has to name the cause. The bound starts again with each disturbance, such as a crash.

// Silence has the shards that nobody processes, and the faults that workers have reported.
type silence struct {
	w         *world
	disturbed time.Duration            // when something last happened to the fleet
	idle      map[string]time.Duration // since when nobody processes a shard
	shards    map[string]time.Duration // when an event last named a cause for a shard
	fleet     time.Duration            // when an event last named a cause that may concern any shard
	lasting   []lasting                // faults that were reported and are not over
	helped    bool                     // other workers can process every shard: a named cause is no excuse
}

// A lasting is a fault that one worker has reported.
type lasting struct {
	by   string
	kind event.Kind
	name string // of the shard; empty: it concerns any
}

// reported notes what an event names.
func (r *silence) reported(n *node, ev event.Event) {
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
		r.fleet = r.w.Now()
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
		r.shards[name] = r.w.Now()
	}
}

// ended forgets the lasting faults of a process that has ended.
func (r *silence) ended(n *node) {
	r.lasting = slices.DeleteFunc(r.lasting, func(l lasting) bool { return l.by == n.Name })
}

// disturb starts every bound again.
func (r *silence) disturb() { r.disturbed = r.w.Now() }

// check looks at all shards once per lease time.
func (r *silence) check() {
	w := r.w
	w.After(w.set.ttl, r.check)
	bound := w.set.standsStill()
	for _, s := range w.streams.all {
		works := slices.ContainsFunc(s.active, func(h *handler) bool { return !h.Over && !h.shut && h.n.Up() })
		if works || s.ended > 0 || s.dropped || !w.promises.ready(s) || len(w.live()) == 0 {
			delete(r.idle, s.name)
			continue
		}
		since, known := r.idle[s.name]
		if !known {
			r.idle[s.name] = w.Now()
			continue
		}
		if since = max(since, r.disturbed); w.Now()-since > bound && (r.helped && !w.peace || !r.explained(s.name, since)) {
			rest{w}.restless("nobody has processed %s for %v, and no event and no plan says why", s.name, w.Now()-since)
		}
	}
}

// explained reports whether something says why nobody processes the shard, or one of its parents.
func (r *silence) explained(shard string, since time.Duration) bool {
	plan, _ := r.w.plan()
	switch {
	case r.shards[shard] >= since, r.fleet >= since, r.w.promises.Row(shard).Quarantined, plan.Unplaced > 0:
		return true
	}
	if slices.ContainsFunc(r.w.streams.of(shard).parents, func(parent string) bool { return r.explained(parent, since) }) {
		return true
	}
	return slices.ContainsFunc(r.lasting, func(l lasting) bool { return l.name == shard || l.name == "" })
}
