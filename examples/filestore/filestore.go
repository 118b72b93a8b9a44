// Package filestore implements lease.Store in a file, for one process at a time. It shows how
// to write a store outside of the library: lease.Write applies the rules, lease.Encode defines
// the stored form, and package storetest checks the store.
package filestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Store is a [lease.Store] in the file at Path.
type Store struct {
	Path string
	mu   sync.Mutex
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
		byName := func(a, b lease.Key) int { return strings.Compare(a.Name, b.Name) }
		for _, k := range slices.SortedFunc(maps.Keys(all), byName) {
			if k.Group != q.Group || k.Kind != q.Kind {
				continue
			}
			r, err := lease.Decode(all[k])
			if row, ok := r.(lease.Row); ok && row.Removed {
				continue
			}
			if !yield(r, err) {
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

func (s *Store) read(ctx context.Context, fault error) (items, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(ctx, fault)
}

// Write makes one conditional write. It keeps attributes that this version does not know.
func (s *Store) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.load(ctx, w.Check())
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

// load reads the file, unless fault is not nil or the context has ended.
func (s *Store) load(ctx context.Context, fault error) (items, error) {
	if err := cmp.Or(fault, ctx.Err()); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return items{}, nil
	}
	if err != nil {
		return nil, err
	}
	var all items
	return all, gob.NewDecoder(bytes.NewReader(text)).Decode(&all)
}

// save replaces the file in one step.
func (s *Store) save(all items) error {
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(all); err != nil {
		return err
	}
	if err := os.WriteFile(s.Path+".new", text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(s.Path+".new", s.Path)
}
