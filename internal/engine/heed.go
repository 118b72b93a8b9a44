package engine

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// How a session learns that an operator has released a lease that the session holds, moves it (move.go), or wants all fences
// raised again (raise.go).
//
//	holds a lease → the wishes are read in each heartbeat interval → the rows that new wishes name are read
//	              → a wish has ended, and was known for a minute → swap of the wishes without it
//
// A worker finds the wishes in its listings of the seats. A session lists nothing. It reads the record of the
// wishes alone: equally often however many leases it holds, and not at all while it holds none.
//
// If these reads fail while heartbeats are stored, the session keeps what it holds. When they pass again, it reads the rows
// of all that it holds, because a wish may have come and gone meanwhile.
//
// The operator's command changes the row first, and sets the wish then. A session that commits finds the change also by
// the refusal of its next commit. One that does not commit writes no row, and finds it by the wish alone.
//
// Invariant: no session removes a wish that another session may not have read yet. A session removes a wish only
// when it has known the wish for a minute, and in a minute each session that holds a lease reads the wishes several
// times: also with a long lease time, and whatever the operator's clock shows.
//
// Called by the spine of a session: keep in each step, got and settled with answers.

const (
	mostUnread = 20 * time.Second // the longest pause between two reads of the wishes
	knownFor   = time.Minute      // how long a session has known a wish before it removes the wish
)

// A heed is what a session knows of the wishes of operators. since has an instant for each wish of now.List.
type heed struct {
	now     lease.Wishes
	since   []Instant // when each wish was first read
	next    Instant   // when the wishes are read again; 0: the session holds no lease
	last    Instant   // when they were last read; 0: not since the session holds a lease
	try     retry
	asked   serial
	removal wishes
}

// keep reads the wishes, and removes those that have ended. Each session delays a removal by its own part of a
// minute, so that not all sessions send the same swap.
func (d *heed) keep(t *turn, me lease.Incarnation, done func(lease.Wish) bool) {
	spread := time.Duration(rebalance.Tie(string(me)) % uint64(time.Minute))
	d.removal.keep(t, d.now, t.now.Wall.Add(-spread), func(at int) bool { return t.now.Mono < d.since[at].Add(knownFor) }, done)
	pause := func() Instant { return t.now.Mono.Add(t.jitter(min(t.beat, mostUnread))) }
	if d.next == 0 { // it held nothing until now
		d.next, d.last = pause(), 0
	}
	if t.before(d.next) || !d.try.due(t) {
		return
	}
	d.next = pause()
	d.try.sent, d.asked = true, t.get(lease.Wishes{Group: t.cfg.Group}.Key())
}

// fails reports whether a read of the wishes waits to be repeated.
func (d *heed) fails() bool { return d.next > 0 && d.try.tries > 0 }

// settled takes the answer to a removal, and reads the wishes again.
func (d *heed) settled(t *turn, in Settled) {
	if d.removal.settled(t, in) {
		d.next = t.now.Mono
	}
}

// raise returns the number of the wish that stands to raise all fences again; 0: none does, or the session holds nothing and
// so does not know.
func (d *heed) raise(t *turn, holds bool) int64 {
	at := slices.IndexFunc(d.now.List, func(w lease.Wish) bool { return w.Kind == lease.WishRaise && w.Stands(t.now.Wall) })
	if at < 0 || !holds {
		return 0
	}
	return d.now.List[at].Number
}

// got takes the wishes, and returns the leases whose rows commands have changed, as the new wishes say: none if the
// record cannot be read. all: it was not read for so long that a wish may have come and gone.
func (d *heed) got(t *turn, in Got) (names []string, all bool) {
	if !d.try.sent || serial(in.Read) != d.asked {
		return nil, false
	}
	d.try.sent = false
	if in.Err != nil && !malformed(in.Err) {
		t.failedNow("", in.Err)
		d.try.tries++ // keep paces the reads
		return nil, false
	}
	if d.try = (retry{}); in.Err != nil {
		return nil, false
	}
	t.answeredNow()
	all = d.last > 0 && t.now.Mono >= d.last.Add(knownFor)
	d.last = t.now.Mono
	now, _ := in.Record.(lease.Wishes)
	if now.WriteID == d.now.WriteID {
		return nil, all
	}
	since := make([]Instant, len(now.List))
	for i, w := range now.List {
		if at := slices.Index(d.now.List, w); at >= 0 {
			since[i] = d.since[at]
			continue
		}
		if since[i] = t.now.Mono; w.Kind == protocol.WishLook {
			names = append(names, w.Subject)
		}
	}
	d.now, d.since = now, since
	return names, all
}
