package filestore_test

import (
	"path/filepath"
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
