package shardlease

import (
	"fmt"
	"maps"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	remindEvery = 24 * time.Hour
	remindLook  = time.Minute // how often a worker looks for wishes that it has not named
)

// A reminder reports the wishes by which operators steer the plan, because one that nobody needs any more is easily
// forgotten. The worker that reports faults of the fleet names each wish when it finds it first, and then once a day. Another
// worker that takes its place begins with all of them.
type reminder struct {
	next  engine.Instant
	named map[string]engine.Instant // the wishes, and when they were named last
}

// keep reports the wishes that stand, if it is time.
func (r *reminder) keep(now engine.Instant, wishes []lease.Wish, emit func(event.Event)) {
	r.next = now.Add(remindLook)
	maps.DeleteFunc(r.named, func(_ string, at engine.Instant) bool { return now >= at.Add(remindEvery) })
	for _, w := range wishes {
		id := fmt.Sprintf("%s\t%s\t%s\t%d", w.Kind, w.Subject, w.To, w.Until.UnixMilli())
		if _, is := r.named[id]; is || !steers(w.Kind) {
			continue
		}
		if r.named == nil {
			r.named = map[string]engine.Instant{}
		}
		r.named[id] = now
		e := event.Event{Kind: event.Steered, Wish: w.String(), Peer: w.Subject}
		if w.Kind == lease.WishPin {
			e.Shard, e.Peer = w.Subject, w.To
		}
		emit(e)
	}
}

// steers reports whether a wish of this kind keeps the plan from what it would do otherwise, for as long as it stands.
func steers(kind lease.WishKind) bool {
	switch kind {
	case lease.WishCordon, lease.WishDrain, lease.WishPause, lease.WishPin:
		return true
	}
	return false
}
