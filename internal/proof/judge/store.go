package judge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Store is a judge in front of a store that always answers. It sees every write that reaches the store, checks what was
// stored, and collects the errors.
type Store struct {
	lease.Store

	mu     sync.Mutex
	judge  *Judge
	faults []error
}

var _ lease.Store = (*Store)(nil)

// NewStore returns an empty store with a judge in front. Positions are compared by order.
func NewStore(store lease.Store, order checkpoint.Order) *Store {
	return &Store{Store: store, judge: New(order)}
}

// Clone returns a copy of the judge in front of a copy of the store.
func (s *Store) Clone(store lease.Store) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Store{Store: store, judge: s.judge.Clone(), faults: slices.Clone(s.faults)}
}

// Err returns an error for every promise that was broken.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.faults...)
}

// Stored reports whether that write of a lease row was stored.
func (s *Store) Stored(id lease.WriteID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judge.Stored(id)
}

// Start checks that the owner of a row that was read may start a tenure, as [History.Start] does.
func (s *Store) Start(row lease.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judge.Start(TenureOf(row), row.Owner.Incarnation, row.Checkpoint.Position)
}

// Writes returns the ids of the writes of lease rows that were stored, sorted.
func (s *Store) Writes() []lease.WriteID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.judge.stored))
}

// Count returns how many writes of lease rows were stored.
func (s *Store) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.judge.stored)
}

// Write passes w to the store and checks the result.
func (s *Store) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.Store.Write(ctx, w)
	if after, ok := r.(lease.Row); ok && err == nil {
		s.note(s.judge.Accepted(w, "", after))
	}
	return r, err
}

// Saw checks a write that was stored, and the row that resulted. It is for a caller that sees writes which do not pass
// through this Store. The caller must not omit any of them.
func (s *Store) Saw(id lease.WriteID, after lease.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(s.judge.Saw(id, after))
}

func (s *Store) note(fault error) {
	if fault != nil {
		s.faults = append(s.faults, fault)
	}
}
