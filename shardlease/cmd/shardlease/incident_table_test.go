package main

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Places are the tables of a scene.
type places struct {
	*memory
	of map[string]*troubled
}

// A troubled is a table whose records can be spoilt, and that can count as restored. All workers and the
// operator see it so.
type troubled struct {
	*memstore.Store
	mu       sync.Mutex
	restored bool
	spoilt   map[lease.Key]bool
}

func newPlaces(m *memory) *places {
	p := &places{memory: m, of: map[string]*troubled{}}
	p.put("leases", m.all["leases"])
	m.groups[place{"leases", "orders"}] = true
	return p
}

// put makes a store the table of that name.
func (p *places) put(name string, store *memstore.Store) *troubled {
	p.all[name], p.of[name] = store, &troubled{Store: store, spoilt: map[lease.Key]bool{}}
	return p.of[name]
}

func (p *places) table(name string) *troubled { return p.of[name] }

func (p *places) Reader(_ context.Context, at place) (inspect.Lister, error) {
	return p.of[at.table], nil
}

func (p *places) Store(_ context.Context, at place, _ int) (lease.Store, error) {
	return p.of[at.table], nil
}

func (p *places) Adopt(ctx context.Context, at place, buckets int, by string) (int, error) {
	p.memory.restored = true
	n, err := p.memory.Adopt(ctx, at, buckets, by)
	if err == nil {
		p.of[at.table].restore(false)
	}
	return n, err
}

func (t *troubled) restore(is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restored = is
}

// spoil makes a record unreadable, or readable again.
func (t *troubled) spoil(k lease.Key, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spoilt[k] = is
}

// fault returns the error of a record that is spoilt, with the id of its last write.
func (t *troubled) fault(r lease.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r == nil || !t.spoilt[r.Key()] {
		return nil
	}
	return &lease.MalformedError{Key: r.Key(), WriteID: r.Written(), Cause: errors.New("invalid attribute owner")}
}

func (t *troubled) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for r, err := range t.Store.List(ctx, q) {
			if fault := t.fault(r); fault != nil {
				r, err = nil, fault
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func (t *troubled) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	r, err := t.Store.Get(ctx, k)
	if fault := t.fault(r); fault != nil {
		return nil, fault
	}
	return r, err
}

// Write makes a write. A swap stores a whole record, and so repairs one that is spoilt.
func (t *troubled) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if w.Spoilt {
		defer t.spoil(w.Key(), false)
	}
	return t.Store.Write(ctx, w)
}

func (t *troubled) Verify(ctx context.Context, group string) error {
	t.mu.Lock()
	restored := t.restored
	t.mu.Unlock()
	if restored {
		return &dynamostore.RestoredError{Group: group, Recorded: "old", Now: "new"}
	}
	return t.Store.Verify(ctx, group)
}
