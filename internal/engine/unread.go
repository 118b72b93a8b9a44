package engine

import (
	"cmp"
	"errors"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Reads that fail while heartbeats are stored: the worker lives, and cannot follow the plan or take a shard.
//
//	a read fails → none of that kind passes for unreadFor heartbeat intervals: the fault begins → one passes: it ends
//
// Called by the spine: saw with the answer to each read, except to an audit that fails; keep in each step.
//
// While the fault lasts, the worker says on its seat that it is unwell and declines what it does not hold, so that plans
// give it to others. It keeps what it holds.
//
// Invariant: the read of a row may fail because of that row, or because single reads are denied. Before such reads count,
// all rows are listed; if that passes, the listing shows what the reads would have.

// unreadFor is for how many heartbeat intervals no read of one kind passes before that is a fault.
const unreadFor = 3

var errUnread = errors.New(protocol.Unread)

// An unread is that fault.
type unread struct {
	fault
	failing [lease.KindWishes + 1]Instant // by kind of the records: since when no read has passed; 0: the last one has
	probed  Instant                       // when the target was last read for this
	again   Instant                       // not before are the rows listed for this again
}

func noUnread() unread { return unread{fault: fault{kind: event.Unwell}} }

// saw takes the answer to a read. A read that only waited for its turn was not sent, and shows nothing.
func (f *unread) saw(t *turn, kind lease.Kind, err error) {
	switch at := &f.failing[kind]; {
	case err == nil || malformed(err):
		*at = 0
	case !errors.Is(err, lease.ErrQueued):
		*at = cmp.Or(*at, t.now.Mono)
	}
}

// keep begins and ends the fault. rows is the listing of all rows, me this worker's incarnation. A worker that gets nothing
// new may have no other reason to read its target than to find out whether it can.
func (f *unread) keep(t *turn, me lease.Incarnation, rows *read) {
	since := Never
	for kind, at := range f.failing {
		switch {
		case at == 0:
			continue
		case lease.Kind(kind) == lease.KindLease && rows.try.tries == 0:
			if due := max(at.Add((unreadFor-1)*t.beat), f.again); !t.before(due) && !rows.sent {
				rows.wanted, f.again = true, t.now.Mono.Add(t.jitter(t.cfg.Audit))
			}
		default:
			since = min(since, at)
		}
	}
	if f.on && f.failing[lease.KindTarget] > 0 && !t.before(f.probed.Add(t.beat)) {
		f.probed = t.now.Mono
		t.get(lease.Target{Group: t.cfg.Group, Incarnation: me}.Key())
	}
	switch {
	case f.failing == [len(f.failing)]Instant{}:
		f.lower(t)
	case !f.on && since < Never && !t.before(since.Add(unreadFor*t.beat)):
		f.raise(t, since, "", errUnread)
	}
}
