package dynamostore

import (
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A placeKey identifies calls that share a place in the lane: those of one class for one row.
type placeKey struct {
	class class
	row   lease.Key
}

// places records, for calls that left the lane without being admitted, when they arrived. A
// place is forgotten half a minute to a minute after its call has left, or sooner when there
// are more than mostPlaces.
//
// Invariant: newer contains the places of the calls that left after since, at most
// mostPlaces; older contains those of the calls that left in the half minute before.
type places struct {
	newer, older map[placeKey]time.Time
	since        time.Time
}

const (
	halfMinute = 30 * time.Second
	mostPlaces = 1 << 16
)

// take returns the time at which the call that left this place had arrived, or now if there is
// no such place. It removes the place: of two simultaneous calls for the same row only one gets it.
func (p *places) take(at placeKey, now time.Time) time.Time {
	p.forget(now)
	arrived, ok := p.newer[at]
	if !ok {
		arrived, ok = p.older[at]
	}
	delete(p.newer, at)
	delete(p.older, at)
	if !ok {
		return now
	}
	return arrived
}

// keep records the place of a call that leaves now.
func (p *places) keep(at placeKey, arrived, now time.Time) {
	p.forget(now)
	p.newer[at] = arrived
}

// forget drops the older places when the newer ones are half a minute old, or too many.
func (p *places) forget(now time.Time) {
	switch age := now.Sub(p.since); {
	case age >= 2*halfMinute:
		p.newer, p.older, p.since = map[placeKey]time.Time{}, nil, now
	case age >= halfMinute:
		p.newer, p.older, p.since = map[placeKey]time.Time{}, p.newer, p.since.Add(halfMinute)
	case len(p.newer) == mostPlaces:
		p.newer, p.older, p.since = map[placeKey]time.Time{}, p.newer, now
	}
}
