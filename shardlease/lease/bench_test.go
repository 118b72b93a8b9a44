package lease_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// typicalRow returns a row as most rows of a fleet are: held, with a checkpoint and a few
// earlier changes of hands.
func typicalRow(b *testing.B) lease.Row {
	b.Helper()
	step := func(w lease.Write, err error) lease.Row {
		if err != nil {
			b.Fatal(err)
		}
		return w.Next.(lease.Row)
	}
	stamp := func() protocol.Stamp { return protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()} }
	owner := func(name string) lease.Owner {
		return lease.Owner{Name: "consumer-" + name, Incarnation: lease.Incarnation("ABCDEFGHIJKLMNOPQRSTUVWX" + name)}
	}
	r := step(protocol.Begin("orders", "shardId-000000000042", nil, "consumer-a", stamp()))
	r = step(protocol.Claim(r, owner("a"), stamp()))
	for _, name := range []string{"b", "c", "d"} {
		r = step(protocol.Recover(r, owner(name), stamp()))
	}
	h := lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation}
	return step(protocol.Commit(r, h, checkpoint.Mark{Position: "49590338271490256608559692538361571095921575989136588898"}, stamp()))
}

// BenchmarkEncode and BenchmarkDecode measure what a worker does with each row that it writes
// and lists.
func BenchmarkEncode(b *testing.B) {
	r := typicalRow(b)
	b.ReportAllocs()
	for b.Loop() {
		lease.Encode(r)
	}
}

func BenchmarkDecode(b *testing.B) {
	item := lease.Encode(typicalRow(b))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := lease.Decode(item); err != nil {
			b.Fatal(err)
		}
	}
}
