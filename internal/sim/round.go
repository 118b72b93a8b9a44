package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Result is what became of one round.
type Result struct {
	Stats Stats
	Hash  uint64 // of everything that happened
	Err   error
}

// Round simulates the life of one fleet, which follows from its seed: it comes up,
// suffers, and comes to rest; then a worker joins, one leaves and one dies, and
// all stop. The trouble lasts for 20 minutes at most, or less; log, if there is
// one, is told everything.
func Round(seed uint64, most time.Duration, log func(string)) Result {
	w := newWorld(seed)
	w.log = log
	w.set = w.draw()
	w.enlarge()
	w.populate()
	kinds := w.drawKinds()
	if slices.Contains(kinds, SkewedRestore) {
		w.skew(time.Hour)
	}
	storm := w.drawTrouble(kinds)
	storm.kinds = append(storm.kinds, Crash)
	length := min(w.between(2*time.Minute, 20*time.Minute), most)
	w.set.rest = min(most, time.Minute)
	w.rage(storm, length)
	w.run(length)
	w.settle()
	w.calmLife()
	return w.result()
}

func (w *world) result() Result {
	w.stats.Rounds, w.stats.Time, w.stats.Faults[Stale] = 1, w.Now(), w.table.Lagged
	if len(w.nodes) > lease.MaxWatchers {
		w.stats.Large = 1
	}
	return Result{Stats: w.stats, Hash: w.hash, Err: errors.Join(w.faults...)}
}

// populate makes the streams, and the nodes that come up one after another.
func (w *world) populate() {
	w.net.slow, w.net.timeout = 5*time.Millisecond, w.between(w.set.ttl/10, w.set.ttl/2)
	for i := range w.set.streams {
		w.addStream(fmt.Sprintf("s%02d", i), w.set.every)
	}
	for i := range w.set.nodes {
		w.again(w.addNode(string(rune('a'+i))), w.between(0, w.set.ttl))
	}
}

// settle ends all trouble, and holds that the fleet comes to rest: in bounded time
// every shard is worked on, and evenly; and then nothing moves.
func (w *world) settle() {
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
	w.strict, w.calm = true, w.Now()
	w.restFor(2 * w.set.rest)
}

// stranded reports whether the source has dropped a stream whose row is unfinished in a restored table. When an audit
// has found such a row, a worker claims it and gives it up as unlisted, and other shards may move (seed 1000125).
func (w *world) stranded() bool {
	return slices.ContainsFunc(w.streams, func(s *stream) bool {
		row := w.judge.row(s.name)
		return s.dropped && row.Owner.IsZero() && row.Last.Reason == lease.ReasonAdopted
	})
}

// patience is how long it may take until a fleet that was left alone is at rest: what was trusted or awaited
// runs out, failures have had their pause, handlers that ignore everything have ended, and all moves are made,
// one after another. An unwell worker tries again within five minutes. Until then it gets no share, and a shard
// waits if only that worker has room for it.
func (w *world) patience() time.Duration {
	s, unwell := &w.set, time.Duration(0)
	if slices.ContainsFunc(w.seats(), func(r lease.Record) bool { return r.(lease.Seat).Health.Unwell != "" }) {
		unwell = 5 * time.Minute
	}
	moves := time.Duration(s.streams+len(w.streams)) * (s.ttl/3 + s.wind + time.Second)
	return unwell + 8*s.ttl + 4*s.drain + s.audit + 30*time.Second + moves + s.cooldown + s.maxBackoff + 2*s.poll + 3*s.pace + w.backlog()
}

// backlog is how long handlers need at most for what has ended and is not read to
// its end: they read four times as fast as records come.
func (w *world) backlog() (d time.Duration) {
	for _, s := range w.streams {
		if s.closed && s.ended == 0 {
			d += time.Duration(s.total-position(w.judge.row(s.name).Checkpoint.Position)) * s.every / 3
		}
	}
	return d
}

// restFor holds that nothing moves, and that resting costs little.
func (w *world) restFor(d time.Duration) {
	hands, calls, live, removed := w.hands(), w.calls(), len(w.live()), w.stats.Hands[lease.ReasonRemoved]
	w.run(d)
	if len(w.faults) > 0 {
		return
	}
	if moved := w.hands() - hands; moved > 0 {
		w.fault("%d changes of hands in a fleet at rest: %s", moved, w.judge.last(moved))
	}
	beats := int(d/(w.set.ttl/3*9/10*960/1000)) + 1
	audits := int(d/(w.set.audit*9/10*960/1000)) + 2
	removed = w.stats.Hands[lease.ReasonRemoved] - removed // each is a write, and new listings for all
	most := live * (2*beats + 4*audits + 4*removed)
	if live > lease.MaxWatchers { // the first three watchers list every 500 ms, 1 s and 2 s
		most += int(4 * d / time.Second)
	}
	if n := w.calls() - calls; n > most {
		w.fault("%d calls of the table in %v by %d workers at rest; at most %d", n, d, live, most)
	}
}

// hands is how many changes of hands there were, but for shards that have ended.
func (w *world) hands() int {
	return w.stats.Changes() - w.stats.Hands[lease.ReasonFinished] - w.stats.Hands[lease.ReasonRemoved]
}

func (w *world) calls() (n int) {
	for _, node := range w.nodes {
		n += node.calls
	}
	return n
}

// live is the nodes that run and mean to stay.
func (w *world) live() (live []*node) {
	for _, n := range w.nodes {
		if n.Up() && !n.leaver {
			live = append(live, n)
		}
	}
	return live
}

// view is who has what, in truth; ok: every handler is one that counts.
func (w *world) view() (v rebalance.View, ok bool) {
	live := w.live()
	for _, n := range live {
		v.Workers = append(v.Workers, rebalance.Worker{Name: n.Name, Tie: rebalance.Tie(string(n.me)), Limit: n.config.MaxShards})
		if !n.seated {
			return v, false
		}
	}
	for _, s := range w.streams {
		// After a restore a child may be under way whose parent is to be read again, or the source may have
		// dropped what is to be read again. A child that was begun is claimed whatever its parents are.
		if s.ended > 0 || !w.ready(s) && len(s.active) == 0 && !begun(w.judge.row(s.name)) || w.unlisted(s) {
			continue
		}
		owner := rebalance.Nobody
		for _, h := range s.active {
			for i, n := range live {
				if h.n == n && !h.Over && w.judge.row(s.name).Generation == h.Tenure.Generation {
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

// full reports whether nobody could take one more.
func (w *world) full(v rebalance.View) bool {
	held := 0
	for _, s := range v.Shards {
		if s.Owner != rebalance.Nobody {
			held++
		}
	}
	return w.set.limit > 0 && held >= len(v.Workers)*w.set.limit
}

// unlisted reports whether nobody processes a stream because the source has dropped it.
func (w *world) unlisted(s *stream) bool {
	return s.dropped && w.judge.row(s.name).Last.Reason == lease.ReasonUnlisted
}

// awaited reports whether the children of a stream have to wait for it. They need not if it is unlisted, or if the
// source of a node has lacked it: that node may take it as finished.
func (w *world) awaited(s *stream) bool {
	return s.ended == 0 && !s.lacked && !w.unlisted(s) && !w.judge.lately()
}

func (w *world) ready(s *stream) bool {
	for _, name := range s.parents {
		if p := w.stream(name); p.ended == 0 && !w.unlisted(p) {
			return false
		}
	}
	return true
}

// atRest reports whether all is as it should be: every worker has its seat, every
// shard that can be worked on is, by one handler, and the plan is kept.
func (w *world) atRest() bool {
	// In calm nothing fails. But what nobody had room for may have failed too often in the
	// trouble, and that is noticed when somebody has room.
	if !w.strict || w.set.limit > 0 {
		w.pardon()
	}
	for _, n := range w.nodes {
		if n.Up() && n.leaver || !n.Up() && n.due {
			return false
		}
	}
	v, ok := w.view()
	if !ok || len(v.Workers) == 0 {
		return false
	}
	for _, r := range w.seats() {
		if len(r.(lease.Seat).Wants) > 0 {
			return false
		}
	}
	return len(w.seats()) == len(v.Workers) && w.level(v) && w.kept()
}

// kept reports whether no worker holds a shard that the plan has assigned to another: a move that has not begun yet
// is no move at rest. What the adversary has written does not count: no worker reads it before the next plan.
//
// If a planner could not replace a target, because it was unreadable, another plan is due when it can be read, up to
// a poll later. That plan is made from all targets, and may move shards (seed 199).
func (w *world) kept() bool {
	if plan, _ := w.theirs(); strings.HasSuffix(plan.Inputs, "-spoilt") {
		return false
	}
	for _, r := range w.table.Records(group, lease.KindTarget) {
		target, _ := r.(lease.Target)
		lives := slices.ContainsFunc(w.live(), func(n *node) bool { return n.me == target.Incarnation })
		if !lives || w.judge.planted[target.Key()] {
			continue
		}
		for _, a := range target.Hold {
			s := w.stream(a.Shard)
			if s == nil {
				continue
			}
			// A worker claims an unlisted shard, and gives it up again.
			if w.unlisted(s) || slices.ContainsFunc(s.active, func(h *handler) bool { return h.n.me != target.Incarnation }) {
				return false
			}
		}
	}
	return true
}

// level reports whether counts differ by at most one; with limits, whether the
// planner would change nothing.
func (w *world) level(v rebalance.View) bool {
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

// restless reports who has what.
func (w *world) restless(format string, args ...any) {
	if len(w.faults) > 0 {
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
	fmt.Fprintf(&text, "; %d seats of %d workers, with %v", len(w.seats()), len(v.Workers), load)
	for _, s := range w.streams {
		if s.ended == 0 {
			fmt.Fprintf(&text, "\n\t%s: %v, handlers %v", s.name, w.judge.row(s.name), s.active)
		}
	}
	for _, n := range w.nodes {
		fmt.Fprintf(&text, "\n\t%s: up %t, leaver %t, seated %t as %s, limit %d, clock %+v, %d handlers",
			n.Name, n.Up(), n.leaver, n.seated, n.me, n.config.MaxShards, n.Clock, len(n.Handlers))
	}
	for _, r := range w.seats() {
		fmt.Fprintf(&text, "\n\t%v wants %v", r, r.(lease.Seat).Wants)
	}
	if plan, ok := w.theirs(); ok {
		fmt.Fprintf(&text, "\n\t%v, %+v", plan, plan.Finding)
	}
	for _, r := range w.table.Records(group, lease.KindTarget) {
		fmt.Fprintf(&text, "\n\t%v: %v", r, r.(lease.Target).Hold)
	}
	w.fault("%s", text.String())
}
