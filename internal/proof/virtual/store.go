package virtual

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Deletable is a [memstore.Store] from which any record can be deleted without a condition, as
// an operator does it by hand. The zero value is not ready to use; see [NewDeletable].
//
// A memstore.Store has no such deletion. So a record that is created again under a deleted key is
// kept in a memstore.Store that has only this key.
type Deletable struct {
	*memstore.Store
	again map[lease.Key]*memstore.Store
}

// NewDeletable returns an empty store.
func NewDeletable() *Deletable {
	return &Deletable{Store: new(memstore.Store), again: map[lease.Key]*memstore.Store{}}
}

// Delete deletes a record.
func (s *Deletable) Delete(key lease.Key) { s.again[key] = new(memstore.Store) }

// Clone returns a copy of the store.
func (s *Deletable) Clone() *Deletable {
	c := &Deletable{Store: s.Store.Clone(), again: make(map[lease.Key]*memstore.Store, len(s.again))}
	for key, of := range s.again {
		c.again[key] = of.Clone()
	}
	return c
}

func (s *Deletable) of(key lease.Key) *memstore.Store {
	if again := s.again[key]; again != nil {
		return again
	}
	return s.Store
}

// Get returns one record.
func (s *Deletable) Get(ctx context.Context, key lease.Key) (lease.Record, error) {
	return s.of(key).Get(ctx, key)
}

// Write makes one write.
func (s *Deletable) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	return s.of(w.Key()).Write(ctx, w)
}

// List yields the records in the order of their names.
func (s *Deletable) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	if len(s.again) == 0 {
		return s.Store.List(ctx, q)
	}
	var all []lease.Record
	limit := q.Limit
	q.Limit = 0
	for r := range s.Store.List(ctx, q) {
		if s.again[r.Key()] == nil {
			all = append(all, r)
		}
	}
	for key, of := range s.again {
		if key.Group != q.Group || key.Kind.Listed() != q.Kind {
			continue
		}
		for r := range of.List(ctx, q) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b lease.Record) int { return strings.Compare(a.Key().Name, b.Key().Name) })
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	return func(yield func(lease.Record, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}
}
