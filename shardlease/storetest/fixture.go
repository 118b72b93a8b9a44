package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	group = "group"
	shard = "shard-0001"
)

// theRow returns the key of the row that most tests use.
func theRow() lease.Key { return lease.Key{Group: group, Kind: lease.KindLease, Name: shard} }

// A bench is one store under test and one shard, with short methods for what tests do with them.
type bench struct {
	*testing.T
	open  func(t *testing.T) lease.Store
	store lease.Store
	ids   int
}

// clock returns the time of every write. It stands still, because nothing in the contract may
// depend on it. It is in the future, so that a service that deletes expired tombstones does not
// delete these.
func clock() time.Time { return time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC) }

// stamp returns a new id and the time for the next write.
func (b *bench) stamp() protocol.Stamp {
	b.ids++
	return protocol.Stamp{ID: lease.WriteID(fmt.Sprintf("write-%06d", b.ids)), At: clock()}
}

func worker(name string) lease.Owner {
	return lease.Owner{Name: name, Incarnation: lease.Incarnation(name + "-incarnation"), Task: "nightly run"}
}

func hold(r lease.Row) lease.Hold {
	return lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation, Order: checkpoint.Decimal}
}

func reservation() lease.Reservation {
	return lease.Reservation{For: "c", Lasts: 1500 * time.Millisecond}
}

func mark(position string) checkpoint.Mark {
	return checkpoint.Mark{Position: position, State: "state of " + position}
}

// send makes a write that a transition must allow.
func (b *bench) send(w lease.Write, err error) (lease.Record, error) {
	b.Helper()
	if err != nil {
		b.Fatalf("no such write: %v", err)
	}
	return b.store.Write(b.Context(), w)
}

// put makes a write that the store must accept.
func (b *bench) put(w lease.Write, err error) lease.Row {
	b.Helper()
	return kept[lease.Row](b)(w, err)
}

// putSeat makes a write of a seat that the store must accept.
func (b *bench) putSeat(w lease.Write, err error) lease.Seat {
	b.Helper()
	return kept[lease.Seat](b)(w, err)
}

// race makes eight writes at once.
func (b *bench) race(make func(i int) (lease.Write, error)) (writes [8]lease.Write, errs [8]error) {
	b.Helper()
	for i := range writes {
		w, err := make(i)
		if err != nil {
			b.Fatalf("no such write: %v", err)
		}
		writes[i] = w
	}
	var all sync.WaitGroup
	for i := range writes {
		all.Go(func() { _, errs[i] = b.store.Write(b.Context(), writes[i]) })
	}
	all.Wait()
	return writes, errs
}

// refuse makes a write that the store must refuse without a change.
func (b *bench) refuse(w lease.Write, err error) lease.Record {
	b.Helper()
	if err != nil {
		b.Fatalf("no such write: %v", err)
	}
	before := b.look(w.Key())
	_, err = b.store.Write(b.Context(), w)
	refused, ok := errors.AsType[*lease.RefusedError](err)
	if !ok {
		b.Fatalf("got %v, want a refusal", err)
	}
	equal(b, "the row after a refusal", b.look(w.Key()), before)
	equal(b, "the row in the refusal", refused.Now, before)
	return refused.Now
}

// look returns the stored record, or nil if there is none.
func (b *bench) look(k lease.Key) lease.Record {
	b.Helper()
	r, err := b.store.Get(b.Context(), k)
	if errors.Is(err, lease.ErrNotFound) {
		return nil
	}
	if err != nil {
		b.Fatalf("Get: %v", err)
	}
	return r
}

func (b *bench) row() lease.Row {
	b.Helper()
	r, _ := b.look(theRow()).(lease.Row)
	return r
}

// list returns all records of a kind, none of which may be malformed.
func (b *bench) list(kind lease.Kind) []lease.Record {
	b.Helper()
	var records []lease.Record
	for r, err := range b.store.List(b.Context(), lease.Query{Group: group, Kind: kind}) {
		if err != nil {
			b.Fatalf("List: %v", err)
		}
		records = append(records, r)
	}
	return records
}

func equal[T any](b *bench, what string, got, want T) {
	b.Helper()
	if !reflect.DeepEqual(got, want) {
		b.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// free creates the row of the shard, without an owner.
func (b *bench) free() lease.Row {
	return b.put(protocol.Begin(group, shard, nil, "source", b.stamp()))
}

// held creates the row of the shard, with an owner of that name and a checkpoint.
func (b *bench) held(name string) lease.Row {
	b.Helper()
	r := b.put(protocol.Claim(b.free(), worker(name), b.stamp()))
	return b.put(protocol.Commit(r, hold(r), mark("100"), b.stamp()))
}

// named creates the row of the shard as a session does: held, without a checkpoint.
func (b *bench) named(name string) lease.Row {
	b.Helper()
	by := worker(name)
	by.LockDelay = 1500 * time.Millisecond
	return b.put(protocol.BeginHeld(group, shard, by, b.stamp()))
}

// discarded creates the tombstone that a session leaves when it gives the lease up.
func (b *bench) discarded(name string) lease.Row {
	b.Helper()
	r := b.named(name)
	return b.put(protocol.Discard(r, hold(r), protocol.End{Reason: lease.ReasonReleased}, b.stamp()))
}

// seat creates a confirmed seat.
func (b *bench) seat(name string) lease.Seat {
	b.Helper()
	return b.putSeat(protocol.NextBeat(b.putSeat(b.sit(name)), lease.Says{}, b.stamp()))
}

func (b *bench) sit(name string) (lease.Write, error) {
	return protocol.Sit(newSeat(name), b.stamp())
}

func newSeat(name string) lease.Seat {
	me := worker(name)
	return lease.Seat{
		Group: group, Incarnation: me.Incarnation, Name: me.Name, Task: me.Task,
		TTL: 10 * time.Second, MaxShards: 12,
	}
}

func wants(r lease.Row) []lease.Want {
	return []lease.Want{{
		Shard: r.Shard, Generation: r.Generation,
		Terms: rebalance.Terms{Mode: rebalance.Cooperative, Drain: 20 * time.Second, Prepare: time.Second},
	}}
}
