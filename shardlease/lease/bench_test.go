package lease_test

import (
	"testing"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// typicalRow returns a row as most rows of a fleet are: held, with a checkpoint and a few
// earlier changes of hands.
func typicalRow(b *testing.B) lease.Row {
	b.Helper()
	owner := func(name string) lease.Owner {
		return lease.Owner{Name: "consumer-" + name, Incarnation: lease.Incarnation("ABCDEFGHIJKLMNOPQRSTUVWX" + name)}
	}
	r := next(b)(protocol.Begin("orders", "shardId-000000000042", nil, "consumer-a", stamp()))
	r = next(b)(protocol.Claim(r, owner("a"), stamp()))
	for _, name := range []string{"b", "c", "d"} {
		r = next(b)(protocol.Recover(r, owner(name), stamp()))
	}
	return next(b)(protocol.Commit(r, handle(r), at("49590338271490256608559692538361571095921575989136588898"), stamp()))
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
