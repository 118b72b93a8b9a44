// Package memstore keeps lease rows in memory, for the quickstart, for tests of programs that
// embed the library, and for the simulator. It does exactly what every store has to do, without
// waiting.
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

// A Store is a [lease.Store] in memory. The zero value is ready to use and safe for concurrent
// use. The workers of one process that share a Store are a fleet.
type Store struct {
	mu         sync.Mutex
	partitions map[place]*partition
}

// A place identifies a partition: the group, and the kind by which its records are listed.
type place struct {
	group string
	kind  lease.Kind
}

// A partition holds the records of one listing, with their names in order.
type partition struct {
	names   []string
	records map[string]lease.Record
}

var _ lease.Store = (*Store)(nil)

// List yields the records as they are when the first one is requested. It is always consistent.
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
	var records []lease.Record
	at, found := slices.BinarySearch(p.names, q.After)
	if found {
		at++
	}
	for _, name := range p.names[at:] {
		r := p.records[name]
		if row, ok := r.(lease.Row); ok && row.Removed {
			continue
		}
		if records = append(records, lease.Clone(r)); len(records) == q.Limit {
			break
		}
	}
	return records
}

// Get returns one record.
func (s *Store) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if err := readable(ctx, k.Validate()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.partitions[place{k.Group, k.Kind.Listed()}]; p != nil {
		if r, ok := p.records[k.Name]; ok {
			return lease.Clone(r), nil
		}
	}
	return nil, lease.ErrNotFound
}

// Write makes one conditional write. Its outcome is unknown only if the context had ended before
// the call.
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

// Verify returns nil, because memory is never restored.
func (s *Store) Verify(ctx context.Context, group string) error {
	return readable(ctx, lease.Query{Group: group, Kind: lease.KindLease}.Validate())
}

// Clone returns a copy of the store, with which a caller can try what happens next.
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
	at := place{k.Group, k.Kind.Listed()}
	if s.partitions[at] == nil {
		s.partitions[at] = &partition{records: map[string]lease.Record{}}
	}
	return s.partitions[at]
}

// put stores r under the name, or deletes the record of that name if r is nil.
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
