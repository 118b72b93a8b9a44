package engine

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// In a small fleet every worker lists all rows at every change, and plans on what it has
// just read. In a large one that would be workers times shards rows at once, more than the
// partition they lie in gives in a minute. There a worker plans on the rows as it remembers
// them and on what it believes to have become of them, reads a row before it writes anything
// about its shard, and lists all in a turn of its own. Some few look sooner, for what nobody
// else knows.

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
		e.lookAfter(0)
	} else {
		e.wantRowsSoon()
	}
}

// planAgain makes a new plan soon, after this worker found that another worker holds a shard.
// In a large fleet it plans from the rows that it remembers, else it lists the rows first.
func (e *Engine) planAgain() {
	if e.large() {
		e.fleet.replan = min(cmp.Or(e.fleet.replan, Never), e.now.Mono.Add(lookUnstill))
	} else {
		e.wantRowsSoon()
	}
}

// lookAfter lets some few of a large fleet list the rows soon, one after the other: shards
// may lie there of which nobody else knows. All at once, or just when somebody died, they would
// take what the others need to read the rows that they are about to claim. If there happen to
// be none of the few, what lies there is seen in turn.
func (e *Engine) lookAfter(pause time.Duration) {
	l := &e.looks
	place, few := e.oneOfFew("")
	if few && l.rowsStep > 0 && e.large() {
		soon := e.now.Mono.Add(pause + time.Duration(place)*e.turn(1))
		l.rowsDue = min(l.rowsDue, max(soon, l.rowsRead.Add(e.turn(e.cfg.Few))))
	}
}

// oneOfFew reports whether this worker is one of the few that do something for all, and which.
func (e *Engine) oneOfFew(what string) (place uint64, few bool) {
	place = rebalance.Tie(string(e.seat.me)+what) % uint64(1+len(e.looks.peers))
	return place, place < uint64(e.cfg.Few)
}

// reserve is how much later than it may a worker of a large fleet evicts a seat that
// others look after. If all tried at once, that would be workers times seats writes, beside
// the heartbeats of those that live.
func (e *Engine) reserve(inc lease.Incarnation) time.Duration {
	if _, few := e.oneOfFew(string(inc)); few || !e.large() {
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
	own := time.Duration(float64(within) * share)
	l.rowsDue = e.now.Mono.Add(own)
	if l.rowsStep > 0 { // while much changes, once in a turn in the mean, and not when it has just changed
		l.rowsDue = max(e.now.Mono.Add(2*e.beat+own), l.rowsRead.Add(within/2+own))
	}
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
// seat, and nobody else comes at the moment; or so many have come at once that its turn is
// late. Those plan on what they remember, all when they have seen who else has come, and ask
// for the rows that would fall to them if nobody held any: when a whole fleet comes back,
// nobody does.
func (e *Engine) oriented() bool {
	l := &e.looks
	at := l.met.Add(e.beat + e.beat/2) // until then a dead worker's seat looks like any
	many := 4*e.others() > len(l.peers)
	if l.rowsStep > 0 && e.large() {
		wait := at
		if !many {
			wait = min(at, e.fleet.changed.Add(stillFor))
		}
		if e.now.Mono < wait {
			e.fleet.replan = wait
			return false
		}
	}
	if l.rowsStep > 0 || l.seeking {
		return true
	}
	e.takeTurn()
	if e.now.Mono < at {
		e.fleet.replan = at
		return false
	}
	l.seeking = many
	return l.seeking
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

// A guess is whom a worker of a large fleet believes a shard to have gone to, since its row
// was read: by what others were seen to ask for, and by the plan that all of them make.
// Without it everybody would remember each shard where it was when they last listed the
// rows, and soon take half of them for a dead worker's.
//
// A guess is for planning alone. Before anything is written about the shard, its row is read.
type guess struct {
	owner      lease.Incarnation
	generation int64 // that of the row, if the guess is right; it says something while that is higher than the one known
}

// guessed reports whether there is a guess about what has become of s.
func (s *shard) guessed() bool { return s.guess.generation > s.generation }

// holder is who holds s, as far as can be told; empty: nobody.
func (s *shard) holder() lease.Incarnation {
	if s.guessed() {
		return s.guess.owner
	}
	return s.copy.Row().Owner.Incarnation
}

// goesTo notes a guess, if it is news.
func (s *shard) goesTo(inc lease.Incarnation, generation int64) {
	if !s.t.on && s.ask == nil && generation > max(s.generation, s.guess.generation) {
		s.guess = guess{inc, generation}
	}
}

// unasked are shards of a worker of a large fleet that has been leaving for a heartbeat, and
// for which nobody asks: those that could have asked believe them to be elsewhere.
func (e *Engine) unasked() (wants []lease.Want) {
	const most = 100
	if !e.leave.on || e.leave.all || e.now.Mono < e.leave.began.Add(e.beat) || !e.large() {
		return nil
	}
	for _, s := range e.shards {
		if s.t.on && s.t.give == nil && s.t.offeredTo == "" && len(wants) < most {
			wants = append(wants, lease.Want{Shard: s.name, Generation: s.t.generation, Terms: rebalance.Terms{Mode: rebalance.Cooperative}})
		}
	}
	return wants
}

// learn takes in what a worker that leaves says to have, if it has just said so.
func (e *Engine) learn(p *peer) {
	if p.since != e.now.Mono || !e.large() {
		return
	}
	for _, w := range p.seat.Wants {
		s := e.shard(w.Shard)
		if s == nil || s.t.on || s.ask != nil || w.Generation < s.generation {
			continue
		}
		s.guess, s.spare = guess{p.seat.Incarnation, w.Generation}, w.Generation
		e.fleet.replan = min(cmp.Or(e.fleet.replan, Never), e.now.Mono.Add(lookUnstill))
	}
}

// agree plans the shards that a leaving worker is left with. Its fleet's workers do not know
// the same, so each believes another to be the one to ask; about these they agree, as they
// all see the same seats. Like a shard that is left lying, it may go to anybody with room.
func (e *Engine) agree(v *view, targets []int) []int {
	var held []int // by each worker, as soon as it is needed
	for i, s := range v.shards {
		owner := v.Shards[i].Owner
		if s.spare == 0 || s.spare != max(s.generation, s.guess.generation) || owner == rebalance.Nobody || !v.seats[owner].Leaving {
			continue
		}
		if held == nil {
			held, targets = make([]int, len(v.seats)), slices.Clone(targets) // they are the planner's
			for _, p := range v.Shards {
				if p.Owner != rebalance.Nobody {
					held[p.Owner]++
				}
			}
		}
		best := ^uint64(0)
		for at, worker := range v.Workers {
			room := worker.Limit == 0 || held[at] < worker.Limit
			if tie := rebalance.Tie(s.name + string(v.seats[at].Incarnation)); !worker.Leaving && room && tie < best {
				targets[i], best = at, tie
			}
		}
	}
	return targets
}

// checked ends the guess about a shard whose row was seen.
func (e *Engine) checked(s *shard) {
	if s.guess = (guess{}); e.large() {
		s.checked = e.now.Mono
	}
}

// hearsay reports whether the row of s has to be read before anything is written about it.
func (e *Engine) hearsay(s *shard) bool {
	return e.large() && (s.guessed() || e.now.Mono.Sub(s.checked) > lookSuspect)
}

// forbearance is how much longer a worker of a large fleet lets a shard lie that is planned
// to another: while many lie there, none of the others may have come to it yet; and if all
// helped, all would try at once. So some few do, and the others if that comes to nothing.
func (e *Engine) forbearance(v *view) (d time.Duration) {
	const claims = 800 // a second: most of what a partition writes
	if !e.large() {
		return 0
	}
	for i := range v.Shards {
		if v.Shards[i].Owner == rebalance.Nobody {
			d += time.Second / claims
		}
	}
	if _, few := e.oneOfFew(""); !few {
		d += e.turn(1 + len(e.looks.peers))
	}
	return d
}

// presume guesses that a shard which the plan gives to another worker goes there. Whoever
// has looked knows better, and waits whether it does; and some few look.
func (e *Engine) presume(v *view, i, target int) bool {
	s := v.shards[i]
	if !e.large() || e.looks.rowsStep == 0 || v.Shards[i].Owner != rebalance.Nobody || target == v.me || target < 0 || target >= len(v.seats) ||
		s.lying > 0 || !e.hearsay(s) || e.failing(s.holder()) {
		return false
	}
	if _, few := e.oneOfFew(""); few {
		return false
	}
	if s.mine = false; e.fleet.settled { // before, the plan may change
		s.goesTo(v.seats[target].Incarnation, max(s.generation, s.guess.generation)+1)
	}
	return true
}

// guessedPlace is place, for a shard of which there is a guess.
func (e *Engine) guessedPlace(v *view, s *shard) (owner int, plannable bool) {
	inc := s.guess.owner
	if at, ok := v.seat(inc); ok {
		return at, true
	}
	if p := find(e.looks.peers, inc); p != nil && p.unreadable {
		return 0, false
	}
	return rebalance.Nobody, e.ready(s) // gone, too
}
