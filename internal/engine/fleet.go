package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A fleet is what this worker makes of all of them.
type fleet struct {
	changed   Instant // when the seats last came, went or changed
	settled   bool    // a plan was made since they stand still
	asks      int     // shards this worker asks others for
	givings   int     // shards others ask this worker for
	held      int
	malformed []malformed // the records that no current listing could read
	replan    Instant     // a shard planned to another may have to be claimed by this worker
	wake      Instant
}

// readWants notes which of this worker's shards others ask for.
func (e *Engine) readWants() {
	for _, s := range e.shards {
		if s.t.give != nil {
			s.t.give.wanted = false
		}
	}
	large := e.large()
	for i := range e.looks.peers {
		p := &e.looks.peers[i]
		if p.unreadable {
			continue
		}
		if p.seat.Leaving {
			e.learn(p)
			continue
		}
		for _, w := range p.seat.Wants {
			switch s := e.shard(w.Shard); {
			case s == nil:
			case s.t.on && w.Generation == s.t.generation:
				e.wantedBy(s, p.seat.Owner(), w.Terms)
			case large && s.generation > 0:
				s.goesTo(p.seat.Incarnation, w.Generation+1)
			}
		}
	}
	for _, s := range e.shards {
		if s.t.on && (s.t.give != nil || s.t.offeredTo != "") {
			e.tend(s)
		}
	}
}

// wantedBy notes one want. Of several, the first that was seen is served for as
// long as it stands.
func (e *Engine) wantedBy(s *shard, to lease.Owner, terms rebalance.Terms) {
	g := s.t.give
	switch {
	case g != nil && g.to.Incarnation == to.Incarnation:
		g.wanted = true
	case g == nil || !g.wanted && find(e.looks.peers, g.to.Incarnation) == nil:
		if g == nil {
			e.fleet.givings++
		}
		if terms.Mode == rebalance.Cooperative {
			terms.Drain = min(terms.Drain, e.cfg.Drain) // how long an offer stands is for its maker to limit
		}
		s.t.give = &giving{to: to, terms: terms, wanted: true}
	}
}

// A view is the fleet as the planner is shown it.
type view struct {
	rebalance.View
	shards []*shard // those that are planned, in the view's order
	seats  []lease.Seat
	me     int
	split  bool // the workers are not of one mind: their planners differ
}

// plan decides who should hold what, on rows that were read and seats that were
// read after them. In a large fleet the rows were read some time ago: see guess.
//
// Invariant: what is decided here rests on the table as it was a moment ago; that
// it still is so, the condition of each write has to prove.
func (e *Engine) plan() {
	if e.seat.phase != seated || !e.oriented() {
		return
	}
	e.fleet.settled = e.now.Mono >= e.fleet.changed.Add(stillFor)
	e.fleet.replan = Never
	v := e.survey()
	if e.leave.on {
		e.removeDue(&v)
		return
	}
	targets := e.cfg.Planner.Plan(v.View)
	if len(targets) != len(v.shards) {
		targets = rebalance.Even{}.Plan(v.View) // a planner that is not one
	}
	targets = e.agree(&v, targets)
	room, longer := e.room(&v, targets), e.forbearance(&v)
	for i, s := range v.shards {
		if e.presume(&v, i, targets[i]) {
			continue
		}
		if e.assign(s, v.Shards[i].Owner, targets[i] == v.me, room > 0, longer) {
			room--
		}
	}
	e.ask(&v, targets)
	e.removeDue(&v)
	e.tendAllSoon()
}

// seat is the place of a worker in the view.
func (v *view) seat(inc lease.Incarnation) (at int, found bool) {
	return slices.BinarySearchFunc(v.seats, inc, func(seat lease.Seat, inc lease.Incarnation) int {
		return strings.Compare(string(seat.Incarnation), string(inc))
	})
}

// room is how many shards this worker may claim beside what the plan gives it.
func (e *Engine) room(v *view, targets []int) int {
	if e.cfg.MaxShards == 0 {
		return len(v.shards)
	}
	room := e.cfg.MaxShards - e.fleet.held - e.fleet.asks
	for i := range v.shards {
		if targets[i] == v.me && v.Shards[i].Owner == rebalance.Nobody {
			room--
		}
	}
	return room
}

// survey builds the view.
func (e *Engine) survey() view {
	v := view{seats: []lease.Seat{e.seat.seat}}
	for i := range e.looks.peers {
		if p := &e.looks.peers[i]; !p.unreadable && p.seat.Confirmed() && !e.failing(p.seat.Incarnation) && !slices.Contains(e.seat.former, p.seat.Incarnation) {
			v.seats = append(v.seats, p.seat)
		}
	}
	slices.SortFunc(v.seats, func(a, b lease.Seat) int { return strings.Compare(string(a.Incarnation), string(b.Incarnation)) })
	for i, seat := range v.seats {
		if seat.Incarnation == e.seat.me {
			v.me = i
		}
		v.split = v.split || seat.Planner != e.seat.seat.Planner
		v.Workers = append(v.Workers, rebalance.Worker{
			Name: seat.Name, Tie: rebalance.Tie(string(seat.Incarnation)), Limit: int(seat.MaxShards),
			Leaving: seat.Leaving || seat.Incarnation == e.seat.me && e.leave.on,
		})
	}
	e.bound(&v)
	v.Shards = make([]rebalance.Place, 0, len(e.shards))
	v.shards = make([]*shard, 0, len(e.shards))
	for _, s := range e.shards {
		if owner, ok := e.place(&v, s); ok {
			v.Shards = append(v.Shards, rebalance.Place{Name: s.name, Weight: s.weight, Owner: owner, Tie: s.tie})
			v.shards = append(v.shards, s)
		}
	}
	return v
}

// bound notes for each shard that is on its way to whom: a moving shard counts
// where it goes.
func (e *Engine) bound(v *view) {
	for _, s := range e.shards {
		s.bound = rebalance.Nobody
		if s.ask != nil && s.ask.generation == s.generation {
			s.bound = v.me
		}
	}
	for i, seat := range v.seats {
		if seat.Leaving || seat.Incarnation == e.seat.me {
			continue
		}
		for _, w := range seat.Wants {
			if s := e.shard(w.Shard); s != nil && s.generation == w.Generation && (s.bound == rebalance.Nobody || i < s.bound) {
				s.bound = i
			}
		}
	}
}

// place says where a shard is, and whether it can be planned at all.
func (e *Engine) place(v *view, s *shard) (owner int, plannable bool) {
	row := s.copy.Row()
	switch {
	case s.malformed:
		return 0, false
	case s.guessed():
		return e.guessedPlace(v, s)
	case row.Generation == 0 || row.Removed:
		return rebalance.Nobody, s.listed && e.ready(s)
	case row.Finished || row.Quarantined:
		return 0, false
	case row.Owner.IsZero():
		return rebalance.Nobody, e.ready(s)
	}
	at, ok := v.seat(row.Owner.Incarnation)
	switch {
	case ok && s.bound != rebalance.Nobody:
		return s.bound, true
	case ok:
		return at, true
	}
	if p := find(e.looks.peers, row.Owner.Incarnation); p != nil && p.unreadable && !slices.Contains(e.seat.former, p.seat.Incarnation) {
		return 0, false // a sign of life that cannot be read
	}
	if e.failing(row.Owner.Incarnation) {
		return rebalance.Nobody, e.ready(s) // planned, and claimed by nobody before it is gone
	}
	// Nobody carries the owner's incarnation. That proves that it is gone only
	// if the seats were read after the row: seats first, and a newcomer's claim
	// would be stolen.
	if e.looks.seats.begun < s.read {
		e.fleet.replan = min(e.fleet.replan, e.now.Mono.Add(lookSuspect))
		return 0, false
	}
	s.orphan = row.Owner.Incarnation
	return rebalance.Nobody, e.ready(s)
}

// ready reports whether every parent of s is finished. One that nobody knows and
// that no complete listing has counts as finished; and of what has begun, nobody asks.
func (e *Engine) ready(s *shard) bool {
	parents := s.copy.Row().Parents
	if len(parents) == 0 {
		parents = s.parents
	}
	if e.looks.rowsStep == 0 && len(parents) > 0 && s.read < e.looks.metStep {
		return false // what this worker knows of the parents may be of another table
	}
	return !slices.ContainsFunc(parents, e.goesOn) || s.begun()
}

// goesOn reports whether a parent may still be worked on.
func (e *Engine) goesOn(name string) bool {
	p := e.shard(name)
	switch {
	case p != nil && p.malformed:
		return true
	case p == nil || p.generation == 0 && p.unlisted():
		return !e.feed.complete
	}
	return p.generation == 0 || !p.over()
}

// begun reports whether somebody has held s, as far as the row remembers, and since it was
// last removed.
func (s *shard) begun() bool {
	row := s.copy.Row()
	if !row.Owner.IsZero() {
		return true
	}
	for _, t := range append([]lease.Transfer{row.Last}, row.History()...) { // newest first
		if t.Reason == lease.ReasonRemoved {
			return false
		}
		if t.From != "" {
			return true
		}
	}
	return false
}

// over reports whether nobody will work on s any more. A tombstone of a name that the
// source lists again is about to be revived.
func (s *shard) over() bool {
	row := s.copy.Row()
	return row.Finished || row.Removed && s.unlisted()
}

// unlisted reports whether the source lists s no more. While it was not asked again since
// the row was found to be gone, nobody knows.
func (s *shard) unlisted() bool { return !s.listed && (s.gone == 0 || s.absent > 0) }

// assign notes what the plan means for a shard that is free or a dead worker's.
// One that is planned to another and left lying for long may be claimed by
// anybody with room: the plan is not a lock.
//
// It reports whether this worker helps with it, which takes from its room.
func (e *Engine) assign(s *shard, owner int, mine, room bool, longer time.Duration) (helps bool) {
	s.mine = owner == rebalance.Nobody && mine
	switch {
	case owner != rebalance.Nobody:
		s.lying = 0
		return false
	case mine, e.failing(s.copy.Row().Owner.Incarnation):
		return false
	case s.lying == 0:
		s.lying = e.now.Mono.Add(longer)
	}
	at := max(e.claimable(s), s.lying).Add(e.patience(s))
	switch {
	case !room || s.running != 0 || e.looks.rowsStep == 0:
	case e.now.Mono >= at:
		s.mine = true
		return true
	default:
		e.fleet.replan = min(e.fleet.replan, at)
	}
	return false
}

// patience is how long this worker waits for another to claim what is planned to it;
// a different time for each worker, so that they do not all help at once. A worker
// whose handler has stalled may be the one the plan names, and cannot come.
func (e *Engine) patience(s *shard) time.Duration {
	share := time.Duration(rebalance.Tie(s.name+string(e.seat.me)) % uint64(e.beat))
	if s.copy.Row().Last.Reason == lease.ReasonStalled {
		return stillFor + share/4
	}
	return 2*e.beat + share
}

// ask decides which held shards this worker asks for. They move only when the
// seats stand still and all workers are of one mind; and budgets and cooldowns
// delay that without changing the plan.
func (e *Engine) ask(v *view, targets []int) {
	room := e.cfg.MaxMoves - e.fleet.asks
	for i, s := range v.shards {
		owner := v.Shards[i].Owner
		if s.guessed() {
			if s.wanted = false; targets[i] == v.me && owner != v.me && owner != rebalance.Nobody && e.fleet.settled && room > 0 {
				if at := s.checked.Add(e.beat / 2); e.now.Mono < at { // the guess was just made anew
					e.fleet.replan = min(e.fleet.replan, at)
					continue
				}
				room--
				e.get(s) // to ask for it takes its row
			}
			continue
		}
		row := s.copy.Row()
		held := !row.Owner.IsZero() && row.Owner.Incarnation != e.seat.me && s.orphan != row.Owner.Incarnation && !e.failing(row.Owner.Incarnation)
		s.wanted = targets[i] == v.me && held && s.running == 0 && (owner != v.me || s.ask != nil)
		switch {
		case !s.wanted || s.ask != nil:
		case s.bound != rebalance.Nobody && s.bound != v.me:
			// On its way to another. It may move on from there, or be called off.
			e.fleet.replan = min(e.fleet.replan, e.now.Mono.Add(e.beat/2))
			s.wanted = false
		case !e.fleet.settled || v.split || room <= 0 || e.looks.rowsStep == 0:
			s.wanted = false
		case e.now.Mono < max(s.paused, e.cooled(s)):
			e.fleet.replan = min(e.fleet.replan, max(s.paused, e.cooled(s)))
			s.wanted = false
		default:
			room--
		}
	}
}

// cooled is from when on a shard that moved lately may move again. One whose
// owner leaves need not wait.
func (e *Engine) cooled(s *shard) Instant {
	row := s.copy.Row()
	planned := row.Last.Reason == lease.ReasonHandoff || row.Last.Reason == lease.ReasonDrainTimeout
	if p := find(e.looks.peers, row.Owner.Incarnation); !planned || p != nil && p.seat.Leaving {
		return 0
	}
	return s.since.Add(e.cfg.Cooldown)
}

// removeDue makes tombstones of finished shards that the source lists no more.
// Each falls to one worker.
func (e *Engine) removeDue(v *view) {
	for _, s := range e.shards {
		row := s.copy.Row()
		if !row.Finished || s.absent < 2 || int(s.tie%uint64(len(v.seats))) != v.me || !e.capable() {
			continue
		}
		if _, busy := s.copy.Open(); busy {
			continue
		}
		w, err := protocol.Remove(row, protocol.Command{Seen: row.Generation, By: e.cfg.Name, Note: "listed no more"}, e.stamp())
		e.send(s, removing, w, err)
	}
}

// keepPlanning asks for the rows when a plan is due although nothing was seen to
// change.
func (e *Engine) keepPlanning() {
	f := &e.fleet
	f.wake = Never
	if e.seat.phase != seated {
		return
	}
	if at := f.changed.Add(stillFor); !f.settled {
		if e.now.Mono >= at {
			f.settled = true
			e.wantPlan()
		} else {
			f.wake = at
		}
	}
	if f.replan > 0 && e.now.Mono >= f.replan {
		f.replan = Never
		e.wantPlan()
	} else if f.replan > 0 {
		f.wake = min(f.wake, f.replan)
	}
}
