package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The shards that this worker knows: those of its target, those that it holds, and those that others request of it; not
// the rest. A session knows the leases that its callers hold or want.
//
//	unknown → know → tended when it is due, until it concerns this worker no more → forgetIdle
//
// Called by the spines, and by a shard for its parents: ready. The files of other parts have more methods, which take what
// concerns these parts: follow.go the target, take.go and give.go the requests, leave.go and faults.go the end of all
// tenures.
//
// Nothing is written here. All that a worker knows of shards is in memory. After a crash nothing of it is needed: the rows
// say who holds the shards and from which marks they go on, and the target says to whom they are assigned.
//
// Invariant: a shard is forgotten only if it has no tenure, no open write and no running handler, and its row does not
// name this worker.

// shards are the shards that this worker knows, sorted by name.
type shards struct {
	all  []*shard
	gone order   // the step in which forgetIdle last ran: a read from before must not start a tenure again
	asks int     // how many of them this worker requests, or prepares for
	due  Instant // when one of them wants to be tended, at the earliest
	last int     // where named found a shard last

	crowded bool // this worker is assigned shards beyond its limit
}

// tendAll is for what changes something for all shards. They are tended in the same step, or in one that follows at once.
func (l *shards) tendAll(t *turn) {
	for _, s := range l.all {
		s.wake = t.now.Mono
	}
	l.due = t.now.Mono
}

// tendDue tends the shards that want to be tended by now, and finds when the next one does. Nothing is due without a seat.
func (l *shards) tendDue(t *turn, hasSeat bool, tend func(*shard)) {
	if t.now.Mono < l.due || !hasSeat {
		return
	}
	l.due = Never
	for _, s := range l.all {
		if t.now.Mono >= s.wake {
			tend(s)
		} else {
			l.due = min(l.due, s.wake)
		}
	}
}

// bound decides which shards of the target are beyond the limit of this worker, most; 0: it has none. A planner may not know the
// limit, or what this worker holds. Held shards that another worker is to get do not count: otherwise none of two full workers
// could take a shard of the other.
//
// Invariant: no claim gives a worker more shards than its limit, beside those that it gives away.
func (l *shards) bound(t *turn, most int) {
	has := 0
	for _, s := range l.all {
		if s.doing == claiming || s.t != nil && !s.aim.given {
			has++
		}
	}
	l.crowded = false
	for _, s := range l.all {
		excess := false
		if s.aim.mine && s.t == nil && s.doing != claiming {
			if excess = most > 0 && has >= most; !excess {
				has++
			}
		}
		if s.aim.excess != excess {
			s.aim.excess, s.wake, l.due = excess, t.now.Mono, t.now.Mono
		}
		l.crowded = l.crowded || excess
	}
}

// countAsk keeps the number of moves to this worker, which Config.MaxMoves limits. When one has ended there is room for
// the next. before and after: the shard had an ask before it was tended, and has one now.
func (l *shards) countAsk(t *turn, before, after bool) {
	switch {
	case after && !before:
		l.asks++
	case before && !after:
		if l.asks == t.cfg.MaxMoves {
			l.tendAll(t)
		}
		l.asks--
	}
}

// reading reports whether rows are being read for the first time. What follows waits for them for
// a moment: one read shows whether an owner has a seat, and one heartbeat has all requests.
func (l *shards) reading() bool {
	for _, s := range slices.Backward(l.all) { // the last ones are answered last
		if s.row.try.sent && !s.row.known {
			return true
		}
	}
	return false
}

// moving reports whether this worker is a side of a move.
func (l *shards) moving() bool {
	return slices.ContainsFunc(l.all, func(s *shard) bool { return s.ask != nil || s.t != nil && s.t.give != nil })
}

// yielding reports whether this worker holds a shard that the plan gives to another worker and that nobody has
// requested yet.
func (l *shards) yielding() bool {
	return slices.ContainsFunc(l.all, func(s *shard) bool { return s.t != nil && !s.aim.mine && s.t.give == nil })
}

// ready reports whether the rows of all parents of a shard show that they are processed, in reads
// that were answered lately. A parent counts as processed if it has no row, if its row is a tombstone, or if it was
// given up as unlisted. If this worker's own source lists it, it does not: it is about to be made, revived or claimed.
func (l *shards) ready(t *turn, source *feed, me lease.Incarnation, parents []string) bool {
	ready := true
	for _, name := range parents {
		p := l.know(name, t.cfg.Group, me)
		at := p.row.copy.Row()
		switch {
		// This worker holds the parent itself.
		case p.t != nil:
			ready = false
		// Read the parent's row. Its children are tended when the answer comes: see children.
		case !p.row.fresh(t):
			ready, p.row.parent = false, true
			p.get(t)
		// It may be anything, so its children wait.
		case p.row.malformed:
			ready = false
		case at.Generation == 0 || at.Removed || left(at) && !t.cfg.KeepUnlisted:
			if unsure := source.shown <= p.row.asked; unsure || source.lists(name) {
				ready = false
				source.soon(t) // an old listing may be all that still has it
			}
		default:
			ready = ready && at.Finished
		}
	}
	return ready
}

// declines reports whether this worker cannot have the shard at present: the worker's handler has just given the shard
// up or does not return, the worker has as many shards as it may, is unwell and rests, its reads fail (unread) and it does not
// know the row as it is, or its source no longer lists the shard.
func (l *shards) declines(t *turn, name string, resting, unread bool, source *feed) bool {
	s := l.find(name)
	return s != nil && s.t == nil && (s.lingers(t) || t.now.Mono < s.aim.leave ||
		s.aim.mine && (resting || s.aim.excess || unread && (!s.row.known || s.row.unread > 0) || source.bars(t, name)))
}

// knows reports whether this worker keeps any state of the shard.
func (l *shards) knows(name string) bool { return l.find(name) != nil }

// children returns the shards that have waited for the row of a parent, which was read now. The next call returns
// nothing until one of them has asked for the row again (ready).
func (l *shards) children(parent *shard) (all []*shard) {
	if !parent.row.parent {
		return nil
	}
	parent.row.parent = false
	for _, s := range l.all {
		if s.aim.mine && s.t == nil && slices.Contains(s.lineage(), parent.name) {
			all = append(all, s)
		}
	}
	return all
}

// find returns the shard of that name; nil if this worker does not know it.
func (l *shards) find(name string) *shard {
	if s := find(l.all, name, func(s **shard) string { return (*s).name }); s != nil {
		return *s
	}
	return nil
}

// present returns the shard of a tenure; nil: the tenure is over, as the shell was told. Marks and requests of such a
// tenure are dropped.
func (l *shards) present(id Tenure) *shard {
	s := l.find(id.Shard)
	if s == nil || s.t == nil || s.t.generation != id.Generation {
		return nil
	}
	return s
}

// returned takes the end of a handler, and returns its shard; nil: no handler of that tenure is running. The tenure may
// be over.
func (l *shards) returned(in Returned) *shard {
	s := l.find(in.Tenure.Shard)
	if s == nil || s.running != in.Tenure.Generation {
		return nil
	}
	s.running = 0
	if s.t != nil && s.t.generation == in.Tenure.Generation {
		s.t.returned(in)
	}
	return s
}

// know returns the shard of that name, which the worker knows from now on.
func (l *shards) know(name, group string, me lease.Incarnation) *shard {
	l.all = slices.Clip(l.all) // a caller may range over the old slice
	s := know(&l.all, name, func(s **shard) string { return (*s).name })
	if *s == nil {
		*s = newShard(name, group, me)
	}
	return *s
}

// knowAll makes sure that the shards of a target are known. It is know for many, with one sort.
func (l *shards) knowAll(hold []lease.Assigned, group string, me lease.Incarnation) {
	all := slices.Clone(l.all)
	for _, a := range hold {
		if l.find(a.Shard) == nil {
			all = append(all, newShard(a.Shard, group, me))
		}
	}
	slices.SortFunc(all, func(a, b *shard) int { return strings.Compare(a.name, b.name) })
	l.all = all
}

// forgetIdle drops the shards that concern this worker no more. A read that began before shows
// what they were: its answer must not start a tenure again that is over. A tombstone is kept for
// a while: what the source lists later may revive it.
func (l *shards) forgetIdle(t *turn) {
	l.gone = t.step
	l.all = slices.DeleteFunc(l.all, func(s *shard) bool {
		at := s.row.copy.Row()
		buried := at.Removed && t.now.Mono < s.row.since.Add(2*t.cfg.Poll)
		// A handler that gives the shard up again and again pauses longer each time, also if another worker has it in
		// between. So the last pause is remembered for a while.
		rests := s.aim.rest > 0 && t.now.Mono < max(s.aim.rest.Add(t.cfg.MaxBackoff), s.aim.leave)
		return s.idle(at) && !buried && !rests && s.row.look == 0 && s.ask == nil &&
			!s.aim.mine && !s.aim.retire && s.aim.left == 0
	})
}

// forget makes all shards continue as the incarnation me; empty: without a seat. No move survives that: requests were
// made under the old name. A session continues to wait for the leases that it wants.
func (l *shards) forget(t *turn, me lease.Incarnation) {
	for _, s := range l.all {
		s.forget(t, me, s.row.copy.Row())
		if s.want != nil {
			s.want.look, s.row.known = 0, false // read the row again: the former incarnation may have lost the lease since
		}
	}
	l.asks = 0
}

// end ends all tenures. Nothing is written: the caller has lost the seat, or gives it up.
func (l *shards) end(t *turn, cause event.Cause, err error) {
	for _, s := range l.all {
		if s.t != nil {
			s.end(t, cause, err)
		}
	}
}

// look reads rows that commands have changed. Without that, workers would notice it at an audit.
func (l *shards) look(t *turn, names []string, me lease.Incarnation) {
	for _, name := range names {
		s := l.know(name, t.cfg.Group, me)
		s.row.look = t.step
		_, s.row.older = s.row.copy.Open()
		s.get(t)
	}
}

// overslept is about a step that comes much later than it was asked for. The process was paused,
// or its machine is too slow: the handlers could do nothing either, so the time since the last step
// does not count as their silence.
func (l *shards) overslept(paused time.Duration) {
	for _, s := range l.all {
		if s.t != nil {
			s.t.marks.pulse = s.t.marks.pulse.Add(paused)
		}
	}
}

// wants are the requests of this worker, as its seat publishes them.
func (l *shards) wants() (wants []lease.Want) {
	if l.asks == 0 {
		return nil
	}
	for _, s := range l.all {
		if s.requests() {
			wants = append(wants, lease.Want{
				Shard: s.name, Generation: s.ask.generation, Owner: s.ask.owner, Terms: s.ask.terms,
			})
		}
	}
	return wants
}

// unsaid reports whether the requests differ from those that the seat has, so that this cannot wait
// for the next heartbeat. A request that was served does no harm: it names an earlier generation. A request that was
// called off does: an owner may still serve it.
func (l *shards) unsaid(said []lease.Want) bool {
	standing := 0
	for _, w := range said {
		switch s := l.find(w.Shard); {
		case s != nil && s.requests() && s.ask.generation == w.Generation:
			standing++
		case s == nil || s.row.generation == w.Generation:
			return true
		}
	}
	return l.asks > standing && len(l.wants()) > standing
}

// held counts the tenures.
func (l *shards) held() (n int) {
	for _, s := range l.all {
		if s.t != nil {
			n++
		}
	}
	return n
}

// saw takes a complete listing of the rows that was sent in the step begun. audit: the rows are the pages of an audit, which
// may be older. A row that names this worker, me, makes the shard known, so that it is started or given back. exists
// reports whether the listing has a row of the shard.
//
// Invariant: no listing starts a tenure again that had ended when its shard was forgotten, even if the shard is known again.
// So a listing that may be older than the last forgetIdle makes no shard known, and shows nothing about a row that was not
// read since, even if another worker holds it there.
func (l *shards) saw(t *turn, me lease.Incarnation, in Listed, begun order, audit bool, exists func(name string) bool) {
	for _, u := range in.Unreadable {
		if s := l.find(u.Key.Name); s != nil { // what cannot be read is not written over
			s.row.malformed, s.row.answered = true, t.now.Mono
		}
	}
	old := audit || begun <= l.gone
	unread := func(s *shard) bool { return s == nil || s.row.generation == 0 }
	for _, record := range in.Records {
		at, ok := record.(lease.Row)
		if !ok {
			continue
		}
		s := l.find(at.Shard)
		if old && unread(s) {
			continue // perhaps the row of a tenure that has ended
		}
		if s == nil && at.Owner.Incarnation == me {
			s = l.know(at.Shard, t.cfg.Group, me)
		}
		if s != nil {
			s.saw(t, at)
		}
	}
	for _, s := range l.all {
		if exists(s.name) && old && unread(s) {
			continue
		}
		if s.listed(t, begun); !exists(s.name) && s.row.read < begun && (s.t != nil || s.row.generation != 0 && !s.row.copy.Row().Removed) {
			s.get(t) // the row is gone, or has become a tombstone
		}
	}
}
