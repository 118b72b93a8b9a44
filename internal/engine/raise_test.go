package engine

import (
	"testing"

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
