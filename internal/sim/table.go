package sim

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A table is a [memstore.Store] whose tombstones can be swept, which that one never
// does. A name that was swept lives on, if it is made anew, in a store of its own.
type table struct {
	store *memstore.Store
	swept map[string]*memstore.Store
}

func newTable() *table {
	return &table{store: new(memstore.Store), swept: map[string]*memstore.Store{}}
}

// sweep takes a tombstone away, as DynamoDB does with what has expired.
func (t *table) sweep(shard string) { t.swept[shard] = new(memstore.Store) }

func (t *table) of(k lease.Key) *memstore.Store {
	if s := t.swept[k.Name]; s != nil && k.Kind == lease.KindLease {
		return s
	}
	return t.store
}

func (t *table) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	return t.of(k).Get(ctx, k)
}

func (t *table) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	return t.of(w.Key()).Write(ctx, w)
}

// List yields what is there. No listing shows a tombstone, so one that was swept is
// not missed.
func (t *table) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	if len(t.swept) == 0 || q.Kind != lease.KindLease {
		return t.store.List(ctx, q)
	}
	var all []lease.Record
	for r := range t.store.List(ctx, q) {
		all = append(all, r)
	}
	for _, s := range t.swept { // in no order, and then in order
		for r := range s.List(ctx, q) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b lease.Record) int { return strings.Compare(a.Key().Name, b.Key().Name) })
	return func(yield func(lease.Record, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (t *table) clone() *table {
	c := &table{store: t.store.Clone(), swept: make(map[string]*memstore.Store, len(t.swept))}
	for name, s := range t.swept {
		c.swept[name] = s.Clone()
	}
	return c
}
