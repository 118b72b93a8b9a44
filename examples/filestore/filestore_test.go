package filestore_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/examples/filestore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) lease.Store {
		return &filestore.Store{Path: filepath.Join(t.TempDir(), "rows")}
	})
}

// A register is the smallest sink with a fence.
type register struct {
	mu     sync.Mutex
	values map[string]lease.Guarded
}

func (r *register) Put(ctx context.Context, name string, generation int64, value string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.values[name]
	g.Name = name
	next, err := g.Put(generation, value)
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
