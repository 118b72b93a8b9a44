package shardlease_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// What follows when two workers decide about one shard at the same time.

// hold makes the writes of a that are of interest wait until open is closed.
func (a *actor) hold(open <-chan struct{}, interesting func(lease.Write) bool) {
	a.watch(func(w lease.Write) {
		if interesting(w) {
			<-open
		}
	}, nil)
}

// TestLostClaimIsPlannedAgain: the claims of b, or its creations of rows, are so slow that a claims
// b's part first. When they are refused, b plans again, and the fleet is even within h + 1.5 s.
// Before, nothing told b to plan, and that took until its audit: 53 to 61 s.
func TestLostClaimIsPlannedAgain(t *testing.T) {
	for name, op := range map[string]lease.Op{"claim": lease.OpTransfer, "creation": lease.OpCreate} {
		t.Run(name, func(t *testing.T) { bubble(t, func(t *testing.T) { loseARace(t, op) }) })
	}
}

func loseARace(t *testing.T, op lease.Op) {
	s := newStage(t, 8)
	open := make(chan struct{})
	b := s.enter("b", shardlease.Config{Handoff: rebalance.Eager}, nil)
	b.hold(open, func(w lease.Write) bool { return w.Op == op && w.Key().Kind == lease.KindLease })
	time.Sleep(100 * time.Millisecond)
	s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
	s.within(4*beat, "a holds all", func() bool { return s.running()["a"] == 8 })
	close(open)
	took := s.shared(2*time.Minute, "a", "b")
	t.Logf("even %v after the claims were refused", took)
	if n := len(b.of(shardlease.Contended)); op == lease.OpTransfer && n == 0 || took > beat+1500*time.Millisecond {
		t.Errorf("%d claims were refused; even after %v", n, took)
	}
	s.end()
}
