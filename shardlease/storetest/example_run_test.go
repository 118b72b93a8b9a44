package storetest_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A countingStore is a lease.Store of one's own: it wraps another one and counts its writes.
// examples/filestore has one that keeps the rows itself.
type countingStore struct {
	lease.Store
	writes atomic.Int64
}

func (s *countingStore) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	s.writes.Add(1)
	return s.Store.Write(ctx, w)
}

// testCountingStore is what func TestCountingStore(t *testing.T) would be in your package.
func testCountingStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) lease.Store { // called for each test, and returns an empty store
		return &countingStore{Store: new(memstore.Store)}
	})
}

// The suite shows whether a store of one's own keeps the contract.
func ExampleRun() {
	_ = testCountingStore // go test calls it
}
