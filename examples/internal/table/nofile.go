//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package table

import (
	"context"
	"errors"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func openFile(context.Context, string, string) (lease.Store, error) {
	return nil, errors.New("-file needs flock(2), which this system does not have: use -table")
}
