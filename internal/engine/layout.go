package engine

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The target assignment as it is computed: pure functions of a [stage].
//
//	survey → place → settle → assign
//
// Called by draft.gather when everything is read that a plan is made from. seatOf serves watch.go too.
//
//	survey  finds the shards, and the workers to which they are assigned
//	place   asks the planner of the user where they should be (ask.go), with the pins of operators; keeps held shards
//	        where they are while nothing may move
//	settle  corrects what breaks a rule, and finds a worker for what has none
//	assign  makes the targets, with hints to the workers that are to give shards away
//
// The planner may be any code of the user. If its plan breaks a rule, settle overrides it for single shards, by the
// rule of rebalance.Even and without asking the planner. Nothing is written here.
//
// Invariant: what has no living owner is placed whenever a worker has room, whatever pauses and
// cordons there are.
// Invariant: a shard that its worker declines goes to another worker that can have it, whatever
// the planner decides.
// Invariant: no worker is assigned more shards than its limit, except those that it has already.

// mostExamples is how many shards without a worker the plan names.
const mostExamples = 10

// A stage is all that a plan is made from. gather fills it, and the layout only reads it.
type stage struct {
	plan    lease.Plan
	spoilt  bool // it cannot be read
	stored  lease.Wishes
	wishes  []lease.Wish // those of them that stand
	me      lease.Seat
	seats   []lease.Seat // the confirmed seats, sorted by incarnation, with this worker's own
	begun   order        // the step in which the listing was sent that shows them
	still   bool         // the seats stand still: held shards may move
	facts   *facts
	feed    *feed
	bars    func(shard string) bool          // the source of this worker no longer lists it
	targets []lease.Target                   // all pages as one, sorted by incarnation
	torn    []lease.Incarnation              // the pages of these workers are no whole target
	rows    bool                             // the owners are those of the rows, not of the targets
	blind   bool                             // the rows cannot be listed at present
	strays  []string                         // sorted; their workers have to read the rows again, and owners to ask their sources
	acting  bool                             // this worker has taken over, because no watcher lives
	late    func(inc lease.Incarnation) bool // its seat has missed a heartbeat
	planner *planner
}

// A layout is where every shard is and should be.
type layout struct {
	stage
	view   rebalance.View   // the owners are the workers to which the shards are assigned
	shards []lease.Assigned // as in the view
	to     []int            // by shard
	loads  []int            // by worker: how many shards it should have
	anyFit bool             // a worker is neither leaving nor cordoned nor unwell
	stuck  bool             // anyFit is false and some workers are drained: they keep what they have
	held   bool             // held shards that should move stay for now

	outdated bool // the planner was shown other workers, shards or wishes
}

// standing returns the wishes that have not ended.
func standing(list []lease.Wish, now time.Time) []lease.Wish {
	return slices.DeleteFunc(slices.Clone(list), func(w lease.Wish) bool { return !w.Stands(now) })
}

// wants reports whether an operator wants this of the worker or shard.
func (in *stage) wants(kind lease.WishKind, subject string) bool {
	_, ok := slices.BinarySearchFunc(in.wishes, lease.Wish{Kind: kind, Subject: subject}, lease.Wish.Compare)
	return ok
}

// says reports whether a worker, by its place among the seats, publishes this about the shard. Nobody (-1) says nothing.
func (in *stage) says(at int, shard string, kinds ...lease.NewsKind) bool {
	return at >= 0 && slices.ContainsFunc(in.seats[at].News, func(n lease.News) bool {
		return n.Shard == shard && slices.Contains(kinds, n.Kind)
	})
}

// over reports whether an assigned shard needs no worker any more. If the rows were read for this plan,
// they decide. Otherwise the news of its worker decides: older knowledge of the row may be out of date,
// because another planner may have assigned a shard that is back. If a command has brought the shard back
// since the listing, the news does not count: the worker may not know of the command yet. A shard that was given up as
// unlisted, and that every worker declines, is over: each reports it only once, and then perhaps to a planner that
// has already assigned it again.
func (in *stage) over(shard string, at int, torn bool) bool {
	of := in.facts.find(shard)
	if in.rows {
		if of != nil {
			return of.over()
		}
		return torn && in.feed.lacks(shard)
	}
	if of != nil && of.out && in.declined(shard) {
		return true
	}
	back := of != nil && of.looked && !of.over()
	return !back && in.says(at, shard, lease.NewsFinished, newsRemoved, newsUnlisted)
}

// declines reports whether a worker cannot have the shard: it says so, or it is this worker and knows it.
func (in *stage) declines(at int, shard string) bool {
	return in.says(at, shard, lease.NewsDeclined) || at >= 0 && in.seats[at].Incarnation == in.me.Incarnation && in.bars(shard)
}

// declined reports whether no worker can have the shard at present.
func (in *stage) declined(shard string) bool {
	for at := range in.seats {
		if !in.declines(at, shard) {
			return false
		}
	}
	return true
}

// seatOf returns the place of a worker among the seats, or Nobody.
func seatOf(seats []lease.Seat, inc lease.Incarnation) int {
	if i, ok := place(seats, inc, incarnation); ok {
		return i
	}
	return rebalance.Nobody
}

func incarnation(s *lease.Seat) lease.Incarnation { return s.Incarnation }

// An entry is one place where a shard was found: a target, a row, or only the source. A shard may be in two targets, if
// a planner died between its writes.
type entry struct {
	lease.Assigned
	owner int
	rank  int64 // of the entries of one shard the one of the highest rank counts
}

// survey finds the shards that need a worker, and the workers to which they are assigned. A shard
// that its worker declines goes back to the worker that was to give it, or is free. It reports false if the targets lack
// shards, and the rows have to be read for this plan.
func (l *layout) survey() (whole bool) {
	all, known := l.entries()
	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.Shard, b.Shard), cmp.Compare(b.rank, a.rank))
	})
	for i, e := range all {
		// The first entry of a shard has the highest rank.
		if i > 0 && all[i-1].Shard == e.Shard {
			continue
		}
		if e.rank >= 0 {
			known++
		}
		// A shard whose parents are not finished is left out. One that another planner has assigned meanwhile stays, unless
		// a parent is placed itself.
		trusted := e.rank >= 0 && !l.facts.fresh(l.plan) // another planner has assigned it, and knew more
		if ready := l.child(&e.Assigned); !ready && (!trusted || slices.ContainsFunc(e.Parents, l.facts.isPlaced)) {
			continue // it comes back when its parents are finished
		}
		if l.declines(e.owner, e.Shard) {
			e.owner = l.giver(e.owner, e.Shard)
		}
		l.shards = append(l.shards, e.Assigned)
		l.view.Shards = append(l.view.Shards, rebalance.Place{
			Name: e.Shard, Weight: l.feed.weight(e.Shard), Owner: e.owner, Tie: rebalance.Tie(e.Shard),
		})
	}
	// Fewer than the plan has placed: a target was deleted, or cannot be read.
	return l.rows || int64(known) >= l.plan.Shards-l.plan.Unplaced
}

// giver returns the worker that was to give this shard to the one that declines it, if it is well and
// has room for all that it was to give; otherwise Nobody.
func (l *layout) giver(declining int, shard string) int {
	give := lease.Give{Shard: shard, To: l.seats[declining].Incarnation}
	for _, target := range l.targets {
		at := seatOf(l.seats, target.Incarnation)
		if at < 0 || !slices.Contains(target.Give, give) {
			continue
		}
		most := l.seats[at].MaxShards
		room := most <= 0 || int64(len(target.Hold)+len(target.Give)) <= most
		if room && fit(l.seats[at]) && !l.declines(at, shard) {
			return at
		}
	}
	return rebalance.Nobody
}

// child notes the parents of a shard that has no row yet, and reports whether they are finished, as
// far as this worker can tell. The source has the say about parents.
func (l *layout) child(a *lease.Assigned) (ready bool) {
	of, src := l.facts.find(a.Shard), l.feed.find(a.Shard)
	switch {
	case of != nil && of.begun && of.gone == 0:
		a.Parents = nil
	case src != nil && src.listed:
		a.Parents = src.Parents
	}
	return l.facts.begun == 0 || l.feed.complete == 0 || l.facts.ready(a.Parents, l.feed)
}

// entries returns where shards were found, and how many assigned ones need no worker any more. Their ranks:
//
//	a row with a living owner            above all: the row says who holds it
//	a target                             its revision: of two targets the later one counts
//	a row without a living owner         0
//	the source, or a row that is back    -1: counts only if nothing else has the shard
func (l *layout) entries() (all []entry, over int) {
	for _, target := range l.targets {
		at, torn := seatOf(l.seats, target.Incarnation), slices.Contains(l.torn, target.Incarnation)
		for _, a := range target.Hold {
			if l.over(a.Shard, at, torn) {
				over++
			} else {
				all = append(all, entry{a, at, target.Revision})
			}
		}
	}
	owner := func(of *fact) int {
		if of == nil || of.gone > 0 {
			return rebalance.Nobody
		}
		return seatOf(l.seats, of.owner)
	}
	for i := range l.facts.all {
		// Rows count only if they were read for this plan.
		if of := &l.facts.all[i]; l.rows && !of.over() && (of.begun || l.facts.ready(of.parents, l.feed)) {
			rank := int64(0)
			if owner(of) != rebalance.Nobody {
				rank = math.MaxInt64
			}
			all = append(all, entry{lease.Assigned{Shard: of.name}, owner(of), rank})
		}
	}
	added, _ := l.facts.added(l.feed, l.plan)
	for _, a := range added {
		all = append(all, entry{a, owner(l.facts.find(a.Shard)), -1})
	}
	return all, over
}

// place decides where every shard should be. Held shards stay where they are while the seats
// do not stand still, and while an operator pauses moves. They stay by pins: the planner plans again with these, and so
// does not fill the places of shards that have not moved yet. It returns false if the planner has been asked and has to
// answer first.
func (l *layout) place(t *turn, d *draft) (placed bool) {
	l.staff()
	l.pin()
	if !l.ask(t, d, 0) {
		return false
	}
	if l.moves() {
		l.held = !l.still
		// A worker that leaves keeps nothing, unless nothing may move at all.
		all := l.held || l.wants(lease.WishPause, "") // also those of a worker that leaves
		if all || l.stuck {
			for i, s := range l.view.Shards {
				if s.Owner != rebalance.Nobody && (all || !l.seats[s.Owner].Leaving) {
					l.view.Pins[i] = s.Owner
				}
			}
			if !l.ask(t, d, 1) {
				return false
			}
		}
	}
	l.settle()
	return true
}

// moves reports whether a held shard moves.
func (l *layout) moves() bool {
	for i, s := range l.view.Shards {
		if s.Owner != rebalance.Nobody && l.to[i] != s.Owner {
			return true
		}
	}
	return false
}

// staff shows the planner the workers. An unwell worker that asks for a trial may have one shard.
func (l *layout) staff() {
	held := make([]int, len(l.seats))
	for _, s := range l.view.Shards {
		if s.Owner != rebalance.Nobody {
			held[s.Owner]++
		}
	}
	for i, s := range l.seats {
		if s.Incarnation == l.me.Incarnation {
			s.MaxShards = l.me.MaxShards // it knows that also where nobody can read its seat
		}
		mute := s.TTL == 0 || slices.Contains(l.facts.pages.broken, s.Incarnation) // it cannot say or learn more
		drained := l.wants(lease.WishDrain, s.Name)
		// The planner sees a drained worker as one that leaves.
		w := rebalance.Worker{
			Name: s.Name, Tie: rebalance.Tie(string(s.Incarnation)), Labels: map[string]string{"task": s.Task, "build": s.Build},
			Limit: int(s.MaxShards), Leaving: s.Leaving || drained, Cordoned: mute || l.wants(lease.WishCordon, s.Name), Unwell: s.Health.Unwell != "",
		}
		if w.Unwell && s.Health.Trial && held[i] == 0 {
			w.Limit, w.Unwell = 1, false
		}
		l.anyFit = l.anyFit || !w.Leaving && !w.Cordoned && !w.Unwell
		l.view.Workers = append(l.view.Workers, w)
	}
	// If no worker may get shards, drained workers keep what they have.
	for i := range l.view.Workers {
		if w := &l.view.Workers[i]; !l.anyFit && l.drained(i) {
			w.Leaving, w.Cordoned, l.stuck = false, true, true
		}
	}
}

// open reports whether the worker may get shards. Where only cordoned and unwell workers are
// left, they may.
func (l *layout) open(at int) bool {
	w := &l.view.Workers[at]
	return !w.Leaving && !(l.anyFit && (w.Cordoned || w.Unwell))
}

// pin shows the planner the pins that can be obeyed.
func (l *layout) pin() {
	l.view.Pins = map[int]int{}
	loads := make([]int, len(l.seats))
	for _, wish := range l.wishes {
		i, ok := place(l.shards, wish.Subject, func(a *lease.Assigned) string { return a.Shard })
		// A pin to a worker that is not there, or may not have the shard, is not obeyed; it stays for later plans.
		if !ok || wish.Kind != lease.WishPin {
			continue
		}
		for at, w := range l.view.Workers {
			can := w.Name == wish.To && !w.Leaving && (l.open(at) || l.view.Shards[i].Owner == at) && !l.declines(at, wish.Subject)
			if can && (w.Limit <= 0 || loads[at] < w.Limit) {
				l.view.Pins[i] = at
				loads[at]++
				break
			}
		}
	}
}

// settle keeps the rules that no planner may break. What stays is counted first, so that moves get only the room that is
// left.
func (l *layout) settle() {
	l.stay()
	l.move()
	l.correct()
	l.fill()
}

// stay applies the pins, leaves a shard that the planner gives to nobody with its owner, and counts what stays.
func (l *layout) stay() {
	l.loads = make([]int, len(l.seats))
	for i, s := range l.view.Shards {
		if at, pinned := l.view.Pins[i]; pinned {
			l.to[i] = at
		} else if l.to[i] == rebalance.Nobody {
			l.to[i] = s.Owner
		}
		if at := l.to[i]; at != rebalance.Nobody && at == s.Owner {
			l.loads[at]++
		}
	}
}

// move makes the moves that have room. A held shard for which there is no room stays where it is.
func (l *layout) move() {
	for i, s := range l.view.Shards {
		switch at := l.to[i]; {
		case at == s.Owner:
		case !l.full(at):
			l.loads[at]++
		default:
			if l.to[i] = s.Owner; s.Owner != rebalance.Nobody {
				l.loads[s.Owner]++
			}
		}
	}
}

// correct redirects moves to a worker that declines the shard, or that may get no shards.
func (l *layout) correct() {
	for i, at := range l.to {
		owner := l.view.Shards[i].Owner
		wrong := at != owner && (l.declines(at, l.shards[i].Shard) || at != rebalance.Nobody && !l.open(at))
		if _, pinned := l.view.Pins[i]; pinned || !wrong {
			continue
		}
		if to := l.another(i, l.open); to != rebalance.Nobody {
			l.loads[at]--
			l.loads[to]++
			l.to[i] = to
		}
	}
}

// fill finds a worker for each shard that has none: a drained one is better than none.
func (l *layout) fill() {
	for i, at := range l.to {
		switch {
		case at != rebalance.Nobody:
			continue
		case !l.room():
			return
		}
		to := l.another(i, l.open)
		if to == rebalance.Nobody {
			to = l.another(i, l.drained)
		}
		if to != rebalance.Nobody {
			l.loads[to]++
			l.to[i] = to
		}
	}
}

// room reports whether a worker that stays has room for a shard.
func (l *layout) room() bool {
	for at := range l.seats {
		if !l.seats[at].Leaving && !l.full(at) {
			return true
		}
	}
	return false
}

// drained reports whether the worker is drained by a wish and is not leaving itself. It still gets a shard
// without an owner if no other worker has room, so that no shard waits for the end of a wish.
func (l *layout) drained(at int) bool { return l.view.Workers[at].Leaving && !l.seats[at].Leaving }

// full reports whether the worker has as many shards as it may have.
func (l *layout) full(at int) bool {
	limit := l.view.Workers[at].Limit
	return limit > 0 && l.loads[at] >= limit
}

// another returns a different worker for a shard: of those that may have it, one that has the fewest shards. If
// several have as few, it is the one that rebalance.Even chooses for this shard alone: its owner, if that is one of them.
func (l *layout) another(i int, may func(at int) bool) int {
	least := math.MaxInt
	can := func(at int) bool { return may(at) && !l.full(at) && !l.declines(at, l.shards[i].Shard) }
	for at, load := range l.loads {
		if can(at) {
			least = min(least, load)
		}
	}
	v, seats := rebalance.View{Shards: slices.Clone(l.view.Shards[i : i+1])}, []int(nil)
	for at, load := range l.loads {
		if load <= least && can(at) {
			w := l.view.Workers[at]
			w.Leaving = false // may has allowed it already, although a wish drains it
			v.Workers, seats = append(v.Workers, w), append(seats, at)
		}
	}
	v.Shards[0].Owner = slices.Index(seats, l.view.Shards[i].Owner) // Nobody, if its owner is none of these
	if to := (rebalance.Even{}).Plan(v)[0]; to != rebalance.Nobody {
		return seats[to]
	}
	return rebalance.Nobody
}

// assign makes the targets of the revision, and what the plan says about them. Every confirmed seat gets a target, if
// only an empty one: a worker without a target would say that it misses it.
func (l *layout) assign(t *turn) (next []lease.Target, found lease.Finding) {
	for _, s := range l.seats {
		next = append(next, lease.Target{Group: t.cfg.Group, Incarnation: s.Incarnation, At: t.now.Wall})
	}
	// The finding is stored when the revision is completed.
	found = lease.Finding{Members: int64(len(staying(l.seats))), Shards: int64(len(l.to)), Watchers: l.watchers()}
	for i, to := range l.to {
		name, owner := l.shards[i].Shard, l.view.Shards[i].Owner
		_, pinned := l.view.Pins[i]
		if to == rebalance.Nobody || l.seats[to].Leaving && !pinned { // no other plan is due when it is gone
			if found.Unplaced++; len(found.Examples) < mostExamples {
				found.Examples = append(found.Examples, name)
			}
			continue
		}
		next[to].Hold = append(next[to].Hold, l.shards[i])
		if _, stray := slices.BinarySearch(l.strays, name); stray || l.facts.asks(name, l.feed) { // a hint to itself
			next[to].Give = append(next[to].Give, lease.Give{Shard: name, To: next[to].Incarnation})
		} else if owner != rebalance.Nobody && owner != to {
			next[owner].Give = append(next[owner].Give, lease.Give{Shard: name, To: l.seats[to].Incarnation})
		}
	}
	if !l.held && !l.outdated { // otherwise another plan is due: if held, when the seats stand still
		found.Inputs = inputs(l.madeFrom(next), hashed(l.stored), 0)
	}
	return next, found
}

// madeFrom returns the seats that count as inputs of the plan: those of workers that leave only if one of
// them keeps shards, because these are to be placed when its seat goes.
func (l *layout) madeFrom(next []lease.Target) []lease.Seat {
	for at, s := range l.seats {
		if s.Leaving && len(next[at].Hold) > 0 {
			return l.seats
		}
	}
	return staying(l.seats)
}

// watchers returns the workers that watch from now on: those that do and live, and others until
// there are enough. Their order is their rank; it stays as long as they live, so that the first of them stays the same.
func (l *layout) watchers() (now []lease.Incarnation) {
	add := func(s lease.Seat) {
		if len(now) < fewest && !s.Leaving && !l.late(s.Incarnation) && !slices.Contains(now, s.Incarnation) {
			now = append(now, s.Incarnation)
		}
	}
	if l.acting {
		add(l.me)
	}
	for _, inc := range l.plan.Watchers {
		if at := seatOf(l.seats, inc); at >= 0 {
			add(l.seats[at])
		}
	}
	for _, s := range l.seats {
		add(s)
	}
	return now
}
