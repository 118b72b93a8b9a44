package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// follow holds this worker's target, which are the shards that the plan assigns to it, and the pages of the next target
// while it is being read.
//
//	a revision is complete → page 0 read → further pages read → followed
//	                          ↑________________________↓ mixed
//
// Called by the spine: keep in each step, got with the answers to reads of targets, then shards.follow. A
// planner adopts its own target when its revision is complete, without a read.
//
// Nothing is written here. A worker that has no target holds what it holds, until another worker requests it: a target
// says where to look, and takes nothing away.
//
// Invariant: a target is read once for every revision that was seen complete. While a revision
// is open, an old target may mean "unchanged" or "not written yet".
// Invariant: pages of different revisions are not acted on. They are read again with growing pauses.
// If they stay as they are, the worker has no target.
// Invariant: a target that cannot be read is read again with the next plan, like all others. The worker
// that made the last one looks for the end of the fault (see watch.mended), and then makes another.

// mostMixed is how often pages that are no whole target are read before they count as none.
const mostMixed = 8

// A follow is the target that this worker follows. It stays while the next revision is open, however long that takes.
type follow struct {
	revision int64        // the complete revision for which the target was read
	target   lease.Target // all pages as one
	missing  int64        // the revision at which there was no target of this worker; 0: there was one
	broken   []Unreadable // the page of it that cannot be read
	reading  reading
}

// A reading is the target that is being read, page by page. If another revision is complete meanwhile, it begins again
// at page 0.
type reading struct {
	revision int64 // the complete revision for which it is read
	pages    []lease.Target
	mixed    int64 // how often they were no whole target
	read     serial
	try      retry
}

// keep reads the target when a revision is complete that was not followed yet. If such reads fail, it reports that the
// targets are to be listed.
func (f *follow) keep(t *turn, me lease.Incarnation, plan lease.Plan) (list bool) {
	r := &f.reading
	// A plan that was deleted has revision 0: the worker keeps its target.
	if plan.Revision <= f.revision || plan.Open || !r.try.due(t) {
		return false
	}
	if r.revision != plan.Revision {
		*r = reading{revision: plan.Revision}
	}
	r.try.sent = true
	r.read = t.get(lease.Target{Group: t.cfg.Group, Incarnation: me, Page: int64(len(r.pages))}.Key())
	return r.try.tries >= manyTries
}

// listed uses a listing of the targets, which began after the plan was complete, in place of reads that fail. It
// reports whether there is a target to follow that was not followed before.
func (f *follow) listed(me lease.Incarnation, all *pages, plan lease.Plan) (adopted bool) {
	r := &f.reading
	if r.try.tries < manyTries || plan.Open || r.revision != plan.Revision || slices.Contains(all.broken, me) {
		return false
	}
	var mine []lease.Target
	for _, page := range all.all {
		if page.Incarnation == me {
			mine = append(mine, page)
		}
	}
	if len(mine) == 0 {
		return f.adopt(r.revision, lease.Target{}, r.revision)
	}
	whole, ok := lease.JoinPages(mine)
	return ok && f.adopt(r.revision, whole, 0)
}

// awaits reports whether this answers the read that is under way.
func (f *follow) awaits(in Got) bool { return f.reading.try.sent && serial(in.Read) == f.reading.read }

// got takes the answer to the read of one page, and reports whether there is a target to follow
// that was not followed before.
func (f *follow) got(t *turn, in Got) (adopted bool) {
	r := &f.reading
	if !f.awaits(in) {
		return false
	}
	if in.Err != nil && !malformed(in.Err) {
		t.failedNow("", in.Err)
		r.try.failed(t.now.Mono, t.beat/16, t.beat/2)
		return false
	}
	r.try = retry{}
	t.answeredNow()
	page, ok := in.Record.(lease.Target)
	switch {
	case malformed(in.Err):
		return f.spoil(Unreadable{Key: in.Key, Err: in.Err})
	// The plan was made without this worker. Its seat says that it misses its target, so that another plan is due.
	case !ok && len(r.pages) == 0:
		return f.adopt(r.revision, lease.Target{}, r.revision)
	case ok:
		r.pages = append(r.pages, page)
	}
	if ok && int64(len(r.pages)) < page.Pages {
		return false // keep reads the next page
	}
	// If a page after the first one is missing, the pages are no whole target either.
	whole, ok := lease.JoinPages(r.pages)
	if !ok {
		return f.mix(t)
	}
	return f.adopt(r.revision, whole, 0)
}

// mix reads pages again that are no whole target: a planner is writing them, or has died over it. If
// they stay as they are, there is no target until a plan writes it again.
func (f *follow) mix(t *turn) bool {
	r := &f.reading
	*r = reading{revision: r.revision, mixed: r.mixed + 1}
	if r.mixed >= mostMixed {
		return f.adopt(r.revision, lease.Target{}, r.revision)
	}
	r.try.at = t.now.Mono.Add(backoff(r.mixed, paceWaiting, t.beat))
	return false
}

// spoil notes that the target cannot be read. The worker reports once that it misses the target. Then the plan gives to
// others the shards that only this target names. No planner can write over a record that cannot be read.
func (f *follow) spoil(page Unreadable) bool {
	missing := f.reading.revision
	if len(f.broken) > 0 {
		missing = 0
	}
	f.adopt(f.reading.revision, lease.Target{}, missing)
	f.broken = []Unreadable{page}
	return true
}

// adopt follows a target from now on. missing is the revision if there is none for this worker, otherwise 0.
func (f *follow) adopt(revision int64, target lease.Target, missing int64) bool {
	*f = follow{revision: revision, target: target, missing: missing}
	return true
}

// settles reports whether this worker holds what its target of that revision says, and nothing else. The seat publishes
// it, for people and probes that wait until a fleet has settled.
func (f *follow) settles(revision int64, all []*shard) bool {
	return f.revision > 0 && f.revision == revision && f.missing == 0 && len(f.broken) == 0 &&
		!slices.ContainsFunc(all, func(s *shard) bool { return s.aim.mine != (s.t != nil) })
}

// successor returns the worker to which the plan gives a shard of this worker; empty: it does not
// say.
func (f *follow) successor(name string) lease.Incarnation {
	if give := find(f.target.Give, name, func(g *lease.Give) string { return g.Shard }); give != nil {
		return give.To
	}
	return ""
}

// follow sets what this worker, me, wants with each shard, as its target says. It reports whether the planner asks if the
// source still lists a held shard. A held shard that the target lacks goes on: its owner waits for a request. lacked
// reports whether a recent listing has shown that a shard has no row.
func (l *shards) follow(
	t *turn, me lease.Incarnation, target *lease.Target, lacked func(name string) bool, source *feed,
) (doubted bool) {
	hold, at := target.Hold, 0
	l.knowAll(hold, t.cfg.Group, me)
	for _, s := range l.all { // both are sorted
		mine := at < len(hold) && hold[at].Shard == s.name
		moves := mine && s.t == nil && (!s.aim.mine || s.aim.why != 0) // otherwise it has moved for a cause that the plan repeats
		s.aim.sure, s.aim.mine, s.aim.given, s.aim.others = s.aim.sure && s.aim.mine == mine, mine, s.aim.given && !mine, false
		if !s.aim.given {
			s.aim.why = 0
		}
		if moves {
			s.aim.why = target.CauseOf(s.name).Why
		}
		if !mine {
			continue
		}
		if !s.aim.sure {
			s.row.failed = t.step // for this aim, only a listing that begins from now on replaces reads that fail
		}
		if lacked(s.name) {
			s.row.known = true
		}
		s.parents = hold[at].Parents
		if src := source.find(s.name); src != nil {
			if s.weight = src.Weight; len(s.parents) == 0 {
				s.parents = src.Parents
			}
		}
		at++
	}
	for _, give := range target.Give {
		switch s := l.find(give.Shard); {
		case s == nil:
		case give.To == me: // an audit has found no owner of its row, or the planner's source lacks the shard
			s.get(t)
			doubted = doubted || s.t != nil
		default:
			s.aim.given, s.aim.why = true, target.CauseOf(give.Shard).Why
		}
	}
	return doubted
}
