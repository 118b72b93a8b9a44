package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/storm"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A pair compares the answers of a store with those of the store in memory.
type pair struct {
	memory memstore.Store
	differ error
}

// mirror makes p execute every write that goes through the link.
func (p *pair) mirror(link *storetest.Link) {
	link.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		want, errWant := p.memory.Write(ctx, w)
		got, err := send()
		p.compare(w, got, want)
		p.compare(w, refusedOver(err), refusedOver(errWant))
		if (err == nil) != (errWant == nil) {
			p.differ = errors.Join(p.differ, fmt.Errorf("%v: %w, in memory %w", w, err, errWant))
		}
		stored, _ := link.Get(ctx, w.Key())
		inMemory, _ := p.memory.Get(ctx, w.Key())
		p.compare(w, stored, inMemory)
		return got, err
	})
}

func (p *pair) compare(w lease.Write, got, want lease.Record) {
	if !reflect.DeepEqual(got, want) {
		p.differ = errors.Join(p.differ, fmt.Errorf("%v left\n%v, in memory\n%v", w, got, want))
	}
}

func refusedOver(err error) lease.Record {
	if refused, ok := errors.AsType[*lease.RefusedError](err); ok {
		return refused.Now
	}
	return nil
}

// TestSameAsInMemory: DynamoDB answers every write of a storm, including late and repeated ones, as
// the store in memory does, and has the same rows afterwards.
func TestSameAsInMemory(t *testing.T) {
	local.Beside(t)
	client := local.Client(t, nil)
	writes := 0
	for seed := range fixture.Size[uint64](1, 5) {
		p, link := new(pair), storetest.NewLink(local.Open(t, client, local.Table(t)))
		p.mirror(link)
		check := judge.NewStore(link, checkpoint.Decimal)
		net := storm.NewNetwork(check, seed, storm.Rates{Lost: 0.05, ReplyLost: 0.1, Late: 0.1, Twin: 0.1, Arrive: 0.5})
		s := storm.New(net, check, seed)
		for n := range 400 {
			if err := errors.Join(s.Step(t.Context()), check.Err(), p.differ); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, n, err)
			}
		}
		writes += check.Count()
	}
	fmt.Fprintf(t.Output(), "%d writes stored, no difference\n", writes)
}
