package memstore

import (
	"context"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Register is a sink with a fence, in memory: it keeps values and refuses to overwrite a value
// under a lower generation than before. The zero value is ready to use and safe for concurrent
// use.
type Register struct {
	mu     sync.Mutex
	values map[string]lease.Guarded
}

// Put writes a value under a generation. It returns a *checkpoint.StaleError if the value was
// written under a higher one; [lease.Guarded.Put] defines the rule.
func (r *Register) Put(ctx context.Context, name string, generation int64, value string) error {
	return r.put(ctx, name, generation, &value)
}

// Raise raises the generation of a value, which stays as it is: from then on, no lower generation overwrites it. It returns
// the errors of Put.
func (r *Register) Raise(ctx context.Context, name string, generation int64) error {
	return r.put(ctx, name, generation, nil)
}

// put writes a value; nil: that which it has.
func (r *Register) put(ctx context.Context, name string, generation int64, value *string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.at(name).Replace(generation, value)
	if err != nil {
		return err
	}
	if r.values == nil {
		r.values = map[string]lease.Guarded{}
	}
	r.values[name] = next
	return nil
}

// Get returns a value. A value that was never written has generation 0.
func (r *Register) Get(ctx context.Context, name string) (lease.Guarded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(name), ctx.Err()
}

func (r *Register) at(name string) lease.Guarded {
	g := r.values[name]
	g.Name = name
	return g
}
