// Package layout decides where the shards of a group should be. The engine uses it for the plan that it writes, and the
// command shardlease plan for the plan that it shows. All functions are pure.
//
//	Input → New → View → planner → Settle → To
//	               ↑____ pins _______|
//
// An [Input] is all that a layout depends on. [New] makes the View for which the planner is asked. [Layout.Settle] takes
// the planner's answer. If held shards would move and may not, Settle pins them, and the planner has to be asked once
// more. Then Settle corrects each assignment that breaks a rule, and finds a worker for each shard that has none.
//
// The planner may be any code of the user. If its plan breaks a rule, Settle overrides it for single shards, by the
// rule of rebalance.Even and without asking the planner.
//
// Invariant: a shard without a living owner is placed whenever a worker has room, whatever pauses and
// cordons there are.
// Invariant: a shard that its worker declines goes to another worker that can have it, whatever
// the planner decides.
// Invariant: no worker is assigned more shards than its limit, unless it has them already.
package layout

import (
	"math"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Layout is where every shard is and should be.
type Layout struct {
	View  rebalance.View // the planner is asked about this. The owners are the workers to which the shards are assigned
	To    []int          // for each shard, the worker that should have it
	Loads []int          // for each worker, how many shards it should have
	Held  bool           // held shards that should move stay until the seats stand still

	in     Input
	before []int              // for each shard, the worker to which the plan before assigns it, also if that worker declines it
	obeyed map[int]lease.Wish // the pins and moves that View.Pins has
	anyFit bool               // a worker is neither leaving nor cordoned nor unwell
	stuck  bool               // anyFit is false and some workers are drained: they keep what they have
	asked  bool               // the planner has answered once
}

// New returns a layout; the planner has to be asked about its View. A shard that its worker declines goes back to the
// worker that should have given it, or is free. New changes in.Shards.
func New(in Input) *Layout {
	l := &Layout{
		in: in, View: rebalance.View{Shards: in.Shards, Pins: map[int]int{}},
		before: make([]int, len(in.Shards)), obeyed: map[int]lease.Wish{},
	}
	for i := range l.View.Shards {
		l.before[i] = l.View.Shards[i].Owner
		if s := &l.View.Shards[i]; in.Declines(s.Owner, s.Name) {
			s.Owner = l.giver(s.Owner, s.Name)
		}
	}
	l.staff()
	l.pin()
	return l
}

// giver returns the worker that should have given this shard to the declining worker, or Nobody. The giver
// has to be well, and to have room for everything that it should have given.
func (l *Layout) giver(declining int, shard string) int {
	give := lease.Give{Shard: shard, To: l.in.Seats[declining].Incarnation}
	for _, target := range l.in.Targets {
		at := SeatOf(l.in.Seats, target.Incarnation)
		if at < 0 || !slices.Contains(target.Give, give) {
			continue
		}
		seat := &l.in.Seats[at]
		most := seat.MaxShards
		room := most <= 0 || int64(len(target.Hold)+len(target.Give)) <= most
		if room && !seat.Leaving && seat.Health.Unwell == "" && !l.in.Declines(at, shard) {
			return at
		}
	}
	return rebalance.Nobody
}

// staff adds the workers to View. An unwell worker that asks for a trial may have one shard, unless there are well workers for
// all: then the trial would only keep a shard from one of them.
func (l *Layout) staff() {
	held := make([]int, len(l.in.Seats))
	for _, s := range l.View.Shards {
		if s.Owner != rebalance.Nobody {
			held[s.Owner]++
		}
	}
	fit := 0
	for i, s := range l.in.Seats {
		limit, unreadable := int(l.in.Limit(i)), s.TTL == 0
		if unreadable && s.Incarnation != l.in.Me.Incarnation { // perhaps it may have no more
			limit = max(held[i], 1)
		}
		mute := unreadable || slices.Contains(l.in.Broken, s.Incarnation) // its seat or its target cannot be read
		drained := l.in.Wants(lease.WishDrain, s.Name)
		// The planner sees a drained worker as one that leaves.
		w := rebalance.Worker{
			Name: s.Name, Tie: rebalance.Tie(string(s.Incarnation)), Labels: map[string]string{"task": s.Task, "build": s.Build},
			Limit: limit, Leaving: s.Leaving || drained, Cordoned: mute || l.in.Wants(lease.WishCordon, s.Name), Unwell: s.Health.Unwell != "",
		}
		if !w.Leaving && !w.Cordoned && !w.Unwell {
			fit++
		}
		l.View.Workers = append(l.View.Workers, w)
	}
	for i, s := range l.in.Seats {
		w := &l.View.Workers[i]
		if w.Unwell && s.Health.Trial && held[i] == 0 && fit < len(l.View.Shards) {
			w.Limit, w.Unwell = 1, false
		}
		l.anyFit = l.anyFit || !w.Leaving && !w.Cordoned && !w.Unwell
	}
	// If no worker may get shards, drained workers keep what they have.
	for i := range l.View.Workers {
		if w := &l.View.Workers[i]; !l.anyFit && l.drained(i) {
			w.Leaving, w.Cordoned, l.stuck = false, true, true
		}
	}
}

// open reports whether the worker may get shards. If only cordoned and unwell workers are left,
// they may.
func (l *Layout) open(at int) bool {
	w := &l.View.Workers[at]
	return !w.Leaving && !(l.anyFit && (w.Cordoned || w.Unwell))
}

// pin adds the pins that can be obeyed to View. A move is a pin that ends when the worker holds the shard.
func (l *Layout) pin() {
	loads := make([]int, len(l.in.Seats))
	for _, wish := range l.in.Wishes {
		compare := func(s rebalance.Place, name string) int { return strings.Compare(s.Name, name) }
		i, ok := slices.BinarySearchFunc(l.View.Shards, wish.Subject, compare)
		// A pin to a worker that is not there, or may not have the shard, is not obeyed; it stays for later plans.
		// If a shard has a move and a pin, the pin comes later and prevails.
		if !ok || wish.Kind != lease.WishMove && wish.Kind != lease.WishPin {
			continue
		}
		for at, w := range l.View.Workers {
			can := w.Name == wish.To && !w.Leaving && (l.open(at) || l.View.Shards[i].Owner == at) && !l.in.Declines(at, wish.Subject)
			if can && (w.Limit <= 0 || loads[at] < w.Limit) {
				l.View.Pins[i], l.obeyed[i] = at, wish
				loads[at]++
				break
			}
		}
	}
}

// Settle takes the answer of the planner: what [rebalance.Planner] returns for View. It changes to. It returns false if
// the planner has to be asked again, about View with more pins. That happens at most once.
func (l *Layout) Settle(to []int) (done bool) {
	l.To = to
	if !l.asked {
		l.asked = true
		if l.keep() {
			return false
		}
	}
	// Shards that stay are counted first, so that moves get only the room that is left.
	l.stay()
	l.move()
	l.correct()
	l.fill()
	return true
}

// keep reports whether held shards would move and may not, and pins these. Held shards stay where they are while the seats
// do not stand still, and while an operator pauses moves. The planner then plans again with the pins, and so does not fill
// the places of shards that have not moved yet.
func (l *Layout) keep() bool {
	if !l.moves() {
		return false
	}
	l.Held = !l.in.Still
	// A worker that leaves keeps nothing, unless nothing may move at all.
	all := l.Held || l.in.Wants(lease.WishPause, "") // also those of a worker that leaves
	if !all && !l.stuck {
		return false
	}
	for i, s := range l.View.Shards {
		if s.Owner != rebalance.Nobody && (all || !l.in.Seats[s.Owner].Leaving) {
			l.View.Pins[i] = s.Owner
		}
	}
	return true
}

// moves reports whether a held shard moves.
func (l *Layout) moves() bool {
	for i, s := range l.View.Shards {
		if s.Owner != rebalance.Nobody && l.To[i] != s.Owner {
			return true
		}
	}
	return false
}

// stay applies the pins, leaves a shard that the planner gives to nobody with its owner, and counts what stays.
func (l *Layout) stay() {
	l.Loads = make([]int, len(l.in.Seats))
	for i, s := range l.View.Shards {
		if at, pinned := l.View.Pins[i]; pinned {
			l.To[i] = at
		} else if l.To[i] == rebalance.Nobody {
			l.To[i] = s.Owner
		}
		if at := l.To[i]; at != rebalance.Nobody && at == s.Owner {
			l.Loads[at]++
		}
	}
}

// move makes the moves that have room. A held shard for which there is no room stays where it is.
func (l *Layout) move() {
	for i, s := range l.View.Shards {
		switch at := l.To[i]; {
		case at == s.Owner:
		case !l.full(at):
			l.Loads[at]++
		default:
			if l.To[i] = s.Owner; s.Owner != rebalance.Nobody {
				l.Loads[s.Owner]++
			}
		}
	}
}

// correct redirects a move if its destination declines the shard or may get no shards.
func (l *Layout) correct() {
	for i, at := range l.To {
		s := &l.View.Shards[i]
		wrong := at != s.Owner && (l.in.Declines(at, s.Name) || at != rebalance.Nobody && !l.open(at))
		if _, pinned := l.View.Pins[i]; pinned || !wrong {
			continue
		}
		if to := l.another(i, l.open); to != rebalance.Nobody {
			l.Loads[at]--
			l.Loads[to]++
			l.To[i] = to
		}
	}
}

// fill finds a worker for each shard that has none. A drained worker is better than none.
func (l *Layout) fill() {
	for i, at := range l.To {
		switch {
		case at != rebalance.Nobody:
			continue
		case !l.room():
			return
		}
		to := l.another(i, l.open)
		if to == rebalance.Nobody {
			to = l.another(i, l.drained)
		}
		if to != rebalance.Nobody {
			l.Loads[to]++
			l.To[i] = to
		}
	}
}

// room reports whether a worker that stays has room for a shard.
func (l *Layout) room() bool {
	for at := range l.in.Seats {
		if !l.in.Seats[at].Leaving && !l.full(at) {
			return true
		}
	}
	return false
}

// drained reports whether the worker is drained by a wish and is not leaving itself. It still gets a shard
// without an owner if no other worker has room, so that no shard waits for the end of a wish.
func (l *Layout) drained(at int) bool { return l.View.Workers[at].Leaving && !l.in.Seats[at].Leaving }

// full reports whether the worker has as many shards as it may have.
func (l *Layout) full(at int) bool {
	limit := l.View.Workers[at].Limit
	return limit > 0 && l.Loads[at] >= limit
}

// another returns a different worker for a shard: of those that may have it, one that has the fewest shards. If
// several have as few, it is the one that rebalance.Even chooses for this shard alone: its owner, if that is one of them.
func (l *Layout) another(i int, may func(at int) bool) int {
	least := math.MaxInt
	can := func(at int) bool { return may(at) && !l.full(at) && !l.in.Declines(at, l.View.Shards[i].Name) }
	for at, load := range l.Loads {
		if can(at) {
			least = min(least, load)
		}
	}
	v, seats := rebalance.View{Shards: slices.Clone(l.View.Shards[i : i+1])}, []int(nil)
	for at, load := range l.Loads {
		if load <= least && can(at) {
			w := l.View.Workers[at]
			w.Leaving = false // may has allowed it already, although a wish drains it
			v.Workers, seats = append(v.Workers, w), append(seats, at)
		}
	}
	v.Shards[0].Owner = slices.Index(seats, l.View.Shards[i].Owner) // Nobody, if its owner is none of these
	if to := (rebalance.Even{}).Plan(v)[0]; to != rebalance.Nobody {
		return seats[to]
	}
	return rebalance.Nobody
}

// Placed reports whether the plan has a worker for the shard. A worker that leaves counts only if the shard is pinned to
// it: no other plan is due when it is gone.
func (l *Layout) Placed(i int) bool {
	to := l.To[i]
	_, pinned := l.View.Pins[i]
	return to != rebalance.Nobody && (pinned || !l.in.Seats[to].Leaving)
}
