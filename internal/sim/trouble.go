package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A plan of trouble: what may happen, how often, and how bad the network is.
type trouble struct {
	kinds []Fault       // from which the next is drawn
	mean  time.Duration // between two of them
	rates rates
}

// drawKinds is what may happen to one fleet. A generation begins with the wall clock's
// seconds. Of a table that went back in time that is all there is to go by: clocks that
// jump far, and names that are used again, do not go together with it.
func (w *world) drawKinds() []Fault {
	all := []Fault{
		Crash, Stop, PauseHalf, PauseEdge, PauseLong, PauseVeryLong, Suspend, ReadsOnly, WritesOnly, BeatsOnly,
		Outage, Split, Merge, ModeChange, ForcedRelease, MalformedRow, MalformedSeat, Deploy,
		Advice, AdviceDeleted, Wished, PlannerPaused, RackCrash, MalformedPlan, MalformedTarget,
	}
	switch w.chance.IntN(4) { // more than once, where it seldom can happen
	case 0:
		return append(all, Restore, Restore)
	case 1:
		return append(all, SkewedRestore, SkewedRestore, SkewedRestore)
	}
	return append(all, WallJump, Rebirth, Rebirth)
}

// drawTrouble is a trouble of the mix: some know one kind only, some all.
func (w *world) drawTrouble(all []Fault) trouble {
	t := trouble{mean: w.between(w.set.ttl/3, 3*w.set.ttl)}
	for _, f := range all {
		if w.likely(0.6) {
			t.kinds = append(t.kinds, f)
		}
	}
	if w.forgetful() {
		t.kinds = append(t.kinds, SourceLacks)
	}
	if w.watchful {
		t.kinds = append(t.kinds, Unreachable, Mistaken)
	}
	some := func(most float64) float64 {
		if w.likely(0.5) {
			return 0
		}
		return w.chance.Float64() * most
	}
	t.rates = rates{
		lost: some(0.1), replyLost: some(0.1), late: some(0.1), twin: some(0.1), lateReply: some(0.1),
		throttled: some(0.2), readLost: some(0.1), stale: some(0.5),
	}
	w.set.tempers, w.set.hook, w.set.source = some(0.3), some(0.9), some(0.3)
	w.set.sick, w.set.busy = some(0.3), some(0.5)
	return t
}

// forgetful reports whether sources lack shards in this fleet. That is drawn apart, so that all else of a seed
// is as it would be.
func (w *world) forgetful() bool { return rand.New(rand.NewPCG(w.seed, 0x1ac5)).IntN(3) == 0 }

// times is the same, so many times as likely.
func (r rates) times(x float64) rates {
	return rates{
		lost: r.lost * x, replyLost: r.replyLost * x, late: r.late * x, twin: r.twin * x, lateReply: r.lateReply * x,
		throttled: r.throttled * x, readLost: r.readLost * x, stale: r.stale * x,
	}
}

// rage makes trouble until then.
func (w *world) rage(t trouble, until time.Duration) {
	w.net.set(t.rates)
	if len(t.kinds) == 0 {
		return
	}
	var next func()
	next = func() {
		if w.Now() >= until {
			return
		}
		w.suffer(t.kinds[w.chance.IntN(len(t.kinds))])
		w.After(time.Duration(w.chance.ExpFloat64()*float64(t.mean)), next)
	}
	w.After(w.between(0, t.mean), next)
}

// suffer makes one fault happen, if it can happen now.
func (w *world) suffer(f Fault) {
	n := w.nodes[w.chance.IntN(len(w.nodes))]
	if w.happens(f, n) {
		w.disturb()
		w.stats.Faults[f]++
		w.trace(f.String(), n.Name, nil)
	}
}

func (w *world) happens(f Fault, n *node) bool {
	ttl := w.set.ttl
	switch f {
	case Crash, Stop, ModeChange:
		return w.replace(f, n)
	case PauseHalf:
		return w.pauses(n, ttl/2, false)
	case PauseEdge:
		return w.pauses(n, ttl+w.between(-ttl/10, ttl/10), false)
	case PauseLong:
		return w.pauses(n, 3*ttl, false)
	case PauseVeryLong:
		return w.pauses(n, 10*ttl, false)
	case Suspend:
		return w.pauses(n, w.between(ttl/10, 3*ttl), true)
	case WallJump:
		n.Clock.Wall = w.between(-time.Hour, time.Hour)
		return n.Up()
	case ReadsOnly, WritesOnly:
		return w.block(n, f == ReadsOnly)
	case BeatsOnly:
		return w.mute(n)
	case Outage:
		return w.outage()
	case Split, Merge:
		return w.reshard(f)
	case ForcedRelease:
		return w.force()
	case Restore, SkewedRestore:
		return w.goBack(f == SkewedRestore)
	case MalformedRow, MalformedSeat, MalformedPlan, MalformedTarget:
		return w.spoil(f, n)
	case Deploy:
		return w.rolling()
	case Rebirth:
		return w.rebirth()
	case Advice:
		return w.meddle()
	case AdviceDeleted:
		return w.unadvise()
	case Wished:
		return w.wish()
	case PlannerPaused:
		w.snare = true // it counts when a planner is stopped
	case RackCrash:
		return w.rackCrash()
	case SourceLacks:
		return w.lack(n)
	case Unreachable:
		return w.lieAbout(n, engine.Silent)
	case Mistaken:
		return w.lieAbout(n, pick(w, engine.Refuses, engine.Replies))
	}
	return false
}

// lieAbout makes the address of a node show something else than the truth, for up to three lease times.
func (w *world) lieAbout(n *node, shows engine.Shown) bool {
	if _, lied := w.lies[n.Name]; lied || !n.Up() {
		return false
	}
	w.lies[n.Name] = shows
	w.wires.Cut(&n.Process)
	w.After(w.between(0, 3*w.set.ttl), func() { delete(w.lies, n.Name) })
	return true
}

// lie is what an attempt to reach a node shows.
func (w *world) lie(_, to *virtual.Process, truth engine.Shown) engine.Shown {
	shows, lied := w.lies[to.Name]
	if !lied {
		return truth
	}
	if shows != engine.Silent {
		w.mistaken[to.Name] = w.Now()
	}
	return shows
}

// proven reports whether a connection may have proven the death of an incarnation: its process is dead or has
// taken another seat, or its address has lied since.
func (w *world) proven(inc lease.Incarnation, s *sitting) bool {
	at, lied := w.mistaken[s.by.Name]
	lives := func(n *node) bool { return n.Up() && n.Sender() == s.by && n.me == inc }
	return w.watchful && (lied && at >= s.began || !slices.ContainsFunc(w.nodes, lives))
}

func (w *world) pauses(n *node, d time.Duration, suspended bool) bool {
	if !n.Up() || n.Paused() {
		return false
	}
	n.pause(d, suspended)
	return true
}

// replace ends a process one way or another, and starts the next some time later.
func (w *world) replace(f Fault, n *node) bool {
	if !n.Up() || n.leaver {
		return false
	}
	if f == Crash {
		n.crash()
	} else {
		if n.Paused() {
			return false
		}
		n.stop()
	}
	w.again(n, w.between(0, 3*w.set.ttl))
	return true
}

// again starts the next process once the last one has ended. A process that is told twice to stop,
// before it takes either, has one successor.
func (w *world) again(n *node, d time.Duration) {
	n.due = true
	w.After(d, func() {
		switch {
		case !n.due: // it was started meanwhile
			return
		case n.Up():
			w.again(n, w.set.ttl/2)
			return
		}
		n.Clock.Rate = 1000
		if !w.set.exact && w.likely(0.3) {
			w.stats.Faults[ClockRate]++
			n.Clock.Rate = 960 + w.chance.Int64N(81)
		}
		n.boot(w.config())
	})
}

// block cuts a node off from writing, or from reading, for a while.
func (w *world) block(n *node, writes bool) bool {
	if n.blocked != [2]bool{} {
		return false
	}
	n.blocked[index(writes)] = true
	w.After(w.between(0, 3*w.set.ttl), func() { n.blocked = [2]bool{} })
	return true
}

// mute leaves a node's writes of rows unanswered, for up to ten lease times: commits may fail
// for three. The heartbeats of the node are answered all the while.
func (w *world) mute(n *node) bool {
	if n.mute || w.keeping { // a snapshot waits for what was sent before
		return false
	}
	n.mute = true
	w.After(w.between(0, 10*w.set.ttl), func() { n.mute = false })
	return true
}

// outage is longer than anybody can trust itself.
func (w *world) outage() bool {
	if w.net.down {
		return false
	}
	w.net.down = true
	w.After(w.between(w.set.ttl/3, 5*w.set.ttl), func() { w.net.down = false })
	return true
}

// reshard ends a stream or two, and begins what follows.
func (w *world) reshard(f Fault) bool {
	var open []*stream
	for _, s := range w.streams {
		if !s.closed {
			open = append(open, s)
		}
	}
	if w.crowded() {
		return false
	}
	name := func() string { return fmt.Sprintf("s%02d", len(w.streams)) }
	switch {
	case f == Split && len(open) > 0:
		p := open[w.chance.IntN(len(open))]
		w.close(p)
		w.addStream(name(), p.every, p.name)
		w.addStream(name(), p.every, p.name)
		return true
	case f == Merge && len(open) > 2:
		i := w.chance.IntN(len(open) - 1)
		w.close(open[i])
		w.close(open[i+1])
		w.addStream(name(), open[i].every, open[i].name, open[i+1].name)
		return true
	}
	return false
}

// lack takes shards from what the source of a node lists, for up to four polls.
func (w *world) lack(n *node) bool {
	if len(n.lacks) > 0 {
		return false
	}
	n.lacks = map[string]bool{}
	for _, s := range w.streams {
		if s.ended == 0 && w.likely(0.3) {
			n.lacks[s.name], s.lacked = true, true
		}
	}
	w.After(w.between(0, 4*n.config.Poll), func() {
		n.lacks = nil
		w.disturb()
	})
	return len(n.lacks) > 0
}

// crowded reports whether there are as many streams as one fleet should have here.
func (w *world) crowded() bool {
	listed, open := 0, 0
	for _, s := range w.streams {
		if !s.dropped {
			listed++
		}
		if !s.closed {
			open++
		}
	}
	if w.set.seasonal {
		return listed > 40 || open > 15
	}
	return len(w.streams) > 40
}

// force is a supervisor who takes a shard away.
func (w *world) force() bool {
	s := w.streams[w.chance.IntN(len(w.streams))]
	row := w.judge.row(s.name)
	if row.Generation == 0 || row.Owner.IsZero() || w.went || w.net.down {
		return false
	}
	write, err := protocol.ForceRelease(row, protocol.Command{Seen: row.Generation, By: "supervisor", Note: "because"}, w.stamp())
	if err != nil {
		w.fault("force-release: %v", err)
		return false
	}
	if _, err = w.table.Write(virtual.Sender{}, write); err != nil {
		return false
	}
	w.rewish(func(list []lease.Wish) []lease.Wish {
		look := lease.Wish{Kind: protocol.WishLook, Subject: s.name, By: "supervisor", Until: w.stamp().At.Add(time.Minute)}
		return append(slices.DeleteFunc(list, func(old lease.Wish) bool { return old.Compare(look) == 0 }), look)
	})
	return true
}

// quiet ends all trouble. What is on its way stays so, and a handler that is late
// already.
func (w *world) quiet() {
	w.trace("calm", "", nil)
	w.peace = true
	w.net.set(rates{})
	w.net.down = false
	w.set.tempers, w.set.hook, w.set.source, w.set.sick, w.set.busy, w.snare = 0, 0, 0, 0, 0, false
	if !w.set.seasonal {
		w.snapshot = nil // in a season, the next may be one of days ago
	}
	for _, s := range w.streams {
		w.mend(rowKey(s.name))
	}
	w.mend(lease.Plan{Group: group}.Key())
	for _, n := range w.nodes {
		w.mend(lease.Key{Group: group, Kind: lease.KindSeat, Name: string(n.me)})
		w.mend(lease.Target{Group: group, Incarnation: n.me}.Key())
	}
	clear(w.table.Unreadable) // seats of incarnations that are over
	if w.went {
		w.adopt()
	}
	w.rewish(func([]lease.Wish) []lease.Wish { return nil })
	clear(w.lies)
	for _, n := range w.nodes {
		n.blocked, n.mute, n.lacks = [2]bool{}, false, nil
		if n.Paused() {
			n.resumes++
			n.resume()
		}
		for _, h := range n.running() {
			h.mend()
		}
	}
	w.pardon()
}

// pardon takes every shard out of quarantine, as an operator would.
func (w *world) pardon() {
	for _, s := range w.streams {
		row := w.judge.row(s.name)
		if row.Generation == 0 || !row.Quarantined {
			continue
		}
		if write, err := protocol.Unquarantine(row, protocol.Command{Seen: row.Generation, By: "operator"}, w.stamp()); err == nil {
			_, _ = w.table.Write(virtual.Sender{}, write)
			w.disturb()
		}
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
