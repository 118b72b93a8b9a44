package engine

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Faults that last.
//
//	off → raised: reported → lasts: reported again and again → lowered: reported as over
//
// A fault is reported when it begins, a lease time later, then at intervals that double up to an
// hour, and when it ends. A worker makes one report of a fault, however many shards the fault
// concerns.
//
// A part that meets a fault of the store notes it in the turn; no part has to end one. Each check
// looks at the calls that wait to be repeated and at the tenures, and ends the fault when it finds
// none.
//
// Called by common.scan at the end of each step: meet, scanStore, scanReserved and scanCommits. Called by the spines: keep
// after that, keepFull and keepStale in each step, keepUnlisted with each listing of the source or of the rows, the others with what
// was met.
//
// Two faults change what the worker does. If it can renew its seat and write no row, it gives its seat up
// (common.surrender), because others may be able to write the rows. If its reads fail, it declines what it does not hold
// (unread.go). The other faults are only reported.
//
// Invariant: a fault that was reported is reported as over when it ends, unless the engine is done.
// Invariant: a worker gives up its seat only when its handlers have returned or were cut, and when another worker may
// take over.

const (
	faultNames    = 10   // how many shards a report names
	mostMalformed = 1000 // how many malformed records are remembered and reported
	longestGap    = time.Hour
	// longestRest is how long a worker rests at most before it takes another seat, in lease
	// times. A resting worker does not see that others have died.
	longestRest = 6
)

// A fault is one kind of fault, off or raised.
type fault struct {
	kind   event.Kind
	on     bool
	since  Instant
	next   Instant       // when to report it again
	gap    time.Duration // between that report and the one before
	err    error         // the latest error
	shards []string      // the first few shards that the fault concerns
	count  int           // how many shards it concerns
}

// Faults are all faults that this worker may have. They are kept when the seat is lost.
type faults struct {
	store    fault   // a call of the store was not answered, or a record cannot be written
	unread   unread  // reads of the table fail
	slow     fault   // the store takes too long to answer for the lease time
	commits  fault   // the table has accepted no marks for CommitTimeout
	source   fault   // the source cannot be listed
	restored fault   // the table is not the one it was
	unwell   fault   // the handlers of this worker fail
	silent   silence // handlers of this worker show no progress
	full     fault   // no worker has room for some shards
	reserved fault   // shards that this worker should hold are reserved for another name
	unlisted fault   // the source has ceased to list shards that are not finished
	stale    fault   // no plan is complete although one is needed

	unwatched fault // peers do not answer at their addresses
	deaf      fault // the listener of this worker has failed
	misjudged fault // this worker was evicted although its lease was valid, and hides its address

	rows      rowAnswers
	scan      Instant           // when to check next whether a fault still lasts
	malformed []malformedRecord // the records that no current listing could read
}

// RowAnswers is about the answers to this worker's writes of rows.
type rowAnswers struct {
	last        Instant // when the last one came
	surrendered int64   // how often the worker has given up its seat since then
}

// waits reports whether a call ended only because it waited for its turn in a store that answers
// other calls. That is no fault: there are many calls, as at a cold start.
func (r *rowAnswers) waits(t *turn, err error) bool {
	return errors.Is(err, lease.ErrQueued) && t.now.Mono < r.last.Add(t.cfg.TTL)
}

// A malformedRecord is a record that was found and cannot be read. For a worker it is a fault until a
// later listing can read it or lacks it. For a session it is a fault until a read can read it or lacks it,
// or until no caller waits for it any more.
type malformedRecord struct {
	key lease.Key
	fault
}

// newFaults returns the faults of a worker that has met none.
func newFaults() faults {
	return faults{
		store: fault{kind: event.StoreFault}, unread: noUnread(), slow: fault{kind: event.StoreFault}, commits: fault{kind: event.CommitsFail},
		source: fault{kind: event.SourceFault}, restored: fault{kind: event.Restored}, unwell: fault{kind: event.Unwell},
		silent: silence{fault: fault{kind: event.Silent}}, full: fault{kind: event.Full}, reserved: fault{kind: event.Full}, unlisted: fault{kind: event.Unlisted},
		stale: fault{kind: event.PlanStale}, unwatched: fault{kind: event.Unwatched}, deaf: fault{kind: event.Unwatched},
		misjudged: fault{kind: event.Misjudged},
	}
}

// raise begins a fault, or notes its latest error if it has begun already. shard is empty if the
// fault concerns no single shard.
func (f *fault) raise(t *turn, since Instant, shard string, err error) {
	f.err = err
	if f.on {
		return
	}
	f.on, f.since, f.gap = true, since, t.cfg.TTL
	if shard != "" {
		f.shards, f.count = []string{shard}, 1
	}
	f.next = t.now.Mono.Add(f.gap)
	f.report(t)
}

// shown returns the fault for the health of the worker; nothing, if it has not begun.
func (f *fault) shown() Fault {
	if !f.on {
		return Fault{}
	}
	return Fault{Since: f.since, Count: f.count, Shards: f.shards}
}

// lower ends a fault, if it has begun.
func (f *fault) lower(t *turn) {
	if f.on {
		f.on, f.err = false, nil
		f.report(t)
		f.shards, f.count = nil, 0
	}
}

// report tells the observer of the fault as it is: begun, lasting or over.
func (f *fault) report(t *turn) {
	ev := event.Event{Kind: f.kind, Err: f.err, Shards: f.shards, Count: f.count, Lasted: t.now.Mono.Sub(f.since), Over: !f.on}
	if f.count == 1 && len(f.shards) == 1 {
		ev.Shard = f.shards[0]
	}
	t.report(ev)
}

// keep reports the fault again when it has lasted.
func (f *fault) keep(t *turn) {
	if !f.on {
		return
	}
	if t.now.Mono >= f.next {
		f.gap = min(2*f.gap, max(longestGap, t.cfg.TTL))
		f.next = t.now.Mono.Add(f.gap)
		f.report(t)
	}
	t.at(f.next)
}

// sourced takes the result of a listing of the source. An error with another text is another
// fault, unless the texts differ only in words with digits: many services put the id of the
// request into their errors. Another fault is reported at once.
func (f *faults) sourced(t *turn, err error) {
	switch {
	case err == nil:
		f.source.lower(t)
		return
	case f.source.on && !slices.Equal(plainWords(f.source.err), plainWords(err)):
		f.source.on = false
	}
	f.source.raise(t, t.now.Mono, "", err)
}

// plainWords returns the words of the error that have no digits.
func plainWords(err error) []string {
	return slices.DeleteFunc(strings.Fields(err.Error()), func(word string) bool { return strings.ContainsAny(word, "0123456789") })
}

// storeSlow takes the shell's judgement of the store; nil: it is quick enough.
func (f *faults) storeSlow(t *turn, err error) {
	if err == nil {
		f.slow.lower(t)
	} else {
		f.slow.raise(t, t.now.Mono, "", err)
	}
}

// unreadable takes which records of one kind a listing could not read. A listing that may lag
// behind ends no report.
func (f *faults) unreadable(t *turn, kind lease.Kind, all []Unreadable, current bool) {
	if current {
		f.unmet(t, func(key lease.Key) bool {
			return key.Kind.Listed() != kind || slices.ContainsFunc(all, func(u Unreadable) bool { return u.Key == key })
		})
	}
	for _, u := range all {
		f.found(t, u.Key, u.Err)
	}
}

// found takes a record that cannot be read. It is reported once, however many listings show it; if there are too many
// such records, the rest are not reported.
func (f *faults) found(t *turn, key lease.Key, err error) {
	known := slices.ContainsFunc(f.malformed, func(m malformedRecord) bool { return m.key == key })
	if !known && len(f.malformed) < mostMalformed {
		m := malformedRecord{key, fault{kind: event.Malformed}}
		m.raise(t, t.now.Mono, key.Name, err)
		f.malformed = append(f.malformed, m)
	}
}

// met takes the read of one record that a caller of a session waits for.
func (f *faults) met(t *turn, in Got) {
	switch {
	case malformed(in.Err):
		f.found(t, in.Key, in.Err)
	case in.Err == nil && len(f.malformed) > 0:
		f.unmet(t, func(key lease.Key) bool { return key != in.Key })
	}
}

// unmet ends the reports of records that are not met any more: they can be read, are gone, or no caller of a session
// waits for them.
func (f *faults) unmet(t *turn, met func(lease.Key) bool) {
	f.malformed = slices.DeleteFunc(f.malformed, func(m malformedRecord) bool {
		over := !met(m.key)
		if over {
			m.lower(t)
		}
		return over
	})
}

// unsure reports whether a record that was reported as unreadable is missing from those of a listing. If the
// listing may lag behind, only a consistent one shows whether the record was mended.
func (f *faults) unsure(kind lease.Kind, all []Unreadable) bool {
	return slices.ContainsFunc(f.malformed, func(m malformedRecord) bool {
		return m.key.Kind.Listed() == kind && !slices.ContainsFunc(all, func(u Unreadable) bool { return u.Key == m.key })
	})
}

// meet begins the faults that this step has met in the store.
func (f *faults) meet(t *turn, c *seat) {
	if t.store.err != nil {
		f.store.raise(t, t.now.Mono, t.store.shard, t.store.err)
	}
	if err := c.table.restored; err != nil {
		f.restored.raise(t, t.now.Mono, "", err)
	} else if c.table.proven {
		f.restored.lower(t)
	}
}

// scans reports whether it is time to check which faults of the store, of commits and of reservations last. The check looks
// at every shard, so it is not made in every step.
func (f *faults) scans(t *turn) (now bool) {
	if !f.store.on && !f.commits.on && !f.reserved.on {
		return false
	}
	if now = t.now.Mono >= f.scan; now {
		f.scan = t.now.Mono.Add(min(t.beat/8, longestPause))
	}
	t.at(f.scan)
	return now
}

// keep repeats the reports of the faults that last.
func (f *faults) keep(t *turn) {
	for _, fault := range []*fault{
		&f.store, &f.unread.fault, &f.slow, &f.commits, &f.source, &f.restored, &f.unwell, &f.silent.fault, &f.full, &f.reserved,
		&f.unlisted, &f.stale,
		&f.unwatched, &f.deaf, &f.misjudged,
	} {
		fault.keep(t)
	}
	for i := range f.malformed {
		f.malformed[i].keep(t)
	}
}

// concerns counts the shards that the fault concerns at present, and notes their number and names.
// If there are none left it keeps the last ones, for the report that the fault is over.
func (f *fault) concerns(all []*shard, by func(*shard) bool) (count int) {
	var names []string
	for _, s := range all {
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

// scanStore ends the fault of the store when no call waits to be repeated and the store has
// answered since the last call failed. fails: a call that is about no shard waits.
func (f *faults) scanStore(t *turn, all []*shard, fails bool) {
	if f.store.concerns(all, func(s *shard) bool { return s.unanswered(t) }) == 0 && !fails && t.store.answered > t.store.failed {
		f.store.lower(t)
	}
}

// scanReserved ends the fault of reservations when none keeps this worker from a shard any more.
func (f *faults) scanReserved(t *turn, all []*shard) {
	if f.reserved.concerns(all, func(s *shard) bool { return s.kept(t) > 0 }) == 0 {
		f.reserved.lower(t)
	}
}

// unanswered reports whether a call about s has failed and will be repeated.
func (s *shard) unanswered(t *turn) bool {
	_, busy := s.row.copy.Open()
	again := s.row.try.sent || t.now.Mono < s.row.answered.Add(2*t.beat) // otherwise a listing has shown the row instead
	return busy && s.write.try.tries > 0 || s.stuck || s.row.unread > 0 && again && (s.aim.mine || s.want != nil || s.t != nil)
}

// scanCommits ends the fault of commits when none is late, and reports whether this worker has to
// give up its seat, which it may: its heartbeats are answered, but no write of a row has been for
// CommitTimeout. After it has, the fault lasts until something shows that it can write rows again:
// the answer to such a write, or CommitTimeout in a seat that is no longer young, without a write
// that fails.
//
// may: giving up the seat makes sense, because another worker could take over. young: the seat was taken lately.
func (f *faults) scanCommits(t *turn, l *shards, may, young bool) (surrenders bool) {
	late := f.commits.concerns(l.all, func(s *shard) bool { return s.t.commitsLate(t) })
	switch {
	case late == 0 && (f.rows.surrendered == 0 || !young && !slices.ContainsFunc(l.all, func(s *shard) bool { return s.unanswered(t) })):
		f.commits.lower(t)
	case may && t.now.Mono >= f.rows.last.Add(t.cfg.CommitTimeout):
		return l.windDown(t, late)
	}
	return false
}

// windDown drains all handlers of a worker that can write no row, and reports whether it may give
// up its seat now. While its seat stands, no other worker may claim the shards that it cannot
// release. Writes of more than one shard have to fail, unless it holds no other: the fault may be that of one row. late
// is how many fail.
func (l *shards) windDown(t *turn, late int) (done bool) {
	if late < min(2, l.held()) {
		l.probe(t, late)
		return false
	}
	done = late > 0
	for _, s := range l.all {
		if s.t != nil {
			s.t.windDownFor(t, &s.row)
			l.due = min(l.due, s.wake)
			done = done && s.t.wind.over()
		}
	}
	return done
}

// windDownFor drains a handler because its worker gives up its seat. A handler that a requester
// waits for without a limit gets one.
func (of *tenure) windDownFor(t *turn, r *row) {
	w, cause := &of.wind, event.CauseStopped
	if of.commitsLate(t) {
		cause = event.CauseStalled
	}
	switch {
	case w.over():
	case !w.draining:
		of.drain(t, r, cause)
		r.at(t, t.now.Mono)
	case w.cause == event.CauseHandedOff:
		w.cause, w.since = cause, t.now.Mono
		r.at(t, t.now.Mono)
	}
}

// probe writes the row of a quiet shard, to find out whether this worker cannot write one row or
// cannot write any. It chooses a shard without failed attempts, because such a write would end
// their count. The write stores nothing that matters, so a crash after it leaves nothing to repair.
func (l *shards) probe(t *turn, late int) {
	busy, quiet := 0, (*shard)(nil)
	for _, s := range l.all {
		if s.t == nil {
			continue
		}
		m := &s.t.marks
		if _, open := s.row.copy.Open(); open {
			busy++
		} else if m.seq <= m.accepted && s.row.copy.Row().Attempts() == 0 && s.t.give == nil && !s.t.wind.over() {
			quiet = s
		}
	}
	if late > 0 && busy <= late && quiet != nil {
		w, err := protocol.Progress(quiet.row.copy.Row(), quiet.t.hold(t, &quiet.row), t.stamp())
		quiet.t.sendMark(t, &quiet.row, committing, w, err)
	}
}

// keepFull reports shards for which the plan has found no room. Only the worker that reports for the fleet does it.
func (f *fault) keepFull(t *turn, plan *lease.Plan, reports bool) {
	switch {
	case plan.Unplaced == 0 || !reports:
		f.lower(t)
	case !plan.Open:
		f.shards, f.count = plan.Examples, int(plan.Unplaced)
		f.raise(t, t.now.Mono, "", errFull)
	}
}

// keepStale reports that no plan is complete although one is needed. Each worker reports it, because the worker that
// reports for the fleet may be the planner that is missing. Held shards go on without a plan; shards that no
// target has wait for it.
func (f *faults) keepStale(t *turn, of *fleet) {
	if !of.seat.capable() || !of.watch.known {
		return // other reports say why
	}
	since, why := of.watch.lacks(t)
	switch {
	case why == nil:
		f.stale.lower(t)
	case !t.before(since.Add(max(staleFor, 3*t.cfg.TTL))):
		f.stale.raise(t, since, "", why)
	}
}

// keepUnlisted reports unfinished shards: those that the last two complete listings of the source have lacked, and
// those that were given up as unlisted.
func (f *fault) keepUnlisted(t *turn, rows *facts, source *feed) {
	count, names := 0, []string(nil)
	for _, of := range rows.all {
		if of.out && source.complete > 0 || of.known > 0 && !of.over() && source.omits(of.name, of.known) {
			if count++; count <= faultNames {
				names = append(names, of.name)
			}
		}
	}
	if count == 0 {
		f.lower(t)
		return
	}
	f.shards, f.count = names, count
	f.raise(t, t.now.Mono, "", errUnlisted)
}
