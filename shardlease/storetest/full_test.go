package storetest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A noting store notes the records that the suite has read.
type noting struct {
	lease.Store
	mu   *sync.Mutex
	read *[]any
}

func (n noting) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	r, err := n.Store.Get(ctx, k)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		*n.read = append(*n.read, r)
	}
	return r, err
}

// TestSuiteUsesEveryField: the suite stores every exported field of every record, and reads it.
func TestSuiteUsesEveryField(t *testing.T) {
	var read []any
	var mu sync.Mutex
	storetest.Run(t, func(*testing.T) lease.Store { return noting{new(memstore.Store), &mu, &read} })
	for _, field := range fixture.Unset(read...) {
		t.Errorf("no test of the suite stores and reads %s: see recordsComeBackAsStored and adviceComesBackAsStored", field)
	}
}
