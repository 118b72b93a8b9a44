package engine

import (
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// In a small fleet every worker lists all rows at every change, and plans on what it has
// just read. In a large one that would be workers times shards rows at once, more than the
// partition they lie in gives in a minute. There a worker plans on the rows as it knows
// them, and lists them in a turn of its own; what it takes for free and is not, the table
// refuses, and says what is true. Some few look at once, for what nobody else knows.

const (
	ListedRows = 4000 // for a table of DynamoDB: of rows of a kilobyte a third of what a partition gives
	Few        = 6    // enough that hardly ever there is none

	largeFrom = 5 * time.Second // a fleet is large that takes longer to list, worker by worker
	audits    = 4               // turns between two audits of a worker, at least
	young     = 3               // beats: who has no more has not listed the rows yet
)

// turn is in how much time each of so many workers lists all rows once.
func (e *Engine) turn(workers int) time.Duration {
	if e.cfg.ListedRows == 0 {
		return 0
	}
	return time.Duration(workers) * time.Duration(len(e.shards)) * time.Second / time.Duration(e.cfg.ListedRows)
}

// large reports whether not everybody can list all rows at every change.
func (e *Engine) large() bool { return e.turn(1+len(e.looks.peers)) > largeFrom }

// wantPlan makes a plan due, and the rows to be read for it if the fleet is small.
func (e *Engine) wantPlan() {
	l := &e.looks
	switch {
	case l.seen == 0 && e.turn(1) > largeFrom/20: // it may be large: look who is there first
		l.audit, l.rowsDue, l.planWanted = Never, Never, true
	case !e.large():
		e.wantRows()
	default:
		l.planWanted = true
		e.takeTurn()
	}
}

// wantPlanSoon is wantPlan for what happens often.
func (e *Engine) wantPlanSoon() {
	if e.large() {
		e.wantPlan()
		e.lookAfter()
	} else {
		e.wantRowsSoon()
	}
}

// lookAfter lets some few of a large fleet list the rows at once: shards may lie there of
// which nobody else knows. If there happen to be none, they are seen in turn.
func (e *Engine) lookAfter() {
	l := &e.looks
	if e.large() && l.rowsStep > 0 && e.oneOfFew("") {
		l.rowsDue = min(l.rowsDue, max(e.now.Mono, l.rowsRead.Add(e.turn(e.cfg.Few))))
	}
}

// oneOfFew reports whether this worker is one of the few that do something for all.
func (e *Engine) oneOfFew(what string) bool {
	return rebalance.Tie(string(e.seat.me)+what)%uint64(1+len(e.looks.peers)) < uint64(e.cfg.Few)
}

// reserve is how much later than it may a worker of a large fleet evicts a seat that
// others look after. If all tried at once, that would be workers times seats writes, beside
// the heartbeats of those that live.
func (e *Engine) reserve(inc lease.Incarnation) time.Duration {
	if !e.large() || e.oneOfFew(string(inc)) {
		return 0
	}
	return 2 * lookSuspect
}

// takeTurn makes the rows be listed at a time that is this worker's own. Who comes new
// has to have them soon, and there are few of those, as a rule.
func (e *Engine) takeTurn() {
	l := &e.looks
	if l.rowsDue != Never || l.rows.sent || l.rowsWanted {
		return
	}
	within := e.turn(1 + len(l.peers))
	if others := e.others(); l.rowsStep == 0 && 4*others <= len(l.peers) {
		within = e.turn(others) / 3
	}
	e.ids++
	share := float64(rebalance.Tie(e.now.Chance+strconv.Itoa(e.ids))>>11) / (1 << 53)
	l.rowsDue = e.now.Mono.Add(time.Duration(float64(within) * share))
}

// failing reports whether a large fleet plans as if that worker were dead: its shards fall
// to the others, who may claim them when it is. When many die at once, the shards of the
// first would otherwise be planned to the next, and then anew.
func (e *Engine) failing(inc lease.Incarnation) bool {
	if inc == "" || !e.large() {
		return false
	}
	p := find(e.looks.peers, inc)
	return p != nil && p.suspect
}

// others is how many other workers have come lately.
func (e *Engine) others() (n int) {
	for i := range e.looks.peers {
		if p := &e.looks.peers[i]; !p.unreadable && p.seat.Beat <= young {
			n++
		}
	}
	return n
}

// oriented reports whether this worker can plan: it has listed the rows since it has its
// seat; or so many have come at once that its turn is late. Those plan on what they
// remember, and ask for the rows that would fall to them if nobody held any: when a
// whole fleet comes back, nobody does.
func (e *Engine) oriented() bool {
	l := &e.looks
	if l.rowsStep > 0 || l.seeking {
		return true
	}
	e.takeTurn()
	at := l.met.Add(e.beat + e.beat/2) // until then a dead worker's seat looks like any
	if e.now.Mono < at {
		e.fleet.replan = at
		return false
	}
	l.seeking = 4*e.others() > len(l.peers)
	return l.seeking
}

// seek asks for one row before its shard is claimed by who has not listed them. In a
// fleet that was there before they are all held, and it is not worth to ask for many.
func (e *Engine) seek(s *shard) {
	l := &e.looks
	if s.getting {
		return
	}
	if l.sought > 10+3*len(e.shards)/(1+len(l.peers)) {
		s.mine = false
		return
	}
	l.sought++
	e.get(s)
}

// unsought reports whether s is known from an earlier seat at best.
func (e *Engine) unsought(s *shard) bool {
	return e.looks.rowsStep == 0 && s.answered < e.looks.metStep && e.large()
}

// restraint is how long there has to be between two looks of each worker, for all of them
// to be able to look at all seats.
func (e *Engine) restraint() time.Duration {
	const each = 25 * time.Microsecond // a third of what a partition gives, of seats of 200 bytes
	if !e.large() {
		return 0
	}
	n := time.Duration(1 + len(e.looks.peers))
	return min(n*n*each, lookSuspect)
}

// hearsay reports whether what this worker knows of a shard that lies there is from before
// at: in a large fleet somebody else has claimed it long ago, as a rule.
func (e *Engine) hearsay(at Instant) bool {
	return e.large() && e.looks.rowsRead < at
}
