package inspect

import (
	"cmp"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// defaultMaxBackoff is shardlease.Config's default for the longest rest of a failed shard.
const defaultMaxBackoff = 5 * time.Minute

// A backoff is how the workers of a group let failed shards rest.
type backoff struct {
	first, most time.Duration
}

// backoffOf returns the longest rests that any of the workers keeps.
func backoffOf(seats []lease.Seat, most time.Duration) backoff {
	b := backoff{}
	for _, seat := range seats {
		b.first = max(b.first, cmp.Or(seat.Backoff, lease.DefaultBackoff))
	}
	b.most = cmp.Or(most, max(defaultMaxBackoff, b.first))
	return b
}

// after returns the rest after so many failures: it doubles with each.
func (b backoff) after(failures int64) time.Duration {
	d := b.first
	for range min(max(failures, 1)-1, 63) {
		if d *= 2; d >= b.most {
			break
		}
	}
	return min(d, b.most)
}

// usual returns how long a shard rests after its last failure, for every worker.
func (b backoff) usual(row lease.Row) time.Duration {
	if failed(row.Last.Reason) && row.Failed() > 0 {
		return b.after(row.Failed())
	}
	return 0
}

// longest returns how long a shard that nobody holds may rest at most. Failures may rest as long without being counted
// against the shard. A shard that a handler gave up too early, without an error, rests only for the worker that had
// it, so the rest matters where that is the only worker.
func (b backoff) longest(row lease.Row, only bool) time.Duration {
	tries, rests := row.Failed(), failed(row.Last.Reason)
	if row.Last.Reason == lease.ReasonReleased && only {
		given, all := releases(row)
		if all {
			return b.most
		}
		tries, rests = given, true
	}
	if !rests {
		return 0
	}
	return b.after(tries)
}

func failed(why lease.Reason) bool { return protocol.EndingOf(why) == protocol.Failed }

// releases returns how often the same worker has given the shard up in a row. all: the row
// remembers several releases and nothing else, so there may have been more.
func releases(row lease.Row) (n int64, all bool) {
	past := row.History()
	for _, t := range append([]lease.Transfer{row.Last}, past...) {
		if t.Reason != lease.ReasonReleased || t.From != "" && t.From != row.Last.From {
			return n, false
		}
		if t.From != "" { // a claim repeats the reason
			n++
		}
	}
	return n, n > 1
}

// lastFailure returns the latest transfer that ended a failed tenure. A claim repeats the reason, and
// names no previous owner. Its note is the error, if the row has it.
func lastFailure(row lease.Row) *lease.Transfer {
	if row.Failures.Count == 0 {
		return nil
	}
	ended := func(t lease.Transfer) bool {
		return t.From != "" && (failed(t.Reason) || protocol.EndingOf(t.Reason) == protocol.Evicted)
	}
	past := append([]lease.Transfer{row.Last}, row.History()...)
	if at := slices.IndexFunc(past, ended); at >= 0 {
		return new(row.Noted(past[at]))
	}
	return nil
}

// begun reports whether a worker has held the shard since it was created, as far as the row remembers. A
// shard that has begun does not wait for its parents.
func begun(row lease.Row) bool {
	if !row.Owner.IsZero() {
		return true
	}
	for _, t := range append([]lease.Transfer{row.Last}, row.History()...) {
		if t.Reason == lease.ReasonRemoved {
			return false
		}
		if t.From != "" {
			return true
		}
	}
	return false
}
