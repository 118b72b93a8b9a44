package memstore_test

import (
	"testing"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

func TestRegister(t *testing.T) {
	storetest.RunRegister(t, func(*testing.T) storetest.Register { return new(memstore.Register) })
}
