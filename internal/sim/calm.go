package sim

import (
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// calmLife is what happens to a fleet in calm weather: one joins, one leaves, one
// dies, and all stop. Each takes a bounded time and the least number of moves.
func (w *world) calmLife() {
	for _, chapter := range []func(){w.join, w.leave, w.die, w.end} {
		if len(w.faults) > 0 {
			return
		}
		chapter()
	}
}

// moves is how many shards were moved as planned, and how many otherwise.
func (w *world) moves() (planned, others int) {
	planned = w.stats.Hands[lease.ReasonHandoff]
	return planned, w.hands() - planned
}

// bounded holds that the fleet comes to rest in time.
func (w *world) bounded(limit time.Duration, what string) bool {
	if !w.until(limit, w.atRest) {
		w.restless("%s: not at rest after %v", what, limit)
		return false
	}
	w.trace("at rest", "", nil)
	return true
}

// changed holds that the fleet comes to rest after a change. If the plan for the change is the first that is made from what
// the adversary has written, it may move shards although all is even already (seed 100366).
func (w *world) changed(misled bool, what string) bool {
	ok := w.bounded(w.slowly(), what)
	if ok && misled {
		w.run(w.slowly())
		ok = w.bounded(w.slowly(), what)
	}
	return ok
}

// slowly is how long moves may take that budgets, cooldowns and preparations delay.
func (w *world) slowly() time.Duration {
	s := &w.set
	each := s.ttl/3 + s.wind + s.prepare + time.Second
	return s.ttl + s.cooldown + 5*time.Second + time.Duration(len(w.streams))*each + 3*s.pace + w.backlog()
}

// moved holds that a change took the fewest moves, unless the plan for it was the first after the adversary's advice.
func (w *world) moved(moves, enough int, misled bool, what string) {
	if w.set.limit == 0 && !misled && moves != enough {
		w.fault("%s: %d moves; %d are enough: %s", what, moves, enough, w.judge.last(moves))
	}
}

func (w *world) join() {
	v, _ := w.view()
	planned, others := w.moves()
	misled := w.judge.misled()
	n := w.newcomer()
	n.boot(w.config())
	if !w.changed(misled, "join") {
		return
	}
	want := len(v.Shards) / (len(v.Workers) + 1)
	p, o := w.moves()
	if o != others && w.set.limit == 0 && !misled {
		w.fault("join: %d other changes than planned moves: %s", o-others, w.judge.last(p+o-planned-others))
	}
	w.moved(p-planned, want, misled, "join")
	w.restFor(w.set.rest)
}

// newcomer is a node that is out, or one more.
func (w *world) newcomer() *node {
	for _, n := range w.nodes {
		if !n.Up() {
			return n
		}
	}
	if w.set.seasonal {
		return w.addNode(string(rune('a' + len(w.nodes))))
	}
	return w.addNode("new")
}

func (w *world) leave() {
	live := w.live()
	n := live[w.chance.IntN(len(live))]
	held := len(n.Handlers)
	planned, others := w.moves()
	misled := w.judge.misled()
	n.stop()
	w.run(time.Millisecond)
	if !w.until(w.set.drain+w.set.ttl, func() bool { return !n.Up() }) {
		w.restless("leave: %s is still there", n.Name)
		return
	}
	if !w.changed(misled, "leave") {
		return
	}
	p, o := w.moves()
	w.moved(p-planned+(o-others)/2, held, misled, "leave")
	w.restFor(w.set.rest)
}

// die: a crash is noticed after the lease time, and a look.
func (w *world) die() {
	live := w.live()
	if len(live) < 2 {
		return
	}
	n := live[w.chance.IntN(len(live))]
	misled := w.judge.misled()
	n.crash()
	from := w.Now()
	limit := (w.set.ttl+w.set.ttl/3)*1000/960 + 500*time.Millisecond
	if len(live) > lease.MaxWatchers {
		limit = w.set.ttl*1000/960 + 2500*time.Millisecond + time.Duration(len(n.Handlers))*w.net.slow*2
	}
	if w.set.attempts > 0 {
		limit = w.slowly() // it may count as one failure too many
	}
	held := func() bool {
		w.pardon()
		_, ok := w.view()
		return ok
	}
	if !w.until(limit, held) {
		w.restless("crash of %s: not all held again after %v", n.Name, limit)
		return
	}
	w.stats.Recovered = max(w.stats.Recovered, w.Now()-from)
	if w.changed(misled, "crash") {
		w.restFor(w.set.rest)
	}
}

// end: all stop, and nothing is left.
func (w *world) end() {
	for _, n := range w.live() {
		n.stop()
	}
	w.run(time.Millisecond)
	gone := func() bool {
		for _, n := range w.nodes {
			if n.Up() {
				return false
			}
		}
		return true
	}
	if !w.until(w.set.drain+w.set.ttl, gone) {
		w.restless("end: somebody is still there")
		return
	}
	if seats := w.seats(); len(seats) > 0 {
		w.fault("end: seats are left: %v", seats)
	}
	for _, s := range w.streams {
		// What nobody had room for stays in the name of its last owner.
		if row := w.judge.row(s.name); !row.Owner.IsZero() && w.set.limit == 0 {
			w.fault("end: somebody holds %v", row)
		}
		if len(s.active) > 0 {
			w.fault("end: %v runs", s.active)
		}
	}
}
