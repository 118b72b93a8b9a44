package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The listings of this worker: which are under way, and when the next are due.
//
//	due, or wanted → under way → answered → resting → due
//	                     ↑______ failed: repeated after a pause
//
// Called by the spine, which alone knows why a listing is wanted: due and send in each step,
// answered with each answer.
//
// Listings are what a fleet costs most, so each kind is made only when something depends on it: seats by watchers,
// the plan by the other workers, targets for a plan or to find what is placed, rows for a plan without whole
// targets, for shards of which nothing is known, and for audits.
//
// Invariant: one listing of a kind is under way at a time, so a later answer was asked for later.
// Invariant: a listing that is wanted begins after it was wanted. One that was under way may show what was before.

// Reads are the listings by kind.
type reads struct {
	seats, rows, targets read
	plan                 read             // of a worker that does not watch
	away                 time.Duration    // how long the quickest answer of the table took
	slow                 [3]time.Duration // the slowest: since the last heartbeat, and in the two intervals before
	moving               Instant          // since when shards of this worker are in moves; 0: none is
	wished               lease.WriteID    // the wishes that the latest target was made from
	expects              Instant          // until when to look for requests, after new wishes gave shards of this worker to others
}

// A read is one kind of listing. wanted and next differ: wanted asks for a consistent listing from now on, next for any
// listing at a time.
type read struct {
	id     serial
	begun  order // the step in which it was sent
	sent   bool
	lax    bool // it is eventually consistent
	limit  int  // how many records it returns at most; 0: all
	kind   lease.Kind
	wanted bool    // one is wanted that begins from now on
	next   Instant // when the next is due; Never for a kind that is read only when it is wanted
	asked  Instant // when it was sent
	took   time.Duration
	rest   Instant // not again before
	try    retry
}

// forget starts all listings over, for a worker that has no seat.
func (l *reads) forget() {
	*l = reads{away: l.away, slow: l.slow, seats: l.seats.again(), rows: l.rows.again(), targets: l.targets.again(), plan: l.plan.again()}
}

// again returns the read of a worker that starts over. A slow store stays the same store.
func (r *read) again() read { return read{rest: r.rest, took: r.took, next: Never} }

// due reports whether the listing is to be sent now.
func (r *read) due(t *turn) bool {
	if r.sent || !r.try.due(t) {
		return false
	}
	at := r.next
	if r.wanted {
		at = t.now.Mono
	}
	return !t.before(max(at, r.rest))
}

// send lists the records. An eventually consistent listing does not satisfy a wish for one that begins from now on.
func (r *read) send(t *turn, q lease.Query) {
	t.reads++
	r.id, r.begun, r.asked, r.sent, r.lax, r.limit, r.kind = t.reads, t.step, t.now.Mono, true, q.Eventually, q.Limit, q.Kind
	r.wanted = r.wanted && r.lax
	r.next = Never
	q.Group = t.cfg.Group
	t.do(List{Read: uint64(r.id), Query: q})
}

// wake makes a listing that repeats itself begin, at most d from now.
func (r *read) wake(t *turn, d time.Duration) {
	if !r.sent && r.next == Never {
		r.soon(t, d)
	}
}

// soon makes the next listing happen at most d from now.
func (r *read) soon(t *turn, d time.Duration) { r.next = min(r.next, t.now.Mono.Add(d)) }

// answered takes the answer to the listing, and reports whether it was complete. The listing
// rests for four times as long as the last two took at least: while much changes, many workers
// read much, and a store that becomes slow is asked less. A single slow answer does not show
// that the store is slow, because this worker may have been paused. Nor does the time that every
// answer takes: a table that is far away gains nothing from rests. A rest takes most heartbeats
// at most, and after a listing that failed most times longestPause.
func (r *read) answered(t *turn, away, most time.Duration, err error) bool {
	took := t.now.Mono.Sub(r.asked)
	r.rest = t.now.Mono.Add(min(4*(min(took, cmp.Or(r.took, took))-away), most*t.beat))
	r.sent, r.took = false, took
	if err != nil {
		r.wanted, r.rest = true, min(r.rest, t.now.Mono.Add(most*longestPause))
		r.try.failed(t.now.Mono, t.beat/16, t.beat/2)
		return false
	}
	r.try = retry{}
	t.answeredNow()
	return true
}

// near notes how long the answer to a heartbeat, or to a listing of the seats, took. The quickest one shows how far
// away the table is, the slowest recent one how late an answer may be.
func (l *reads) near(took time.Duration) {
	l.away, l.slow[0] = min(cmp.Or(l.away, took), took), max(l.slow[0], took)
}

// age is called when a heartbeat is stored. From then on, answers from before the third-last heartbeat do not count.
func (l *reads) age() {
	copy(l.slow[1:], l.slow[:])
	l.slow[0] = 0
}

// handOver returns how long the handler of an owner goes on after its offer was accepted. The successor learns that at
// about the same time, and has yet to call its own handler. The table may answer it as slowly as it answers this
// worker.
func (l *reads) handOver() time.Duration {
	return min(max(2*slices.Max(l.slow[:]), leastHandOver), mostHandOver)
}

// pace returns how soon this worker has to look again because it is a side of a move.
func (l *reads) pace(t *turn, moving bool) time.Duration {
	switch {
	case !moving:
		l.moving = 0
		return t.beat
	case l.moving == 0:
		l.moving = t.now.Mono
	}
	if t.now.Mono.Sub(l.moving) < movingPrompt {
		return paceMoving
	}
	return paceWaiting
}

// of returns the listing of that number; nil: it is none of these.
func (l *reads) of(id serial) *read {
	for _, r := range []*read{&l.seats, &l.plan, &l.rows, &l.targets} {
		if r.id == id {
			return r
		}
	}
	return nil
}

// expect makes an owner look for requests more often for a while if the plan is based on new wishes. Without
// wishes, a plan changes because a worker joins or leaves; that worker writes the plan and sends its requests
// at once. After new wishes, another worker must first see the plan.
func (l *reads) expect(t *turn, wished lease.WriteID) {
	if l.wished != wished {
		l.wished, l.expects = wished, t.now.Mono.Add(t.beat+stillFor)
		l.look(t, stillFor)
	}
}

// look makes a worker of a small fleet list the seats soon. In a large fleet the worker reads single seats instead.
func (l *reads) look(t *turn, d time.Duration) {
	if !t.large {
		l.seats.soon(t, d)
	}
}

// fails reports whether a listing waits to be repeated.
func (l *reads) fails() bool {
	return l.seats.try.tries > 0 || l.rows.try.tries > 0 || l.targets.try.tries > 0 || l.plan.try.tries > 0
}
