package processes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// stallFrom is the shortest stall that is recorded. Many short stalls add up to a long one.
const stallFrom = 10 * time.Millisecond

// stallCounts is how long a worker, or its connection to the table, must stand still in total to
// explain the loss of its lease: a worker sends three heartbeats per lease time and trusts its lease
// for nine tenths of it, and not every moment of a stall is measured. With one lost answer, half of
// it is enough.
func stallCounts() time.Duration { return leaseTime() * 4 / 10 }

// A journal receives what the proxy, the register and the processes report. It lets package judge check every write, seat,
// call and effect against the promises, and itself checks what only these records show:
//
//	S3    no handler works under a generation before the write that began it was sent
//	S4    no worker loses a tenure or its seat without a cause: a signal, a cut, or a stall that was measured; a
//	      single lost request is no cause
//	lost  no checkpoint covers a record that the register has not accepted
type journal struct {
	mu        sync.Mutex
	judge     *judge.Judge
	seats     judge.Seats
	confirmed map[lease.Incarnation]bool // seats with a heartbeat; see seat
	shards    map[string]*stream
	lives     map[string]*life
	suspects  []entry
	seized    []judge.Handover // of shards of evicted workers
	early     []entry          // calls of handlers, and their effects, under generations that are not recorded yet
	faults    []string
	faulty    map[string]int // number of objections by promise
	kills     []*recovery
	file      *json.Encoder // writes all entries to a file; may be nil
	watchful  bool          // a connection may show that a living worker has given up its seat
	tally
}

// tally has the counts of the journal.
type tally struct {
	commits, late, refusedRows, refusedLate, effects, refusedEffects, twice, failed int
	changes                                                                         map[string]int // changes of hands, by reason
	excused                                                                         map[string]int // unplanned ends of tenures, by the cause that explains them
	gap, continued, woken                                                           spread         // of planned moves; woken: how long handlers continued after unplanned ends
	dropped                                                                         uint64
}

// A stream is what the register has of a shard.
type stream struct {
	judge.Register
	under    int64 // the generation of the last record
	last     int64 // the last record
	done     int64 // all records up to this one are accepted
	progress int64 // when the latest effect was accepted
	late     bool  // the last write of the row was held back in the network
}

// A life is a process.
type life struct {
	troubles []trouble
	lost     []time.Duration // when the process reported that it gave up its seat
	evicted  []time.Duration // when another worker evicted it although it was not known to be dead
	ended    time.Duration   // when its process had ended by itself; 0: it had not
	dead     *recovery
	stats    []sample
}

// A trouble is an event that may cost a worker its lease.
type trouble struct {
	kind     kind
	from, to time.Duration // to is 0 while it lasts
}

func newJournal() *journal {
	return &journal{
		judge: judge.New(checkpoint.Decimal), seats: judge.Seats{}, confirmed: map[lease.Incarnation]bool{},
		shards: map[string]*stream{}, lives: map[string]*life{}, faulty: map[string]int{},
		tally: tally{changes: map[string]int{}, excused: map[string]int{}},
	}
}

// saw adds one entry. Entries about one row, and about one shard of the register, arrive in the order
// of their events. A report of a worker arrives after the entries of the writes that it is about.
func (j *journal) saw(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Wall == 0 {
		e.Wall = time.Now().UnixNano()
	}
	if j.file != nil {
		_ = j.file.Encode(e)
	}
	switch e.Kind {
	case rowWritten:
		j.row(e)
	case rowRefused:
		j.refusedRows++
		if e.Late {
			j.refusedLate++
		}
	case seatWritten, seatDeleted:
		j.seat(e)
	case acceptedEffect:
		j.effect(e)
	case refusedEffect:
		j.refusedEffects++
	case handlerStarted:
		j.worked(e)
	case libraryEvent:
		j.event(e)
	case measured:
		l := j.life(e.By)
		l.stats = append(l.stats, sample{e.at(), e.Heap, e.Goroutines - e.Handlers})
	default:
		j.trouble(e)
	}
}

// check records the errors of package judge, which begin with the promise that is broken.
func (j *journal) check(err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		promise, text, _ := strings.Cut(line, ": ")
		j.object(promise, "%s", text)
	}
}

func (j *journal) object(promise, format string, args ...any) {
	j.faulty[promise]++
	if len(j.faults) < 50 {
		j.faults = append(j.faults, promise+": "+fmt.Sprintf(format, args...))
	}
}

func (j *journal) stream(shard string) *stream {
	if j.shards[shard] == nil {
		j.shards[shard] = new(stream)
	}
	return j.shards[shard]
}

func (j *journal) life(process string) *life {
	if j.lives[process] == nil {
		j.lives[process] = &life{}
	}
	return j.lives[process]
}

// who returns the process of an incarnation.
func (j *journal) who(of lease.Incarnation) string {
	by, _ := j.seats[of].By.(string)
	return by
}

// as returns the incarnation as which a process acts under a generation of that owner: the owner, if the seat of the
// owner is that of the process; otherwise the name of the process, which is no incarnation.
func (j *journal) as(owner lease.Incarnation, process string) lease.Incarnation {
	if j.who(owner) == process {
		return owner
	}
	return lease.Incarnation(process)
}

// row returns the row that a write has left. Owners have their incarnations as names: the seat of an owner may be recorded
// after the row.
func (e entry) row() lease.Row {
	inc := lease.Incarnation(e.Incarnation)
	return lease.Row{
		Group: "processes", Shard: e.Shard, Generation: e.Generation, Counter: e.Counter, WriteID: lease.WriteID(e.Write),
		Owner: lease.Owner{Name: e.Incarnation, Incarnation: inc}, OfferedTo: lease.Incarnation(e.Offered),
		Checkpoint: checkpoint.Checkpoint{Generation: e.Made, Mark: checkpoint.Mark{Position: position(e.Position)}},
		Last:       lease.Transfer{Generation: e.Generation, Reason: lease.Reason(e.Reason)},
	}
}

// position returns the position of a record; empty before the first one.
func position(record int64) string {
	if record == 0 {
		return ""
	}
	return strconv.FormatInt(record, 10)
}

// row lets the judge check an accepted write.
func (j *journal) row(e entry) {
	s := j.stream(e.Shard)
	s.late = e.Late
	if e.Late {
		j.late++
	}
	before, after := j.judge.Row(e.Shard), e.row()
	by := string(j.as(before.Owner.Incarnation, e.By))
	op := lease.OpSwap
	switch {
	case before.Generation == 0:
		op = lease.OpCreate
	case after.Generation > before.Generation && by != before.Owner.Name:
		op = lease.OpTransfer
	}
	a := judge.Accepted{Before: before, After: after, Write: lease.Write{Op: op, Old: before, Next: after}, By: by}
	j.check(j.judge.Accepted(a.Write, by, after))
	if before.Checkpoint != after.Checkpoint {
		j.commits++
	}
	if e.Position > s.done {
		j.object("lost", "%s: checkpoint %d of generation %d, by %s; the register has the records up to %d", e.Shard, e.Position, e.Made, e.By, s.done)
	}
	if after.Generation > before.Generation && before.Generation > 0 {
		j.change(a, e)
	}
}

// change lets the judge check a change of hands. No record shows which shards a seat requests, so each request counts as
// made long ago.
func (j *journal) change(a judge.Accepted, e entry) {
	j.changes[e.Reason]++
	j.catchUp(e)
	j.inherit(e)
	request := judge.Request{By: a.After.Owner.Incarnation, Of: judge.TenureOf(a.Before)}
	h := judge.Handover{Accepted: a, Now: e.at(), Seated: true, Requests: judge.Requests{request: 0}}
	if a.After.Last.Reason == lease.ReasonExpired {
		j.seized = append(j.seized, h)
		return
	}
	j.check(h.Check())
}

// catchUp checks what a handler did before the row of its generation was reported.
func (j *journal) catchUp(row entry) {
	early := j.early
	j.early = nil
	for _, e := range early {
		switch {
		case e.Shard != row.Shard || e.Generation != row.Generation:
			j.early = append(j.early, e)
			continue
		case e.at() < row.at():
			j.object("S3", "%s: %s worked under generation %d before it had requested it", e.Shard, e.By, e.Generation)
		}
		j.worked(e)
	}
}

func (e entry) tenure() judge.Tenure { return judge.Tenure{Shard: e.Shard, Generation: e.Generation} }

// worked checks the call of a handler or an accepted effect. A worker may read a row from the service, and work under its
// generation, before the process that sent the write has recorded it.
func (j *journal) worked(e entry) {
	of, known := j.judge.History[e.tenure()]
	switch {
	case !known && e.Generation > j.judge.Row(e.Shard).Generation:
		j.early = append(j.early, e)
	case e.Kind == handlerStarted:
		j.check(j.judge.Start(e.tenure(), j.as(of.Owner.Incarnation, e.By), position(e.Position)))
	case j.who(of.Owner.Incarnation) != e.By:
		j.object("S3", "%s: an effect of %s under generation %d, which it has never held", e.Shard, e.By, e.Generation)
	default:
		j.wrote(e)
	}
}

// inherit adds a shard to the recovery of a worker that was dead when its write was accepted.
func (j *journal) inherit(e entry) {
	if heir := j.lives[j.who(lease.Incarnation(e.Incarnation))]; heir != nil && heir.dead != nil {
		heir.dead.missing[e.Shard] = e.Generation
		heir.dead.mixed = "a shard was given to the dead"
	}
}

// seat lets the judge check the write of a seat. The recorded time of a heartbeat is from before the service had it, and so
// is that of the eviction, which was decided still earlier. There must be a whole lease time between them. A seat without
// a heartbeat holds no shard, and a repeated creation may store it again after an eviction.
func (j *journal) seat(e entry) {
	inc := lease.Incarnation(e.Incarnation)
	of, known := j.seats[inc]
	if !known && e.Kind == seatDeleted {
		j.object("S4", "%s deleted a seat that was never taken", e.By)
		return
	}
	w, deleted := lease.Write{Op: lease.OpSwap, Next: lease.Seat{Incarnation: inc}}, e.Kind == seatDeleted
	if deleted {
		w = lease.Write{Op: lease.OpDelete, Old: lease.Seat{Incarnation: inc, TTL: leaseTime()}}
	}
	excused := deleted && (j.life(j.who(inc)).dead != nil || !j.confirmed[inc])
	j.check(j.seats.Wrote(w, e.By, e.at(), 0, excused || j.watchful))
	if !deleted {
		j.confirmed[inc] = e.Counter > 0
		return
	}
	if of.By == e.By || excused {
		return
	}
	l := j.life(j.who(inc))
	l.evicted = append(l.evicted, e.at())
	e.By, e.Event, e.From = j.who(inc), "evicted", of.Written
	j.suspects = append(j.suspects, e)
}

// exited records that a process has ended.
func (j *journal) exited(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.life(name).ended = entry{Wall: time.Now().UnixNano()}.at()
}

// effect checks that an effect which the register has accepted is not of an earlier generation than the last one.
func (j *journal) effect(e entry) {
	accepted, err := j.stream(e.Shard).Effect(e.tenure(), e.By)
	j.check(err)
	if !accepted {
		j.object("register", "%s: an update is lost: %s wrote record %d under generation %d over one of a later generation", e.Shard, e.By, e.Position, e.Generation)
		return
	}
	j.worked(e)
}

// wrote checks the record of an effect.
func (j *journal) wrote(e entry) {
	j.effects++
	s := j.stream(e.Shard)
	s.progress = e.Wall
	if s.under != e.Generation {
		s.under = e.Generation
		s.last, _ = strconv.ParseInt(j.judge.History[e.tenure()].From, 10, 64) // 0 if there is no position
	}
	switch {
	case e.Value != valueOf(e.Shard, e.Position):
		j.object("register", "%s: record %d has another content", e.Shard, e.Position)
	case e.Position != s.last+1:
		j.object("lost", "%s: generation %d wrote record %d after %d", e.Shard, e.Generation, e.Position, s.last)
	}
	s.last = e.Position
	if e.Position <= s.done {
		j.twice++
	}
	if e.Position == s.done+1 {
		s.done++
	}
	j.recovered(e)
}

// event records an event of the library. Unplanned ends of tenures are checked at the end, when all
// troubles of the worker are known.
func (j *journal) event(e entry) {
	j.dropped += e.Dropped
	if e.Failed {
		j.failed++
	}
	j.gap.add(e.Gap)
	if e.Cause == event.CauseHandedOff {
		j.continued.add(e.Continued)
	} else {
		j.woken.add(e.Continued)
	}
	if e.Event == "lost" {
		l := j.life(e.By)
		l.lost = append(l.lost, e.at())
	}
	switch {
	case e.Event == "lost", e.Event == "restored", e.Event == "misjudged":
		j.suspects = append(j.suspects, e)
	case e.Event == "ended":
		switch e.Cause {
		case event.CauseHandedOff, event.CauseStopped, event.CauseGivenUp:
		default:
			j.suspects = append(j.suspects, e)
		}
	}
}

// trouble records an event that may cost a worker its lease. A stall of the test's own process, which
// has no worker's name, counts for all workers.
func (j *journal) trouble(e entry) {
	l := j.life(e.By)
	switch e.Kind {
	case killed:
		j.kill(e)
	case continued, healed:
		for i := range l.troubles {
			if t := &l.troubles[i]; t.to == 0 && (t.kind == stopped) == (e.Kind == continued) {
				t.to = e.at()
			}
		}
		return
	}
	t := trouble{kind: e.Kind, from: e.at() - e.For}
	if e.Kind != stopped && e.Kind != cut && e.Kind != killed {
		t.to = e.at()
	}
	l.troubles = append(l.troubles, t)
}

// cause returns what explains that a worker sent no heartbeat between two moments.
func (j *journal) cause(process string, from, to time.Duration) kind {
	var stalls []trouble
	faults := 0
	for _, name := range []string{process, ""} {
		for _, t := range j.life(name).troubles {
			if t.from > to || t.to != 0 && t.to < from {
				continue
			}
			switch t.kind {
			case stopped, cut, killed:
				return t.kind
			case seatFault:
				faults++
			default:
				stalls = append(stalls, t)
			}
		}
	}
	still := standstill(stalls, from, to)
	switch {
	case still >= stallCounts():
		return stalled
	case faults > 1: // a single lost answer is no cause
		return seatFault
	case faults > 0 && still >= stallCounts()/2:
		return stalled
	}
	return ""
}

// standstill returns how long things stood still between from and to; overlapping stalls count once.
func standstill(all []trouble, from, to time.Duration) (d time.Duration) {
	slices.SortFunc(all, func(a, b trouble) int { return cmp.Compare(a.from, b.from) })
	for _, t := range all {
		d += max(0, min(t.to, to)-max(t.from, from))
		from = max(from, t.to)
	}
	return d
}

// verdict checks what had to wait until the end, and returns all objections.
func (j *journal) verdict() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.suspects {
		j.suspect(e)
	}
	j.suspects = nil
	// A third worker may see that a seat is gone before the process that deleted it has recorded it.
	for _, h := range j.seized {
		owner := h.Before.Owner.Incarnation
		of := j.seats[owner]
		of.Gone = of.Gone && of.Deleted <= h.Now
		h.Seats = judge.Seats{owner: of}
		j.check(h.Check())
	}
	j.seized = nil
	for _, e := range j.early {
		j.object("S3", "%s: %s worked under generation %d, which does not exist", e.Shard, e.By, e.Generation)
	}
	j.early = nil
	if j.dropped > 0 {
		j.object("records", "%d events were dropped", j.dropped)
	}
	return slices.Clone(j.faults)
}

// suspect checks that the unplanned end of a tenure, or the loss of a seat, has a cause. Other reasons for the end of a
// tenure are not recorded, and count as given.
func (j *journal) suspect(e entry) {
	from := e.at() - leaseTime() // trust ends nine tenths of it after a heartbeat was sent
	if e.From != 0 {
		from = e.From
	}
	if e.Event == "evicted" && slices.ContainsFunc(j.life(e.By).lost, func(at time.Duration) bool { return from <= at && at <= e.at() }) {
		return // the worker had given up its seat, which is checked separately
	}
	if ended := j.life(e.By).ended; e.Event == "evicted" && j.watchful && ended != 0 && ended < e.at()+leaseTime() {
		return // it had left; if the table does not answer in time, a worker leaves its seat
	}
	cause := j.cause(e.By, from, e.at())
	var unfounded error
	if e.Event == "ended" {
		unfounded = judge.End{
			Cause: e.Cause, Err: errors.New(e.Text), Tenure: e.tenure(), Ended: j.judge.History[e.tenure()].Ended,
			Soft: true, Requested: true, Untrusted: cause != "",
		}.Check()
	}
	switch {
	case unfounded != nil:
		j.check(unfounded)
	case e.Event == "restored", e.Event == "misjudged", cause == "":
		j.object("S4", "%s: %s without a cause: %s", e.By, e.Event, e.Text)
	default:
		j.excused[string(cause)]++
	}
}

// quietSince returns the shards without an effect since then.
func (j *journal) quietSince(shards int, since time.Time) (silent []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range shards {
		name := shardName(i)
		if l := j.shards[name]; l == nil || l.progress < since.UnixNano() {
			silent = append(silent, name)
		}
	}
	return silent
}

func (j *journal) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	clean, mixed := j.recoveries()
	lines := []string{
		fmt.Sprintf("%d checkpoints accepted, %d writes of rows refused; of late writes %d accepted, %d refused", j.commits, j.refusedRows, j.late, j.refusedLate),
		fmt.Sprintf("%d effects accepted (%d records more than once), %d refused", j.effects, j.twice, j.refusedEffects),
		fmt.Sprintf("changes of hands %v; unplanned ends and evictions, all with a cause %v; handlers failed %d", j.changes, j.excused, j.failed),
		fmt.Sprintf("recovery after SIGKILL %v; not counted, because of other events: %v", clean, mixed),
		fmt.Sprintf("planned moves: gap %v; owners continued %v, and after other ends %v", j.gap, j.continued, j.woken),
		fmt.Sprintf("objections %v", j.faulty),
	}
	return strings.Join(lines, "\n")
}
