package sim

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A store is a [memstore.Store] whose tombstones can be swept and whose plan can be deleted; a
// memstore.Store never deletes them. If a row is created again under a swept name, the store keeps
// it in a memstore.Store that has only this name. The plan has a memstore.Store of its own.
type store struct {
	standing, plan *memstore.Store
	swept          map[string]*memstore.Store
}

func newStore() *store {
	return &store{standing: new(memstore.Store), plan: new(memstore.Store), swept: map[string]*memstore.Store{}}
}

// sweep deletes a tombstone, as DynamoDB deletes expired items.
func (s *store) sweep(shard string) { s.swept[shard] = new(memstore.Store) }

// unplan deletes the plan by hand.
func (s *store) unplan() { s.plan = new(memstore.Store) }

func (s *store) of(k lease.Key) *memstore.Store {
	if k.Kind == lease.KindPlan {
		return s.plan
	}
	if s := s.swept[k.Name]; s != nil && k.Kind == lease.KindLease {
		return s
	}
	return s.standing
}

func (s *store) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	return s.of(k).Get(ctx, k)
}

func (s *store) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	return s.of(w.Key()).Write(ctx, w)
}

// List yields the records. No listing shows a tombstone, so a tombstone that was swept need not be left out.
func (s *store) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	switch {
	case q.Kind == lease.KindSeat: // the plan is listed before them
		return func(yield func(lease.Record, error) bool) {
			for r, err := range s.plan.List(ctx, q) {
				if !yield(r, err) {
					return
				}
			}
			for r, err := range s.standing.List(ctx, q) {
				if !yield(r, err) {
					return
				}
			}
		}
	case len(s.swept) == 0 || q.Kind != lease.KindLease:
		return s.standing.List(ctx, q)
	}
	var all []lease.Record
	for r := range s.standing.List(ctx, q) {
		all = append(all, r)
	}
	for _, s := range s.swept { // in no order: all are sorted below
		for r := range s.List(ctx, q) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b lease.Record) int { return strings.Compare(a.Key().Name, b.Key().Name) })
	if q.Limit > 0 {
		all = all[:min(q.Limit, len(all))]
	}
	return func(yield func(lease.Record, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *store) clone() *store {
	c := &store{standing: s.standing.Clone(), plan: s.plan.Clone(), swept: make(map[string]*memstore.Store, len(s.swept))}
	for name, s := range s.swept {
		c.swept[name] = s.Clone()
	}
	return c
}
