package sim

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A trouble states which faults may happen, how often, and how bad the network is.
type trouble struct {
	kinds []Fault       // the next fault is drawn from these
	mean  time.Duration // the average time between two faults
	rates rates
}

// drawKinds draws which faults may happen to one fleet.
func drawKinds(c chance) []Fault {
	switch list := those(every); c.IntN(4) {
	case 0:
		return append(list, those(restored)...)
	case 1:
		return append(list, those(skewed)...)
	default:
		return append(list, those(steady)...)
	}
}

// drawTrouble draws a trouble with some of these faults.
func (w *world) drawTrouble(from []Fault) trouble {
	t := trouble{mean: w.between(w.set.ttl/3, 3*w.set.ttl)}
	for _, f := range from {
		if w.likely(0.6) {
			t.kinds = append(t.kinds, f)
		}
	}
	if w.apart(0x1ac5).IntN(3) == 0 {
		t.kinds = append(t.kinds, those(forgetful)...)
	}
	if w.watchful {
		t.kinds = append(t.kinds, those(watchful)...)
	}
	if w.set.targets {
		t.kinds = append(t.kinds, those(raising)...)
	}
	some := func(most float64) float64 {
		if w.likely(0.5) {
			return 0
		}
		return w.Float64() * most
	}
	t.rates = rates{
		lost: some(0.1), replyLost: some(0.1), late: some(0.1), twin: some(0.1), lateReply: some(0.1),
		throttled: some(0.2), readLost: some(0.1), stale: some(0.5),
	}
	w.set.tempers, w.set.hook, w.set.source = some(0.3), some(0.9), some(0.3)
	w.set.sick, w.set.busy = some(0.3), some(0.5)
	return t
}

// Faults makes faults happen, and ends them.
type faults struct {
	w        *world
	table    [faultKinds]kind
	backup   backup
	planner  bool                     // the next worker that writes a plan is paused in the middle
	lies     map[string]engine.Shown  // what the addresses of some nodes show instead of the truth
	meshed   map[string]bool          // nodes all of whose connections are refused
	down     map[string]bool          // nodes that cannot reach the sink to raise its fence; "*" is all
	mistaken map[string]time.Duration // until when an address last seemed to prove the death of its node
}

func newFaults(w *world) faults {
	return faults{w: w, table: kinds(), backup: backup{w: w}, lies: map[string]engine.Shown{}, meshed: map[string]bool{}, down: map[string]bool{}, mistaken: map[string]time.Duration{}}
}

// begin makes faults happen until that time.
func (f *faults) begin(t trouble, until time.Duration) {
	w := f.w
	w.net.set(t.rates)
	if len(t.kinds) == 0 {
		return
	}
	var next func()
	next = func() {
		if w.Now() >= until {
			return
		}
		f.happen(t.kinds[w.IntN(len(t.kinds))])
		w.After(time.Duration(w.ExpFloat64()*float64(t.mean)), next)
	}
	w.After(w.between(0, t.mean), next)
}

// happen makes one fault happen, if it can happen now.
func (f *faults) happen(of Fault) {
	w, k := f.w, &f.table[of]
	n := w.nodes[w.IntN(len(w.nodes))]
	if k.begin == nil {
		return
	}
	lasts, ok := k.begin(f, of, n)
	if k.end != nil && (lasts > 0 || ok && lasts != itself) {
		w.After(lasts, func() { k.end(f, n) })
	}
	if ok {
		w.silence.disturb()
		w.stats.Faults[of]++
		w.trace(k.name, n.Name, nil)
	}
}

// end ends all faults that last. It ends those of processes last, so that a process that continues finds the others ended.
func (f *faults) end() {
	for _, k := range slices.Backward(f.table[:]) {
		for _, n := range f.w.nodes {
			if k.end != nil {
				k.end(f, n)
			}
		}
	}
}

// upTo draws how long a fault lasts: up to n lease times.
func (f *faults) upTo(n time.Duration) time.Duration { return f.w.between(0, n*f.w.set.ttl) }

// endProcess crashes or stops a process, and starts the next some time later.
func endProcess(f *faults, of Fault, n *node) (time.Duration, bool) {
	switch {
	case !n.Up() || n.leaver || of != Crash && n.Paused():
		return 0, false
	case of == Crash:
		n.crash()
	default:
		n.stop()
	}
	n.bootAfter(f.upTo(3))
	return 0, true
}

// endWatchers ends all watchers at once, as far as the plan names them.
func endWatchers(f *faults, _ Fault, _ *node) (_ time.Duration, hit bool) {
	plan, _ := f.w.plan()
	for _, n := range f.w.nodes {
		if n.me != "" && slices.Contains(plan.Watchers, n.me) {
			_, ended := endProcess(f, Crash, n)
			hit = hit || ended
		}
	}
	return 0, hit
}

// replaceAll is a deploy in any weather.
func replaceAll(f *faults, _ Fault, _ *node) (time.Duration, bool) {
	w := f.w
	w.set.handoff = w.set.strategy(w.chance)
	for i, n := range w.nodes {
		w.After(time.Duration(i)*2*w.set.ttl, func() {
			if !w.peace {
				endProcess(f, Stop, n)
			}
		})
	}
	return 0, true
}

func pauseProcess(f *faults, of Fault, n *node) (time.Duration, bool) {
	ttl, d := f.w.set.ttl, time.Duration(0)
	switch of {
	case PauseHalf:
		d = ttl / 2
	case PauseEdge:
		d = ttl + f.w.between(-ttl/10, ttl/10)
	case PauseLong:
		d = 3 * ttl
	case PauseVeryLong:
		d = 10 * ttl
	case Suspend:
		d = f.w.between(ttl/10, 3*ttl)
	}
	return itself, n.pause(d, of == Suspend)
}

func resumeProcess(_ *faults, n *node) {
	if n.Paused() {
		n.resumes++
		n.resume()
	}
}

// pausePlanner lets planned pause the next worker that plans. The fault is counted there.
func pausePlanner(f *faults, _ Fault, _ *node) (time.Duration, bool) {
	f.planner = true
	return 0, false
}

func letPlan(f *faults, _ *node) { f.planner = false }

// planned pauses a planner whose write has just been stored, if it is time for that.
func (f *faults) planned(by virtual.Sender, open bool) {
	w := f.w
	if !open || by == (virtual.Sender{}) || !f.planner || w.peace || w.likely(0.5) {
		return
	}
	for _, n := range w.nodes {
		if n.Name == by.Name && n.Up() && !n.Paused() {
			f.planner = false
			w.stats.Faults[PlannerPaused]++
			n.pause(2*w.set.ttl, false)
		}
	}
}

func jumpClock(f *faults, _ Fault, n *node) (time.Duration, bool) {
	n.Clock.Wall = f.w.between(-time.Hour, time.Hour)
	return 0, n.Up()
}

// block cuts a node off from writing, or from reading.
func block(f *faults, of Fault, n *node) (time.Duration, bool) {
	if n.blocked != [2]bool{} {
		return 0, false
	}
	n.blocked[index(of == ReadsOnly)] = true
	return f.upTo(3), true
}

func unblock(_ *faults, n *node) { n.blocked = [2]bool{} }

// mute leaves a node's writes of rows unanswered. Commits may fail for three lease times. The heartbeats of the node are
// answered all the while.
func mute(f *faults, _ Fault, n *node) (time.Duration, bool) {
	if n.mute || f.backup.keeping { // a snapshot waits for what was sent before
		return 0, false
	}
	n.mute = true
	return f.upTo(10), true
}

func unmute(_ *faults, n *node) { n.mute = false }

// breakDown leaves all requests unanswered, mostly for longer than a worker can trust its lease.
func breakDown(f *faults, _ Fault, _ *node) (time.Duration, bool) {
	if f.w.net.down {
		return 0, false
	}
	f.w.net.down = true
	return f.w.between(f.w.set.ttl/3, 5*f.w.set.ttl), true
}

func repair(f *faults, _ *node) { f.w.net.down = false }

// misreport makes the address of a node show something else than the truth.
func misreport(f *faults, of Fault, n *node) (time.Duration, bool) {
	shows := engine.Silent
	if of == Mistaken {
		shows = pick(f.w.chance, engine.Refuses, engine.Replies)
	}
	if _, lies := f.lies[n.Name]; lies || !n.Up() {
		return 0, false
	}
	f.lies[n.Name] = shows
	f.w.wires.Cut(&n.Process)
	return f.upTo(3), true
}

func tellTruth(f *faults, n *node) { delete(f.lies, n.Name) }

// mesh makes the sidecar of a node refuse all connections that the node makes from now on.
func mesh(f *faults, _ Fault, n *node) (time.Duration, bool) {
	if f.meshed[n.Name] || !n.Up() {
		return 0, false
	}
	f.meshed[n.Name] = true
	for _, other := range f.w.nodes {
		if other != n {
			f.w.wires.Cut(&other.Process)
		}
	}
	return f.upTo(3), true
}

func unmesh(f *faults, n *node) { delete(f.meshed, n.Name) }

// lie is what an attempt of one node to reach another shows. The refusals of a sidecar are no excuse for an eviction,
// unless there is no other node that could be asked.
func (f *faults) lie(from, to *virtual.Process, truth engine.Shown) engine.Shown {
	shows, lies := f.lies[to.Name]
	if f.meshed[from.Name] {
		if from.Peers() > 1 {
			return engine.Refuses
		}
		shows, lies = engine.Refuses, true
	}
	if !lies {
		return truth
	}
	if shows != engine.Silent {
		f.mistaken[to.Name] = f.w.Now()
	}
	return shows
}

// reshard ends one stream or two, and begins their successors.
func reshard(f *faults, of Fault, _ *node) (time.Duration, bool) {
	w, open := f.w, f.w.streams.open()
	var ends []*stream
	switch {
	case w.streams.crowded(w.set.seasonal):
	case of == Split && len(open) > 0:
		i := w.IntN(len(open))
		ends = open[i : i+1]
	case of == Merge && len(open) > 2:
		i := w.IntN(len(open) - 1)
		ends = open[i : i+2]
	}
	if ends == nil {
		return 0, false
	}
	w.streams.follow(w.Now(), ends...)
	for _, s := range ends {
		w.trace("close", s.name, nil)
	}
	return 0, true
}

// useNameAgain makes the source list a name again that was removed before, for a shard that has nothing
// to do with the former one. It leaves alone a name that a listed shard still has as its parent.
func useNameAgain(f *faults, _ Fault, _ *node) (time.Duration, bool) {
	w, parent := f.w, map[string]bool{}
	for _, s := range w.streams.all {
		for _, name := range s.parents {
			parent[name] = parent[name] || !s.dropped
		}
	}
	for _, s := range w.streams.all {
		if s.dropped && w.promises.Row(s.name).Removed && !parent[s.name] && len(s.active) == 0 && !w.streams.crowded(w.set.seasonal) {
			s.renew(w.Now())
			return 0, true
		}
	}
	return 0, false
}

// lackShards makes the source of a node omit some shards for up to four polls.
func lackShards(f *faults, _ Fault, n *node) (time.Duration, bool) {
	if len(n.lacks) > 0 {
		return 0, false
	}
	n.lacks = map[string]bool{}
	for _, s := range f.w.streams.all {
		if s.ended == 0 && f.w.likely(0.3) {
			n.lacks[s.name], s.lacked = true, true
		}
	}
	return f.w.between(0, 4*n.config.Poll), len(n.lacks) > 0
}

func listAll(f *faults, n *node) {
	if n.lacks != nil {
		n.lacks = nil
		f.w.silence.disturb()
	}
}

// spoil makes a record unreadable for a while: somebody has edited it by hand.
func spoil(f *faults, of Fault, n *node) (time.Duration, bool) {
	w := f.w
	key := seatKey(n.me)
	switch of {
	case MalformedPlan:
		key = planKey()
	case MalformedTarget:
		key = targetKey(n.me)
	case MalformedRow:
		key = rowKey(w.streams.all[w.IntN(len(w.streams.all))].name)
	}
	row, isRow := w.table.Read(key).(lease.Row)
	if w.table.Read(key) == nil || isRow && row.Removed || f.backup.went || w.table.Unreadable[key] {
		return 0, false
	}
	w.table.Unreadable[key] = true
	w.After(f.upTo(10), func() { f.mend(key) })
	return itself, true
}

func (f *faults) mend(key lease.Key) {
	if f.w.table.Unreadable[key] {
		f.w.trace("mended", key.Name, nil)
		delete(f.w.table.Unreadable, key)
	}
}

func mendAll(f *faults, _ *node) {
	for _, s := range f.w.streams.all {
		f.mend(rowKey(s.name))
	}
	f.mend(planKey())
	for _, n := range f.w.nodes {
		f.mend(seatKey(n.me))
		f.mend(targetKey(n.me))
	}
	clear(f.w.table.Unreadable) // seats of incarnations that are over
}
