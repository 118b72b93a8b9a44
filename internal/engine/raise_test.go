package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestCheckStandsUntilItPasses: a check whose raise does not pass stays the only one, although other fences are raised: the
// shell repeats it, and each further one would be one more.
func TestCheckStandsUntilItPasses(t *testing.T) {
	f, first := newRaiser(), Tenure{Shard: "first", Generation: 1}
	f.check = first
	if f.raised(new(turn), nil, Raised{Tenure: Tenure{Shard: "other", Generation: 1}, All: true}); f.check != first {
		t.Error("a raise of another shard has ended the check")
	}
	if f.raised(new(turn), nil, Raised{Tenure: first, All: true}); f.check != (Tenure{}) {
		t.Error("the check has passed, and stands")
	}
}

// TestHandOverRaisesFirst: the fences are raised beside the handler only if the owner has offered the shard and this worker
// has taken it. If the owner has handed it over by itself, in whatever mode, its handler has ended already.
func TestHandOverRaisesFirst(t *testing.T) {
	for _, tc := range []struct {
		name string
		last lease.Transfer
		want Raise
	}{
		{"claimed", lease.Transfer{Reason: lease.ReasonReleased, By: "b"}, RaiseFirst},
		{"recovered", lease.Transfer{Reason: lease.ReasonExpired, From: "a", By: "b"}, RaiseFirst},
		{"seized", lease.Transfer{Reason: lease.ReasonDrainTimeout, From: "a", By: "b", Mode: rebalance.Eager}, RaiseFirst},
		{"eager", lease.Transfer{Reason: lease.ReasonHandoff, From: "a", By: "a", Mode: rebalance.Eager}, RaiseFirst},
		{"taken", lease.Transfer{Reason: lease.ReasonHandoff, From: "a", By: "b", Mode: rebalance.Cooperative}, RaiseBeside},
		{"handed over in a cooperative move", lease.Transfer{Reason: lease.ReasonHandoff, From: "a", By: "a", Mode: rebalance.Cooperative}, RaiseFirst},
	} {
		if got := raises(&turn{cfg: Config{Targets: true}}, tc.last); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if got := raises(&turn{}, tc.last); got != RaiseNothing {
			t.Errorf("%s, without a target: %v", tc.name, got)
		}
	}
}

// TestAnswerToEarlierRaises: when the raises of a tenure have begun again, because an operator wants it, an answer to
// earlier ones does not end them.
func TestAnswerToEarlierRaises(t *testing.T) {
	f, s := newRaiser(), &shard{t: &tenure{raise: raising{on: true, round: 2}}}
	for _, round := range []int{0, 1, 2} {
		if f.raised(&turn{}, s, Raised{All: true, Round: round}); s.t.raise.on != (round < 2) {
			t.Errorf("after the answer to round %d: %+v", round, s.t.raise)
		}
	}
}

// TestLastRaisePasses: a raise passes after giveUp has chosen a tenure. If its handler does not drain yet, the tenure stays. If
// the handler drains already, the tenure is given up, with the reason of giveUp.
func TestLastRaisePasses(t *testing.T) {
	for _, draining := range []bool{false, true} {
		f, s := newRaiser(), &shard{t: &tenure{raise: raising{on: true, out: "why"}, wind: winding{draining: draining}}}
		if f.raised(&turn{}, s, Raised{All: true}); (s.t.raise.out != "") != draining {
			t.Errorf("draining %t: the tenure is given up: %q", draining, s.t.raise.out)
		}
	}
}

// TestOneWellWorkerIsEnough: a worker whose raises fail, and which does not list the seats, reads those of all watchers
// until one is well, and then only that one. When that worker is unwell too, it reads all again, unless it knows of another
// well one.
func TestOneWellWorkerIsEnough(t *testing.T) {
	turn := &turn{cfg: Config{Group: "orders"}, beat: time.Second, large: true, step: 1, now: Moment{Mono: 1}}
	watchers := []lease.Incarnation{"a", "b", "c", "d"}
	f := new(fleet)
	f.watch.plan.Watchers, f.duty.watchers, f.duty.members = watchers, watchers, 12
	f.seat.me = "e"
	round := func(unwell ...lease.Incarnation) (read int, able bool) {
		turn.step, turn.now.Mono, turn.out = turn.step+1, turn.now.Mono.Add(time.Second), nil
		able = f.able(turn)
		for _, out := range turn.out {
			get := out.(Get)
			inc := lease.Incarnation(get.Key.Name)
			seat := lease.Seat{Group: "orders", Incarnation: inc, Beat: 1}
			if slices.Contains(unwell, inc) {
				seat.Health.Unwell = "it is"
			}
			f.owners.got(turn, Got{Read: get.Read, Key: get.Key, Record: seat})
		}
		return len(turn.out), able
	}
	for i, want := range []struct {
		unwell []lease.Incarnation
		read   int
		able   bool
	}{{watchers, 4, false}, {watchers[:2], 4, false}, {nil, 1, true}, {watchers, 1, true}, {watchers, 1, true}, {nil, 4, false}, {nil, 1, true}} {
		if read, able := round(want.unwell...); read != want.read || able != want.able {
			t.Errorf("round %d: %d seats are read, and another worker is well: %t; want %d, %t", i, read, able, want.read, want.able)
		}
	}
}
