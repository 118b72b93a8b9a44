package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A rest is a world whose fleet has to come to rest. Its methods see everything, not only what workers see.
type rest struct{ *world }

// settle ends all trouble, and checks that the fleet comes to rest: in bounded time every shard is processed,
// workers hold equally many, and then nothing moves.
func (w rest) settle() {
	w.quiet()
	w.run(w.net.timeout + time.Second) // what was on its way arrives
	from := w.Now()
	limit := w.patience()
	if w.stranded() {
		w.run(w.set.audit + 2*w.set.poll + w.slowly())
	}
	if !w.until(limit, w.atRest) {
		w.restless("not at rest %v after all trouble has ended", limit)
		return
	}
	w.stats.Converged = max(w.stats.Converged, w.Now()-from)
	w.run(time.Second)
	w.strict, w.calmSince = true, w.Now()
	w.lasts(2 * w.set.rest)
}

// stranded reports whether the source has dropped a stream whose row is unfinished in a restored table, or that a worker has begun
// again by a restored target. When the audit has found such a row, a worker claims it; each gives it up as unlisted, and other
// shards may move (seeds 1000125 and 1004303).
func (w rest) stranded() bool {
	return slices.ContainsFunc(w.streams.all, func(s *stream) bool {
		row := w.promises.Row(s.name)
		return s.dropped && (!row.Owner.IsZero() || row.Last.Reason == lease.ReasonAdopted)
	})
}

// patience returns how long a fleet may take to come to rest after trouble: leases and timeouts run out, shards that
// failed rest, handlers that ignore their contexts end, and all moves are made, one after another. An unwell worker
// tries again within five minutes. Until then it gets no share, and a shard waits if only that worker has room for it.
func (w rest) patience() time.Duration {
	s, unwell := &w.set, time.Duration(0)
	if slices.ContainsFunc(w.table.Seats(group), func(s lease.Seat) bool { return s.Health.Unwell != "" }) {
		unwell = 5 * time.Minute
	}
	moves := time.Duration(s.streams+len(w.streams.all)) * (s.ttl/3 + s.wind + time.Second)
	return unwell + 8*s.ttl + 4*s.drain + s.audit + 30*time.Second + moves + s.cooldown + s.maxBackoff + 2*s.poll + 3*s.pace + w.backlog()
}

// backlog returns how long handlers need at most for the rest of closed streams. They process records four times as
// fast as records come.
func (w rest) backlog() (d time.Duration) {
	for _, s := range w.streams.all {
		if s.closed && s.ended == 0 {
			d += time.Duration(s.total-position(w.promises.Row(s.name).Checkpoint.Position)) * s.every / 3
		}
	}
	return d
}

// lasts checks that nothing moves for d, and that the fleet makes few calls.
func (w rest) lasts(d time.Duration) {
	hands, calls, live, removed := w.hands(), w.calls(), len(w.live()), w.stats.Hands[lease.ReasonRemoved]
	w.run(d)
	if !w.sound() {
		return
	}
	if moved := w.hands() - hands; moved > 0 {
		w.blame("%d changes of hands in a fleet at rest: %s", moved, w.promises.last(moved))
	}
	beats := int(d/(w.set.ttl/3*9/10*960/1000)) + 1
	audits := int(d/(w.set.audit*9/10*960/1000)) + 2
	removed = w.stats.Hands[lease.ReasonRemoved] - removed // each is a write, and new listings for all
	most := live * (2*beats + 4*audits + 4*removed)
	if live > lease.MaxWatchers { // the first three watchers list every 500 ms, 1 s and 2 s
		most += int(4 * d / time.Second)
	}
	if n := w.calls() - calls; n > most {
		w.blame("%d calls of the table in %v by %d workers at rest; at most %d", n, d, live, most)
	}
}

// hands returns the number of changes of hands, without those of shards that have ended.
func (w rest) hands() int {
	return w.stats.Changes() - w.stats.Hands[lease.ReasonFinished] - w.stats.Hands[lease.ReasonRemoved]
}

func (w rest) calls() (n int) {
	for _, node := range w.nodes {
		n += node.calls
	}
	return n
}

// view returns which worker runs the handler of each shard. ok reports that each handler has the newest generation.
func (w rest) view() (v rebalance.View, ok bool) {
	live := w.live()
	for _, n := range live {
		v.Workers = append(v.Workers, rebalance.Worker{Name: n.Name, Tie: rebalance.Tie(string(n.me)), Limit: n.config.MaxShards})
		if !n.seated {
			return v, false
		}
	}
	for _, s := range w.streams.all {
		// After a restore a child may be under way whose parent is to be read again, or the source may have
		// dropped what is to be read again. A child that was begun is claimed whatever its parents are.
		if s.ended > 0 || !w.promises.ready(s) && len(s.active) == 0 && !begun(w.promises.Row(s.name)) || w.promises.unlisted(s) {
			continue
		}
		owner := rebalance.Nobody
		for _, h := range s.active {
			for i, n := range live {
				if h.n == n && !h.Over && w.promises.Row(s.name).Generation == h.Tenure.Generation {
					owner = i
				}
			}
		}
		if len(s.active) > 1 || len(s.active) == 1 && s.active[0].Soft || s.closed && owner != rebalance.Nobody {
			return v, false
		}
		v.Shards = append(v.Shards, rebalance.Place{Name: s.name, Owner: owner, Tie: rebalance.Tie(s.name)})
	}
	return v, w.full(v) || !slices.ContainsFunc(v.Shards, func(s rebalance.Place) bool { return s.Owner == rebalance.Nobody })
}

// begun reports whether somebody has held the shard since its row was made.
func begun(row lease.Row) bool {
	past := slices.Concat([]lease.Transfer{row.Last}, row.History())
	if i := slices.IndexFunc(past, func(t lease.Transfer) bool { return t.Reason == lease.ReasonRemoved }); i >= 0 {
		past = past[:i]
	}
	return !row.Owner.IsZero() || slices.ContainsFunc(past, func(t lease.Transfer) bool { return t.From != "" })
}

// full reports whether no worker has room for one more shard.
func (w rest) full(v rebalance.View) bool {
	held := 0
	for _, s := range v.Shards {
		if s.Owner != rebalance.Nobody {
			held++
		}
	}
	return w.set.limit > 0 && held >= len(v.Workers)*w.set.limit
}

// atRest reports whether the fleet is at rest: every worker has its seat, every shard that can be processed has
// one handler, and the plan is followed.
func (w rest) atRest() bool {
	// In calm nothing fails. But what nobody had room for may have failed too often in the
	// trouble, and that is noticed when somebody has room.
	if !w.strict || w.set.limit > 0 {
		w.operator.unquarantine()
	}
	for _, n := range w.nodes {
		if n.Up() && n.leaver || !n.Up() && n.due {
			return false
		}
	}
	v, ok := w.view()
	if !ok || len(v.Workers) == 0 || w.raises() {
		return false
	}
	for _, s := range w.table.Seats(group) {
		if len(s.Wants) > 0 {
			return false
		}
	}
	return len(w.table.Seats(group)) == len(v.Workers) && w.level(v) && w.kept()
}

// kept reports whether the plan assigns every held shard to the worker that holds it. If it assigns the shard to another
// worker or to nobody, a move is still to come. A target that the adversary wrote does not count: no worker reads it before
// the next plan. The shards of a worker whose target was deleted do not count either: that worker keeps them.
//
// If a planner could not replace a target, because it was unreadable, another plan is due when it can be read, up to
// a poll later. That plan is made from all targets, and may move shards (seed 199).
func (w rest) kept() bool {
	if plan, _ := w.plan(); strings.HasSuffix(plan.Inputs, "-spoilt") {
		return false
	}
	assigned, targets := map[string]bool{}, map[lease.Incarnation]bool{}
	for _, r := range w.table.Records(group, lease.KindTarget) {
		target, _ := r.(lease.Target)
		lives := slices.ContainsFunc(w.live(), func(n *node) bool { return n.me == target.Incarnation })
		if !lives || w.promises.planted[target.Key()] {
			continue
		}
		targets[target.Incarnation] = true
		for _, a := range target.Hold {
			assigned[a.Shard] = true
			s := w.streams.of(a.Shard)
			if s == nil {
				continue
			}
			// A worker claims an unlisted shard, and gives it up again.
			if w.promises.unlisted(s) || slices.ContainsFunc(s.active, func(h *handler) bool { return h.n.me != target.Incarnation }) {
				return false
			}
		}
	}
	unplanned := func(s *stream) bool { // its worker has a target, and no target names the shard
		return len(s.active) > 0 && targets[s.active[0].n.me] && !assigned[s.name] && !s.closed && !w.promises.unlisted(s)
	}
	return !slices.ContainsFunc(w.streams.all, unplanned)
}

// level reports whether workers hold equally many shards, with a difference of one at most. If workers have limits, it
// reports whether the planner would change nothing.
func (w rest) level(v rebalance.View) bool {
	if w.set.limit > 0 {
		return even(v)
	}
	count := make([]int, len(v.Workers))
	for _, s := range v.Shards {
		if s.Owner == rebalance.Nobody {
			return false
		}
		count[s.Owner]++
	}
	least, most := len(v.Shards), 0
	for _, n := range count {
		least, most = min(least, n), max(most, n)
	}
	return most-least <= 1
}

// restless reports a fleet that does not come to rest, with all that may show why.
func (w rest) restless(format string, args ...any) {
	if !w.sound() {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, format, args...)
	v, _ := w.view()
	load := map[string]int{}
	for _, s := range v.Shards {
		if s.Owner == rebalance.Nobody {
			fmt.Fprintf(&text, ", nobody works on %s", s.Name)
		} else {
			load[v.Workers[s.Owner].Name]++
		}
	}
	fmt.Fprintf(&text, "; %d seats of %d workers, with %v", len(w.table.Seats(group)), len(v.Workers), load)
	for _, s := range w.streams.all {
		if s.ended == 0 {
			fmt.Fprintf(&text, "\n\t%s: %v, handlers %v", s.name, w.promises.Row(s.name), s.active)
		}
	}
	for _, n := range w.nodes {
		fmt.Fprintf(&text, "\n\t%s: up %t, leaver %t, seated %t as %s, limit %d, clock %+v, %d handlers",
			n.Name, n.Up(), n.leaver, n.seated, n.me, n.config.MaxShards, n.Clock, len(n.Handlers))
	}
	for _, s := range w.table.Seats(group) {
		fmt.Fprintf(&text, "\n\t%v wants %v", s, s.Wants)
	}
	if plan, ok := w.plan(); ok {
		fmt.Fprintf(&text, "\n\t%v, %+v", plan, plan.Finding)
	}
	for _, r := range w.table.Records(group, lease.KindTarget) {
		fmt.Fprintf(&text, "\n\t%v: %v", r, r.(lease.Target).Hold)
	}
	w.blame("%s", text.String())
}

// moves returns how many shards were moved as planned, and how many otherwise.
func (w rest) moves() (planned, others int) {
	planned = w.stats.Hands[lease.ReasonHandoff]
	return planned, w.hands() - planned
}

// bounded checks that the fleet comes to rest in time.
func (w rest) bounded(limit time.Duration, what string) bool {
	if !w.until(limit, w.atRest) {
		w.restless("%s: not at rest after %v", what, limit)
		return false
	}
	w.trace("at rest", "", nil)
	return true
}

// changed checks that the fleet comes to rest after a change. If the plan for the change is the first one that is made from
// what the adversary has written, it may move shards although all is even already (seed 100366).
func (w rest) changed(misled bool, what string) bool {
	ok := w.bounded(w.slowly(), what)
	if ok && misled {
		w.run(w.slowly())
		ok = w.bounded(w.slowly(), what)
	}
	return ok
}

// slowly returns how long moves may take if budgets, cooldowns and preparations delay them.
func (w rest) slowly() time.Duration {
	s := &w.set
	each := s.ttl/3 + s.wind + s.prepare + time.Second
	return s.ttl + s.cooldown + 5*time.Second + time.Duration(len(w.streams.all))*each + 3*s.pace + w.backlog()
}

// moved checks that a change took the fewest moves, unless the plan for it was the first after the adversary's advice.
func (w rest) moved(moves, enough int, misled bool, what string) {
	if w.set.limit == 0 && !misled && moves != enough {
		w.blame("%s: %d moves; %d are enough: %s", what, moves, enough, w.promises.last(moves))
	}
}

// even reports whether a plan would leave everything where it is.
func even(v rebalance.View) bool {
	for i, to := range (rebalance.Even{}).Plan(v) {
		if to != rebalance.Nobody && to != v.Shards[i].Owner {
			return false
		}
	}
	return true
}
