package sim

import (
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A life changes a fleet that is at rest.
type life struct{ rest }

// all changes a fleet that is at rest: a worker joins, a worker leaves, a worker dies, and all stop. Each
// change has to take a bounded time and the least number of moves.
func (w life) all() {
	for _, chapter := range []func(){w.join, w.leave, w.die, w.end} {
		if !w.sound() {
			return
		}
		chapter()
	}
}

func (w life) join() {
	v, _ := w.view()
	planned, others := w.moves()
	misled := w.promises.misled()
	n := w.newcomer()
	n.boot()
	if !w.changed(misled, "join") {
		return
	}
	want := len(v.Shards) / (len(v.Workers) + 1)
	p, o := w.moves()
	if o != others && w.set.limit == 0 && !misled {
		w.blame("join: %d other changes than planned moves: %s", o-others, w.promises.last(p+o-planned-others))
	}
	w.moved(p-planned, want, misled, "join")
	w.lasts(w.set.rest)
}

func (w life) leave() {
	live := w.live()
	n := live[w.IntN(len(live))]
	held := len(n.Handlers)
	planned, others := w.moves()
	misled := w.promises.misled()
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
	w.lasts(w.set.rest)
}

// die ends a worker without a word. The others notice that after the lease time and up to one interval
// between their listings.
func (w life) die() {
	live := w.live()
	if len(live) < 2 {
		return
	}
	n := live[w.IntN(len(live))]
	misled := w.promises.misled()
	n.crash()
	from := w.Now()
	limit := (w.set.ttl+w.set.ttl/3)*1000/960 + 500*time.Millisecond
	if len(live) > lease.MaxWatchers {
		limit = w.set.ttl*1000/960 + 2500*time.Millisecond + time.Duration(len(n.Handlers))*w.net.slow*2
	}
	if w.set.attempts > 0 {
		limit = w.slowly() // the death may be one failed attempt too many
	}
	held := func() bool {
		w.operator.unquarantine()
		_, ok := w.view()
		return ok
	}
	if !w.until(limit, held) {
		w.restless("crash of %s: not all held again after %v", n.Name, limit)
		return
	}
	w.stats.Recovered = max(w.stats.Recovered, w.Now()-from)
	if w.changed(misled, "crash") {
		w.lasts(w.set.rest)
	}
}

// end stops all workers, and checks that nothing is left.
func (w life) end() {
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
	if seats := w.table.Seats(group); len(seats) > 0 {
		w.blame("end: seats are left: %v", seats)
	}
	for _, s := range w.streams.all {
		// A shard for which no worker had room stays in the name of its last owner.
		if row := w.promises.Row(s.name); !row.Owner.IsZero() && w.set.limit == 0 {
			w.blame("end: somebody holds %v", row)
		}
		if len(s.active) > 0 {
			w.blame("end: %v runs", s.active)
		}
	}
}

// chapter makes one random change to a fleet at rest, and keeps it between two and six workers.
func (w life) chapter() {
	chapters := []func(){w.deploy, w.growOrShrink}
	switch n := len(w.live()); {
	case n <= 2:
		chapters = append(chapters, w.join)
	case n >= 6:
		chapters = append(chapters, w.leave, w.die)
	default:
		chapters = append(chapters, w.join, w.leave, w.die)
	}
	pick(w.chance, chapters...)()
}

// deploy replaces every worker, one after another, by a worker with another strategy. The fleet has to come
// to rest each time.
func (w life) deploy() {
	w.set.handoff = w.set.strategy(w.chance)
	w.stats.Faults[Deploy]++
	for _, n := range w.live() {
		n.stop()
		w.run(time.Millisecond)
		if !w.until(w.set.drain+w.set.ttl, func() bool { return !n.Up() }) {
			w.restless("deploy: %s is still there", n.Name)
			return
		}
		n.boot()
		if !w.bounded(w.slowly(), "deploy") {
			return
		}
	}
	w.lasts(w.set.rest)
}

// growOrShrink splits or merges shards while nothing else is wrong.
func (w life) growOrShrink() {
	f := pick(w.chance, Split, Merge)
	if _, ok := reshard(&w.faults, f, nil); !ok {
		return
	}
	w.stats.Faults[f]++
	// The source is polled, shards that have ended are processed to their end, and one worker after
	// another learns of it.
	if w.until(3*w.set.poll+2*w.set.audit+w.set.backoff+w.slowly(), w.atRest) {
		w.lasts(w.set.rest)
		return
	}
	w.restless("%v: not at rest", f)
}
