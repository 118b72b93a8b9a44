package storetest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestSuiteUsesEveryField: the suite stores every exported field of every record, and reads it.
func TestSuiteUsesEveryField(t *testing.T) {
	var read []any
	var mu sync.Mutex
	storetest.Run(t, func(*testing.T) lease.Store {
		link := storetest.NewLink(new(memstore.Store))
		link.OnGet(func(_ context.Context, _ lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
			r, err := send()
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				read = append(read, r)
			}
			return r, err
		})
		return link
	})
	for _, field := range fixture.Unset(read...) {
		t.Errorf("no test of the suite stores and reads %s: see recordsComeBackAsStored and adviceComesBackAsStored", field)
	}
}
