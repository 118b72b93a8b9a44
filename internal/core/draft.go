package core

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Writing the next plan.
//
//	idle → gathering → opening → writing → finishing → idle
//	         read        swap     targets     swap
//
// Called by the spine: begin when a plan is due, keep in each step, gathered when the reads are
// answered, settled with the answers to its writes.
//
// A crash while gathering leaves nothing. After the opening swap it leaves an open revision, and
// some targets of it: the next planner opens the revision after it and writes all targets.
//
// Invariant: a target is only written over one of a lower revision, and a planner that meets a
// revision above its own stops.

type draftPhase uint8

const (
	idle draftPhase = iota
	gathering
	opening
	writing
	finishing
)

// mostExamples is how many shards without a worker the plan names.
const mostExamples = 10

// mostAtOnce is how many targets are written at the same time.
const mostAtOnce = 64

// A draft is the plan that this worker is writing.
type draft struct {
	phase   draftPhase
	partial bool       // held shards stay where they are
	begun   order      // the step in which it began: it is made from reads that were sent later
	rows    bool       // the owners are those of the rows, because there is no plan, or not a whole one
	all     bool       // all targets are written, although they have not changed
	plan    lease.Plan // as last read or written
	opening protocol.Opening
	found   lease.Finding
	seats   []lease.Seat   // from which the plan is made
	next    []lease.Target // the targets of this revision, one for each worker
	writes  []draftWrite   // what has to be written, in this order
	open    lease.Write    // of the plan
	try     retry
}

// A draftWrite is the write of one page of a target, or its deletion.
type draftWrite struct {
	old, next lease.Target // without a write id, there is no old page
	drop      bool
	write     lease.Write
	try       retry
	done      bool
}

// A stage is all that a plan is made from.
type stage struct {
	me       lease.Seat
	seats    []lease.Seat   // the confirmed seats, sorted by incarnation, with this worker's own
	pages    []lease.Target // all pages of all targets
	facts    *facts
	added    []sourced // what the source lists and the plan lacks
	weights  func(name string) int
	ready    func(parents []string) bool
	wishes   lease.Wishes
	late     func(inc lease.Incarnation) bool // its seat has missed a heartbeat
	acting   bool                             // this worker has taken over, because no watcher lives
	strays   []string                         // sorted; their workers have to read the rows again
	declines func(name string, inc lease.Incarnation) bool
}

// begin starts a draft of the plan after this one.
func (d *draft) begin(t *turn, plan lease.Plan, partial bool) {
	*d = draft{phase: gathering, begun: t.step, partial: partial, plan: plan, rows: plan.Revision == 0 || plan.Open, all: plan.Revision == 0 || plan.Open}
}

// A layout is where every shard is and should be.
type layout struct {
	view    rebalance.View
	parents [][]string // by shard, of those without a row
	targets []int      // by shard
	moves   bool       // a held shard moves
	over    int        // how many assigned shards need no worker any more
}

// compute decides who should hold what. It reports false if the targets that were read do not
// have all shards, and the rows have to be read first.
func (d *draft) compute(t *turn, in stage) bool {
	whole := joined(in.pages)
	l := d.survey(in, whole)
	if !d.rows && d.plan.Shards-d.plan.Unplaced > int64(len(l.view.Shards)-len(in.added)+l.over) {
		d.rows, d.all = true, true
		return false
	}
	l.restrict(in)
	l.targets = t.cfg.Planner.Plan(l.view)
	if len(l.targets) != len(l.view.Shards) {
		l.targets = rebalance.Even{}.Plan(l.view) // a planner that is none
	}
	l.decline(in)
	l.rescue(in)
	d.hold(&l)
	d.assign(t, in, &l)
	d.order(t, in, whole)
	return true
}

// over reports whether an assigned shard needs no worker any more: its worker says so, or the
// rows do where they were read for this plan. Older knowledge of a row may be out of date, and another planner may have assigned the shard since because it is back.
func (d *draft) over(in stage, name string, at int) bool {
	if d.rows {
		of := in.facts.find(name)
		return of != nil && of.over()
	}
	return at >= 0 && slices.ContainsFunc(in.seats[at].News, func(n lease.News) bool {
		return n.Shard == name && (n.Kind == lease.NewsFinished || n.Kind == newsRemoved)
	})
}

// joined returns the whole targets, sorted by incarnation. Pages of a mixed set count as far as
// they go.
func joined(pages []lease.Target) (whole []lease.Target) {
	for i := 0; i < len(pages); {
		n := i
		one := pages[i]
		one.Hold, one.Give = nil, nil
		for ; n < len(pages) && pages[n].Incarnation == one.Incarnation; n++ {
			one.Hold, one.Give = append(one.Hold, pages[n].Hold...), append(one.Give, pages[n].Give...)
			one.Revision = max(one.Revision, pages[n].Revision)
		}
		whole, i = append(whole, one), n
	}
	return whole
}

// survey builds the planner's view: the shards that need a worker, with the workers they are
// assigned to at present.
func (d *draft) survey(in stage, whole []lease.Target) (l layout) {
	for _, s := range in.seats {
		l.view.Workers = append(l.view.Workers, rebalance.Worker{
			Name: s.Name, Tie: rebalance.Tie(string(s.Incarnation)), Limit: int(s.MaxShards), Leaving: s.Leaving,
		})
	}
	type entry struct {
		name    string
		owner   int
		rank    int64 // of two entries of one shard, the one of the higher rank counts
		parents []string
	}
	var all []entry
	for _, target := range whole {
		at := seatOf(in.seats, target.Incarnation)
		for _, a := range target.Hold {
			if d.over(in, a.Shard, at) {
				l.over++
			} else {
				all = append(all, entry{a.Shard, at, target.Revision, a.Parents})
			}
		}
	}
	if d.rows {
		for _, of := range in.facts.all {
			at, rank := seatOf(in.seats, of.owner), int64(0)
			if at >= 0 {
				rank = 1 << 62
			}
			if !of.over() && (of.begun || in.ready(of.parents)) {
				all = append(all, entry{of.name, at, rank, nil})
			}
		}
	}
	for _, s := range in.added {
		all = append(all, entry{s.Name, rebalance.Nobody, -1, s.Parents})
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(b.rank, a.rank))
	})
	for i, e := range all {
		if i > 0 && all[i-1].name == e.name {
			continue
		}
		l.view.Shards = append(l.view.Shards, rebalance.Place{Name: e.name, Weight: in.weights(e.name), Owner: e.owner, Tie: rebalance.Tie(e.name)})
		l.parents = append(l.parents, e.parents)
	}
	return l
}

// seatOf returns the place of a worker among the seats, or Nobody.
func seatOf(seats []lease.Seat, inc lease.Incarnation) int {
	i, ok := slices.BinarySearchFunc(seats, inc, func(s lease.Seat, inc lease.Incarnation) int {
		return strings.Compare(string(s.Incarnation), string(inc))
	})
	if !ok {
		return rebalance.Nobody
	}
	return i
}

// decline gives shards to others that their workers decline: each to the worker with the fewest
// shards that may have it. If there is none, the plan stays.
func (l *layout) decline(in stage) {
	loads := make([]int, len(l.view.Workers))
	for _, to := range l.targets {
		if to >= 0 {
			loads[to]++
		}
	}
	for i, to := range l.targets {
		name := l.view.Shards[i].Name
		if to < 0 || !in.declines(name, in.seats[to].Incarnation) {
			continue
		}
		best := rebalance.Nobody
		for w, of := range l.view.Workers {
			free := !of.Leaving && in.seats[w].Health.Unwell == "" && (of.Limit <= 0 || loads[w] < of.Limit) && !in.declines(name, in.seats[w].Incarnation)
			if free && (best == rebalance.Nobody || loads[w] < loads[best]) {
				best = w
			}
		}
		if best != rebalance.Nobody {
			loads[to]--
			loads[best]++
			l.targets[i] = best
		}
	}
}

// hold keeps held shards where they are in a partial plan.
func (d *draft) hold(l *layout) {
	for i, to := range l.targets {
		if owner := l.view.Shards[i].Owner; owner != rebalance.Nobody && to != owner {
			if l.moves = true; d.partial {
				l.targets[i] = owner
			}
		}
	}
	d.partial = d.partial && l.moves // a plan that moves nothing is whole
}

// assign makes the targets and the findings of the revision.
func (d *draft) assign(t *turn, in stage, l *layout) {
	d.next = make([]lease.Target, len(in.seats))
	for i, s := range in.seats {
		d.next[i] = lease.Target{Group: t.cfg.Group, Incarnation: s.Incarnation, At: t.now.Wall}
	}
	d.found = lease.Finding{Members: int64(len(in.seats)), Shards: int64(len(l.targets)), Watchers: watchers(d.plan.Watchers, in)}
	h := fnv.New64a()
	for i, to := range l.targets {
		name, owner := l.view.Shards[i].Name, l.view.Shards[i].Owner
		_, _ = h.Write(append([]byte(name), 0))
		if to < 0 || to >= len(d.next) {
			d.found.Unplaced++
			if len(d.found.Examples) < mostExamples {
				d.found.Examples = append(d.found.Examples, name)
			}
			continue
		}
		d.next[to].Hold = append(d.next[to].Hold, lease.Assigned{Shard: name, Parents: l.parents[i]})
		if _, stray := slices.BinarySearch(in.strays, name); stray { // a hint to itself
			d.next[to].Give = append(d.next[to].Give, lease.Give{Shard: name, To: in.seats[to].Incarnation})
		} else if owner != rebalance.Nobody && owner != to {
			d.next[owner].Give = append(d.next[owner].Give, lease.Give{Shard: name, To: in.seats[to].Incarnation})
		}
	}
	d.found.Names = fmt.Sprintf("%x", h.Sum64())
	if !d.partial {
		d.found.Inputs = "?" // set when the revision is known
	}
}

// watchers returns the workers that watch from now on: those that do and live, and others until
// there are enough.
func watchers(before []lease.Incarnation, in stage) (now []lease.Incarnation) {
	add := func(s lease.Seat) {
		if len(now) < fewest && !s.Leaving && !in.late(s.Incarnation) && !slices.Contains(now, s.Incarnation) {
			now = append(now, s.Incarnation)
		}
	}
	if in.acting {
		add(in.me)
	}
	for _, inc := range before {
		if at := seatOf(in.seats, inc); at >= 0 {
			add(in.seats[at])
		}
	}
	for _, s := range in.seats {
		add(s)
	}
	return now
}

// order notes the writes of the targets that differ, and last the deletions of those of workers
// that have gone.
func (d *draft) order(t *turn, in stage, whole []lease.Target) {
	for i := range d.next {
		next := &d.next[i]
		var old []lease.Target
		for _, page := range in.pages {
			if page.Incarnation == next.Incarnation {
				old = append(old, page)
			}
		}
		if same := slices.IndexFunc(whole, func(w lease.Target) bool { return w.Incarnation == next.Incarnation && sameTarget(w, *next) }); same >= 0 && !d.all {
			next.Revision = whole[same].Revision
			continue
		}
		pages := next.Split()
		for n, page := range pages {
			w := draftWrite{next: page}
			if n < len(old) {
				w.old = old[n]
			}
			d.writes = append(d.writes, w)
		}
		for _, page := range old[min(len(pages), len(old)):] {
			d.writes = append(d.writes, draftWrite{old: page, drop: true})
		}
	}
	for _, page := range in.pages {
		if seatOf(in.seats, page.Incarnation) == rebalance.Nobody {
			d.writes = append(d.writes, draftWrite{old: page, drop: true})
		}
	}
}

func sameTarget(a, b lease.Target) bool {
	return slices.EqualFunc(a.Hold, b.Hold, func(a, b lease.Assigned) bool { return a.Shard == b.Shard && slices.Equal(a.Parents, b.Parents) }) &&
		slices.Equal(a.Give, b.Give)
}

// start sends the swap that opens the revision. known is the highest revision that any seat or
// target says.
func (d *draft) start(t *turn, by lease.Owner, known int64) {
	d.phase, d.opening = opening, protocol.Opening{By: by, Planner: t.cfg.Planner.Fingerprint(), Known: known}
	d.swap(t)
}

// swap makes the swap of this phase, on the plan as it is.
func (d *draft) swap(t *turn) {
	if d.phase == opening {
		w, err := protocol.OpenPlan(d.plan, d.opening, t.stamp())
		d.send(t, w, err)
		return
	}
	w, err := protocol.ClosePlan(d.plan, d.plan.Revision, d.opening.By.Incarnation, d.found, t.stamp())
	d.send(t, w, err)
}

func (d *draft) send(t *turn, w lease.Write, err error) {
	if err != nil {
		t.failedNow("", err)
		*d = draft{}
		return
	}
	d.open, d.try = w, retry{sent: true}
	t.do(Send{Write: w})
}

// keep sends what is due.
func (d *draft) keep(t *turn) {
	switch d.phase {
	case opening, finishing:
		if d.try.due(t) {
			d.try.sent = true
			t.do(Send{Write: d.open})
		}
	case writing:
		d.keepWriting(t)
	}
}

// keepWriting sends the writes of targets, and the swap that finishes the revision when they are
// stored.
func (d *draft) keepWriting(t *turn) {
	busy, left := 0, false
	for i := range d.writes {
		w := &d.writes[i]
		if w.done {
			continue
		}
		if w.drop && left {
			break // the targets of the dead are deleted last
		}
		left = true
		if w.try.sent {
			busy++
		} else if busy < mostAtOnce && w.try.due(t) {
			busy++
			w.try.sent = true
			t.do(Send{Write: w.write})
		}
	}
	if left {
		return
	}
	d.phase = finishing
	d.swap(t)
}

// planSettled takes the answer to a swap of the plan. It reports whether the revision is
// finished, and the plan as it stands if another worker has overtaken this one.
func (d *draft) planSettled(t *turn, in Settled) (finished bool, now *lease.Plan) {
	if d.open.Op == 0 || in.Write.ID() != d.open.ID() || d.phase != opening && d.phase != finishing {
		return false, nil
	}
	verdict, record := protocol.Settle("", d.open, in.Record, in.Err)
	if verdict == protocol.Unknown {
		t.failedNow("", in.Err)
		d.try.failed(t.now.Mono, t.beat/16, t.beat/2)
		return false, nil
	}
	t.answeredNow()
	at, _ := record.(lease.Plan)
	switch {
	case verdict == protocol.Stored && d.phase == opening:
		d.plan, d.phase = at, writing
		d.number(t)
	case verdict == protocol.Stored:
		d.plan = at
		return true, &at
	case verdict == protocol.Again: // a tick came between
		d.plan = at
		d.swap(t)
	default:
		*d = draft{}
		return false, &at
	}
	return false, nil
}

// number makes the writes of the targets, when their revision is known.
func (d *draft) number(t *turn) {
	for i := range d.writes {
		w := &d.writes[i]
		w.next.Revision = d.plan.Revision
		w.make(t, d.plan.Revision)
	}
	for i := range d.next {
		if d.next[i].Revision == 0 {
			d.next[i].Revision = d.plan.Revision
		}
	}
}

// make makes the write on the page as it was read.
func (w *draftWrite) make(t *turn, revision int64) {
	var err error
	if w.drop {
		w.write, err = protocol.DropTarget(w.old, revision)
	} else {
		w.write, err = protocol.WriteTarget(w.old, w.next, t.stamp())
	}
	if w.try, w.done = (retry{}), err != nil; err != nil {
		t.failedNow("", err)
	}
}

// targetSettled takes the answer to the write of one page. It reports whether this worker has
// been overtaken.
func (d *draft) targetSettled(t *turn, in Settled) (overtaken bool) {
	if d.phase != writing {
		return false
	}
	i := slices.IndexFunc(d.writes, func(w draftWrite) bool {
		return w.try.sent && w.write.Op == in.Write.Op && w.write.Key() == in.Write.Key()
	})
	if i < 0 {
		return false
	}
	w := &d.writes[i]
	if malformed(in.Err) { // its worker keeps what it follows
		w.done = true
		return false
	}
	verdict, now := protocol.Settle("", w.write, in.Record, in.Err)
	switch verdict {
	case protocol.Unknown:
		t.failedNow("", in.Err)
		w.try.failed(t.now.Mono, t.beat/16, t.beat/2)
	case protocol.Stored:
		t.answeredNow()
		w.done = true
	case protocol.Again:
		t.answeredNow()
		w.old, _ = now.(lease.Target)
		w.make(t, d.plan.Revision)
		w.done = w.done || w.drop // a later planner deletes it
	default:
		t.answeredNow()
		*d = draft{}
		return true
	}
	return false
}

// of returns the target of one worker in this revision.
func (d *draft) of(inc lease.Incarnation) lease.Target {
	for _, next := range d.next {
		if next.Incarnation == inc {
			return next
		}
	}
	return lease.Target{}
}

// fails reports whether a write waits to be repeated.
func (d *draft) fails() bool {
	return d.try.tries > 0 || slices.ContainsFunc(d.writes, func(w draftWrite) bool { return w.try.tries > 0 })
}

// inputs notes what the plan is made from, once its revision is known.
func (d *draft) inputs(wishes lease.Wishes) {
	if d.found.Inputs != "" {
		d.found.Inputs = inputs(d.seats, wishes, d.plan.Revision)
	}
}
