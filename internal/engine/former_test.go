package engine_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// aboutPeers are the events about other workers and sessions.
var aboutPeers = []event.Kind{event.PeerJoined, event.PeerLeft, event.PeerLeaving, event.PeerSuspect, event.PeerEvicted}

// TestOwnFormerSeatIsNoPeer: a worker loses its trust while nothing answers, and takes another seat. It finds its former seat,
// and deletes it or sees that it is gone. No event reports that as something about another worker.
func TestOwnFormerSeatIsNoPeer(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		f := newFleet(t, 2, 0, rebalance.Eager)
		a := f.enter("a", f.config)
		f.until(30*time.Second, f.even)
		deaf, former := true, f.seat(a)
		a.mute = func(o engine.Output) bool { return deaf || byHand && deletes(o) && sends(o, lease.KindSeat) }
		f.until(2*leaseTime, func() bool { return len(a.reports(event.Lost)) > 0 })
		deaf = false
		stands := func() bool { return f.table.Read(former.Key()) != nil }
		f.until(time.Minute, func() bool { return f.seat(a).Beat > 0 && f.seat(a).Incarnation != former.Incarnation })
		f.Run(time.Second)
		if byHand {
			if !stands() {
				t.Fatal("its former seat is gone")
			}
			f.Run(beat)
			f.write(protocol.Evict(former))
		}
		f.until(time.Minute, func() bool { return !stands() })
		f.Run(time.Minute)
		a.never(aboutPeers...)
	}
}

// TestOwnFormerSessionIsNoPeer: a session loses its trust while nothing answers. It acquires the lease again that its former
// incarnation holds, and evicts that one, because its first deletion of the former seat is lost.
func TestOwnFormerSessionIsNoPeer(t *testing.T) {
	f := newContest(t, 1)
	a := f.join("a")
	f.Run(time.Second)
	a.lock()
	f.Run(10 * time.Second)
	deaf, deletions := true, 0
	a.mute = func(o engine.Output) bool {
		if !deaf && deletes(o) {
			deletions++
		}
		return deaf || deletes(o) && deletions == 1
	}
	f.until(2*leaseTime, func() bool { return len(a.reports(event.Lost)) > 0 })
	deaf = false
	a.acquire("lock")
	f.until(time.Minute, func() bool { return a.holds("lock") })
	f.Run(time.Minute)
	if a.never(aboutPeers...); deletions < 2 {
		t.Errorf("%d deletions of the former seat", deletions)
	}
}
