//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package table

import (
	"context"
	"os"

	"github.com/shardlease/shardlease-go/examples/filestore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// openFile also tries the path. A session repeats what a store refuses, so a mistyped path would be
// reported only after the time to wait.
func openFile(ctx context.Context, path, group string) (lease.Store, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock.Close(); err != nil {
		return nil, err
	}
	store := &filestore.Store{Path: path}
	for _, err := range store.List(ctx, lease.Query{Group: group, Kind: lease.KindSeat}) {
		if err != nil {
			return nil, err
		}
	}
	return store, nil
}
