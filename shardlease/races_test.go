package shardlease_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// In these tests two workers decide about one shard at the same time.

// gate returns a link on which writes of rows with this Op wait until open is called.
func (s *stage) gate(op lease.Op) (link *storetest.Link, open func()) {
	opened := make(chan struct{})
	open = sync.OnceFunc(func() { close(opened) })
	s.rescue, link = open, storetest.NewLink(s.store)
	link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if w.Op == op && w.Key().Kind == lease.KindLease {
			<-opened
		}
		return send()
	})
	return link, open
}

// TestSlowClaimsKeepTheirShards: the claims of b, or its creations of rows, are so slow that a joins
// meanwhile. Worker a claims what the plan gives to it, and not what it gives to b, which lives. When
// b's writes are answered, the shards are evenly distributed within h + 1.5 s. Before, a claimed b's part
// too, and b planned again only at its next audit, after 53 to 61 s.
func TestSlowClaimsKeepTheirShards(t *testing.T) {
	for name, op := range map[string]lease.Op{"claim": lease.OpTransfer, "creation": lease.OpCreate} {
		subtest(t, name, func(t *testing.T) { slowClaims(t, op) })
	}
}

// TestClaimOfAnAdoptedRow: a claim is refused because an operator has adopted the row in
// between. No worker holds the shard, so the worker plans again and claims it. Before, it
// claimed the shard only at its next audit, after 60 s.
func TestClaimOfAnAdoptedRow(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		gate, open := s.gate(lease.OpTransfer)
		a := s.enterOn(gate, "a", shardlease.Config{Handoff: rebalance.Eager}, serve)
		time.Sleep(time.Second)
		s.write(protocol.Adopt(s.row("shard-00"), "op", fixture.Stamp()))
		open()
		took := s.within(2*time.Minute, "a holds it", func() bool { return s.running()["a"] == 1 })
		if n := len(a.of(event.Contended)); n != 1 || took > 1500*time.Millisecond {
			t.Errorf("%d claims were refused; held after %v", n, took)
		}
	})
}

func slowClaims(t *testing.T, op lease.Op) {
	s := newStage(t, 8)
	gate, open := s.gate(op)
	b := s.enterOn(gate, "b", shardlease.Config{Handoff: rebalance.Eager}, nil)
	time.Sleep(100 * time.Millisecond)
	a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
	s.within(beat+1500*time.Millisecond, "a holds its part", func() bool { return s.running()["a"] == 4 })
	time.Sleep(4 * beat)
	if n := s.running()["a"]; n != 4 || len(a.of(event.Contended)) > 0 {
		t.Errorf("a holds %d shards, and %d of its claims were refused", n, len(a.of(event.Contended)))
	}
	open()
	took := s.shared(2*time.Minute, "a", "b")
	t.Logf("even %v after the claims were answered; %d were refused", took, len(b.of(event.Contended)))
	if took > beat+1500*time.Millisecond {
		t.Errorf("even after %v", took)
	}
	a.never(t, event.Requested)
	b.never(t, event.Requested)
}
