package core

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// When the next plan is due, and what this worker knows of the plan.
//
// Called by the spine: saw with the plan and the wishes that a listing of the seats contains, due
// in each step.
//
// A plan is due when its inputs differ from those of the last finished plan, when the source
// lists a shard that the plan lacks, and when a revision has been open for too long. The worker
// whose own seat is the change writes the plan at once; the others wait, by rank.
//
// Invariant: a plan that moves held shards waits until the seats have stood still. Free shards
// are placed at once.

const (
	openFor   = 3 * time.Second        // a revision that has been open for so long is abandoned
	apart     = time.Second            // between two plans, and between the ranks of planners
	firstWait = 100 * time.Millisecond // a first plan waits so long for seats that are being confirmed
	longStill = 2 * time.Second        // a plan waits at most so long for the seats to stand still
	fewest    = 8                      // so many workers watch at most
)

// A watch is what this worker knows of the plan.
type watch struct {
	plan    lease.Plan // as last seen; revision 0: there is none
	known   bool       // the plan was looked for
	since   Instant    // when the plan was first seen as it is: this revision, open or finished
	ticked  Instant    // when its write id was first seen
	wishes  lease.Wishes
	self    bool    // this worker's own seat is a change, or it has evicted another
	orphans bool    // a worker has gone since the last plan
	waits   Instant // since when a plan is due; 0: none is
	placed  placed
	again   Instant // not again before
	check   bool    // something has changed that may make a plan due
	next    Instant // when to check again although nothing has
}

// Placed are the names in the targets of a revision.
type placed struct {
	revision int64
	names    []string // sorted
}

// forsaken reports whether no watcher seems to live: the plan of a large fleet has not ticked for
// two and a half heartbeats, and for up to one more, so that not all workers notice at once.
func (w *watch) forsaken(t *turn, me lease.Incarnation) bool {
	if w.plan.Members <= fewest {
		return false
	}
	at := w.ticked.Add(5*t.beat/2 + time.Duration(rebalance.Tie(string(me))%uint64(t.beat)))
	if t.now.Mono < at {
		t.at(at)
		return false
	}
	return true
}

// saw takes the plan as it was listed, and reports whether it is another one.
func (w *watch) saw(t *turn, plan lease.Plan, wishes lease.Wishes) (changed bool) {
	if w.known && plan.Revision < w.plan.Revision && plan.Revision != 0 {
		return false // a listing that lags behind
	}
	changed = !w.known || plan.Revision != w.plan.Revision || plan.Open != w.plan.Open
	if changed {
		w.since = t.now.Mono
		if !plan.Open {
			w.orphans = false
		}
	}
	if !w.known || plan.WriteID != w.plan.WriteID {
		w.ticked = t.now.Mono
	}
	w.plan, w.wishes, w.known = plan, wishes, true
	return changed
}

// pace returns how soon the seats have to be listed again because a plan is being written or is
// due. The plan that places what a worker has left is there in a moment.
func (w *watch) pace(t *turn) time.Duration {
	switch {
	case w.plan.Open && t.now.Mono < w.since.Add(apart), w.waits > 0 && w.orphans && t.now.Mono < w.waits.Add(apart):
		return paceMoving
	case w.plan.Open, !w.known, w.waits > 0:
		return paceWaiting
	}
	return t.beat
}

// A scene is what decides whether a plan is due.
type scene struct {
	seats   []lease.Seat // the confirmed seats, sorted by incarnation, with this worker's own
	me      lease.Incarnation
	changed Instant // when the seats last came, went or changed
	added   bool    // the source lists shards that can be placed and are not
	makerUp bool    // the worker that opened the revision has a seat
}

// due reports whether to write a plan now, and whether held shards must stay where they are
// because the seats do not stand still yet.
func (w *watch) due(t *turn, in scene) (now, partial bool) {
	if !w.known {
		return false, false
	}
	reason, abandoned := w.reason(t, in)
	if !reason {
		w.waits, w.self = 0, false
		return false, false
	}
	if w.waits == 0 {
		w.waits = t.now.Mono
	}
	at := max(w.again, w.waits.Add(w.delay(in, abandoned)))
	still := in.changed.Add(stillFor)
	urgent := w.plan.Revision == 0 || w.orphans || in.added || abandoned
	if partial = t.now.Mono < still && t.now.Mono < w.waits.Add(longStill); partial && !urgent {
		at = max(at, min(still, w.waits.Add(longStill)))
	}
	if t.now.Mono < at {
		t.at(at)
		return false, false
	}
	return true, partial
}

// reason reports whether a plan is due, and whether it is because a revision was abandoned.
func (w *watch) reason(t *turn, in scene) (due, abandoned bool) {
	switch {
	case w.plan.Revision == 0:
		return true, false
	case w.plan.Open:
		if w.plan.By.Incarnation == in.me || !in.makerUp {
			return true, true
		}
		at := w.since.Add(openFor)
		if t.now.Mono < at {
			t.at(at)
			return false, false
		}
		return true, true
	case in.added:
		return true, false
	}
	return w.plan.Inputs != inputs(in.seats, w.wishes, w.plan.Revision), false
}

// delay is how long this worker leaves the plan to others.
func (w *watch) delay(in scene, abandoned bool) time.Duration {
	rank := slices.Index(w.plan.Watchers, in.me)
	if rank < 0 {
		rank = min(len(w.plan.Watchers), fewest)
	}
	switch {
	case w.plan.Revision == 0:
		at := slices.IndexFunc(in.seats, func(s lease.Seat) bool { return s.Incarnation == in.me })
		return firstWait * time.Duration(1+min(max(at, 0), fewest))
	case w.self:
		return 0
	case abandoned:
		return time.Duration(rank) * paceWaiting
	}
	return time.Duration(rank+1) * apart
}

// inputs returns a hash of what the plan is made from: the confirmed seats with what they say,
// and the wishes. A worker that misses its target counts while that revision is the present one.
func inputs(seats []lease.Seat, wishes lease.Wishes, revision int64) string {
	h := fnv.New64a()
	text := func(s string) { _, _ = h.Write([]byte(strconv.Itoa(len(s)) + ":" + s)) }
	for _, s := range seats {
		text(string(s.Incarnation))
		text(strconv.FormatBool(s.Leaving))
		text(strconv.FormatInt(s.MaxShards, 10))
		text(strconv.FormatInt(s.Freed, 10))
		text(strconv.FormatBool(s.Missing == revision && revision != 0))
	}
	text(string(wishes.WriteID))
	return strconv.FormatUint(h.Sum64(), 16)
}

// has reports whether the plan, as this worker last read it, places the shard.
func (p *placed) has(name string) bool {
	_, ok := slices.BinarySearch(p.names, name)
	return ok
}

// A feed is the source, as this worker has polled it.
type feed struct {
	next     Instant
	polled   Instant
	asking   bool
	begun    order // the step in which the latest listing was asked for
	complete int64 // how many complete listings there were
	answered bool  // there was an answer, complete or not
	shards   []sourced
}

// A sourced is a shard that the source lists, or has listed.
type sourced struct {
	Shard
	asked  order // the step in which the latest listing was asked for that lists it
	listed bool  // by the latest listing that could show it
	absent int32 // complete listings in a row that lacked it
}

// keep polls the source when it is due.
func (f *feed) keep(t *turn) {
	switch {
	case f.asking:
	case t.now.Mono >= f.next:
		f.asking, f.begun, f.polled, f.next = true, t.step, t.now.Mono, Never
		t.do(Poll{})
	default:
		t.at(f.next)
	}
}

// soon polls the source once more. Many finished shards are one more listing.
func (f *feed) soon(t *turn) { f.next = min(f.next, max(t.now.Mono, f.polled.Add(t.beat/4))) }

// sourced takes a listing. One that is not complete adds shards and removes none.
func (f *feed) sourced(t *turn, in Source) {
	f.asking = false
	f.next = min(f.next, t.now.Mono.Add(t.jitter(t.cfg.Poll)))
	if in.Err != nil && f.complete == 0 {
		f.next = min(f.next, t.now.Mono.Add(min(t.cfg.Poll, t.beat))) // there is nothing to go by yet
	}
	f.answered = f.answered || in.Answered
	if in.Complete {
		f.complete = min(f.complete+1, 3) // more makes no difference
	}
	listed := slices.Clone(in.Shards)
	slices.SortFunc(listed, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	next, at := make([]sourced, 0, max(len(listed), len(f.shards))), 0
	for _, shard := range listed {
		for ; at < len(f.shards) && f.shards[at].Name < shard.Name; at++ {
			next = append(next, f.shards[at].lacking(in.Complete))
		}
		if at < len(f.shards) && f.shards[at].Name == shard.Name {
			at++
		}
		if n := len(next); n == 0 || next[n-1].Name != shard.Name {
			next = append(next, sourced{Shard: shard, asked: f.begun, listed: true})
		}
	}
	for ; at < len(f.shards); at++ {
		next = append(next, f.shards[at].lacking(in.Complete))
	}
	f.shards = next
}

// lacking is a shard that the latest listing lacks.
func (s sourced) lacking(complete bool) sourced {
	if complete {
		s.listed, s.absent = false, min(s.absent+1, 3) // more makes no difference
	}
	return s
}

func (f *feed) find(name string) *sourced {
	i, ok := slices.BinarySearchFunc(f.shards, name, func(s sourced, name string) int { return strings.Compare(s.Name, name) })
	if !ok {
		return nil
	}
	return &f.shards[i]
}

// lacked returns how many complete listings in a row have lacked the shard.
func (f *feed) lacked(name string) int64 {
	if s := f.find(name); s != nil {
		return int64(s.absent)
	}
	return f.complete
}

// Facts are the rows as this worker last listed them, for plans.
type facts struct {
	begun    order // the step in which the listing was sent; 0: there was none
	revision int64 // of the plan that was known then
	asked    int64 // of the plan that was known when the latest listing was sent
	all      []fact
	next     Instant // when the next audit is due
}

type fact struct {
	name     string
	owner    lease.Incarnation
	finished bool
	removed  bool
	aside    bool  // quarantined
	begun    bool  // a worker has held the shard, as far as this worker can tell
	gone     order // the step in which this worker learnt that the row is a tombstone
	parents  []string
}

// over reports whether the shard needs no worker.
func (f fact) over() bool { return f.finished || f.removed || f.aside }

func (f *facts) find(name string) *fact {
	i, ok := slices.BinarySearchFunc(f.all, name, func(of fact, name string) int { return strings.Compare(of.name, name) })
	if !ok {
		return nil
	}
	return &f.all[i]
}

// saw takes a listing of the rows.
func (f *facts) saw(sent order, in Listed) {
	old := f.all
	f.revision = f.asked
	f.begun, f.all = sent, make([]fact, 0, len(in.Records)+len(in.Unreadable))
	for _, of := range old {
		if of.gone > 0 { // listings skip tombstones
			f.all = append(f.all, of)
		}
	}
	for _, r := range in.Records {
		if row, ok := r.(lease.Row); ok {
			f.all = append(f.all, fact{
				name: row.Shard, owner: row.Owner.Incarnation, finished: row.Finished, removed: row.Removed,
				aside: row.Quarantined, begun: begun(row), parents: row.Parents,
			})
		}
	}
	for _, key := range in.Unreadable {
		f.all = append(f.all, fact{name: key.Name, begun: true})
	}
	slices.SortStableFunc(f.all, func(a, b fact) int { return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.gone, b.gone)) })
	f.all = slices.CompactFunc(f.all, func(a, b fact) bool { return a.name == b.name })
}

// bury notes that rows are tombstones.
func (f *facts) bury(step order, names ...string) {
	for _, name := range names {
		i, ok := slices.BinarySearchFunc(f.all, name, func(of fact, name string) int { return strings.Compare(of.name, name) })
		if !ok {
			f.all = slices.Insert(f.all, i, fact{name: name})
		}
		f.all[i].finished, f.all[i].removed, f.all[i].gone = false, true, max(f.all[i].gone, step)
	}
}

// begun reports whether somebody has held the shard, as far as the row remembers, and since it
// was last removed.
func begun(row lease.Row) bool {
	if !row.Owner.IsZero() {
		return true
	}
	for _, past := range append([]lease.Transfer{row.Last}, row.History()...) { // newest first
		if past.Reason == lease.ReasonRemoved {
			return false
		}
		if past.From != "" {
			return true
		}
	}
	return false
}

// finish notes that shards need no worker any more.
func (f *facts) finish(names []string) {
	for _, name := range names {
		if of := f.find(name); of != nil {
			of.finished, of.removed, of.gone = true, false, 0
		} else {
			i, _ := slices.BinarySearchFunc(f.all, name, func(of fact, name string) int { return strings.Compare(of.name, name) })
			f.all = slices.Insert(f.all, i, fact{name: name, finished: true})
		}
	}
}

// ready reports whether every parent is finished. A parent that nobody knows and that no complete
// listing has counts as finished.
func (w *watch) ready(parents []string, f *feed, rows *facts) bool {
	return !slices.ContainsFunc(parents, func(name string) bool {
		src := f.find(name)
		of := rows.find(name)
		switch {
		case of != nil && of.finished:
			return false
		case of != nil && of.removed: // if it is listed again it is about to be revived
			return src != nil && src.listed
		case of != nil || w.placed.has(name):
			return true
		}
		return src != nil && src.listed || f.complete == 0
	})
}

// added returns the shards that can be placed and that the plan lacks, as far as this worker
// knows: those that the source lists, and rows that were listed under this very plan: older ones
// may have finished since. unknown: there are others, which only a listing of the rows can tell
// from finished ones.
func (w *watch) added(f *feed, rows *facts) (names []sourced, unknown bool) {
	for _, s := range f.shards {
		if !s.listed || w.placed.has(s.Name) {
			continue
		}
		of := rows.find(s.Name)
		switch {
		case of != nil && !of.removed: // below
		case of != nil && s.asked <= of.gone: // the listing may be older than the tombstone
		case rows.begun == 0:
			return nil, true
		case w.ready(s.Parents, f, rows):
			names = append(names, s)
		}
	}
	fresh := rows.revision == w.plan.Revision || w.plan.Unplaced > 0
	for _, of := range rows.all {
		if fresh && !of.over() && !w.placed.has(of.name) && (of.begun || w.ready(of.parents, f, rows)) {
			names = append(names, sourced{Shard: Shard{Name: of.name}})
		}
	}
	return names, false
}
