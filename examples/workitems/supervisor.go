package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// supervise is the other program: it has started the runs and seen one of them die.
// All it needs to clean up after it is the lease table.
func (o *office) supervise(ctx context.Context, boss shardlease.Supervisor, dead string) error {
	if err := o.release(ctx, boss, dead); err != nil {
		return err
	}
	err := until(ctx, func() (done bool, err error) {
		rows, err := boss.List(ctx)
		open := slices.DeleteFunc(rows, func(row lease.Row) bool { return row.Finished })
		for _, row := range open {
			if row.Quarantined {
				err = errors.Join(err, o.mend(ctx, boss, row))
			}
		}
		return len(open) == 0, err
	})
	if err == nil {
		o.out.Println("all jobs are done")
	}
	return err
}

// release takes away what a dead run holds, and its place in the fleet: the others need
// not wait until its lease has run out.
func (o *office) release(ctx context.Context, boss shardlease.Supervisor, task string) error {
	began := time.Now()
	rows, err := boss.ReleaseTask(ctx, task, "exit status 137")
	if err != nil {
		return err
	}
	for _, row := range rows {
		o.out.Printf("  %s: released, %s of %d steps are done", row.Shard, cmp.Or(row.Checkpoint.Position, "0"), steps)
	}
	for _, released := range rows {
		err := until(ctx, func() (bool, error) {
			row, err := boss.Get(ctx, released.Shard)
			return row.Generation > released.Generation, err
		})
		if err != nil {
			return err
		}
	}
	o.out.Printf("all of them were taken up again within %v, and a lease lasts %v", time.Since(began).Round(time.Millisecond), ttl)
	return nil
}

// mend does something about a job that was set aside, and puts it back.
func (o *office) mend(ctx context.Context, boss shardlease.Supervisor, row lease.Row) error {
	o.broken.Store(false)
	o.out.Printf("the supervisor has mended the tool, and puts %s back", row.Shard)
	_, err := boss.Unquarantine(ctx, row.Shard, row.Generation, "the tool works again")
	return err
}

// until looks again and again until something is so.
func until(ctx context.Context, so func() (bool, error)) error {
	for {
		if yes, err := so(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
