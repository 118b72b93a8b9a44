package protocol_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// byHand is a worker of one shard that is written by hand. The library's worker does all this
// for its user; the example shows how the parts fit together.
type byHand struct {
	me    lease.Owner
	copy  protocol.Copy
	store lease.Store
}

func newByHand(store lease.Store, name string) *byHand {
	me := lease.Owner{Name: name, Incarnation: lease.Incarnation(rand.Text())}
	return &byHand{me: me, copy: protocol.NewCopy(fixture.Key, me.Incarnation), store: store}
}

// look reads the row.
func (w *byHand) look() {
	if r, err := w.store.Get(context.Background(), fixture.Key); err == nil {
		w.copy.Saw(r.(lease.Row))
	}
}

// write sends the write of a transition, and repeats the same bytes until the store answers. A
// real worker pauses in between, and stops when it no longer trusts its lease.
func (w *byHand) write(write lease.Write, err error) error {
	if err := errors.Join(err, w.copy.Send(write)); err != nil {
		return err
	}
	for {
		reply, err := w.store.Write(context.Background(), write)
		if answer := w.copy.Answer(write, reply, err); answer.Verdict != protocol.Unknown {
			return answer.Err()
		}
	}
}

// A worker is paused, replaced and woken up.
func Example() {
	store := new(memstore.Store)

	a := newByHand(store, "a")
	fmt.Println("a creates the row: ", a.write(protocol.Begin("orders", "shard-1", nil, "a", stamp())))
	fmt.Println("a claims it:       ", a.write(protocol.Claim(a.copy.Row(), a.me, stamp())))
	hold, _ := a.copy.Start(checkpoint.Decimal)
	fmt.Println("a commits 100:     ", a.write(protocol.Commit(a.copy.Row(), hold, at("100"), stamp())))

	// a is paused here. b has seen a's heartbeat counter stand still, and has evicted a.
	b := newByHand(store, "b")
	b.look()
	fmt.Println("b recovers it:     ", b.write(protocol.Recover(b.copy.Row(), b.me, stamp())))
	fmt.Println("b starts at:       ", b.copy.Row().Checkpoint.Position)

	// a wakes up, and does not know that it was evicted.
	err := a.write(protocol.Commit(a.copy.Row(), hold, at("101"), stamp()))
	fmt.Println("a commits 101, stale:", errors.Is(err, checkpoint.ErrStale))
	// Output:
	// a creates the row:  <nil>
	// a claims it:        <nil>
	// a commits 100:      <nil>
	// b recovers it:      <nil>
	// b starts at:        100
	// a commits 101, stale: true
}

// A cooperative move: the owner processes the shard until its successor has taken it over.
func ExampleTake() {
	store := new(memstore.Store)
	a, b := newByHand(store, "a"), newByHand(store, "b")
	fmt.Println(a.write(protocol.Begin("orders", "shard-1", nil, "a", stamp())))
	fmt.Println(a.write(protocol.Claim(a.copy.Row(), a.me, stamp())))
	hold, _ := a.copy.Start(checkpoint.Decimal)

	fmt.Println("offered:", a.write(protocol.Offer(a.copy.Row(), hold, b.me.Incarnation, at("7"), stamp())))
	b.look()
	offered := b.copy.Row()
	fmt.Println("still serving:", a.write(protocol.Commit(a.copy.Row(), hold, at("8"), stamp())))
	fmt.Println("taken:", b.write(protocol.Take(offered, b.me, stamp())), "starting at", b.copy.Row().Checkpoint.Position)
	// Output:
	// <nil>
	// <nil>
	// offered: <nil>
	// still serving: <nil>
	// taken: <nil> starting at 8
}
