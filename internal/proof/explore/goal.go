package explore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The goal that every fleet reaches unless more goes wrong.
//
// From each state that is visited, the fleet goes on without faults: calls are answered, time
// passes, handlers return when they are asked to, and paused workers wake up. It has to reach its
// goal, and to stay there. So no state is a trap, and no cycle without the goal can go on forever
// in the order that is tried. There are two such orders: the oldest call first, and the newest.

const (
	patience = 2 * time.Minute // the fleet has to reach its goal in so long, unless its story has another bound
	stays    = 7 * time.Second // and to stay there for so long: more than two heartbeats
)

// Goals are the states, as hashes, from which the goal is known to be reached, with how long that takes; one map for each
// order of the calls.
type goals [2]map[uint64]time.Duration

func newGoals() goals { return goals{{}, {}} }

// reach reports an error unless the fleet reaches its goal from the state, which it leaves as it
// is.
func (g goals) reach(from *state) error {
	for newest, known := range g {
		w := from.clone()
		if err := w.calmDown(newest == 1, known); err != nil {
			return fmt.Errorf("without further faults, newest call first: %t: %w\n%v", newest == 1, err, w)
		}
	}
	return nil
}

// calmDown lets the fleet go on until its goal is reached, and notes the states on the way.
func (w *state) calmDown(newest bool, known map[uint64]time.Duration) error {
	w.left, w.until = Story{}, engine.Never
	for i := range w.nodes {
		if w.nodes[i].paused {
			w.nodes[i].resume()
		}
	}
	way := map[uint64]engine.Instant{} // when the fleet came to each state
	since, reached, end := engine.Never, engine.Never, w.now.Add(cmp.Or(w.story.Within, patience))
	var as aims
	for w.fault == nil {
		if w.next(newest) {
			continue
		}
		h := w.calmHash()
		if rest, ok := known[h]; ok {
			reached = w.now.Add(rest)
			break
		}
		way[h] = w.now
		now, missing := aim{w}.all()
		switch {
		case missing == nil && since != engine.Never && now == as && w.now >= since.Add(stays):
			reached = since
		case missing != nil:
			since = engine.Never
		case now != as || since == engine.Never:
			since, as = w.now, now
		}
		if reached < engine.Never {
			break
		}
		if w.now > end && since > end {
			return errors.Join(fmt.Errorf("not at rest by %v", time.Duration(end)), missing)
		}
		w.pass()
	}
	if w.fault == nil && reached > end {
		return fmt.Errorf("at rest at %v, and not by %v", time.Duration(reached), time.Duration(end))
	}
	for h, at := range way {
		known[h] = max(reached.Sub(at), 0)
	}
	return w.fault
}

// next lets happen what takes no time, and reports whether there was something.
func (w *state) next(newest bool) bool {
	for i := range w.nodes {
		for t, h := range w.nodes[i].Handlers {
			if (h.Soft || h.Over) && !w.nodes[i].dead {
				w.nodes[i].ret(t, false)
				return true
			}
		}
	}
	if w.story.Sessions != nil && w.nextOfSessions() || w.nextWire() {
		return true
	}
	if len(w.calls) == 0 {
		return false
	}
	at := 0
	if newest {
		at = len(w.calls) - 1
	}
	if w.calls[at].answered {
		w.overdue(at)
	} else {
		w.complete(at)
	}
	return true
}

// calmHash tells states apart from which nothing more goes wrong.
func (w *state) calmHash() uint64 {
	c := *w
	c.now = 0
	return c.hash()
}

// Aims are what does not change in a fleet at rest.
type aims struct {
	revision    int64
	generations int64 // the sum
}

// An aim is a state that has to reach its goal.
type aim struct{ *state }

// lack returns an error that says what is missing. Most are never read, so the text is only made for a reader.
func lack(format string, args ...any) error { return lacking{format, args} }

type lacking struct {
	format string
	args   []any
}

func (l lacking) Error() string { return fmt.Sprintf(l.format, l.args...) }

// all returns what must not change any more, and an error that says what is missing.
func (w aim) all() (now aims, missing error) {
	if !w.lives() {
		return aims{}, nil
	}
	if w.story.Sessions != nil {
		return w.callersServed()
	}
	var plan lease.Plan
	rows := map[string]lease.Row{}
	targets := map[string]lease.Incarnation{}
	seats := map[lease.Incarnation]bool{}
	for _, r := range w.stands {
		switch r := r.(type) {
		case lease.Plan:
			plan = r
		case lease.Row:
			rows[r.Shard], now.generations = r, now.generations+r.Generation%(1<<20)
		case lease.Target:
			if !seats[r.Incarnation] { // a late write: the next planner deletes it
				continue
			}
			for _, a := range r.Hold {
				targets[a.Shard] = r.Incarnation
			}
		case lease.Seat:
			seats[r.Incarnation] = true
		}
	}
	now.revision = plan.Revision
	missing = w.obeys(rows)
	if w.waits() {
		return now, errors.Join(missing, w.keeps(rows))
	}
	for shard := range w.listed() {
		missing = errors.Join(missing, w.serves(shard, rows[shard]))
		to, assigned := targets[shard] // without one, a target was deleted by hand: the next planner finds out
		if to != rows[shard].Owner.Incarnation && (assigned || w.story.Deletes == 0) {
			missing = errors.Join(missing, lack("%s is held by %v and assigned to %v", shard, rows[shard].Owner, to))
		}
	}
	if plan.Revision == 0 || plan.Open {
		missing = errors.Join(missing, lack("the plan is open or missing: %v", plan))
	}
	return now, missing
}

// obeys reports an error unless the drains and the pins that can be obeyed are obeyed.
func (w aim) obeys(rows map[string]lease.Row) (missing error) {
	wished := func(kind lease.WishKind, subject string) bool {
		return slices.ContainsFunc(operator(w).wished(), func(of lease.Wish) bool { return of.Kind == kind && of.Subject == subject })
	}
	open := func(name string) bool {
		at := slices.IndexFunc(w.nodes, func(n node) bool { return n.name() == name })
		return w.nodes[at].up() && !wished(lease.WishDrain, name) && !wished(lease.WishCordon, name)
	}
	if wished(lease.WishPause, "") {
		return nil
	}
	anyOpen := slices.ContainsFunc(w.nodes, func(n node) bool { return open(n.name()) })
	for _, of := range operator(w).wished() {
		disobeyed := func(string, lease.Row) bool { return false }
		switch of.Kind {
		case lease.WishDrain:
			disobeyed = func(_ string, row lease.Row) bool { return anyOpen && row.Owner.Name == of.Subject }
		case lease.WishPin:
			disobeyed = func(shard string, row lease.Row) bool {
				return shard == of.Subject && open(of.To) && row.Owner.Name != of.To
			}
		case lease.WishMove: // the wish ends when the move is done
			disobeyed = func(shard string, row lease.Row) bool {
				return shard == of.Subject && (open(of.To) || row.Owner.Name == of.To && row.Generation > of.Generation)
			}
		case lease.WishRaise: // the wish ends when all fences are raised again
			missing = errors.Join(missing, lack("it still stands: %v", of))
		case lease.WishCordon: // a cordoned worker may hold any shards
		default:
			missing = errors.Join(missing, lack("obeys does not know what is demanded by %v", of))
		}
		for shard, row := range rows {
			if disobeyed(shard, row) {
				missing = errors.Join(missing, lack("%s is held by %v: %v", shard, row.Owner, of))
			}
		}
	}
	return missing
}

// serves reports an error unless a living worker serves the shard.
func (w aim) serves(shard string, row lease.Row) error {
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.up() || n.paused || n.name() != row.Owner.Name {
			continue
		}
		if h := n.Handlers.Of(engine.Tenure{Shard: shard, Generation: row.Generation}); h != nil && !h.Soft && !h.Over {
			if at := w.fences[shard]; w.story.Targets && at != row.Generation {
				return lack("the fence of the sink for %s is %d: %v", shard, at, row)
			}
			return nil
		}
	}
	return lack("no living worker serves %s: %v", shard, row)
}

// waits reports whether shards of workers that have ended may wait, because reads of all others are denied.
func (w aim) waits() bool {
	return w.story.Waits && !slices.ContainsFunc(w.nodes, func(n node) bool { return n.up() && !n.denied() })
}

// keeps reports an error unless the workers that are left serve what they hold.
func (w aim) keeps(rows map[string]lease.Row) (missing error) {
	for shard, row := range rows {
		if !row.Owner.IsZero() && w.nodes[row.Owner.Name[0]-'a'].up() {
			missing = errors.Join(missing, w.serves(shard, row))
		}
	}
	return missing
}

// listed returns the names of the shards that the source of some living worker lists.
func (w aim) listed() map[string]bool {
	all := map[string]bool{}
	for i := range w.nodes {
		if w.nodes[i].up() {
			for _, s := range w.source(i) {
				all[s.Name] = true
			}
		}
	}
	return all
}

// up reports whether a node runs and is meant to go on.
func (n *node) up() bool { return n.Engine != nil && !n.dead && !n.stopped }

func (w aim) lives() bool {
	for i := range w.nodes {
		if w.nodes[i].up() {
			return true
		}
	}
	return false
}

// callersServed returns the aims of a story of sessions. It returns an error if a caller still waits for a lease that
// is not quarantined, or if the row and what a living session holds differ.
func (w aim) callersServed() (now aims, missing error) {
	row := w.row(wantedLease)
	now.generations = row.Generation
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.up() {
			continue
		}
		if n.waits > 0 && !row.Quarantined { // otherwise it waits for an operator
			missing = errors.Join(missing, lack("the caller of %s still waits; the row is %v", n.name(), row))
		}
		if row.Owner.Name == n.name() {
			missing = errors.Join(missing, w.serves(wantedLease, row))
		}
		for _, h := range n.Handlers {
			if h.Generation != row.Generation {
				missing = errors.Join(missing, lack("%s holds %v, and has not noticed that it is over; the row is %v", n.name(), h.Tenure, row))
			}
		}
	}
	return now, missing
}
