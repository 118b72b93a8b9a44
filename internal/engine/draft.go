package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Writing the next plan.
//
//	idle → gathering → opening → writing → finishing → idle
//	       read, ask     swap     targets     swap
//
// A draft that another worker has overtaken, or that has nothing to change, is dropped: idle again.
//
// Called by the spine: begin when a plan is due, gather and then keep in each step, answered with the answers of the
// user's planner, planSettled and targetSettled with those to its writes.
//
// A crash while gathering leaves nothing. After the opening swap it leaves an open revision, and
// some targets of it: the next planner opens the revision after it and writes all targets.
//
// Two planners at once do no harm: both swaps of the plan are conditional, so of two that open the same revision one is
// refused. If a second one opens a higher revision over that of the first, the first is refused when it completes its
// own. The targets of the first have the lower revision, and the second writes over them.
//
// Invariant: a target is only written over one of a lower revision, and a planner that meets a
// revision above its own stops.
// Invariant: a plan is made from seats, targets and rows that were read after the draft began.
// Invariant: no target is written before the revision is open, and the revision is completed only
// after all these writes are answered.

// A draftPhase is how far a worker has come with its plan.
type draftPhase uint8

const (
	idle draftPhase = iota
	gathering
	opening
	writing
	finishing
)

// mostAtOnce is how many targets are written at the same time.
const mostAtOnce = 64

// A draft is the plan that this worker is writing. Only in idle and gathering may it be dropped because the worker
// plans no more; later it is finished, or another worker overtakes it.
type draft struct {
	phase    draftPhase
	begun    order      // the step in which it began: it is made from reads that were sent later
	rows     bool       // the owners are those of the rows: there is no plan, or not a whole one
	all      bool       // all targets are written, although they have not changed
	plan     lease.Plan // as last read or written
	opening  protocol.Opening
	found    lease.Finding
	next     []lease.Target      // the targets of this revision, one for each worker
	broken   []lease.Incarnation // the targets of these workers could not be read
	writes   []draftWrite        // what has to be written, in this order
	asked    []question          // what the user's planner was asked: one or two questions
	withheld withheld            // what this plan withholds from workers
	swap     sending             // of the plan
}

// A draftWrite is the write of one page of a target, or its deletion. Its bytes are made when the revision is open,
// because only then its number is known.
type draftWrite struct {
	old, next lease.Target // without a write id, there is no old page
	drop      bool
	sending
	done bool
}

// begin starts a draft of the plan after this one. The targets show where the shards are if a whole plan wrote them.
// Otherwise only the rows show it, and all targets are written, so that all that remain are of one plan.
func (d *draft) begin(t *turn, plan lease.Plan) {
	fresh := plan.Revision == 0 || plan.Open
	*d = draft{phase: gathering, begun: t.step, plan: plan, rows: fresh, all: fresh}
}

// A gathered is the result of draft.gather.
type gathered uint8

const (
	waiting   gathered = iota // for reads, or for the planner
	beaten                    // another worker was first, or the plan cannot be read
	lacking                   // the rows have to be read
	unchanged                 // held shards have to wait, and nothing else is to be done
	opened                    // the opening swap is sent
)

// unsaid reports whether the seats may not say what the rows show: a seat has no room for all news, or a worker declines a
// shard while there is no room for all, perhaps because it holds one that the plan lacks.
func (in *stage) unsaid() bool {
	declined := func(n lease.News) bool { return n.Kind == lease.NewsDeclined }
	return slices.ContainsFunc(in.Seats, func(s lease.Seat) bool {
		return s.NewsLeft > 0 || in.plan.Unplaced > 0 && slices.ContainsFunc(s.News, declined)
	})
}

// gather computes the plan and opens the revision when everything is read that it is made from.
func (d *draft) gather(t *turn, in stage) gathered {
	switch {
	case in.spoilt:
		*d = draft{}
		return beaten
	// The listings that the spine has asked for are still under way.
	case min(in.begun, in.facts.pages.begun) < d.begun, d.rows && in.facts.begun < d.begun:
		return waiting
	// The due plan was another one: let the spine consider again.
	case in.plan.Revision != d.plan.Revision, in.plan.Open != d.plan.Open:
		*d = draft{}
		return beaten
	case in.planner.open > 0:
		return waiting
	case in.plan.Unplaced > 0 && in.facts.begun == 0: // no target names those
		return lacking
	case !d.rows && len(layout.Torn(in.facts.pages.all)) > 0: // they do not show what anybody holds
		d.rows = true
		return lacking
	// Some news is missing: a seat has no room for all of it, or another planner has read it and it has left the seat. The
	// rows show the rest.
	case !in.blind && in.facts.begun < d.begun && (in.unsaid() || in.facts.behind(in.Me.Incarnation, in.feed, in.plan)):
		return lacking
	}
	d.plan, d.plan.Group = in.plan, t.cfg.Group
	in.Wishes, in.rows = layout.Standing(in.stored.List, t.now.Wall), d.rows
	pages := &in.facts.pages
	in.Targets, in.Broken, in.torn = layout.Join(pages.all), pages.broken, layout.Torn(pages.all)
	l := assignment{stage: in}
	// The targets lack shards of the plan: the rows have to say where these are.
	if !l.survey() {
		d.rows, d.all = true, true
		return lacking
	}
	if !l.place(t, d) {
		return waiting
	}
	d.next, d.found = l.assign(t)
	d.withheld = l.withheld()
	d.broken = pages.broken
	d.order(pages.all, in.Targets)
	// Nothing may move yet, and nothing else is to be done: an empty revision would be for nothing.
	if l.Held && len(d.writes) == 0 && !d.all {
		*d = draft{}
		return unchanged
	}
	d.phase, d.opening = opening, protocol.Opening{By: in.Me.Owner(), Planner: t.cfg.planner()}
	if d.unplanned() {
		d.opening.Planner = rebalance.Even{}.Name() // it has made this plan
	}
	// The new revision is above all that anybody follows, and above all targets: workers ignore a lower one, for example
	// after the plan was deleted or the table restored.
	for _, s := range in.Seats {
		d.opening.Known = max(d.opening.Known, s.Revision)
	}
	for _, page := range pages.all {
		d.opening.Known = max(d.opening.Known, page.Revision)
	}
	d.swapPlan(t)
	return opened
}

// order notes the writes in their order: first the targets that differ from those that were read, then the deletions:
// of the targets of workers without a seat, and of pages beyond the end of a target. pages are the pages as they were
// read, whole the targets made of them; both are sorted by worker, as the new targets are. A target that does not
// differ keeps its revision.
func (d *draft) order(pages, whole []lease.Target) {
	worker := func(page *lease.Target) lease.Incarnation { return page.Incarnation }
	var drops []draftWrite
	for _, page := range pages {
		if find(d.next, page.Incarnation, worker) == nil {
			drops = append(drops, draftWrite{old: page, drop: true})
		}
	}
	for i := range d.next {
		next := &d.next[i]
		at, _ := place(pages, next.Incarnation, worker)
		was := find(whole, next.Incarnation, worker)
		if was != nil && !d.all && same(*was, *next) && layout.Whole(pages[at:]) {
			next.Revision = was.Revision
			continue
		}
		split := next.Split()
		first := len(d.writes)
		for _, page := range split {
			d.writes = append(d.writes, draftWrite{next: page})
		}
		for _, old := range pages[at:] {
			if old.Incarnation != next.Incarnation {
				break
			}
			if old.Page < int64(len(split)) {
				d.writes[first+int(old.Page)].old = old
			} else {
				drops = append(drops, draftWrite{old: old, drop: true})
			}
		}
	}
	d.writes = append(d.writes, drops...)
}

// same reports whether a target assigns the same shards as before. Hints alone are not worth a
// write, except that to the worker itself.
func same(a, b lease.Target) bool {
	return !slices.ContainsFunc(b.Give, func(g lease.Give) bool { return g.To == b.Incarnation }) &&
		slices.EqualFunc(a.Hold, b.Hold, func(a, b lease.Assigned) bool {
			return a.Shard == b.Shard && slices.Equal(a.Parents, b.Parents)
		})
}

// swapPlan makes the swap of this phase, on the plan as it is.
//
// The opening is the commit point of a planner: it wins over all others that have read the same plan. A crash after it
// leaves an open revision. Nobody follows it; another worker opens the next one when it has been open for openFor, or
// when this worker has no seat.
//
// The completion is the commit point of the plan: from then on workers read their targets of it. A crash after it
// leaves nothing to be done.
func (d *draft) swapPlan(t *turn) {
	var w lease.Write
	var err error
	if d.phase == opening {
		w, err = protocol.OpenPlan(d.plan, d.opening, t.stamp())
	} else {
		w, err = protocol.ClosePlan(d.plan, d.plan.Revision, d.opening.By.Incarnation, d.found, t.stamp())
	}
	if !d.swap.send(t, w, err) {
		*d = draft{}
	}
}

// keep sends what is due.
func (d *draft) keep(t *turn) {
	switch d.phase {
	case opening, finishing:
		d.swap.keep(t)
	case writing:
		d.keepWriting(t)
	}
}

// keepWriting sends the writes of targets, and the swap that finishes the revision when they are
// stored. A crash between two writes leaves targets of two revisions. That is why nobody reads a target while a
// revision is open.
func (d *draft) keepWriting(t *turn) {
	for len(d.writes) > 0 && d.writes[0].done {
		d.writes = d.writes[1:]
	}
	busy := 0
	for i := range d.writes {
		w := &d.writes[i]
		if busy == mostAtOnce || w.drop && !d.writes[0].drop { // the targets of the dead are deleted last
			break
		}
		if w.done {
			continue
		}
		busy++
		w.keep(t)
	}
	if len(d.writes) == 0 {
		d.phase = finishing
		d.swapPlan(t)
	}
}

// planSettled takes the answer to a swap of the plan. It returns the plan as it stands, if the
// answer shows it, and whether it is the complete revision of this worker. A worker that was
// overtaken stops.
func (d *draft) planSettled(t *turn, in Settled) (now *lease.Plan, complete bool) {
	if malformed(in.Err) { // another plan is due when it can be read
		*d = draft{}
		return nil, false
	}
	verdict, record, decided := d.swap.settled(t, "", in, t.beat/16, t.beat/2)
	if !decided {
		return nil, false
	}
	at, _ := record.(lease.Plan)
	switch d.plan = at; {
	// The writes of targets can be made now: see draftWrite.
	case verdict == protocol.Stored && d.phase == opening:
		d.phase = writing
		for i := range d.writes {
			d.writes[i].make(t, at.Revision)
		}
	case verdict == protocol.Stored:
		return &at, true
	case verdict == protocol.Again: // a tick came between
		d.swapPlan(t)
	default:
		*d = draft{}
	}
	return &at, false
}

// make makes the write on the page as it was read. A write that the rules refuse is reported and left out: the target
// stays what it is.
func (w *draftWrite) make(t *turn, revision int64) {
	var err error
	if w.next.Revision = revision; w.drop {
		w.write, err = protocol.DropTarget(w.old, revision)
	} else {
		w.write, err = protocol.WriteTarget(w.old, w.next, t.stamp())
	}
	if w.done = err != nil; err != nil {
		t.failedNow("", err)
	}
}

// targetSettled takes the answer to the write of one page. It reports whether this worker has
// been overtaken. The revision that it leaves open then is below that of the other planner.
func (d *draft) targetSettled(t *turn, in Settled) (overtaken bool) {
	i := slices.IndexFunc(d.writes, func(w draftWrite) bool { return w.is(in.Write) })
	if d.phase != writing || i < 0 {
		return false
	}
	w := &d.writes[i]
	if w.done = malformed(in.Err); w.done { // its worker keeps what it follows
		d.found.Inputs = mark(d.found.Inputs, w.drop)
		return false
	}
	verdict, now, decided := w.settled(t, "", in, t.beat/16, t.beat/2)
	if !decided {
		return false
	}
	if slices.Contains(d.broken, w.next.Incarnation) {
		d.found.Inputs = "" // its target can be read again: another plan is due, which gives it its share
	}
	switch verdict {
	case protocol.Stored:
		w.done = true
	// The page is not what it was when it was listed: a planner of a lower revision has written or dropped it.
	case protocol.Again:
		w.old, _ = now.(lease.Target)
		w.make(t, d.plan.Revision)
		w.done = w.done || w.drop // a later planner deletes it
	default:
		*d = draft{}
		return true
	}
	return false
}

// fails reports whether a write waits to be repeated. The fault of the store then lasts: see faults.scanStore.
func (d *draft) fails() bool {
	return d.swap.try.tries > 0 || slices.ContainsFunc(d.writes, func(w draftWrite) bool { return w.try.tries > 0 })
}
