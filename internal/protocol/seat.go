package protocol

import (
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Sit makes a seat. Its worker is not confirmed before its first beat.
func Sit(s lease.Seat, st Stamp) (lease.Write, error) {
	s.Beat, s.WriteID, s.At = 0, st.ID, wall(st.At)
	s.TTL = s.TTL.Truncate(time.Millisecond)
	s.Wants = byShard(s.Wants)
	return checked(lease.Write{Op: lease.OpCreate, Next: s})
}

// NextBeat proves a pulse, and carries what the worker has to say.
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

// Evict deletes the seat as it was seen: an observer's eviction, or a worker
// giving up its own.
func Evict(s lease.Seat) (lease.Write, error) {
	return checked(lease.Write{Op: lease.OpDelete, Old: s})
}

func byShard(wants []lease.Want) []lease.Want {
	if len(wants) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(wants), func(a, b lease.Want) int { return strings.Compare(a.Shard, b.Shard) })
}
