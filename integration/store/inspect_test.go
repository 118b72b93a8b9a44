package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A bill makes DynamoDB return what each read costs, and adds it up.
type bill struct {
	mu    sync.Mutex
	units float64
}

func (b *bill) read(action string, _ []byte) network.Fault {
	if action != "GetItem" && action != "Query" {
		return network.Fault{}
	}
	return network.Fault{
		Edit: func(read map[string]any) { read["ReturnConsumedCapacity"] = "TOTAL" },
		EditReply: func(reply map[string]any) {
			told, _ := reply["ConsumedCapacity"].(map[string]any)
			number, _ := told["CapacityUnits"].(json.Number)
			units, _ := number.Float64()
			b.mu.Lock()
			defer b.mu.Unlock()
			b.units += units
		},
	}
}

func (b *bill) sum() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.units
}

// TestWhatLookingCosts: to watch 1,000 shards on 20 workers at rest costs at most $5 a month at the
// default pace, by what DynamoDB Local bills. The cost that a snapshot estimates is as high.
func TestWhatLookingCosts(t *testing.T) {
	local.Beside(t)
	table, shards := local.Table(t), fixture.Size(200, 1000) // fewer shards cost less; the estimate has to be as exact
	populate(t, local.Open(t, local.Client(t, nil), table, dynamostore.Options{Group: "orders", Timeout: time.Minute}), shards, 20)

	b := new(bill)
	client := local.Client(t, network.NewFaulty(b.read).Over)
	reader, err := dynamostore.OpenReader(t.Context(), client, table, dynamostore.Options{Group: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	// A tenth of the default times: a period still has fifteen looks at the seats and one at the rows.
	const periods, faster = 2, 10
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	looks, rows, from, estimate := 0, 0, 0.0, 0.0
	var last time.Time
	for s, err := range inspect.Watch(ctx, reader, "orders", inspect.WatchOptions{Every: 2 * time.Second / faster, RowsEvery: 30 * time.Second / faster}) {
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Shards) != shards || len(s.Workers) != 20 {
			t.Fatalf("%d shards and %d workers", len(s.Shards), len(s.Workers))
		}
		looks++
		estimate += s.Cost.ReadUnits
		if !s.RowsAt.Equal(last) {
			last = s.RowsAt
			if rows++; rows == 1 {
				looks, from, estimate = 0, b.sum(), 0
			} else if rows == 1+periods {
				break
			}
		}
	}
	const readPrice, month = 0.125 / 1e6, 730 * 3600
	billed := b.sum() - from
	perSecond := billed / (periods * 30)
	t.Logf("%d shards, 20 workers: %d looks, %.1f read units in a period of 30 s, %.2f units/s, $%.2f a month; estimated %.1f units",
		shards, looks, billed/periods, perSecond, perSecond*month*readPrice, estimate/periods)
	if cost := perSecond * month * readPrice; cost > 5 {
		t.Errorf("watching costs $%.2f a month", cost)
	}
	if looks < 14*periods && fixture.Long() || looks < periods || estimate < 0.95*billed || estimate > 1.05*billed {
		t.Errorf("%d looks: estimated %.1f units, billed %.1f", looks, estimate, billed)
	}
}

// populate stores the rows and seats of a fleet at rest.
func populate(t *testing.T, store lease.Store, shards, workers int) {
	t.Helper()
	if err := store.Verify(t.Context(), "orders"); err != nil { // records the identity of the table, as workers do
		t.Fatal(err)
	}
	ids := 0
	stamp := func() protocol.Stamp {
		ids++
		return protocol.Stamp{ID: lease.WriteID(fmt.Sprintf("%026d", ids)), At: time.Now()}
	}
	write := func(w lease.Write, err error) lease.Record {
		t.Helper()
		var now lease.Record
		if err == nil {
			now, err = store.Write(t.Context(), w)
		}
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	owners := make([]lease.Owner, workers)
	for i := range owners {
		owners[i] = lease.Owner{Name: fmt.Sprintf("worker-%d", i), Incarnation: lease.Incarnation(fmt.Sprintf("W%025d", i))}
		seat := lease.Seat{Group: "orders", Incarnation: owners[i].Incarnation, Name: owners[i].Name, TTL: 10 * time.Second}
		write(protocol.NextBeat(write(protocol.Sit(seat, stamp())).(lease.Seat), lease.Says{}, stamp()))
	}
	position := checkpoint.Mark{Position: strings.Repeat("4", 56)}
	for i := range shards {
		owner := owners[i%workers]
		row := write(protocol.Begin("orders", fmt.Sprintf("shardId-%012d", i), nil, owner.Name, stamp())).(lease.Row)
		row = write(protocol.Claim(row, owner, stamp())).(lease.Row)
		hold := lease.Hold{Key: row.Key(), Incarnation: owner.Incarnation, Generation: row.Generation}
		write(protocol.Commit(row, hold, position, stamp()))
	}
}
