package rebalance_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

var (
	_ rebalance.Handoff = rebalance.Eager
	_ rebalance.Handoff = rebalance.Terms{}
	_ rebalance.Handoff = rebalance.HandoffFunc(nil)
)

func TestTermsFill(t *testing.T) {
	const drain = 20 * time.Second
	for _, tc := range []struct{ given, want rebalance.Terms }{
		{rebalance.Eager.Terms("s", rebalance.Balance), rebalance.Terms{Mode: rebalance.Eager, Drain: drain}},
		{rebalance.Terms{Mode: rebalance.Cooperative, Drain: time.Second}, rebalance.Terms{Mode: rebalance.Cooperative, Drain: time.Second}},
		{rebalance.Terms{Mode: rebalance.Eager, Drain: -1, Prepare: -1}, rebalance.Terms{Mode: rebalance.Eager}},
	} {
		if got := tc.given.Fill(drain); got != tc.want {
			t.Errorf("%v filled is %v, want %v", tc.given, got, tc.want)
		}
	}
}
