package inspect

import (
	"maps"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Tally is how many tenures have ended for one reason.
type Tally struct {
	Reason lease.Reason
	Count  int64
}

// Tallies adds up Snapshot.Ends: how many tenures have ended, for each reason for which a tenure ends, and then for those that
// only a newer version knows. A tenure that ended with the death of its worker is counted as expired when another worker
// recovers the shard. The counts are up to a minute late, and lack what a killed process has itself ended in its last minute.
func (s *Snapshot) Tallies() (list []Tally) {
	all := map[lease.Reason]int64{}
	for _, hour := range s.Ends {
		for reason, n := range hour.Counts {
			all[reason] += n
		}
	}
	reasons := ends()
	for _, reason := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	for _, reason := range reasons {
		list = append(list, Tally{reason, all[reason]})
	}
	return list
}

// ends returns the reasons for which a tenure ends that counts: all but those for which a row is created, removed or adopted.
func ends() []lease.Reason {
	return []lease.Reason{
		lease.ReasonReleased, lease.ReasonFinished, lease.ReasonHandoff, lease.ReasonDrainTimeout, lease.ReasonUnlisted, lease.ReasonForced,
		lease.ReasonFailed, lease.ReasonStalled, lease.ReasonExpired,
	}
}

// seenEnds are the ends since the first look that could read their counts.
//
// Invariant: it has only hours that a look reads. An hour before these is forgotten, and counts no more, so that a clock that is
// set back counts nothing twice.
type seenEnds struct {
	hours map[time.Time]map[lease.Reason]int64 // the highest counts that were seen; nil: none were read yet
	first time.Time                            // the first hour that counts
	since map[lease.Reason]int64
}

// see returns how many tenures have ended since the first look; nil: the counts cannot be read. A count that is lower than
// before comes from a read that lags behind.
func (e *seenEnds) see(s *Snapshot) map[lease.Reason]int64 {
	if s.Uncounted != nil {
		return nil
	}
	first := e.hours == nil
	if first {
		e.hours, e.since = map[time.Time]map[lease.Reason]int64{}, map[lease.Reason]int64{}
	}
	if len(s.Ends) > 0 && s.endsFrom.After(e.first) { // a clock that is far ahead reads nothing
		e.first = s.endsFrom
		maps.DeleteFunc(e.hours, func(hour time.Time, _ map[lease.Reason]int64) bool { return hour.Before(e.first) })
	}
	for _, now := range s.Ends {
		if now.Hour.Before(e.first) {
			continue
		}
		seen := e.hours[now.Hour]
		if seen == nil {
			seen = map[lease.Reason]int64{}
			e.hours[now.Hour] = seen
		}
		for reason, n := range now.Counts {
			if grown := n - seen[reason]; grown > 0 {
				seen[reason] = n
				if !first {
					e.since[reason] += grown
				}
			}
		}
	}
	return maps.Clone(e.since)
}
