package layout

import (
	"fmt"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestCauses: a shard that the plan assigns to another worker has the strongest of the causes that are true of it. A shard
// that stays, or that had no worker, has none.
func TestCauses(t *testing.T) {
	seat := func(name string, edits ...func(*lease.Seat)) lease.Seat {
		s := lease.Seat{Group: "g", Incarnation: lease.Incarnation(name), Name: name, TTL: 1, Beat: 1}
		for _, edit := range edits {
			edit(&s)
		}
		return s
	}
	leaves := func(s *lease.Seat) { s.Leaving = true }
	declines := func(s *lease.Seat) { s.News = append(s.News, lease.News{Kind: lease.NewsDeclined, Shard: "s"}) }
	drain := lease.Wish{Kind: lease.WishDrain, Subject: "a", By: "ann", Why: "disk is slow"}
	move := lease.Wish{Kind: lease.WishMove, Subject: "s", To: "b", By: "bob"}
	pin := lease.Wish{Kind: lease.WishPin, Subject: "s", To: "b", By: "cid", Why: "warm cache"}
	pause := lease.Wish{Kind: lease.WishPause, By: "dan"}
	even, other := []int{0}, []int{1}
	none, by := lease.MoveCause{}, func(why rebalance.Why, note string) lease.MoveCause {
		return lease.MoveCause{Why: why, Note: note}
	}
	for name, c := range map[string]struct {
		a, b   lease.Seat
		owner  int
		wishes []lease.Wish
		to     []int // the answer of the planner
		want   lease.MoveCause
	}{
		"the shard stays":                        {seat("a"), seat("b"), 0, nil, even, none},
		"nobody had it":                          {seat("a"), seat("b"), rebalance.Nobody, nil, other, none},
		"nobody gets it":                         {seat("a", leaves), seat("b", leaves), 0, nil, []int{rebalance.Nobody}, none},
		"the planner moves it":                   {seat("a"), seat("b"), 0, nil, other, by(rebalance.Balance, "")},
		"its worker leaves":                      {seat("a", leaves), seat("b"), 0, nil, other, by(rebalance.Leaving, "")},
		"its worker is drained":                  {seat("a"), seat("b"), 0, []lease.Wish{drain}, other, by(rebalance.Drained, "by ann: disk is slow")},
		"another worker is drained":              {seat("a"), seat("b"), 1, []lease.Wish{drain}, other, none},
		"its worker is cordoned":                 {seat("a"), seat("b"), 0, []lease.Wish{{Kind: lease.WishCordon, Subject: "a", By: "ann"}}, other, by(rebalance.Balance, "")},
		"an operator moves it":                   {seat("a"), seat("b"), 0, []lease.Wish{move}, even, by(rebalance.Ordered, "by bob")},
		"it is pinned":                           {seat("a"), seat("b"), 0, []lease.Wish{pin}, even, by(rebalance.Pinned, "by cid: warm cache")},
		"it is pinned where it is":               {seat("b"), seat("c"), 0, []lease.Wish{pin}, other, none},
		"it is pinned, and moves are paused":     {seat("a"), seat("b"), 0, []lease.Wish{pause, pin}, even, none},
		"it is pinned to nobody":                 {seat("a"), seat("c"), 0, []lease.Wish{pin}, other, by(rebalance.Balance, "")},
		"its worker declines it":                 {seat("a", declines), seat("b"), 0, nil, other, by(rebalance.Returned, "")},
		"nobody declines it":                     {seat("a"), seat("b", declines), 0, nil, even, none},
		"pinned, of a worker that leaves":        {seat("a", leaves), seat("b"), 0, []lease.Wish{drain, pin}, even, by(rebalance.Leaving, "")},
		"pinned, of a worker that is drained":    {seat("a"), seat("b"), 0, []lease.Wish{drain, pin}, other, by(rebalance.Pinned, "by cid: warm cache")},
		"moved and pinned":                       {seat("a"), seat("b"), 0, []lease.Wish{move, pin}, even, by(rebalance.Pinned, "by cid: warm cache")},
		"declined by a worker that is drained":   {seat("a", declines), seat("b"), 0, []lease.Wish{drain}, other, by(rebalance.Returned, "")},
		"pinned, and its worker declines it":     {seat("a", declines), seat("b"), 0, []lease.Wish{pin}, other, by(rebalance.Pinned, "by cid: warm cache")},
		"declined, and no other worker can have": {seat("a", declines), seat("b", declines), 0, nil, []int{rebalance.Nobody}, none},
	} {
		l := New(Input{
			Seats: []lease.Seat{c.a, c.b}, Wishes: c.wishes, Still: true,
			Shards: []rebalance.Place{{Name: "s", Owner: c.owner, Tie: rebalance.Tie("s")}},
		})
		for done := false; !done; {
			to := c.to[0]
			if at, pinned := l.View.Pins[0]; pinned {
				to = at
			}
			done = l.Settle([]int{to})
		}
		if got := l.Cause(0); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: the shard moves from %d to %d because of %v %q, want %v %q", name, l.Before(0), l.To[0], got.Why, got.Note, c.want.Why, c.want.Note)
		}
	}
}

// TestReturnedToItsGiver: a shard that its worker declines goes back to the worker that should have given it; while moves are
// paused, also if it is pinned to a third.
func TestReturnedToItsGiver(t *testing.T) {
	declines := lease.Says{News: []lease.News{{Kind: lease.NewsDeclined, Shard: "s"}}}
	for _, wishes := range [][]lease.Wish{nil, {{Kind: lease.WishPause}, {Kind: lease.WishPin, Subject: "s", To: "c", By: "cid"}}} {
		l := New(Input{
			Seats:  []lease.Seat{{Incarnation: "a", Name: "a", TTL: 1}, {Incarnation: "b", Name: "b", TTL: 1, Says: declines}, {Incarnation: "c", Name: "c", TTL: 1}},
			Wishes: wishes,
			Targets: []lease.Target{
				{Incarnation: "a", Give: []lease.Give{{Shard: "s", To: "b"}}},
				{Incarnation: "b", Hold: []lease.Assigned{{Shard: "s"}}},
			},
			Still: true, Shards: []rebalance.Place{{Name: "s", Owner: 1, Tie: rebalance.Tie("s")}},
		})
		for !l.Settle(rebalance.Even{}.Plan(l.View)) {
		}
		if l.To[0] != 0 || l.Before(0) != 1 || l.Cause(0).Why != rebalance.Returned {
			t.Errorf("with the wishes %v: from %d to %d because of %v", wishes, l.Before(0), l.To[0], l.Cause(0).Why)
		}
	}
}

// TestOutlasts: a shard that has not moved yet still moves because its owner leaves or is drained, if the next plan only
// chooses another worker. A wish of an operator, or a worker that leaves now, counts more.
func TestOutlasts(t *testing.T) {
	strong := []rebalance.Why{rebalance.Leaving, rebalance.Drained}
	for _, before := range fixture.Kinds[rebalance.Why](t) {
		for _, next := range fixture.Kinds[rebalance.Why](t) {
			want := (before == strong[0] || before == strong[1]) && (next == rebalance.Balance || next == rebalance.Returned)
			if got := Outlasts(before, next); got != want {
				t.Errorf("%v, then %v: %v", before, next, got)
			}
		}
	}
}
