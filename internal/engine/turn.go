package engine

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// What every part gets in a step: the moment, the configuration and the outputs; and the pacing of
// calls that are repeated until they are answered.
//
// Called by every part.
//
// Invariant: a part asks no clock and draws no lot: now, stamp and jitter are all it has.
// Invariant: a write is sent again with the same bytes until an answer decides it. A new id would make it another
// write, and both could be stored.
// Invariant: a part that waits for a time calls turn.at or turn.before in every step until then, because wake
// begins again with each step.

// How soon the seats, or single records, are read again, and for how long. While nothing happens, seats are listed once
// per heartbeat interval.
const (
	paceSuspect  = 500 * time.Millisecond // a seat has missed a heartbeat
	paceDying    = 200 * time.Millisecond // a seat is about to expire
	paceMoving   = 120 * time.Millisecond // a shard of this worker's has been in a move for less than movingPrompt
	paceWaiting  = 250 * time.Millisecond // a shard has been in a move for longer, or a plan is awaited
	movingPrompt = 5 * time.Second        // for so long a move is followed at paceMoving

	// Seats that have not changed for so long stand still. Then a plan may move held shards.
	stillFor = 500 * time.Millisecond
)

// An order numbers the steps of one engine, and a serial its reads and its questions to the planner. Only how they
// compare matters.
type (
	order  uint64
	serial uint64
	wall   int64 // a reading of the wall clock in nanoseconds
)

// A turn is what every part gets in a step: the moment, the configuration and the outputs.
type turn struct {
	cfg   Config
	beat  time.Duration // the heartbeat interval
	now   Moment
	step  order // counts the steps
	reads serial
	ids   int // ids made in this step
	out   []Output
	wake  Instant // when the engine has to be called again at the latest
	large bool    // most workers do not list the seats, because there are many
	store storeCalls
}

// StoreCalls is what the steps so far have shown of the store, for the reports of faults. The parts only note it here;
// faults.meet and faults.scanStore draw the conclusions.
type storeCalls struct {
	answered order // the step in which the store last answered
	failed   order // the step in which a call last failed
	shard    string
	err      error // the error of that call; reported in the step in which it was made
}

// mostKept is the capacity, in outputs, above which the memory of a step is not used again. A step that claims 10,000
// shards needs far more than others.
const mostKept = 1024

// begin begins a step. If the step comes much later than its wake time, begin returns how long the
// process was paused. The outputs of the last step are no longer valid: their memory is used again.
func (t *turn) begin(now Moment) (paused time.Duration) {
	now.Mono = max(now.Mono, t.now.Mono)
	if now.Mono.Sub(t.wake) >= t.beat/8 {
		paused = now.Mono.Sub(t.now.Mono)
	}
	clear(t.out)
	if cap(t.out) > mostKept {
		t.out = nil
	}
	t.now, t.ids, t.out, t.wake, t.store.err = now, 0, t.out[:0], Never, nil
	t.step++
	return paused
}

// do adds an output. The shell carries outputs out in their order.
func (t *turn) do(o Output) { t.out = append(t.out, o) }

// report tells the observer of an event.
func (t *turn) report(ev event.Event) { t.do(Tell{Event: ev}) }

// at makes the engine run again at i.
func (t *turn) at(i Instant) { t.wake = min(t.wake, i) }

// before reports whether i is still to come. If so, the engine runs again then.
func (t *turn) before(i Instant) bool {
	if t.now.Mono < i {
		t.at(i)
	}
	return t.now.Mono < i
}

// wall returns the wall clock's reading. It may jump either way: see trust.doubt.
func (t *turn) wall() wall { return wall(t.now.Wall.UnixNano()) }

// answeredNow notes that the store has answered a call.
func (t *turn) answeredNow() { t.store.answered = t.step }

// failedNow notes a call of the store that failed, about one shard or about none.
func (t *turn) failedNow(shard string, err error) {
	t.store.failed, t.store.shard, t.store.err = t.step, shard, err
}

// stamp returns the id and the time of the next write. The id is unique to the step and to the
// write in it.
func (t *turn) stamp() protocol.Stamp {
	id := t.now.Chance
	if t.ids > 0 {
		id += "." + strconv.Itoa(t.ids)
	}
	t.ids++
	return protocol.Stamp{ID: lease.WriteID(id), At: t.now.Wall}
}

// jitter returns d, less up to a tenth of it, so that many workers do not do the same thing at
// the same time. It is never more than d, so a heartbeat is never late because of it.
func (t *turn) jitter(d time.Duration) time.Duration {
	t.ids++
	return d - time.Duration(rebalance.Tie(t.now.Chance+strconv.Itoa(t.ids))%uint64(d/10+1))
}

// get reads one record, consistently, and returns the number of the read. The answer has the number, so that a part
// can ignore an answer that it no longer waits for.
func (t *turn) get(key lease.Key) serial {
	t.reads++
	t.do(Get{Read: uint64(t.reads), Key: key})
	return t.reads
}

// place returns where a slice that is sorted by key has the element of that key, or would have it.
func place[E any, K cmp.Ordered](all []E, key K, of func(*E) K) (i int, ok bool) {
	end := len(all)
	for i < end {
		if m := (i + end) / 2; of(&all[m]) < key {
			i = m + 1
		} else {
			end = m
		}
	}
	return i, i < len(all) && of(&all[i]) == key
}

// find returns the element of that key in a slice that is sorted by key; nil if there is none.
func find[E any, K cmp.Ordered](all []E, key K, of func(*E) K) *E {
	if i, ok := place(all, key, of); ok {
		return &all[i]
	}
	return nil
}

// know is find in a slice that gets an empty element if it lacks that of the key.
func know[E any, K cmp.Ordered](all *[]E, key K, of func(*E) K) *E {
	i, ok := place(*all, key, of)
	if !ok {
		*all = slices.Insert(*all, i, *new(E))
	}
	return &(*all)[i]
}

// backoff returns the pause after so many tries: first, doubling, at most limit.
func backoff(tries int64, first, limit time.Duration) time.Duration {
	d := first
	for range min(tries-1, 63) {
		if d *= 2; d >= limit {
			return limit
		}
	}
	return min(d, limit)
}

// A retry paces a call that is repeated until it is answered. The shell answers every call, if only with an error, so
// sent does not stay set forever.
type retry struct {
	at    Instant
	tries int32
	sent  bool // the call is under way
}

// longestPause is the longest pause before a call is repeated. With a long lease time, a part of
// it would delay everything by hours because of one request that was lost.
const longestPause = 10 * time.Second

// failed makes r wait before the next try.
func (r *retry) failed(now Instant, first, limit time.Duration) {
	r.sent = false
	r.tries++
	r.at = now.Add(min(backoff(int64(r.tries), first, limit), longestPause))
}

// due reports whether to try now. If the time is not there yet, the engine is called again then.
func (r *retry) due(t *turn) bool {
	return !r.sent && !t.before(r.at)
}

// A sending is a conditional write that is sent again until it is answered: of a seat, the plan, a target or the
// wishes. Writes of rows are sent by row.send, because their answers also change a copy.
//
//	(none) → send → open: sent → settled: decided → (none)
//	                        ↑______ not decided: keep repeats it after a pause
type sending struct {
	write lease.Write // without an operation, none is open
	try   retry
}

func (s *sending) open() bool { return s.write.Op != 0 }

// send makes w the open write, unless it could not be made: that is reported, and tried again later.
func (s *sending) send(t *turn, w lease.Write, err error) (sent bool) {
	if err != nil {
		t.failedNow("", err)
		s.try.failed(t.now.Mono, t.beat, t.cfg.TTL)
		t.at(s.try.at)
		return false
	}
	s.write = w
	s.repeat(t)
	return true
}

// repeat sends the open write.
func (s *sending) repeat(t *turn) {
	s.try.sent = true
	t.do(Send{Write: s.write})
}

// keep sends the open write again when it is time.
func (s *sending) keep(t *turn) {
	if s.try.due(t) {
		s.repeat(t)
	}
}

// is reports whether w is the open write, and under way. A deletion has no write id of its own: the record that it
// deletes stands for it.
func (s *sending) is(w lease.Write) bool {
	return s.try.sent && w.Op == s.write.Op && w.Key() == s.write.Key() && w.ID() == s.write.ID() &&
		(w.Op != lease.OpDelete || w.Old.Written() == s.write.Old.Written())
}

// settled takes the answer to a write, and reports whether it decides the open one. Without an
// answer that does, the write is sent again after a pause: first at the beginning, at most longest.
//
// now is the record as it stands, if the answer shows it. After a decision no write is open, whatever the verdict is.
func (s *sending) settled(
	t *turn, me lease.Incarnation, in Settled, first, longest time.Duration,
) (verdict protocol.Verdict, now lease.Record, decided bool) {
	if !s.is(in.Write) {
		return protocol.Unknown, nil, false
	}
	if verdict, now = protocol.Settle(me, s.write, in.Record, in.Err); verdict == protocol.Unknown {
		t.failedNow("", in.Err)
		s.try.failed(t.now.Mono, first, longest)
		return verdict, nil, false
	}
	t.answeredNow()
	*s = sending{}
	return verdict, now, true
}
