package core

import (
	"cmp"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// What this worker knows of all shards, for plans: the lease rows, and the names in the targets.
//
// Called by the spine: saw with each complete listing of the rows, finish and bury with the news of
// this worker and of others.
//
// Invariant: what is known of a row may be out of date. It decides when to plan. A plan itself
// rests on targets and rows that were read for it.

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

// Placed are the names in the targets of a revision.
type placed struct {
	revision int64
	names    []string // sorted
}

// has reports whether the plan, as this worker last read it, places the shard.
func (p *placed) has(name string) bool {
	_, ok := slices.BinarySearch(p.names, name)
	return ok
}
