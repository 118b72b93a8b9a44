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
// Called by the spine: got, listed and verified with the answer to each read, except to an audit that fails; keep in each
// step.
//
// While the fault lasts, the worker says on its seat that it is unwell and declines what it does not hold, so that plans
// give it to others. It keeps what it holds.
//
// Reads of single records and listings fail apart, because a policy may deny only one of them. If single reads fail, the
// records are listed instead: rows as keep says, the seats of owners by owners.keep, the target by follow.keep. A listing
// of all rows is too slow for a move, so a successor learns of the hand-over by a write that is refused (shard.reach). While
// the worker cannot check whether the table is the recorded one, it may claim nothing, so plans have to know that too.
//
// Invariant: single reads that fail count only while no listing of that kind passes. A listing that passes has shown
// what the reads would have.

// unreadFor is for how many heartbeat intervals no read of one kind passes before that is a fault.
const unreadFor = 3

var errUnread = errors.New(protocol.Unread)

// An unread is that fault. singles and lists have, by kind of the records, since when no read has passed; 0: the last one
// has.
type unread struct {
	fault
	singles failing
	lists   failing
	table   Instant // since when no check of the table has passed; 0: the last one has
	probed  Instant // when this worker last read its own target or seat to find out whether reads pass
	again   Instant // not before are the rows listed for this again
}

type failing [lease.KindWishes + 1]Instant

func noUnread() unread { return unread{fault: fault{kind: event.Unwell}} }

// forget is for a worker that has lost its seat: it makes its reads again.
func (f *unread) forget() { f.singles, f.lists, f.table = failing{}, failing{}, 0 }

// saw takes the answer to a read. A read that only waited for its turn was not sent, and shows nothing.
func (f *failing) saw(t *turn, kind lease.Kind, err error) {
	switch at := &f[kind]; {
	case err == nil || malformed(err):
		*at = 0
	case !errors.Is(err, lease.ErrQueued):
		*at = cmp.Or(*at, t.now.Mono)
	}
}

// got takes the answer to the read of one record.
func (f *unread) got(t *turn, kind lease.Kind, err error) { f.singles.saw(t, kind, err) }

// listed takes the answer to a listing.
func (f *unread) listed(t *turn, kind lease.Kind, err error) {
	if f.lists.saw(t, kind, err); f.lists[kind] == 0 {
		f.singles[kind] = 0
	}
}

// verified takes the answer to a check of the table.
func (f *unread) verified(t *turn, err error) {
	if err == nil || errors.Is(err, lease.ErrWentBack) {
		f.table = 0
	} else {
		f.table = cmp.Or(f.table, t.now.Mono)
	}
}

// keep begins and ends the fault. rows is the listing of all rows, me this worker's incarnation. During the fault a worker
// may have no other reason to read a target or a single seat. So once per heartbeat interval it reads its own, if such reads
// have failed, to find out whether they pass again.
func (f *unread) keep(t *turn, me lease.Incarnation, rows *read) {
	since := Never
	note := func(at Instant) {
		if at > 0 {
			since = min(since, at)
		}
	}
	note(f.table)
	for kind := range f.lists {
		if kind != int(lease.KindLease) {
			note(f.singles[kind])
			note(f.lists[kind])
			continue
		}
		at := cmp.Or(f.singles[kind], f.lists[kind])
		if at == 0 && !rows.sent && !rows.wanted {
			rows.try = retry{} // single reads pass again, and nobody repeats the listing that failed
		}
		if rows.try.tries > 0 {
			note(at)
		}
		if at > 0 && !rows.sent && !rows.wanted && !t.before(max(at.Add((unreadFor-1)*t.beat), f.again)) {
			rows.wanted, f.again = true, t.now.Mono
			if t.large { // all rows are many, and each worker may list them
				f.again = f.again.Add(t.jitter(t.cfg.Audit))
			}
		}
	}
	target, seat := f.singles[lease.KindTarget] > 0, f.singles[lease.KindSeat] > 0
	if f.on && (target || seat) && !t.before(f.probed.Add(t.beat)) {
		f.probed = t.now.Mono
		if target {
			t.get(lease.Target{Group: t.cfg.Group, Incarnation: me}.Key())
		}
		if seat {
			t.get(lease.Seat{Group: t.cfg.Group, Incarnation: me}.Key())
		}
	}
	switch {
	case since == Never:
		f.lower(t)
	case !f.on && !t.before(since.Add(unreadFor*t.beat)):
		f.raise(t, since, "", errUnread)
	}
}
