package memstore_test

import (
	"testing"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) lease.Store { return new(memstore.Store) })
}

func TestRegister(t *testing.T) {
	storetest.RunRegister(t, func(*testing.T) storetest.Register { return new(memstore.Register) })
}
