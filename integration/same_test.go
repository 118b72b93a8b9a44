package integration

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/storm"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// pair is two stores that are given the same, and have to answer the same.
type pair struct {
	lease.Store // DynamoDB's, whose answers count
	memory      memstore.Store
	differ      error
}

func (p *pair) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	want, errWant := p.memory.Write(ctx, w)
	got, err := p.Store.Write(ctx, w)
	p.compare(w, got, want)
	p.compare(w, refusedOver(err), refusedOver(errWant))
	if (err == nil) != (errWant == nil) {
		p.differ = errors.Join(p.differ, fmt.Errorf("%v: %w, in memory %w", w, err, errWant))
	}
	stored, _ := p.Store.Get(ctx, w.Key())
	inMemory, _ := p.memory.Get(ctx, w.Key())
	p.compare(w, stored, inMemory)
	return got, err
}

func (p *pair) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return p.Store.List(ctx, q)
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

// TestSameAsInMemory: DynamoDB answers every write of a storm, late ones and twins
// among them, as the embedded store does, and is left with the same row.
func TestSameAsInMemory(t *testing.T) {
	client := newClient(t, nil)
	writes := 0
	for seed := range uint64(5) {
		p := &pair{Store: open(t, client, newTable(t))}
		judge := storm.NewJudge(p, checkpoint.Decimal)
		net := storm.NewNetwork(judge, seed, storm.Rates{Lost: 0.05, ReplyLost: 0.1, Late: 0.1, Twin: 0.1, Arrive: 0.5})
		s := storm.New(net, judge, seed)
		for n := range 400 {
			if err := errors.Join(s.Step(t.Context()), judge.Err(), p.differ); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, n, err)
			}
		}
		writes += judge.Count()
	}
	fmt.Fprintf(t.Output(), "%d writes stored, no difference\n", writes)
}
