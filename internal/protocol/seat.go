package protocol

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Unread is why a worker is unwell whose heartbeats are stored and whose reads of the table fail.
const Unread = "reads of the table fail"

// CannotRead reports whether a worker is unwell for that reason. Only the seat of an unwell worker carries a reason, so
// no other seat becomes larger.
func CannotRead(h lease.Health) bool { return h.Unwell == Unread }

// Unraised is how the reason begins why a worker is unwell that cannot raise the fence of a target. The name of the target
// follows, and RunsUnraised if handlers run although the fence is not raised.
const (
	Unraised     = "cannot raise the fence of "
	RunsUnraised = ", and handlers run without it"
)

// CannotRaise reports whether a worker is unwell for that reason.
func CannotRaise(h lease.Health) bool { return strings.HasPrefix(h.Unwell, Unraised) }

// Sit creates a seat. The seat is confirmed by its first heartbeat.
func Sit(s lease.Seat, st Stamp) (lease.Write, error) {
	s.Beat, s.WriteID, s.At = 0, st.ID, wall(st.At)
	s.TTL, s.Since = s.TTL.Truncate(time.Millisecond), wall(s.Since)
	s.Backoff = usualRest(s.Backoff)
	s.Says = said(s.Says)
	return checked(lease.Write{Op: lease.OpCreate, Next: s})
}

// usualRest returns a backoff as a seat stores it: 0, which is not stored, for the default. An attribute that
// all seats have would make every listing of the seats more expensive.
func usualRest(d time.Duration) time.Duration {
	switch d = d.Truncate(time.Millisecond); {
	case d < 0:
		return -time.Millisecond // stored as a number; only its sign counts
	case d == lease.DefaultBackoff:
		return 0
	}
	return d
}

// NextBeat stores the next heartbeat of a worker, and what the worker publishes with it.
func NextBeat(s lease.Seat, says lease.Says, st Stamp) (lease.Write, error) {
	beat, err := succ("beat", s.Beat)
	if err != nil {
		return lease.Write{}, err
	}
	next := s
	next.Beat, next.WriteID, next.At = beat, st.ID, wall(st.At)
	next.Says = said(says)
	return checked(lease.Write{Op: lease.OpSwap, Old: s, Next: next})
}

// Evict deletes a seat, on the condition that it is as it was last seen. A worker evicts another
// worker, or gives up its own seat.
func Evict(s lease.Seat) (lease.Write, error) {
	return checked(lease.Write{Op: lease.OpDelete, Old: s})
}

// EvictSpoilt deletes a seat that cannot be read, on the condition that nothing has written it since.
func EvictSpoilt(seat lease.Key, id lease.WriteID) (lease.Write, error) {
	return checked(lease.Write{Op: lease.OpDelete, Old: lease.Seat{Group: seat.Group, Incarnation: lease.Incarnation(seat.Name), WriteID: id}, Spoilt: true})
}

// said returns what a worker publishes, in the form that a seat can store. A worker must not lose its
// seat because it has too long a text or too many news: the seat has the first news, and counts the
// others.
func said(s lease.Says) lease.Says {
	s.Wants, s.Settled = byShard(s.Wants), s.Settled && s.Revision != 0
	s.Waits, s.WaitsLeft = oldest(s.Waits, s.WaitsLeft)
	h := &s.Health
	h.Unwell, h.UnwellSince, h.SilentSince = attr.Shortened(printable(h.Unwell), lease.MaxName), wall(h.UnwellSince), wall(h.SilentSince)
	if len(s.News) == 0 {
		s.News = nil
		return s
	}
	first := s.News[:min(len(s.News), lease.MaxNews)]
	s.NewsLeft += int64(len(s.News) - len(first))
	s.News = slices.Compact(slices.SortedFunc(slices.Values(first), lease.News.Compare))
	return s
}

// waitBytes is how many bytes the waits on a seat have at most, as DynamoDB counts the elements of a set. So a seat
// with names of 40 bytes costs one write unit although its session waits for thousands of leases. One wait with the
// longest names has 526.
const waitBytes = 600

// oldest returns the waits that began first, as many as a seat has room for, and counts the others.
func oldest(waits []lease.Wait, left int64) ([]lease.Wait, int64) {
	if len(waits) == 0 {
		return nil, left
	}
	all := slices.Clone(waits)
	for i := range all {
		all[i].Since = wall(all[i].Since)
	}
	slices.SortFunc(all, lease.Wait.Compare)
	n, room := 0, waitBytes
	for n < min(len(all), lease.MaxWaits) {
		if room -= len(all[n].String()) + 1; room < 0 {
			break
		}
		n++
	}
	return all[:n], left + int64(len(all)-n)
}

// printable replaces what no record can store: invalid UTF-8 and control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

func byShard(wants []lease.Want) []lease.Want {
	if len(wants) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(wants), func(a, b lease.Want) int { return strings.Compare(a.Shard, b.Shard) })
}
