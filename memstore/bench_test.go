package memstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// BenchmarkCommit measures one commit.
func BenchmarkCommit(b *testing.B) {
	var store memstore.Store
	at := time.Now()
	stamp := func(n int) protocol.Stamp { return protocol.Stamp{ID: lease.WriteID(strconv.Itoa(n)), At: at} }
	write := func(w lease.Write, err error) lease.Row {
		if err != nil {
			b.Fatal(err)
		}
		r, err := store.Write(b.Context(), w)
		if err != nil {
			b.Fatal(err)
		}
		return r.(lease.Row)
	}
	r := write(protocol.Begin("orders", "shardId-000000000001", nil, "bench", stamp(-1)))
	r = write(protocol.Claim(r, lease.Owner{Name: "worker-1", Incarnation: "incarnation"}, stamp(-2)))
	hold := lease.Hold{Key: r.Key(), Incarnation: "incarnation", Generation: r.Generation, Order: checkpoint.Decimal}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		position := "4959033827149025660855969253836157109592157598913658" + strconv.Itoa(1e9+n)
		r = write(protocol.Commit(r, hold, checkpoint.Mark{Position: position}, stamp(n)))
	}
}
