//go:build unix

package store

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestProcessorTimeOfCalls prints how much processor time of this process calls take, sixteen of them at a time. The
// prices in internal/proof/scale are these at full size.
func TestProcessorTimeOfCalls(t *testing.T) {
	local.Beside(t)
	s := local.Open(t, local.Client(t, func(plain http.RoundTripper) http.RoundTripper { return plain }), local.Table(t))
	const group = "orders"
	seats, calls := fixture.Size(20, 200), fixture.Size(40, 1600)
	stamp := func(id string, n int) protocol.Stamp {
		return protocol.Stamp{ID: lease.WriteID(fmt.Sprintf("%s-%022d", id, n)), At: time.Now()}
	}
	write := func(w lease.Write, err error) lease.Record {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Write(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i := range seats {
		write(protocol.Sit(lease.Seat{
			Group: group, Incarnation: lease.Incarnation(fmt.Sprintf("seat-%022d", i)), Name: fmt.Sprintf("ip-10-000-000-%03d.ec2.internal-12345-abcde", i), TTL: 10 * time.Second,
		}, stamp("sit", i)))
	}
	rows := make([]lease.Row, calls)
	measure := func(what string, n, per int, call func(i int)) {
		before := used(t)
		var wg sync.WaitGroup
		for at := range 16 {
			wg.Go(func() {
				for i := at; i < n; i += 16 {
					call(i)
				}
			})
		}
		wg.Wait()
		t.Logf("%s: %v", what, (used(t)-before)/time.Duration(n*per))
	}
	me := lease.Owner{Name: "worker", Incarnation: "me"}
	measure("create a row", calls, 1, func(i int) {
		rows[i] = write(protocol.Begin(group, fmt.Sprintf("shardId-%012d", i), nil, "worker", stamp("begin", i))).(lease.Row)
	})
	measure("claim a row", calls, 1, func(i int) { rows[i] = write(protocol.Claim(rows[i], me, stamp("claim", i))).(lease.Row) })
	measure("commit", calls, 1, func(i int) {
		hold := lease.Hold{Key: rows[i].Key(), Incarnation: me.Incarnation, Generation: rows[i].Generation}
		rows[i] = write(protocol.Commit(rows[i], hold, checkpoint.Mark{Position: fmt.Sprintf("%056d", i)}, stamp("commit", i))).(lease.Row)
	})
	measure("read a row", calls, 1, func(i int) {
		if _, err := s.Get(t.Context(), rows[i].Key()); err != nil {
			t.Error(err)
		}
	})
	list := func(q lease.Query, most int) func(int) {
		return func(int) {
			n := 0
			for _, err := range s.List(t.Context(), q) {
				if err != nil {
					t.Error(err)
				}
				n++
			}
			if n != most {
				t.Errorf("%d records, not %d", n, most)
			}
		}
	}
	measure("a listing of 1 seat", calls, 1, list(lease.Query{Group: group, Kind: lease.KindSeat, Limit: 1, Eventually: true}, 1))
	measure("a seat in a listing of all", calls/4, seats, list(lease.Query{Group: group, Kind: lease.KindSeat, Eventually: true}, seats))
	measure("a row in a listing of all", 32, calls, list(lease.Query{Group: group, Kind: lease.KindLease}, calls))
}

// used returns the processor time that this process has used.
func used(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
