//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package table

import (
	"github.com/shardlease/shardlease-go/examples/filestore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func openFile(path string) (lease.Store, error) { return &filestore.Store{Path: path}, nil }
