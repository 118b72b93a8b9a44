//go:build darwin || linux

package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Service returns a main function that runs a program until it gets SIGTERM. If the program ends by itself, the function
// starts it again, as a platform does.
func Service(run func(ctx context.Context, args []string, log *slog.Logger) error) func() {
	return func() {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
		for ctx.Err() == nil {
			if err := run(ctx, os.Args[1:], log); err != nil {
				log.Error("the program ends by itself", "err", err)
				<-time.After(time.Second)
			}
		}
	}
}

// Whole waits until these workers, and no others, hold all open shards of a group, each at least one. The group has at
// least so many shards, finished ones included.
func Whole(t testing.TB, store lease.Store, group string, shards int, names ...string) {
	t.Helper()
	s := shardlease.Supervisor{Store: store, Group: group}
	Until(t, fmt.Sprintf("%v to hold all shards", names), func() bool {
		seats, err := s.Workers(t.Context())
		rows, failed := s.List(t.Context())
		if err != nil || failed != nil || len(seats) != len(names) || len(rows) < shards {
			return false
		}
		holders := map[string]bool{}
		for _, row := range rows {
			if !row.Finished {
				holders[row.Owner.Name] = true
			}
		}
		for _, name := range names {
			if !holders[name] {
				return false
			}
		}
		return len(holders) == len(names)
	})
}
