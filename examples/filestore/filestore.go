//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

// Package filestore implements lease.Store in a file, for the processes of one machine. It shows
// how to write a store outside of the library: lease.Write applies the rules, lease.Encode
// defines the stored form, and package storetest checks the store.
package filestore

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Store is a [lease.Store] in the file at Path. Writers hold a lock on the file Path+".lock",
// so any number of stores and processes may use one path, on a local file system.
type Store struct {
	Path string
	mu   sync.Mutex // held by the one goroutine that waits for the lock of the file, which blocks a thread
}

var _ lease.Store = (*Store)(nil)

type items map[lease.Key]lease.Item

// List yields the records as they are at the start of the iteration.
func (s *Store) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		all, err := s.read(ctx, q.Validate())
		if err != nil {
			yield(nil, err)
			return
		}
		listed := 0
		byName := func(a, b lease.Key) int { return strings.Compare(a.Name, b.Name) }
		for _, k := range slices.SortedFunc(maps.Keys(all), byName) {
			if k.Group != q.Group || k.Kind.Listed() != q.Kind || k.Name <= q.After {
				continue
			}
			r, err := lease.Decode(all[k])
			if row, ok := r.(lease.Row); ok && row.Removed {
				continue
			}
			if listed++; !yield(r, err) || listed == q.Limit {
				return
			}
		}
	}
}

// Get reads one record.
func (s *Store) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	all, err := s.read(ctx, k.Validate())
	if err != nil {
		return nil, err
	}
	item, ok := all[k]
	if !ok {
		return nil, lease.ErrNotFound
	}
	return lease.Decode(item)
}

// read loads the file, unless fault is not nil or the context has ended.
func (s *Store) read(ctx context.Context, fault error) (items, error) {
	if err := cmp.Or(fault, ctx.Err()); err != nil {
		return nil, err
	}
	return s.load()
}

// Write makes one conditional write. It keeps attributes that this version does not know.
func (s *Store) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	if err := cmp.Or(w.Check(), ctx.Err()); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := s.load()
	if err != nil {
		return nil, err
	}
	k, item := w.Key(), lease.Item{}
	var now lease.Record
	if stored, ok := all[k]; ok {
		if now, err = lease.Decode(stored); err != nil {
			return nil, err
		}
		item = stored
		for known := range lease.Encode(now) {
			delete(item, known)
		}
	}
	next, err := w.Apply(now)
	if err != nil {
		return nil, err
	}
	delete(all, k)
	if next != nil {
		maps.Copy(item, lease.Encode(next))
		all[k] = item
	}
	return lease.Clone(next), s.save(all)
}

// Verify returns nil: this store cannot know whether its file was restored from a backup.
func (s *Store) Verify(ctx context.Context, group string) error {
	return cmp.Or(lease.Query{Group: group, Kind: lease.KindLease}.Validate(), ctx.Err())
}
