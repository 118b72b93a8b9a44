package engine

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestListedOwners: a worker of a large fleet that has to know of many owners lists the seats once. Like a
// read of one seat, the listing counts for rows that were read before it was sent, and for no others.
func TestListedOwners(t *testing.T) {
	turn := &turn{cfg: Config{Group: "orders"}, beat: time.Second, large: true, step: 1, now: Moment{Mono: 1}}
	seat := func(inc lease.Incarnation) lease.Seat { return lease.Seat{Incarnation: inc, Beat: 1} }
	o, asked := owners{}, []lease.Incarnation{"a", "b", "c", "d"}
	ask := func(since order, want ...ownerState) {
		t.Helper()
		for i, inc := range asked {
			if state, _ := o.owner(turn, inc, since); state != want[i] {
				t.Errorf("%s is %v, want %v", inc, state, want[i])
			}
		}
	}
	ask(1, asking, asking, asking, asking)
	if !o.keep(turn, false, 12) || len(turn.out) > 0 {
		t.Errorf("four owners of twelve workers are asked for one by one: %v", turn.out)
	}
	unreadable := []Unreadable{{Key: lease.Key{Kind: lease.KindSeat, Name: "d"}}}
	show := func(begun order, part bool) {
		turn.step, turn.now.Mono = turn.step+1, turn.now.Mono+1
		if !o.saw(turn, sighting{seats: []lease.Seat{seat("a"), {Incarnation: "c"}}, unreadable: unreadable, begun: begun}, part) {
			t.Error("the listing was wanted by nobody")
		}
	}
	show(1, true)
	ask(1, asking, asking, asking, asking)
	o.keep(turn, false, 12)
	show(1, false)
	ask(1, alive, gone, gone, alive) // an unconfirmed seat is none
	ask(2, alive, asking, asking, alive)
	if o.keep(turn, false, 12) || len(turn.out) != 2 {
		t.Errorf("two owners are not asked for one by one: %v", turn.out)
	}
}

// TestFewOwners: a worker that lists the seats anyway, one of a small fleet, and one that asks for a few owners
// read the seats one by one.
func TestFewOwners(t *testing.T) {
	for _, c := range []struct {
		large, watching bool
		members         int64
	}{{false, false, 4}, {true, true, 12}, {true, false, 24}} {
		turn, o := &turn{cfg: Config{Group: "orders"}, beat: time.Second, large: c.large, step: 1, now: Moment{Mono: 1}}, owners{}
		for _, inc := range []lease.Incarnation{"a", "b", "c", "d"} {
			o.owner(turn, inc, 1)
		}
		if o.keep(turn, c.watching, c.members) || len(turn.out) != 4 {
			t.Errorf("%+v: %v", c, turn.out)
		}
	}
}
