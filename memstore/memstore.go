// Package memstore keeps lease rows in memory: for the quickstart, for the tests
// of those who embed the library, and for the simulator. It has the semantics of
// every store to the letter, and no time.
package memstore

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Store is a [lease.Store]. The zero value is ready, and safe for concurrent
// use. Workers of one process that share a Store are a fleet.
type Store struct {
	mu         sync.Mutex
	partitions map[place]*partition
}

// A place is where the records of one group and kind are.
type place struct {
	group string
	kind  lease.Kind
}

// A partition holds one kind of row of one group, its names in order.
type partition struct {
	names   []string
	records map[string]lease.Record
}

var _ lease.Store = (*Store)(nil)

// List yields the records as they stood when the first was asked for. It is
// always consistent.
func (s *Store) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if err := readable(ctx, q.Validate()); err != nil {
			yield(nil, err)
			return
		}
		for _, r := range s.snapshot(q) {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *Store) snapshot(q lease.Query) []lease.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[place{q.Group, q.Kind}]
	if p == nil {
		return nil
	}
	records := make([]lease.Record, 0, len(p.names))
	for _, name := range p.names {
		r := p.records[name]
		if row, ok := r.(lease.Row); ok && row.Removed {
			continue
		}
		records = append(records, lease.Clone(r))
	}
	return records
}

// Get reads one record.
func (s *Store) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if err := readable(ctx, k.Validate()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.partitions[place{k.Group, k.Kind}]; p != nil {
		if r, ok := p.records[k.Name]; ok {
			return lease.Clone(r), nil
		}
	}
	return nil, lease.ErrNotFound
}

// Write makes one conditional write. It never leaves an outcome unknown, other
// than by a context that had ended before.
func (s *Store) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if err := readable(ctx, w.Check()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partition(w.Key())
	next, err := w.Apply(lease.Clone(p.records[w.Key().Name]))
	if err != nil {
		return nil, err
	}
	p.put(w.Key().Name, lease.Clone(next))
	return lease.Clone(next), nil
}

// Verify returns nil: memory is not restored.
func (s *Store) Verify(ctx context.Context, group string) error {
	return readable(ctx, lease.Query{Group: group, Kind: lease.KindLease}.Validate())
}

// Clone copies the store, for those who want to try what happens next.
func (s *Store) Clone() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Store{partitions: make(map[place]*partition, len(s.partitions))}
	for at, p := range s.partitions {
		c.partitions[at] = &partition{names: slices.Clone(p.names), records: maps.Clone(p.records)}
	}
	return c
}

func readable(ctx context.Context, fault error) error {
	if fault != nil {
		return fault
	}
	return ctx.Err()
}

func (s *Store) partition(k lease.Key) *partition {
	if s.partitions == nil {
		s.partitions = map[place]*partition{}
	}
	at := place{k.Group, k.Kind}
	if s.partitions[at] == nil {
		s.partitions[at] = &partition{records: map[string]lease.Record{}}
	}
	return s.partitions[at]
}

// put replaces the record of that name; nil takes it away.
func (p *partition) put(name string, r lease.Record) {
	_, there := p.records[name]
	at, _ := slices.BinarySearchFunc(p.names, name, strings.Compare)
	switch {
	case r == nil && there:
		p.names = slices.Delete(p.names, at, at+1)
		delete(p.records, name)
	case r != nil && !there:
		p.names = slices.Insert(p.names, at, name)
		fallthrough
	case r != nil:
		p.records[name] = r
	}
}
