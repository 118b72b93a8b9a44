package engine

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A malformed record is one that a listing found and could not read. Each is reported when it is
// found, while it lasts at intervals as those of a fault, and when a later listing can read it or
// lacks it.
type malformed struct {
	key   lease.Key
	since Instant
	next  Instant // when to report it again
	gap   time.Duration
}

const mostMalformed = 1000 // how many are remembered and reported

// malformed takes in which records of one kind a listing could not read. A listing that may lag
// behind ends no report.
func (e *Engine) malformed(kind lease.Kind, keys []lease.Key, current bool) {
	known := e.fleet.malformed
	if len(known)+len(keys) == 0 {
		return
	}
	if current {
		known = slices.DeleteFunc(known, func(m malformed) bool {
			over := m.key.Kind == kind && !slices.Contains(keys, m.key)
			if over {
				e.tell(event.Event{Kind: event.Malformed, Shard: m.key.Name, Lasted: e.now.Mono.Sub(m.since), Over: true})
			}
			return over
		})
	}
	for _, key := range keys {
		at := slices.IndexFunc(known, func(m malformed) bool { return m.key == key })
		switch {
		case at < 0 && len(known) < mostMalformed:
			known = append(known, malformed{key: key, since: e.now.Mono, next: e.now.Mono.Add(e.cfg.TTL), gap: e.cfg.TTL})
			e.tell(event.Event{Kind: event.Malformed, Shard: key.Name})
		case at >= 0 && e.now.Mono >= known[at].next:
			m := &known[at]
			m.gap = min(2*m.gap, max(longestGap, e.cfg.TTL))
			m.next = e.now.Mono.Add(m.gap)
			e.tell(event.Event{Kind: event.Malformed, Shard: key.Name, Lasted: e.now.Mono.Sub(m.since)})
		}
	}
	e.fleet.malformed = known
}
