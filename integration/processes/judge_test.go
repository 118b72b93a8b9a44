package processes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// stallFrom is the shortest stall that is recorded. Many short stalls add up to a long one.
const stallFrom = 10 * time.Millisecond

// stallCounts is how long a worker, or its connection to the table, must stand still in total to
// explain the loss of its lease: a worker sends three heartbeats per lease time and trusts its lease
// for nine tenths of it, and not every moment of a stall is measured. With one lost answer, half of
// it is enough.
func stallCounts() time.Duration { return leaseTime() * 4 / 10 }

// A judge checks the records against the promises:
//
//	S1  checkpoints are accepted only from the owner of their generation
//	S2  no checkpoint moves back; a generation starts at the stored checkpoint
//	S3  generations grow, each has one owner, and calls one handler
//	S4  no worker is evicted within T of a heartbeat, or without a cause; no shard is seized
//	    from a worker that is not evicted; no worker gives up its seat without a cause
//	register  no effect is accepted after one of a later generation
//	lost      no checkpoint covers a record that the register has not accepted
//
// A cause is a signal, a cut, or a stall that was measured; a single lost request is no cause.
type judge struct {
	mu       sync.Mutex
	shards   map[string]*ledger
	lives    map[string]*life
	seats    map[string]*place // seats by incarnation
	suspects []entry
	seizures []seizure
	early    []entry // calls of handlers, and their effects, under generations that are not recorded yet
	faults   []string
	faulty   map[string]int // number of objections by promise
	kills    []*recovery
	records  *json.Encoder // writes all entries to a file; may be nil
	watchful bool          // a connection may show that a living worker has given up its seat
	tally
}

// tally has the counts of the judge.
type tally struct {
	commits, late, refusedRows, refusedLate, effects, refusedEffects, twice, failed int
	changes                                                                         map[string]int // changes of hands, by reason
	excused                                                                         map[string]int // unplanned ends of tenures, by the cause that explains them
	gap, overlap, woken                                                             spread         // gap and overlap of planned moves; woken: overlap after unplanned ends
	dropped                                                                         uint64
}

// A ledger is what the judge knows of a shard.
type ledger struct {
	row      entry
	tenures  map[int64]*holding
	done     int64 // the register has accepted all records up to this one
	writing  int64 // the highest generation of an effect
	progress int64 // when the latest effect was accepted
}

// A holding is one generation of a shard.
type holding struct {
	owner       string // the incarnation of the owner
	start, last int64
	started     bool
}

// A place is a seat.
type place struct {
	by   string
	beat time.Duration
	gone time.Duration // when its deletion was sent; 0: it exists
	// confirmed reports that the seat has had a heartbeat. Before, no shard may be held under it,
	// and a repeated creation may store it again after an eviction.
	confirmed bool
}

// A seizure is a claim of a shard of an evicted worker.
type seizure struct {
	row  entry
	from string // the incarnation of the evicted worker
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

func newJudge() *judge {
	return &judge{
		shards: map[string]*ledger{}, lives: map[string]*life{}, seats: map[string]*place{}, faulty: map[string]int{},
		tally: tally{changes: map[string]int{}, excused: map[string]int{}},
	}
}

// saw adds one entry. Entries about one row, and about one shard of the register, arrive in the order
// of their events. A report of a worker arrives after the entries of the writes that it is about.
func (j *judge) saw(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Wall == 0 {
		e.Wall = time.Now().UnixNano()
	}
	if j.records != nil {
		_ = j.records.Encode(e)
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
		j.started(e)
	case libraryEvent:
		j.event(e)
	case measured:
		l := j.life(e.By)
		l.stats = append(l.stats, sample{e.at(), e.Heap, e.Goroutines - e.Handlers})
	default:
		j.trouble(e)
	}
}

func (j *judge) object(promise, format string, args ...any) {
	j.faulty[promise]++
	if len(j.faults) < 50 {
		j.faults = append(j.faults, promise+": "+fmt.Sprintf(format, args...))
	}
}

func (j *judge) ledger(shard string) *ledger {
	if j.shards[shard] == nil {
		j.shards[shard] = &ledger{tenures: map[int64]*holding{}}
	}
	return j.shards[shard]
}

func (j *judge) life(process string) *life {
	if j.lives[process] == nil {
		j.lives[process] = &life{}
	}
	return j.lives[process]
}

// who returns the process of an incarnation.
func (j *judge) who(incarnation string) string {
	if p := j.seats[incarnation]; p != nil {
		return p.by
	}
	return ""
}

// row judges an accepted write against the row before it.
func (j *judge) row(e entry) {
	l := j.ledger(e.Shard)
	was := l.row
	l.row = e
	if e.Late {
		j.late++
	}
	if was.Generation == 0 {
		l.tenures[e.Generation] = &holding{owner: e.Incarnation, start: e.Position, last: e.Position}
		return
	}
	switch {
	case e.Generation < was.Generation || e.Generation == was.Generation && e.Incarnation != was.Incarnation:
		j.object("S3", "%s: generation %d of %s after %d of %s", e.Shard, e.Generation, e.Incarnation, was.Generation, was.Incarnation)
	case e.Counter != was.Counter+1:
		j.object("S3", "%s: lease counter %d after %d", e.Shard, e.Counter, was.Counter)
	}
	j.commit(l, was, e)
	if e.Generation > was.Generation {
		j.change(l, was, e)
	}
}

// commit judges the change of a checkpoint by a write.
func (j *judge) commit(l *ledger, was, e entry) {
	if e.Position < was.Position {
		j.object("S2", "%s: checkpoint %d of generation %d after %d of %d, by %s", e.Shard, e.Position, e.Made, was.Position, was.Made, e.By)
	}
	if e.Position != was.Position || e.Made != was.Made {
		j.commits++
		if e.Made != was.Generation {
			j.object("S1", "%s: a checkpoint made under generation %d was accepted under %d, by %s", e.Shard, e.Made, was.Generation, e.By)
		}
	}
	if owner := j.who(was.Incarnation); e.Generation == was.Generation && owner != e.By {
		j.object("S1", "%s: generation %d belongs to %s, and %s wrote it", e.Shard, was.Generation, owner, e.By)
	}
	if e.Position > l.done {
		j.object("lost", "%s: checkpoint %d of generation %d, by %s; the register has the records up to %d", e.Shard, e.Position, e.Made, e.By, l.done)
	}
}

// keptTenures is how many generations of a shard are remembered.
const keptTenures = 64

// change judges a change of hands.
func (j *judge) change(l *ledger, was, e entry) {
	l.tenures[e.Generation] = &holding{owner: e.Incarnation, start: e.Position, last: e.Position}
	if len(l.tenures) > keptTenures {
		delete(l.tenures, slices.Min(slices.Collect(maps.Keys(l.tenures))))
	}
	j.changes[e.Reason]++
	j.catchUp(e)
	if was.Incarnation == "" || e.By == j.who(was.Incarnation) {
		j.inherit(e)
		return
	}
	switch {
	case e.Reason == "expired":
		j.seizures = append(j.seizures, seizure{e, was.Incarnation})
	case e.Reason == "handoff" && was.Offered != e.Incarnation:
		j.object("S4", "%s: %s took it from %s, which had not offered it", e.Shard, e.By, j.who(was.Incarnation))
	}
	j.inherit(e)
}

// catchUp judges what a handler did before the row of its generation was reported.
func (j *judge) catchUp(row entry) {
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
		if e.Kind == acceptedEffect {
			j.effect(e)
		} else {
			j.started(e)
		}
	}
}

// isEarly reports whether e belongs to a generation that is not recorded yet. A worker may read a row from
// the service, and work under it, before the process that sent the write has recorded it.
func (j *judge) isEarly(e entry) bool {
	l := j.ledger(e.Shard)
	return l.tenures[e.Generation] == nil && e.Generation > l.row.Generation
}

// inherit adds a shard to the recovery of a worker that was dead when its write was accepted.
func (j *judge) inherit(e entry) {
	if heir := j.lives[j.who(e.Incarnation)]; heir != nil && heir.dead != nil {
		heir.dead.missing[e.Shard] = e.Generation
		heir.dead.mixed = "a shard was given to the dead"
	}
}

// seat records the write of a seat, and judges an eviction. The recorded time of a heartbeat is from
// before the service had it, and so is that of the eviction, which was decided still earlier. There
// must be a whole lease time between them.
func (j *judge) seat(e entry) {
	p := j.seats[e.Incarnation]
	switch {
	case e.Kind == seatWritten && p == nil:
		j.seats[e.Incarnation] = &place{by: e.By, beat: e.at(), confirmed: e.Counter > 0}
	case e.Kind == seatWritten:
		p.beat, p.confirmed = e.at(), e.Counter > 0
	case p == nil:
		j.object("S4", "%s deleted a seat that was never taken", e.By)
	default:
		p.gone = cmp.Or(p.gone, e.at())
		if p.by == e.By || j.life(p.by).dead != nil || !p.confirmed {
			return
		}
		if silent := e.at() - p.beat; silent < leaseTime() && !j.watchful {
			j.object("S4", "%s evicted %s %v after its heartbeat", e.By, p.by, silent)
		}
		l := j.life(p.by)
		l.evicted = append(l.evicted, e.at())
		e.By, e.Event, e.From = p.by, "evicted", p.beat
		j.suspects = append(j.suspects, e)
	}
}

// exited records that a process has ended.
func (j *judge) exited(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.life(name).ended = entry{Wall: time.Now().UnixNano()}.at()
}

// effect judges an effect that the register has accepted.
func (j *judge) effect(e entry) {
	l := j.ledger(e.Shard)
	if j.isEarly(e) {
		j.early = append(j.early, e)
		l.writing = max(l.writing, e.Generation) // from now on no effect of an earlier generation may be accepted
		return
	}
	j.effects++
	l.progress = e.Wall
	h := l.tenures[e.Generation]
	switch {
	case h == nil || j.who(h.owner) != e.By:
		j.object("S3", "%s: an effect of %s under generation %d, which it has never held", e.Shard, e.By, e.Generation)
		return
	case e.Value != valueOf(e.Shard, e.Position):
		j.object("register", "%s: record %d has another content", e.Shard, e.Position)
	case e.Generation < l.writing:
		j.object("register", "%s: an update is lost: %s wrote record %d under generation %d over one of generation %d", e.Shard, e.By, e.Position, e.Generation, l.writing)
	case e.Position != h.last+1:
		j.object("lost", "%s: generation %d wrote record %d after %d", e.Shard, e.Generation, e.Position, h.last)
	}
	h.last = e.Position
	l.writing = max(l.writing, e.Generation)
	if e.Position <= l.done {
		j.twice++
	}
	if e.Position == l.done+1 {
		l.done++
	}
	j.recovered(e)
}

// started judges the call of a handler.
func (j *judge) started(e entry) {
	h := j.ledger(e.Shard).tenures[e.Generation]
	switch {
	case j.isEarly(e):
		j.early = append(j.early, e)
		return
	case h == nil || j.who(h.owner) != e.By:
		j.object("S3", "%s: %s called its handler under generation %d, which it does not hold", e.Shard, e.By, e.Generation)
		return
	case h.started:
		j.object("S3", "%s: generation %d called its handler twice", e.Shard, e.Generation)
	case h.start != e.Position:
		j.object("S2", "%s: generation %d starts at %d, where %d is stored", e.Shard, e.Generation, e.Position, h.start)
	}
	h.started = true
}

// event records an event of the library. Unplanned ends of tenures are judged at the end, when all
// troubles of the worker are known.
func (j *judge) event(e entry) {
	j.dropped += e.Dropped
	if e.Failed {
		j.failed++
	}
	j.gap.add(e.Gap)
	if e.Cause == "handed-off" {
		j.overlap.add(e.Overlap)
	} else {
		j.woken.add(e.Overlap)
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
		case "handed-off", "stopped", "given-up":
		default:
			j.suspects = append(j.suspects, e)
		}
	}
}

// trouble records an event that may cost a worker its lease. A stall of the judge's own process, which
// has no worker's name, counts for all workers.
func (j *judge) trouble(e entry) {
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
func (j *judge) cause(process string, from, to time.Duration) kind {
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

// verdict judges what had to wait until the end, and returns all objections.
func (j *judge) verdict() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.suspects {
		from := e.at() - leaseTime() // trust ends nine tenths of it after a heartbeat was sent
		if e.From != 0 {
			from = e.From
		}
		if e.Event == "evicted" && slices.ContainsFunc(j.life(e.By).lost, func(at time.Duration) bool { return from <= at && at <= e.at() }) {
			continue // the worker had given up its seat, which is judged separately
		}
		if ended := j.life(e.By).ended; e.Event == "evicted" && j.watchful && ended != 0 && ended < e.at()+leaseTime() {
			continue // it had left; if the table does not answer in time, a worker leaves its seat
		}
		switch cause := j.cause(e.By, from, e.at()); {
		case e.Cause == "vanished", e.Cause == "conflict", e.Event == "restored", e.Event == "misjudged", cause == "":
			j.object("S4", "%s: %s %s without a cause: %s", e.By, e.Event, e.Cause, e.Text)
		default:
			j.excused[string(cause)]++
		}
	}
	j.suspects = nil
	// A third worker may see that a seat is gone before the process that deleted it has recorded it.
	for _, s := range j.seizures {
		if p := j.seats[s.from]; p == nil || p.gone == 0 || p.gone > s.row.at() {
			j.object("S4", "%s: %s seized it from %s, which was not evicted", s.row.Shard, s.row.By, j.who(s.from))
		}
	}
	j.seizures = nil
	for _, e := range j.early {
		j.object("S3", "%s: %s worked under generation %d, which does not exist", e.Shard, e.By, e.Generation)
	}
	j.early = nil
	if j.dropped > 0 {
		j.object("records", "%d events were dropped", j.dropped)
	}
	return slices.Clone(j.faults)
}

// quietSince returns the shards without an effect since then.
func (j *judge) quietSince(shards int, since time.Time) (silent []string) {
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

func (j *judge) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	clean, mixed := j.recoveries()
	lines := []string{
		fmt.Sprintf("%d checkpoints accepted, %d writes of rows refused; of late writes %d accepted, %d refused", j.commits, j.refusedRows, j.late, j.refusedLate),
		fmt.Sprintf("%d effects accepted (%d records more than once), %d refused", j.effects, j.twice, j.refusedEffects),
		fmt.Sprintf("changes of hands %v; unplanned ends and evictions, all with a cause %v; handlers failed %d", j.changes, j.excused, j.failed),
		fmt.Sprintf("recovery after SIGKILL %v; not counted, because of other events: %v", clean, mixed),
		fmt.Sprintf("planned moves: gap %v; overlap %v; overlap after other ends %v", j.gap, j.overlap, j.woken),
		fmt.Sprintf("objections %v", j.faulty),
	}
	return strings.Join(lines, "\n")
}
