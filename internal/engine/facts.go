package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The facts are what this worker knows of all shards of the group, its own or not: of each lease row what a plan needs, the
// targets as last listed, and the names of the shards that the present plan places. Plans are made from them.
//
// Called by the spine:
//
//	saw, sawTargets        with a complete listing of the rows, or of the targets
//	relist, forget         with a listing of the source
//	planned                when this worker has written a plan
//	finish, leave, bury    with the news of this worker
//	heed                   with the news of another worker
//	looked                 with a read of a row that a command has changed
//	obsolete, strays       to find rows that become tombstones, or that workers have to read again
//
// Called by fleet.consider: heedLooks, added, looks and back. The layout of a draft asks added, ready and asks.
//
// Only a worker that plans needs the facts. In a large fleet the others drop them (Engine.shed). Nothing is written
// here, and after a crash another planner lists all again.
//
// A fact is about one row:
//
//	begun → finished → removed: gone is the step; kept until neither source nor plan has it
//	      → quarantined
//	      → left (given up as unlisted) → out, unless this worker's source lists it
//
// Invariant: what is known of a row may be out of date. It decides when to plan. A plan itself
// rests on targets and rows that were read for it.

// Facts are the rows and the targets as this worker last listed them, with what it has learnt since.
type facts struct {
	begun  order // the step in which the listing of the rows was sent; 0: there was none
	under  int64 // the revision of the plan that was known then
	sent   int64 // the revision that was known when the latest listing of the rows was sent: see saw
	all    []fact
	pages  pages
	placed placed
}

// Pages are the targets of all workers, sorted by name as the store lists them: the pages of a target follow each
// other.
type pages struct {
	begun  order   // the step in which the listing was sent
	asked  Instant // when it was sent
	all    []lease.Target
	broken []lease.Incarnation // the targets of these workers cannot be read
}

// Placed are the names in the targets of a revision. After a plan of another worker they are out of date until the
// targets are listed: revision differs from that of the plan.
type placed struct {
	revision int64
	names    []string // sorted
}

// A fact is what is known of one row.
type fact struct {
	name        string
	owner       lease.Incarnation
	finished    bool
	quarantined bool
	left        bool  // its last owner gave it up, because that owner's source no longer listed it
	out         bool  // it was given up as unlisted, and this worker's source does not list it: it needs no worker
	looked      bool  // the row was read since the listing, because a command has changed it
	heeded      bool  // that change was taken into account: see heedLooks
	asked       bool  // a plan has asked this owner whether its source still lists it
	begun       bool  // a worker has held the shard, as far as this worker can tell
	known       order // the step in which this worker first listed the row
	ended       order // the step in which this worker learnt that it is finished
	gone        order // the step in which this worker learnt that the row is a tombstone; 0: it is none
	parents     []string
}

// over reports whether the shard needs no worker: no plan places it.
func (f fact) over() bool { return f.finished || f.gone > 0 || f.quarantined || f.out }

func (f *facts) find(name string) *fact {
	return find(f.all, name, func(of *fact) string { return of.name })
}

// saw takes a listing of the rows, which was sent in that step. The listing replaces what was known, except tombstones,
// which it does not contain, and since when things are known: the source is compared with listings of it since then.
func (f *facts) saw(t *turn, sent order, in Listed) {
	old := facts{all: f.all}
	f.under = f.sent
	f.begun, f.all = sent, make([]fact, 0, len(in.Records)+len(in.Unreadable))
	// The store lists no tombstones, so what is known of them is carried over.
	for _, of := range old.all {
		if of.finished && of.gone == 0 { // if the listing lacks it, it is a tombstone now
			of.finished, of.gone = false, t.step
		}
		if of.gone > 0 { // listings skip tombstones
			f.all = append(f.all, of)
		}
	}
	for _, r := range in.Records {
		if row, ok := r.(lease.Row); ok {
			var was fact
			if of := old.find(row.Shard); of != nil {
				was = *of
			}
			f.all = append(f.all, was.learnt(t, row))
		}
	}
	// A row that cannot be read is placed like others. The worker to which it is assigned waits until it can be read.
	for _, u := range in.Unreadable {
		f.all = append(f.all, fact{name: u.Key.Name, begun: true})
	}
	slices.SortStableFunc(f.all, func(a, b fact) int { return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.gone, b.gone)) })
	f.all = slices.CompactFunc(f.all, func(a, b fact) bool { return a.name == b.name })
}

// know returns what is known of a row, which exists from now on. If nothing was known, the rest is empty: no owner, not
// begun.
func (f *facts) know(name string) *fact {
	of := know(&f.all, name, func(of *fact) string { return of.name })
	of.name = name
	return of
}

// bury notes that the row of a shard is a tombstone.
func (f *facts) bury(step order, name string) {
	of := f.know(name)
	of.finished, of.left, of.out, of.gone = false, false, false, max(of.gone, step)
}

// looked takes the answer to a look at a row that a command has changed, and reports whether the look
// is over. Only this worker learns what the row is; every watcher looks by itself.
func (f *facts) looked(t *turn, s *shard, in Got, source *feed) (over bool) {
	if !s.looked(t) {
		return false
	}
	if row, ok := in.Record.(lease.Row); ok {
		f.learn(t, row, source)
	}
	return true
}

// learn takes a row that was read because a command has changed it.
func (f *facts) learn(t *turn, row lease.Row, source *feed) {
	if row.Removed {
		f.bury(t.step, row.Shard)
		source.soon(t)
		return
	}
	of := f.know(row.Shard)
	*of = of.learnt(t, row)
	of.looked, of.out = true, of.needless(t, source)
}

// learnt returns the fact that a row shows which was read in this step. It keeps known, ended and, under the same owner,
// asked. A shard that is back after its row was a tombstone starts as new.
func (f fact) learnt(t *turn, row lease.Row) fact {
	next := fact{
		name: row.Shard, owner: row.Owner.Incarnation, finished: row.Finished, quarantined: row.Quarantined, left: left(row),
		begun: begun(row), parents: row.Parents, known: t.step,
	}
	if f.known > 0 && f.gone == 0 {
		next.known, next.asked = f.known, f.asked && f.owner == next.owner
	}
	if next.finished {
		if next.ended = t.step; f.finished {
			next.ended = f.ended
		}
	}
	return next
}

// begun reports whether somebody has held the shard, as far as the row remembers, and since it
// was last removed.
func begun(row lease.Row) bool {
	if !row.Owner.IsZero() {
		return true
	}
	if last := row.Last; last.Reason == lease.ReasonRemoved || last.From != "" {
		return last.Reason != lease.ReasonRemoved // a planner asks about each row of the table, and the history is long
	}
	for _, past := range row.History() { // newest first
		if past.Reason == lease.ReasonRemoved {
			return false
		}
		if past.From != "" {
			return true
		}
	}
	return false
}

// left reports whether the last owner gave the shard up as unlisted, and nobody has claimed it since.
func left(row lease.Row) bool {
	return row.Owner.IsZero() && !row.Finished && !row.Quarantined && row.Last.Reason == lease.ReasonUnlisted
}

// leave notes that the owner of a shard has given it up because its source no longer lists it.
func (f *facts) leave(t *turn, name string, source *feed) {
	of := f.know(name)
	of.owner, of.begun, of.left = "", true, true
	of.out = of.needless(t, source)
}

// needless reports whether a shard needs no worker, because it was given up as unlisted and this worker's source does
// not list it either.
func (f *fact) needless(t *turn, source *feed) bool {
	return f.left && !t.cfg.KeepUnlisted && !source.lists(f.name)
}

// relist compares the rows with the source, after a listing of either. An unlisted shard that the source lists needs a
// worker again. A shard that the source has ceased to list is barred from this worker.
func (f *facts) relist(t *turn, source *feed) {
	for i := range f.all {
		of := &f.all[i]
		if of.out = of.needless(t, source); of.known > 0 && !of.over() && source.omits(of.name, of.known) {
			source.bar(of.name)
		}
	}
}

// forget drops shards whose rows are tombstones, when neither the source nor the plan has them any more.
func (f *facts) forget(source *feed) {
	f.all = slices.DeleteFunc(f.all, func(of fact) bool {
		return of.gone > 0 && source.omits(of.name, of.gone) && !f.isPlaced(of.name)
	})
}

// mostRetired is how many tombstones are made at a time.
const mostRetired = 8

// obsolete returns finished shards that the source no longer lists, at most mostRetired: their rows are to become
// tombstones.
func (f *facts) obsolete(source *feed) (names []string) {
	for _, of := range f.all {
		if len(names) < mostRetired && of.finished && source.omits(of.name, of.ended) {
			names = append(names, of.name)
		}
	}
	return names
}

// strays returns the shards whose workers have to read their rows again, after an audit. There are two kinds: shards of the
// plan without a living owner, which somebody has taken from their workers by hand; and held shards that the source has
// ceased to list, because in a large fleet only the first watcher polls. Each owner is asked once. lives reports whether an
// owner has a seat, declined whether a worker says that it cannot have the shard.
func (f *facts) strays(
	t *turn, source *feed, lives func(lease.Incarnation) bool, declined func(shard string) bool,
) (all []string) {
	for i := range f.all {
		of := &f.all[i]
		if of.over() || !of.begun || !f.isPlaced(of.name) {
			continue
		}
		if held := lives(of.owner); !held && !declined(of.name) {
			all = append(all, of.name)
		} else if omits := source.omits(of.name, of.known); !omits {
			of.asked = false
		} else if held && !of.asked && !t.cfg.KeepUnlisted {
			all = append(all, of.name)
		}
	}
	return all
}

// asks reports whether the owner of a shard still has to find out whether its source lists the shard. Each plan asks it
// again, because it may have missed the last one.
func (f *facts) asks(name string, source *feed) bool {
	of := f.find(name)
	return of != nil && of.asked && !of.over() && source.omits(name, of.known)
}

// heedLooks takes the rows that commands have changed into account, each once. It is called when the placement of
// the present plan is known, and returns those of these shards that the plan places.
func (f *facts) heedLooks() (placed []string) {
	for i := range f.all {
		if of := &f.all[i]; of.looked && !of.heeded {
			if of.heeded = true; f.isPlaced(of.name) {
				placed = append(placed, of.name)
			}
		}
	}
	return placed
}

// looks reports whether commands have changed rows that heedLooks has not taken into account yet.
func (f *facts) looks() bool {
	return slices.ContainsFunc(f.all, func(of fact) bool { return of.looked && !of.heeded })
}

// back reports whether a shard that was given up as unlisted is listed: it may have to be placed again, unless another
// plan has done that already.
func (f *facts) back() bool {
	return slices.ContainsFunc(f.all, func(of fact) bool { return of.left && !of.over() })
}

// finish notes that a shard needs no worker any more.
func (f *facts) finish(step order, name string) {
	of := f.know(name)
	if !of.finished {
		of.ended = step
	}
	of.finished, of.left, of.out, of.gone = true, false, false, 0
}

// heed notes what another worker publishes about shards.
func (f *facts) heed(t *turn, all []lease.News, source *feed) {
	for _, n := range all {
		switch n.Kind {
		case lease.NewsFinished:
			f.finish(t.step, n.Shard)
		case layout.NewsUnlisted:
			f.leave(t, n.Shard, source)
		case layout.NewsRemoved:
			f.bury(t.step, n.Shard)
			source.soon(t)
		}
	}
}

// sawTargets takes a listing of all targets. plan is the plan as known now; while it is open, names of the revision
// before count too, so that no shard seems to be new that is about to be placed.
func (f *facts) sawTargets(of *read, in Listed, plan lease.Plan) {
	f.pages = pages{begun: of.begun, asked: of.asked}
	for _, record := range in.Records {
		if page, ok := record.(lease.Target); ok {
			f.pages.all = append(f.pages.all, page)
		}
	}
	var spoilt []lease.Key
	for _, u := range in.Unreadable {
		spoilt = append(spoilt, u.Key)
	}
	f.pages.broken = layout.Broken(f.pages.all, spoilt)
	before := f.placed.names
	if f.planned(plan.Revision, layout.Join(f.pages.all)); plan.Open { // some targets are of the revision before
		f.placed.names = append(f.placed.names, before...)
		slices.Sort(f.placed.names)
		f.placed.names = slices.Compact(f.placed.names)
	}
}

// planned takes the targets of a revision. A hint of a worker to itself is a question to the owner: see asks.
func (f *facts) planned(revision int64, targets []lease.Target) {
	f.placed = placed{revision: revision}
	for _, target := range targets {
		for _, a := range target.Hold {
			f.placed.names = append(f.placed.names, a.Shard)
		}
		for _, g := range target.Give {
			if of := f.find(g.Shard); of != nil && g.To == target.Incarnation {
				of.asked = true
			}
		}
	}
	slices.Sort(f.placed.names)
	f.placed.names = slices.Compact(f.placed.names)
}

// isPlaced reports whether the plan, as this worker last read it, places the shard.
func (f *facts) isPlaced(name string) bool {
	_, ok := slices.BinarySearch(f.placed.names, name)
	return ok
}

// inOrder is isPlaced for names that are asked about in their order, each once: it takes a fraction of the
// time of as many searches. Each call begins at the first name.
func (f *facts) inOrder() func(name string) bool {
	rest := f.placed.names
	return func(name string) bool {
		for len(rest) > 0 && rest[0] < name {
			rest = rest[1:]
		}
		return len(rest) > 0 && rest[0] == name
	}
}

// ready reports whether every parent is finished. A parent that nobody knows and that no complete
// listing has counts as finished. If this is wrong, shards.ready still keeps the shard from being claimed: it reads the
// rows of the parents.
func (f *facts) ready(parents []string, source *feed) bool {
	return !slices.ContainsFunc(parents, func(name string) bool {
		of := f.find(name)
		switch {
		case of != nil && (of.finished || of.out):
			return false
		case of != nil && of.gone > 0: // if it is listed again it is about to be revived
			return source.lists(name)
		case of != nil || f.isPlaced(name):
			return true
		}
		return source.lists(name) || source.complete == 0
	})
}

// fresh reports whether the rows are known as they were under this plan. Older knowledge does not show
// that the plan is wrong, unless the plan says that it lacks workers for shards.
func (f *facts) fresh(plan lease.Plan) bool { return f.under == plan.Revision || plan.Unplaced > 0 }

// added returns the shards that can be placed and that the plan lacks, as far as this worker
// knows: those that the source lists, and rows that were listed under this very plan: older ones
// may have finished since. unknown: there are others, which only a listing of the rows can tell
// from finished ones, or from those that have come back and have a holder already.
func (f *facts) added(source *feed, plan lease.Plan) (all []lease.Assigned, unknown bool) {
	placed := f.inOrder()
	for _, s := range source.shards {
		if !s.listed || placed(s.Name) {
			continue
		}
		of := f.find(s.Name)
		switch {
		case of != nil && of.gone == 0: // below
		case of != nil && s.asked < of.gone: // the listing may be older than the tombstone
		// No rows are known. The shard may be finished.
		case f.begun == 0:
			return nil, true
		case !f.ready(s.Parents, source):
		// The shard may be back, and held already: only rows that were listed after the tombstone was seen show it.
		case of != nil && f.begun <= of.gone:
			unknown = true
		// It has no row, or a tombstone: it is to be made or revived.
		default:
			all = append(all, lease.Assigned{Shard: s.Name, Parents: s.Parents})
		}
	}
	placed = f.inOrder()
	for _, of := range f.all {
		// A row that the plan lacks. If the rows are older than the plan, only what was learnt since counts.
		if (f.fresh(plan) || of.left || of.looked) && !of.over() && !placed(of.name) && (of.begun || f.ready(of.parents, source)) {
			all = append(all, lease.Assigned{Shard: of.name})
		}
	}
	return all, unknown
}

// unnamed reports whether a row that can be placed is none of the shards for which the plan has found no room. Their number alone
// does not show that: when a parent is back, its children cannot be placed any more. Only rows count that were read under this
// plan, and about which all workers agree, whatever their sources list: otherwise they would replace each other's plans.
func (f *facts) unnamed(added []lease.Assigned, plan lease.Plan) bool {
	examples := len(plan.Examples)
	return examples > 0 && slices.ContainsFunc(added, func(a lease.Assigned) bool {
		of := f.find(a.Shard)
		switch {
		case of == nil, of.gone > 0, of.left, !of.begun && len(of.parents) > 0:
			return false
		case f.under != plan.Revision && !of.looked, slices.Contains(plan.Examples, a.Shard):
			return false
		}
		return int64(examples) == plan.Unplaced || a.Shard < plan.Examples[examples-1] // these are the first ones by name
	})
}

// behind reports whether a child waits for a parent that may be finished without this worker knowing it: the plan does
// not place the parent, because another worker has finished it and planned before this worker read that news.
func (f *facts) behind(me lease.Incarnation, source *feed, plan lease.Plan) bool {
	if f.begun == 0 || f.fresh(plan) {
		return false
	}
	mayBeFinished := func(name string) bool {
		of, src := f.find(name), source.find(name)
		switch {
		case f.isPlaced(name):
			return false
		case of != nil:
			return of.gone == 0 && !of.over()
		}
		return src != nil && src.listed && plan.By.Incarnation != me && f.ready(src.Parents, source) // it would be placed
	}
	return slices.ContainsFunc(source.shards, func(s sourced) bool {
		return s.listed && !f.isPlaced(s.Name) && f.find(s.Name) == nil && slices.ContainsFunc(s.Parents, mayBeFinished)
	})
}
