package lease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var ids int

func stamp() protocol.Stamp {
	ids++
	return protocol.Stamp{ID: lease.WriteID(fmt.Sprint("write-", ids)), At: time.Date(2026, 11, 21, 10, 0, 0, 123456789, time.Local)}
}

func owner(name string) lease.Owner {
	return lease.Owner{Name: name, Incarnation: lease.Incarnation(name + "-1")}
}

func at(position string) checkpoint.Mark { return checkpoint.Mark{Position: position} }

func handle(r lease.Row) lease.Hold {
	return lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation, Order: checkpoint.Decimal}
}

// next applies a write to the row from which it was made.
func next(t *testing.T, w lease.Write, err error) lease.Row {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	after, err := w.Apply(w.Old)
	if err != nil {
		t.Fatal(err)
	}
	return after.(lease.Row)
}

func freeRow(t *testing.T) lease.Row {
	t.Helper()
	w, err := protocol.Begin("orders", "shard-1", nil, "source", stamp())
	return next(t, w, err)
}

func heldRow(t *testing.T, name string) lease.Row {
	t.Helper()
	w, err := protocol.Claim(freeRow(t), owner(name), stamp())
	return next(t, w, err)
}
