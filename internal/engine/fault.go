package engine

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A fault that lasts is reported when it begins, a lease time later, then at intervals
// that double up to an hour, and when it ends. Each report says for how long the fault has
// lasted. A worker makes one report of a fault, however many shards the fault concerns.
//
// A part that meets a fault calls raise. No part has to end a fault of the store or of
// commits: scanStore looks at the calls that wait to be repeated, scanCommits looks at the
// tenures, and each ends its fault when it finds none. So no path through the engine can
// forget it.

const (
	faultNames = 10 // how many shards a report names
	longestGap = time.Hour
)

type fault struct {
	kind   event.Kind
	on     bool
	since  Instant
	next   Instant       // when to report it again
	gap    time.Duration // between that report and the one before
	err    error         // the latest error
	shards []string      // the first few shards that the fault concerns
	count  int           // the number of all shards that it concerns
}

type faults struct {
	store    fault // a call of the store was not answered, or a record cannot be written
	slow     fault // the store takes too long to answer for the lease time
	commits  fault // the table has accepted no marks for CommitTimeout
	source   fault // the source cannot be listed
	restored fault // the table is not the one it was

	answered order   // the step in which the store last answered
	failed   order   // the step in which a call of the store last failed
	scan     Instant // when to check next whether a fault still lasts
	wake     Instant
}

func newFaults() faults {
	return faults{
		store: fault{kind: event.StoreFault}, slow: fault{kind: event.StoreFault}, commits: fault{kind: event.CommitsFail},
		source: fault{kind: event.SourceFault}, restored: fault{kind: event.Restored}, wake: Never,
	}
}

// raise begins a fault, or notes its latest error if it has begun already. shard is empty
// where the fault concerns no single shard.
func (e *Engine) raise(f *fault, since Instant, shard string, err error) {
	f.err = err
	if f.on {
		return
	}
	f.on, f.since, f.gap = true, since, e.cfg.TTL
	f.shards, f.count = nil, 0
	if shard != "" {
		f.shards, f.count = []string{shard}, 1
	}
	f.next = e.now.Mono.Add(f.gap)
	e.faults.scan = min(e.faults.scan, e.now.Mono.Add(min(e.beat/8, longestPause)))
	e.report(f)
}

// lower ends a fault, if it has begun.
func (e *Engine) lower(f *fault) {
	if f.on {
		f.on, f.err = false, nil
		e.report(f)
		f.shards, f.count = nil, 0
	}
}

func (e *Engine) report(f *fault) {
	ev := event.Event{Kind: f.kind, Err: f.err, Shards: f.shards, Count: f.count, Lasted: e.now.Mono.Sub(f.since), Over: !f.on}
	if f.count == 1 {
		ev.Shard = f.shards[0]
	}
	e.tell(ev)
}

// storeFailed notes a call of the store that failed, about that shard or about none.
func (e *Engine) storeFailed(shard string, err error) {
	e.faults.failed = e.step
	e.raise(&e.faults.store, e.now.Mono, shard, err)
}

// keepReporting reports the faults that last, and ends the faults that are over.
func (e *Engine) keepReporting() {
	f := &e.faults
	f.wake = Never
	if f.store.on || f.commits.on {
		if e.now.Mono >= f.scan {
			f.scan = e.now.Mono.Add(min(e.beat/8, longestPause))
			e.scanStore()
			e.scanCommits()
		}
		f.wake = f.scan
	}
	for _, fault := range []*fault{&f.store, &f.slow, &f.commits, &f.source, &f.restored} {
		if !fault.on {
			continue
		}
		if e.now.Mono >= fault.next {
			fault.gap = min(2*fault.gap, max(longestGap, e.cfg.TTL))
			fault.next = e.now.Mono.Add(fault.gap)
			e.report(fault)
		}
		f.wake = min(f.wake, fault.next)
	}
}

// scanStore ends the fault of the store when no call waits to be repeated and the store has
// answered since the last call failed.
func (e *Engine) scanStore() {
	f := &e.faults.store
	if !f.on {
		return
	}
	if e.concerned(f, e.unanswered) == 0 && !e.callsFail() && e.faults.answered > e.faults.failed {
		e.lower(f)
	}
}

// unanswered reports whether a call about s has failed and will be repeated.
func (e *Engine) unanswered(s *shard) bool {
	_, busy := s.copy.Open()
	return busy && s.try.tries > 0 || s.unwritable || s.unread && (s.mine || s.asks() || s.t.offeredTo != "")
}

// callsFail reports whether a call about no single shard has failed and will be repeated.
func (e *Engine) callsFail() bool {
	c, l := &e.seat, &e.looks
	if c.open.Op != 0 && c.try.tries > 0 || c.unwritable || !c.restored && c.check.tries > 0 || l.seats.try.tries > 0 || l.rows.try.tries > 0 {
		return true
	}
	for i := range l.peers {
		if l.peers[i].evict.tries > 0 {
			return true
		}
	}
	return false
}

func (e *Engine) scanCommits() {
	f := &e.faults.commits
	if !f.on {
		return
	}
	switch late := e.concerned(f, e.commitsLate); {
	case late == 0 && !e.speechless():
		e.lower(f)
	case e.surrenders(late):
		e.surrender()
	}
}

// speechless reports whether this worker has given up its seat because it could write no row,
// and nothing shows yet that it can: neither an answer to a write of a row, nor CommitTimeout
// in a new seat without a write that fails.
func (e *Engine) speechless() bool {
	if e.rows.surrendered == 0 {
		return false
	}
	return e.seat.phase != seated || e.now.Mono < e.seat.joined.Add(e.cfg.CommitTimeout) || slices.ContainsFunc(e.shards, e.unanswered)
}

// rowAnswers is about the answers to this worker's writes of rows.
type rowAnswers struct {
	last        Instant // when the last answer came
	surrendered int64   // how often the worker has given up its seat since that answer
}

// surrenders reports whether this worker has to give up its seat: its heartbeats are answered,
// but no write of a row has been for CommitTimeout, and writes of more than one shard fail,
// unless it holds no other. While its seat stands, no other worker may claim the shards that it
// cannot release. surrenders first drains all handlers of the worker, and reports true when they
// have returned; only those whose commits fail have stalled.
func (e *Engine) surrenders(late int) bool {
	if !e.capable() || e.leave.on || e.now.Mono < e.rows.last.Add(e.cfg.CommitTimeout) || !e.successors() {
		return false
	}
	if late < min(2, e.fleet.held) {
		e.probe(late)
		return false
	}
	done := late > 0
	for _, s := range e.shards {
		if t := &s.t; t.on {
			e.windDownFor(s)
			done = done && (t.returned || t.cut || t.finish)
		}
	}
	return done
}

// windDownFor tells a handler to wind down because its worker gives up its seat. A handler
// that a requester waits for without a limit gets one.
func (e *Engine) windDownFor(s *shard) {
	t := &s.t
	cause := event.CauseStopped
	if e.commitsLate(s) {
		cause = event.CauseStalled
	}
	switch {
	case t.returned || t.cut || t.finish:
	case !t.draining:
		t.unheard = cause == event.CauseStalled
		e.drain(s, cause)
		e.at(s, e.now.Mono)
	case t.cause == event.CauseHandedOff:
		t.cause, t.drained = cause, e.now.Mono
		e.at(s, e.now.Mono)
	}
}

// probe writes the row of a quiet shard, to find out whether this worker cannot write one row or
// cannot write any. It chooses a shard without failed attempts, because such a write would end
// their count.
func (e *Engine) probe(late int) {
	busy, quiet := 0, (*shard)(nil)
	for _, s := range e.shards {
		if _, open := s.copy.Open(); s.t.on && open {
			busy++
		} else if s.t.on && s.t.seq <= s.t.accepted && s.copy.Row().Attempts() == 0 && s.t.give == nil && !s.t.returned && !s.t.finish {
			quiet = s
		}
	}
	if late > 0 && busy <= late && quiet != nil {
		w, err := protocol.Progress(quiet.copy.Row(), e.hold(quiet), e.stamp())
		e.sendMark(quiet, committing, w, err)
	}
}

// longestRest is how long a worker rests at most before it takes another seat, in lease times.
// A resting worker does not see that the others have died.
const longestRest = 6

// surrender gives up the seat. The worker rests before it takes another one. If it crashes
// before the deletion arrives, its seat stands still, and the other workers evict it.
func (e *Engine) surrender() {
	if w, err := protocol.Evict(e.seat.seat); err == nil {
		e.do(Send{Write: w}) // its answer changes nothing: where a late heartbeat keeps the seat, the seat expires
	}
	e.rows.surrendered++
	rest := backoff(e.rows.surrendered, e.cfg.TTL, longestRest*e.cfg.TTL)
	e.loseSeat(event.CauseStalled, errNotAccepted)
	e.seat.rest = e.now.Mono.Add(rest)
}

// concerned counts the shards that a fault concerns at present, and notes their number and
// names. If there are none left it keeps the last ones, for the report that the fault is over.
func (e *Engine) concerned(f *fault, by func(*shard) bool) (count int) {
	var names []string
	for _, s := range e.shards {
		if by(s) {
			if count++; count <= faultNames {
				names = append(names, s.name)
			}
		}
	}
	if count > 0 {
		f.shards, f.count = names, count
	}
	return count
}
