package protocol_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
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
	key := lease.Key{Group: "orders", Kind: lease.KindLease, Name: "shard-1"}
	return &byHand{me: me, copy: protocol.NewCopy(key, me.Incarnation), store: store}
}

// look reads the row.
func (w *byHand) look(ctx context.Context) {
	if r, err := w.store.Get(ctx, lease.Key{Group: "orders", Kind: lease.KindLease, Name: "shard-1"}); err == nil {
		w.copy.Saw(r.(lease.Row))
	}
}

// write sends the write of a transition, and repeats the same bytes until the store answers. A
// real worker pauses in between, and stops when it no longer trusts its lease.
func (w *byHand) write(ctx context.Context, write lease.Write, err error) error {
	if err := errors.Join(err, w.copy.Send(write)); err != nil {
		return err
	}
	for ctx.Err() == nil {
		reply, err := w.store.Write(ctx, write)
		if answer := w.copy.Answer(write, reply, err); answer.Verdict != protocol.Unknown {
			return answer.Err()
		}
	}
	return ctx.Err()
}

func newStamp() protocol.Stamp { return protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()} }

// A worker is paused, replaced and woken up.
func Example() {
	ctx := context.Background()
	store := new(memstore.Store)

	a := newByHand(store, "a")
	write, err := protocol.Begin("orders", "shard-1", nil, "a", newStamp())
	fmt.Println("a creates the row: ", a.write(ctx, write, err))
	write, err = protocol.Claim(a.copy.Row(), a.me, newStamp())
	fmt.Println("a claims it:       ", a.write(ctx, write, err))
	hold, _ := a.copy.Start(checkpoint.Decimal)
	write, err = protocol.Commit(a.copy.Row(), hold, checkpoint.Mark{Position: "100"}, newStamp())
	fmt.Println("a commits 100:     ", a.write(ctx, write, err))

	// a is paused here. b has seen a's heartbeat counter stand still, and has evicted a.
	b := newByHand(store, "b")
	b.look(ctx)
	write, err = protocol.Recover(b.copy.Row(), b.me, newStamp())
	fmt.Println("b recovers it:     ", b.write(ctx, write, err))
	fmt.Println("b starts at:       ", b.copy.Row().Checkpoint.Position)

	// a wakes up, and does not know that it was evicted.
	write, err = protocol.Commit(a.copy.Row(), hold, checkpoint.Mark{Position: "101"}, newStamp())
	err = a.write(ctx, write, err)
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
	ctx := context.Background()
	store := new(memstore.Store)
	a, b := newByHand(store, "a"), newByHand(store, "b")
	write, err := protocol.Begin("orders", "shard-1", nil, "a", newStamp())
	fmt.Println(a.write(ctx, write, err))
	write, err = protocol.Claim(a.copy.Row(), a.me, newStamp())
	fmt.Println(a.write(ctx, write, err))
	hold, _ := a.copy.Start(checkpoint.Decimal)

	write, err = protocol.Offer(a.copy.Row(), hold, b.me.Incarnation, checkpoint.Mark{Position: "7"}, newStamp())
	fmt.Println("offered:", a.write(ctx, write, err))
	b.look(ctx)
	offered := b.copy.Row()
	write, err = protocol.Commit(a.copy.Row(), hold, checkpoint.Mark{Position: "8"}, newStamp())
	fmt.Println("still serving:", a.write(ctx, write, err))
	write, err = protocol.Take(offered, b.me, newStamp())
	fmt.Println("taken:", b.write(ctx, write, err), "starting at", b.copy.Row().Checkpoint.Position)
	// Output:
	// <nil>
	// <nil>
	// offered: <nil>
	// still serving: <nil>
	// taken: <nil> starting at 8
}
