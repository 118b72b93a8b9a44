//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/examples/filestore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) lease.Store {
		return &filestore.Store{Path: filepath.Join(folder(t), "rows")}
	})
}

// folder returns an empty folder, in memory if the machine has /dev/shm: the suite makes thousands of writes, and a disk
// needs milliseconds for each of them.
func folder(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp("/dev/shm", "filestore")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}

// TestStoresOfOnePath: stores that write to one file at a time lose none of their writes.
func TestStoresOfOnePath(t *testing.T) {
	const stores, writes = 4, 20
	path := filepath.Join(folder(t), "rows")
	var wait sync.WaitGroup
	for i := range stores {
		wait.Go(func() {
			s := &filestore.Store{Path: path}
			for n := range writes {
				id := fmt.Sprintf("%d-%d", i, n)
				seat := lease.Seat{Group: "g", Incarnation: lease.Incarnation(id), WriteID: lease.WriteID(id), Name: "n", TTL: time.Second}
				if _, err := s.Write(t.Context(), lease.Write{Op: lease.OpCreate, Next: seat}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	stored := 0
	for _, err := range (&filestore.Store{Path: path}).List(t.Context(), lease.Query{Group: "g", Kind: lease.KindSeat}) {
		if err != nil {
			t.Fatal(err)
		}
		stored++
	}
	if stored != stores*writes {
		t.Errorf("%d writes of %d are stored", stored, stores*writes)
	}
}

func TestDamagedFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := (&filestore.Store{Path: path}).Get(t.Context(), lease.Key{Group: "g", Kind: lease.KindLease, Name: "s"})
	if !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), path) {
		t.Errorf("an empty file: %v", err)
	}
}

// A register is the smallest sink with a fence.
type register struct {
	mu     sync.Mutex
	values map[string]lease.Guarded
}

func (r *register) Put(ctx context.Context, name string, generation int64, value string) error {
	return r.put(ctx, name, generation, &value)
}

func (r *register) Raise(ctx context.Context, name string, generation int64) error {
	return r.put(ctx, name, generation, nil)
}

func (r *register) put(ctx context.Context, name string, generation int64, value *string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.values[name]
	g.Name = name
	next, err := g.Replace(generation, value)
	r.values[name] = next // the old value, if Put refused
	return err
}

func (r *register) Get(ctx context.Context, name string) (lease.Guarded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.values[name]
	g.Name = name
	return g, ctx.Err()
}

func TestRegister(t *testing.T) {
	storetest.RunRegister(t, func(*testing.T) storetest.Register {
		return &register{values: map[string]lease.Guarded{}}
	})
}
