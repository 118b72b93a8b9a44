package protocol

import (
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Sit creates a seat. Its worker is not confirmed before its first heartbeat.
func Sit(s lease.Seat, st Stamp) (lease.Write, error) {
	s.Beat, s.WriteID, s.At = 0, st.ID, wall(st.At)
	s.TTL = s.TTL.Truncate(time.Millisecond)
	s.Wants = byShard(s.Wants)
	return checked(lease.Write{Op: lease.OpCreate, Next: s})
}

// NextBeat is the next heartbeat of a worker, with what the worker publishes.
func NextBeat(s lease.Seat, says lease.Says, st Stamp) (lease.Write, error) {
	beat, err := succ("beat", s.Beat)
	if err != nil {
		return lease.Write{}, err
	}
	next := s
	next.Beat, next.WriteID, next.At = beat, st.ID, wall(st.At)
	next.Says = says
	next.Wants = byShard(says.Wants)
	return checked(lease.Write{Op: lease.OpSwap, Old: s, Next: next})
}

// Evict deletes the seat as it was last seen: a worker evicts another, or gives up its own seat.
func Evict(s lease.Seat) (lease.Write, error) {
	return checked(lease.Write{Op: lease.OpDelete, Old: s})
}

func byShard(wants []lease.Want) []lease.Want {
	if len(wants) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(wants), func(a, b lease.Want) int { return strings.Compare(a.Shard, b.Shard) })
}
